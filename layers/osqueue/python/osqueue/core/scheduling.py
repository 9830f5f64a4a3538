"""Schedules: rows in the head of a queue's first shard, from each of which a job is made at every tick.

A tick is a moment that a crontab line names in a time zone, or a whole multiple of an interval. A schedule is due when
its ``next_ms`` has come. The commit that finds it due enqueues the job and sets the next time, so there is no leader,
no tick is served twice and none is forgotten, whoever commits. Time zones need tables, which are no part of a pure
function: ``ReductionContext.ticks`` tells the times, and what is committed counts.

    last_ms     up to here every tick has been made, passed over or remembered; it only grows, so a tick is served once
    next_ms     nothing is due before; 0: never
    living      the jobs of this name that wait or run, wherever they lie: whatever ends one takes it off in its commit
    waiting_ms  with ``overlap="queue"``: the tick whose job is made by the commit that ends the last living one

A schedule that is removed while jobs of it live leaves a row that only counts them. So its name, used again, knows of
them, and no job of either overlaps one that it must not.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from zlib import crc32

import msgspec
from msgspec.structs import replace

from .. import limits
from .draft import Draft
from .encoding import born_of, encode, staged_name
from .job_ops import JobSpec, record_of
from .made_keys import made_key
from .ops import Code, Outcome, outcome
from .pauses import ENDLESS_MS
from .queue_ops import ChangeSchedule
from .rows import BodyRef, StoredContent
from .state import ScheduleRow

ONCE = "once"  # of the ticks that nobody was there for: one job, for the latest of them
ALL = "all"  # a job for each, at most ``TICKS_MADE_MAX``
SKIP = "skip"  # none for those that are over
ALLOW = "allow"  # a job is made whether or not one lives; ``SKIP``: only if none does
QUEUE = "queue"  # as ``SKIP``, and the latest tick is remembered

MADE_PER_COMMIT_MAX = 1_000  # jobs; what is left is due at the next commit
COUNT_BYTES = 28  # more than a zero each, of the times and the count of a row, as long as they can get
SHARED = (
    "-shared"  # how the name of a body ends that belongs to a schedule, and not to the jobs that refer to it
)

_decode_spec = msgspec.msgpack.Decoder(JobSpec).decode


def schedule_weight(row: ScheduleRow) -> int:
    """An upper estimate of a row's encoded bytes."""
    return len(encode(replace(row, next_ms=0, last_ms=0, living=0, waiting_ms=0))) + COUNT_BYTES


def exists(row: ScheduleRow) -> bool:
    """Is this a schedule? Else it was one, and counts the jobs that are left."""
    return bool(row.cron or row.every_ms)


def find(rows: tuple[ScheduleRow, ...], name: str) -> ScheduleRow | None:
    """The row of this name."""
    return next((row for row in rows if row.name == name), None)


def is_shared(content: object) -> bool:
    """Is this the payload of a schedule, which all its jobs refer to? A purge of one of them leaves it."""
    return isinstance(content, BodyRef) and content.name.endswith(SHARED)


def content_at(born: int, content: bytes) -> StoredContent:
    """Where the payload of a schedule is kept: in its row, or in a body that all its jobs refer to.

    The body is named by what it holds, so that the same payload is known again without being read.
    """
    if len(content) <= limits.SCHEDULE_INLINE_BYTES_MAX:
        return content
    chance = int.from_bytes(blake2b(content, digest_size=8).digest(), "big")
    return BodyRef(staged_name("bodies", born, chance) + SHARED, 0, len(content), crc32(content))


def is_same(row: ScheduleRow, wished: ScheduleRow) -> bool:
    """Does a schedule say what another one would? A body is told by its name: by what it holds, not by its birth."""
    return _said(row) == _said(wished)


def _said(row: ScheduleRow) -> tuple[object, ...]:
    payload = row.payload.name.partition("-")[2] if isinstance(row.payload, BodyRef) else row.payload
    return (row.cron, row.zone, row.every_ms, row.job, payload, row.missed, row.overlap)


# ── What time does ───────────────────────────────────────────────────────────
def next_tick_ms(rows: tuple[ScheduleRow, ...]) -> int:
    """When the next schedule is due; ENDLESS_MS if none ever is."""
    return min((row.next_ms for row in rows if row.next_ms and not row.paused), default=ENDLESS_MS)


def is_due(rows: tuple[ScheduleRow, ...], now_ms: int) -> bool:
    """Is any schedule due?"""
    return any(0 < row.next_ms <= now_ms and not row.paused for row in rows)


def tick(draft: Draft) -> None:
    """Make the jobs of the schedules that are due."""
    room = MADE_PER_COMMIT_MAX
    for row in draft.schedules:
        if 0 < row.next_ms <= draft.now and not row.paused and room > 0:
            after, made = _ticked(draft, row)
            room -= made
            if after != row:
                _put(draft, after)
                draft.changed = True


def _ticked(draft: Draft, row: ScheduleRow) -> tuple[ScheduleRow, int]:
    """The row after its ticks, and how many jobs were made.

    It stays due where nobody here knows the time zone.
    """
    most = limits.TICKS_MADE_MAX if row.missed == ALL else 1
    told = draft.context.ticks(row.cron, row.zone, row.every_ms, row.last_ms, draft.now, most)
    if told is None:
        return row, 0
    times, following = told
    if row.missed == SKIP:
        times = tuple([at for at in times if at > draft.now - limits.TICK_LATE_MS])
    living = row.living
    for at in times:
        if row.overlap == ALLOW or not row.living:
            _make(draft, row, at)
            row = replace(row, living=row.living + 1)
        elif row.overlap == QUEUE:
            row = replace(row, waiting_ms=at)
        row = replace(row, last_ms=at)
    return replace(row, last_ms=draft.now, next_ms=following), row.living - living


