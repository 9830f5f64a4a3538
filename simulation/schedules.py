"""Schedules in a run: operators who add, change, pause and remove some, and what must hold of ticks in every commit.

What a commit should have made is computed anew, from the rows before it and its time. A tick is known by its schedule's
name and its time: no two jobs have the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from osqueue import crontab, limits
from osqueue.commit.effects import Flow
from osqueue.core import scheduling
from osqueue.core.encoding import encode
from osqueue.core.head_content import jobs_in_memory
from osqueue.core.job_ops import JobSpec
from osqueue.core.ops import Op
from osqueue.core.queue_ops import ChangeSchedule
from osqueue.core.rows import StoredContent
from osqueue.core.state import JobRecord, ScheduleRow, State
from osqueue.errors import OsqueueError
from osqueue.objects.staging import StagingArea

from .ledger import RecordedReduction, Violation
from .places import JobPlace
from .stories import LIVE

if TYPE_CHECKING:
    from .clients import Client
    from .invariants import Invariants

NAMES = ("hourly", "nightly", "often")
EVERY_MS = (2_000, 5_000, 20_000)


# ── Operators ────────────────────────────────────────────────────────────────
def keep_schedules(client: Client, pause_seconds: float) -> Flow[None]:
    """Add, change, pause, run and remove schedules."""
    while True:
        yield from client.pause(pause_seconds * 2)
        name, chance = client.dice.choice(NAMES), client.dice.random()
        if chance < 0.6:
            op: Op = ChangeSchedule(name, (yield from _row(client, name)))
        elif chance < 0.7:
            op = ChangeSchedule(name, removed=True)
        elif chance < 0.85:
            op = ChangeSchedule(name, paused=client.dice.random() < 0.4)
        else:
            op = ChangeSchedule(name, run=client.jobs(1, delayed=False)[0].key)
            if client.reruns and client.dice.random() < client.reruns:
                yield from client.call(op, op)
                continue
        yield from client.call(op)


def _row(client: Client, name: str) -> Flow[ScheduleRow]:
    dice = client.dice
    words = dice.choice((b"1", b"2", b"three" * 20, b"four" * 30))
    content: StoredContent = b"1"
    state = yield from client.head()
    if state is not None:
        client.book.keys += [
            job.key for _, job in jobs_in_memory(state) if job.schedule
        ]  # others come across them
        stage = StagingArea(client.writer.root, state.seq, client.writer.machine)
        with suppress(OsqueueError):
            content = yield from stage.shared(words)
        if dice.random() < 0.1:
            yield from client.pause(60.0)
    spec = JobSpec(b"", b"", kind=dice.choice(("", "tick")), max_attempts=dice.choice((None, 1)))
    return ScheduleRow(
        name,
        every_ms=dice.choice(EVERY_MS),
        job=encode(spec),
        payload=content,
        missed=dice.choice((scheduling.ONCE, scheduling.ALL, scheduling.SKIP)),
        overlap=dice.choice((scheduling.ALLOW, scheduling.SKIP, scheduling.QUEUE)),
    )


def remove_all(client: Client) -> Flow[None]:
    """No schedule goes on; what came late from others is removed as well."""
    while True:
        state = yield from client.head()
        if state is None:
            yield from client.pause(1.0)
            continue
        names = [row.name for row in state.schedules if scheduling.exists(row)]
        if not names:
            return
        yield from client.call(*(ChangeSchedule(name, removed=True) for name in names))


# ── What must hold ───────────────────────────────────────────────────────────
def check(
    inv: Invariants,
    before: State | None,
    state: State,
    batch: RecordedReduction,
    found: Mapping[bytes, JobPlace],
) -> None:
    """A commit was made."""
    check_living(state, found)
    rows = {row.name: row for row in before.schedules} if before is not None else {}
    ops = [op for each in batch.requests for op in each.ops if isinstance(op, ChangeSchedule)]
    by_hand = {op.run for op in ops if op.run}
    made: dict[str, list[JobRecord]] = {}
    for event in batch.reduction.events:
        job = found[event.key].job if event.origin == "" and event.key in found else None
        if job is not None and job.schedule:
            inv.ticked.add(job.key)
            if job.key not in by_hand:
                made.setdefault(job.schedule, []).append(job)
    for name, jobs in made.items():
        if name not in rows:
            raise Violation(f"schedule {name!r} ticked before it was there")
        puts = [op.put for op in ops if op.name == name and op.put is not None]
        _check_ticks(inv, rows[name], puts, jobs)
        _check_overlap(inv, rows[name], jobs, found, changed=any(op.name == name for op in ops))
    for row in state.schedules:
        old = rows.get(row.name)
        if old is None:
            continue
        if row.last_ms < old.last_ms and scheduling.exists(row):
            raise Violation(f"schedule {row.name!r} went back in time")
        if 0 < row.next_ms < old.next_ms and not any(op.name == row.name for op in ops):
            raise Violation(f"the next tick of schedule {row.name!r} went back")
        if not any(op.name == row.name for op in ops) and scheduling.exists(row):
            _check_policy(old, row, state.now_ms, [job.scheduled_ms for job in made.get(row.name, ())])


def check_living(state: State, found: Mapping[bytes, JobPlace]) -> None:
    """Each schedule knows how many of its jobs wait or run, wherever they lie."""
    living = Counter(place.job.schedule for place in found.values() if place.state in LIVE)
    del living[""]
    told = {row.name: row.living for row in state.schedules if row.living}
    if told != living:
        raise Violation(f"schedules say that {told} jobs of theirs live; it is {dict(living)}")


def _check_ticks(inv: Invariants, row: ScheduleRow, puts: list[ScheduleRow], jobs: list[JobRecord]) -> None:
    """Check that a tick is served once, after those before it, and makes a job of the row or of a put of its commit.

    A commit may remember a tick, change the schedule, and end the job that the tick waits for. The job is one of the
    changed schedule then.
    """
    payloads = [inv.stories.content(each.payload) for each in (row, *puts)]
    for job in jobs:
        remembered = job.scheduled_ms == row.waiting_ms
        if (row.name, job.scheduled_ms) in inv.served:
            raise Violation(f"schedule {row.name!r} ticked twice at {job.scheduled_ms}")
        inv.served.add((row.name, job.scheduled_ms))
        if job.scheduled_ms <= row.last_ms and not remembered:
            raise Violation(f"schedule {row.name!r} went back to a tick")
        if inv.stories.content(job.payload) not in payloads and not remembered:
            raise Violation(f"schedule {row.name!r} made a job of something else")


def _check_overlap(
    inv: Invariants,
    row: ScheduleRow,
    jobs: list[JobRecord],
    found: Mapping[bytes, JobPlace],
    *,
    changed: bool,
) -> None:
    if row.overlap == scheduling.ALLOW or changed:
        return
    if len(jobs) > 1:
        raise Violation(f"schedule {row.name!r} made {len(jobs)} jobs that overlap")
    fresh = {job.key for job in jobs}
    for key, place in inv.found.items():
        lives = place.state in LIVE and key in found and found[key].state in LIVE
        if lives and place.job.schedule == row.name and key not in fresh:
            raise Violation(f"schedule {row.name!r} made a job while another one lives")


def _check_policy(old: ScheduleRow, row: ScheduleRow, now_ms: int, made: list[int]) -> None:
    """As many jobs were made as its policy says."""
    if old.paused:
        if set(made) - {old.waiting_ms}:
            raise Violation(f"schedule {row.name!r} is paused, and ticked")
        return
    if row.next_ms and row.next_ms <= now_ms:
        return  # others made as many as one commit may: it is due again at the next
    most = limits.TICKS_MADE_MAX if old.missed == scheduling.ALL else 1
    told = crontab.ticks(old.cron, old.zone, old.every_ms, old.last_ms, now_ms, most)
    assert told is not None
    due = [at for at in told[0] if old.missed != scheduling.SKIP or at > now_ms - limits.TICK_LATE_MS]
    if old.overlap == scheduling.ALLOW:
        if [at for at in made if at != old.waiting_ms] != due:
            raise Violation(f"schedule {row.name!r} made jobs for {made}, its policy says {due}")
    elif due and not made and not old.living:
        raise Violation(f"schedule {row.name!r} is due, nothing of it lives, and it made no job")
    elif due and old.overlap == scheduling.QUEUE and due[-1] not in (*made, row.waiting_ms):
        raise Violation(f"schedule {row.name!r} forgot a tick that it was to remember")
    elif row.waiting_ms and not row.living:
        raise Violation(f"schedule {row.name!r} remembers a tick that nothing stands in the way of")
