"""Jobs that come when others end: the follow-ups of a job that completes, and those that wait for a whole batch.

A follow-up is no job yet. It is part of the one that it follows, and comes into being in the commit that completes that
one, with its result. So it needs no state in which it waits, and nothing can orphan it: a job that dies takes its
follow-ups along to the dead letters, and one that is cancelled drops them.

A follow-up without a payload of its own has its parent's result as its payload. One that has both is given the result
beside: its *input*. A result beside the head is not copied: both refer to it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from . import batches
from .draft import Draft
from .encoding import encode
from .job_ops import JobSpec, record_of
from .made_keys import made_key
from .ops import Code, Outcome, outcome
from .queue_ops import ChangeBatch
from .rows import BatchRow, StoredContent
from .state import JobRecord, Links, key_text

JSON = "json"  # in which every payload of a follow-up is written, and what a batch's job is told
NOTHING = b"null"  # the same of a parent without a result

_decode_specs = msgspec.msgpack.Decoder(tuple[JobSpec, ...]).decode
_decode_spec = msgspec.msgpack.Decoder(JobSpec).decode


def encode_follow_ups(specs: tuple[JobSpec, ...]) -> bytes:
    """Follow-ups as a job keeps them. A codec of "" is no payload of its own."""
    return encode(specs) if specs else b""


def follow_ups_of(then: bytes) -> tuple[JobSpec, ...]:
    """The inverse."""
    return _decode_specs(then) if then else ()


def groups_of(group: str, then: bytes) -> Iterator[str]:
    """The groups of a job and of all that follow it."""
    if group:
        yield group
    for spec in follow_ups_of(then):
        yield from groups_of(spec.group, spec.then)


def follow_up_keys(parent: bytes, run: int, finished_ms: int, count: int) -> list[bytes]:
    """The keys of the jobs that came when a job completed. What completes twice, after a restore, has other ones."""
    text = b"%s %x " % (parent, run)
    return [made_key(finished_ms, at, b"%s%x" % (text, at), parent[15]) for at in range(count)]


def follow(draft: Draft, job: JobRecord, result: StoredContent, codec: str) -> int:
    """Enqueue what follows a job that completes now; answers how many that is."""
    links = job.links
    if links is None or not links.then:
        return 0
    specs = follow_ups_of(links.then)
    keys = follow_up_keys(job.key, job.run, draft.now, len(specs))
    told, told_codec = (result, codec or job.codec) if result or codec else (NOTHING, JSON)
    for key, spec in zip(keys, specs, strict=True):
        _make(draft, replace(spec, key=key), job.key, links.batch, told, told_codec)
    return len(specs)


def _make(draft: Draft, spec: JobSpec, parent: bytes, batch: bytes, told: StoredContent, codec: str) -> None:
    """Enqueue a job that is told something: as its payload, where it has none of its own."""
    apart = bool(spec.codec)
    if not apart:
        spec = replace(spec, payload=told, codec=codec)
    due = draft.after(spec.delay_ms) if spec.delay_ms else 0
    job = record_of(spec, draft.settings, draft.now, draft.latest, due)
    ties = Links(spec.then, parent, batch, told if apart else None, codec if apart else "")
    job = replace(job, links=ties)
    if due:
        draft.delay(job)
    else:
        draft.queue(job)
    draft.accept([job], "follow")
    draft.learn(job.key)


# ── Batches ──────────────────────────────────────────────────────────────────
def settle(draft: Draft) -> None:
    """The end of a reduction: make the jobs that wait for batches which are over now."""
    for key, row in draft.batches.items():
        over = row.sealed and not row.left
        if over is bool(row.ended_ms):
            continue
        after = replace(row, ended_ms=draft.now if over else 0)
        if over and row.on_complete:
            _call(draft, key, row, row.on_complete, b"complete")
            after = replace(after, on_complete=b"")
        if over and row.on_success and not row.failed and not row.cancelled:
            _call(draft, key, row, row.on_success, b"success")
            after = replace(after, on_success=b"")
        draft.batches = {**draft.batches, key: after}
    draft.batches = batches.without_old(draft.batches, draft.settings, draft.now)


def _call(draft: Draft, key: bytes, row: BatchRow, encoded: bytes, what: bytes) -> None:
    told = {
        "batch_id": key_text(key),
        "name": row.name,
        "total": row.total,
        "completed": row.total - row.failed - row.cancelled,
        "failed": row.failed,
        "cancelled": row.cancelled,
    }
    made = made_key(draft.now, 0, b"%s %s" % (key, what), key[15])
    _make(draft, replace(_decode_spec(encoded), key=made), key, b"", msgspec.json.encode(told), JSON)


def change(draft: Draft, op: ChangeBatch) -> Outcome:
    """Open a batch, or seal it."""
    row = draft.batches.get(op.key)
    if op.opened is not None:
        if row is not None:
            return outcome([Code.OK])  # the same request again
        rows = batches.with_room(draft.batches, op.opened)
        if rows is None:
            return outcome([Code.CROWDED])
        draft.batches = {**rows, op.key: replace(op.opened, created_ms=draft.now)}
    elif row is None:
        return outcome([Code.NOT_FOUND])
    elif not row.sealed:
        draft.batches = {**draft.batches, op.key: replace(row, sealed=True)}
    else:
        return outcome([Code.OK])
    draft.changed = True
    return outcome([Code.OK])
