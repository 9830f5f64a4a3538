"""Follow-ups and batches: each comes once, in the commit that ends what it waits for, and what is left is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from random import Random
from typing import TYPE_CHECKING

from osqueue.core.batches import batch_of
from osqueue.core.encoding import encode
from osqueue.core.follow_ups import encode_follow_ups, follow_ups_of
from osqueue.core.job_ops import JobSpec
from osqueue.core.queue_ops import ChangeBatch
from osqueue.core.rows import BatchRow
from osqueue.core.state import CANCELLED, COMPLETED, FAILED, QUEUED, State

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
            if links.parent in state.batches:
                _once(inv, state.epoch, links.parent, found[event.key].job.kind)
            inv.ticked.add(event.key)
    left = check_left(state, found)
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
    counts = Counter(_counted(batch, found))
    for key, after in state.batches.items():
        row = before.batches.get(key) or opened[key]
        if row.sealed and not row.left and after.total > row.total:
            raise Violation("a job joined a batch that is over")
        for how, more in (
            (QUEUED, after.total - row.total),
            (CANCELLED, after.cancelled - row.cancelled),
            (FAILED, after.failed - row.failed),
        ):
            if more != counts[key, how] - counts[key, f"no more {how}"]:
                raise Violation(f"a batch counts {more} jobs more as {how}, and {counts} did")
        if after.sealed and not left[key]:
            wanted[key] += bool(row.on_complete) + bool(row.on_success and not after.failed + after.cancelled)
    if +wanted != came:
        raise Violation(f"{dict(came)} jobs followed others, and {dict(+wanted)} should have")


def _once(inv: Invariants, epoch: int, batch: bytes, kind: str) -> None:
    """What waits for a batch comes once in the life of a head. Its kind tells what it is: see ``some_batch``."""
    which = (epoch, batch, kind)
    if which in inv.flow.called:
        raise Violation("what waits for a batch came a second time")
    inv.flow.called.add(which)


def check_left(state: State, found: Mapping[bytes, JobPlace]) -> Counter[bytes]:
    """Each batch knows how many of its jobs wait or run, wherever they lie; answers them."""
    live = [each for each in found.values() if each.state != FAILED and not each.state.startswith(FINISHED)]
    left = Counter(filter(None, [batch_of(each.job) for each in live]))
    told = {key: row.left for key, row in state.batches.items() if row.left}
    known = {key: count for key, count in left.items() if key in state.batches}
    if told != known:
        raise Violation(f"batches say that {told} jobs of theirs are left; it is {known}")
    return left


def _counted(batch: RecordedReduction, found: Mapping[bytes, JobPlace]) -> Iterator[tuple[bytes, str]]:
    """What a commit made of jobs of batches: new ones, cancelled ones, dead letters, and those that are no more."""
    for event in batch.reduction.events:
        key = batch_of(found[event.key].job) if event.key in found else b""
        if not key:
            continue
        if event.origin == "":
            yield key, QUEUED
        if event.origin == FAILED and event.target != FAILED:
            yield key, f"no more {FAILED}"
        if event.cause == "replaced":
            yield key, f"no more {QUEUED}"
        elif event.target == CANCELLED or (event.target == FAILED and event.origin != FAILED):
            yield key, event.target


# ── A new life ───────────────────────────────────────────────────────────────
def called(inv: Invariants, base: State, found: Mapping[bytes, JobPlace]) -> set[bytes]:
    """The jobs that came with a restored head, as batches of the backup turned out to be over."""
    ties = {key: place.job.links for key, place in found.items() if key not in inv.accepted}
    return {key for key, links in ties.items() if links is not None and links.parent in base.batches}


def check_restored(
    inv: Invariants,
    base: State,
    state: State,
    before: Mapping[bytes, JobPlace],
    found: Mapping[bytes, JobPlace],
    archived: AbstractSet[bytes],
) -> None:
    """Batches of a restored head count as completed what did, so far as anything tells of it, and nothing else.

    ``before``: the places of the backup's jobs; ``archived``: the jobs of which the archive tells that they completed.
    """
    check_left(state, found)
    did = {key for key, _, how in inv.finished if how == COMPLETED}
    for key, row in state.batches.items():
        old = base.batches[key]
        live = {
            each
            for each, place in before.items()
            if batch_of(place.job) == key and not place.state.startswith(FINISHED)
        }
        dead = sum(place.state == FAILED and batch_of(place.job) == key for place in found.values())
        if row.total != old.total or row.failed < dead:
            raise Violation(f"a restored batch counts {row.total} jobs, {row.failed} dead letters of {dead}")
        more = _completed(row) - _completed(old)
        least = len((live & archived) - inv.purged - found.keys())
        if not least <= more <= len(live & did) or row.cancelled < 0:
            raise Violation(
                f"a restored batch counts {more} jobs more as completed, and {len(live & did)} did"
            )


def _completed(row: BatchRow) -> int:
    return row.total - row.left - row.failed - row.cancelled