def settle(draft: Draft) -> None:
    """The end of a reduction: make the jobs of remembered ticks that nothing stands in the way of any more."""
    for row in draft.schedules:
        if row.living:
            continue
        if not exists(row):
            draft.schedules = tuple([each for each in draft.schedules if each is not row])
        elif row.waiting_ms and not row.paused:
            _make(draft, row, row.waiting_ms)
            _put(draft, replace(row, waiting_ms=0, living=1))
            draft.changed = True


def _make(draft: Draft, row: ScheduleRow, at_ms: int, key: bytes = b"") -> None:
    """Enqueue the job of one tick."""
    spec = replace(_decode_spec(row.job), key=key or _key(draft, row.name, at_ms), payload=row.payload)
    job = record_of(spec, draft.settings, draft.now, draft.latest, 0)
    job = replace(job, scheduled_ms=at_ms, schedule=row.name)
    draft.queue(job)
    draft.accept([job])
    draft.learn(job.key)


def _key(draft: Draft, name: str, at_ms: int) -> bytes:
    """The key of a tick's job. Schedules are in the first shard."""
    state = draft.state
    text = f"{state.epoch:x} {state.seq:x} {at_ms:x} {name}".encode()
    return made_key(draft.now, at_ms // limits.MINUTE_MS, text, 0)


def _put(draft: Draft, row: ScheduleRow) -> None:
    """Put a row in the place of that of its name, or add it."""
    rows = {each.name: each for each in draft.schedules}
    rows[row.name] = row
    draft.schedules = tuple([rows[name] for name in sorted(rows)])


# ── What its operators do ────────────────────────────────────────────────────
def change(draft: Draft, op: ChangeSchedule) -> Outcome:
    """Add, change, remove, pause or resume a schedule, or make a job of it now."""
    row = find(draft.schedules, op.name)
    if op.put is not None:
        return outcome([_change_row(draft, row, op.put)])
    if row is None or not exists(row):
        return outcome([Code.NOT_FOUND])
    if op.run:
        if draft.knows(op.run):
            return outcome([Code.DUPLICATE])
        _make(draft, row, draft.now, op.run)
        _put(draft, replace(row, living=row.living + 1))
        return outcome([Code.QUEUED])
    if op.removed:
        _put(draft, ScheduleRow(row.name, living=row.living))
        draft.changed = True
    elif op.paused is not None and op.paused != row.paused:
        _put(draft, _begun(draft, replace(row, paused=op.paused)))
        draft.changed = True
    return outcome([Code.OK])


def _change_row(draft: Draft, row: ScheduleRow | None, wished: ScheduleRow) -> Code:
    there = row is not None and exists(row)
    if row is not None and there and is_same(row, wished):
        return Code.OK
    if isinstance(wished.payload, BodyRef) and born_of(wished.payload.name) < draft.gc_floor:
        return Code.STALE
    others = sum(schedule_weight(each) for each in draft.schedules if each.name != wished.name)
    if others + schedule_weight(wished) > limits.SCHEDULES_BYTES_MAX:
        return Code.CROWDED
    if row is None:
        changed = _begun(draft, replace(wished, paused=False, living=0, last_ms=0, waiting_ms=0))
    else:
        waiting = row.waiting_ms if wished.overlap == QUEUE else 0
        kept = replace(
            wished,
            paused=row.paused,
            living=row.living,
            last_ms=row.last_ms,
            next_ms=row.next_ms,
            waiting_ms=waiting,
        )
        timed = (row.cron, row.zone, row.every_ms) == (wished.cron, wished.zone, wished.every_ms)
        changed = kept if timed else _begun(draft, kept)
    _put(draft, changed)
    draft.changed = True
    return Code.OK


def _begun(draft: Draft, row: ScheduleRow) -> ScheduleRow:
    """The row as of now: no tick up to now is its. It is due at once where nobody here knows when the next one is."""
    told = draft.context.ticks(row.cron, row.zone, row.every_ms, draft.now, draft.now, 0)
    return replace(row, last_ms=max(row.last_ms, draft.now), next_ms=draft.now if told is None else told[1])


# ── A head made anew ─────────────────────────────────────────────────────────
def of_a_new_life(
    rows: tuple[ScheduleRow, ...], living: Mapping[str, int], gone: AbstractSet[str], now_ms: int
) -> tuple[ScheduleRow, ...]:
    """The rows of a restored head, with the jobs that wait in it. One whose payload is gone only counts them.

    The clock of a backup may have been ahead.
    """
    found: list[ScheduleRow] = []
    for row in rows:
        count = living.get(row.name, 0)
        if isinstance(row.payload, BodyRef) and row.payload.name in gone:
            row = ScheduleRow(row.name)
        found.append(replace(row, living=count))
    return at_another_time(tuple(found), now_ms)


def at_another_time(rows: tuple[ScheduleRow, ...], now_ms: int) -> tuple[ScheduleRow, ...]:
    """The rows of a head whose clock is set: what ticked in a time that never came ticks when it comes."""
    return tuple(
        [
            replace(
                row,
                last_ms=min(row.last_ms, now_ms),
                next_ms=min(row.next_ms, now_ms),
                waiting_ms=row.waiting_ms if row.waiting_ms <= now_ms else 0,
            )
            for row in rows
        ]
    )
