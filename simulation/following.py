"""Follow-ups and batches: each comes once, in the commit that ends what it waits for, and what is left is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING

from osqueue.core.encoding import encode
from osqueue.core.follow_ups import encode_follow_ups, follow_ups_of
from osqueue.core.job_ops import JobSpec
from osqueue.core.queue_ops import ChangeBatch
from osqueue.core.rows import BatchRow
from osqueue.core.state import COMPLETED, FAILED, State

from .ledger import RecordedReduction, Violation
from .places import FINISHED, JobPlace

if TYPE_CHECKING:
    from .invariants import Invariants


def some_follow_ups(dice: Random, depth: int = 2) -> bytes:
    """What follows a job: nothing, or one or two jobs, some of which have followers of their own."""
    if not depth or dice.random() < 0.4:
        return b""
    specs = [
        JobSpec(
            b"",
            *dice.choice(((b"", ""), (b"1", "json"))),
            delay_ms=dice.choice((0, 0, 5_000)),
            then=some_follow_ups(dice, depth - 1),
        )
        for _ in range(dice.choice((1, 1, 2)))
    ]
    return encode_follow_ups(tuple(specs))


def some_batch(dice: Random) -> BatchRow:
    """A batch to open."""
    encoded = [encode(JobSpec(b"", b"", "", kind=kind)) for kind in ("", "mail")]
    return BatchRow("b", on_complete=encoded[0], on_success=encoded[1] if dice.random() < 0.7 else b"")


def check(
    inv: Invariants,
    before: State | None,
    state: State,
    batch: RecordedReduction,
    found: Mapping[bytes, JobPlace],
) -> None:
    """A commit was made."""
    events = batch.reduction.events
    came: Counter[bytes] = Counter()
    for event in events:
        if event.cause == "follow":
            links = found[event.key].job.links
            assert links is not None
            came[links.parent] += 1
            inv.ticked.add(event.key)
    left = _left(found)
    told = {key: row.left for key, row in state.batches.items() if row.left}
    known = {key: count for key, count in left.items() if key in state.batches}
    if told != known:
        raise Violation(f"batches say that {told} jobs of theirs are left; it is {known}")
    if before is None:
        return
    wanted: Counter[bytes] = Counter()
    for event in events:
        if event.target == COMPLETED and event.key in before.leases:
            links = before.leases[event.key].job.links
            wanted[event.key] += 0 if links is None else len(follow_ups_of(links.then))
    opened = {
        op.key: op.opened
        for request in batch.requests
        for op in request.ops
        if isinstance(op, ChangeBatch) and op.opened is not None
    }
    for event in events:
        links = found[event.key].job.links if event.cause == "enqueue" and event.key in found else None
        if links is not None and links.batch and not {links.batch} & {*state.batches, *before.batches}:
            raise Violation("a job joined a batch that there is not")
    for key, after in state.batches.items():
        row = before.batches.get(key) or opened[key]
        if row.sealed and not row.left and after.total > row.total:
            raise Violation("a job joined a batch that is over")
        if after.sealed and not left[key]:
            wanted[key] += bool(row.on_complete) + bool(row.on_success and not after.failed + after.cancelled)
    if +wanted != came:
        raise Violation(f"{dict(came)} jobs followed others, and {dict(+wanted)} should have")


def _left(found: Mapping[bytes, JobPlace]) -> Counter[bytes]:
    """The jobs of each batch that wait or run, wherever they lie."""
    live = [each for each in found.values() if each.state != FAILED and not each.state.startswith(FINISHED)]
    links = [each.job.links for each in live]
    return Counter([each.batch for each in links if each is not None and each.batch])
