"""A hundred schedules over a month of virtual time with outages: every tick has the jobs that its policy says.

The month has the night in which clocks go forward, in Berlin and in New York. What should come is told by a walk over
every minute of it, and by the policies in a few lines of their own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from msgspec import Struct

from osqueue import limits
from osqueue.core.encoding import encode
from osqueue.core.job_ops import ClaimJobs, CompleteJobs, Completion, JobSpec
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeSchedule, RunTimers
from osqueue.core.state import ScheduleRow
from tests.support.shard import Shard

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
END = datetime(2026, 4, 1, tzinfo=UTC)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
LINES = (
    *("0 3 * * *", "30 2 * * *", "15 2,3 * * *", "0 0 1 * *", "45 23 * * 1-5", "0 12 * * 0"),
    *("*/30 * * * *", "5 * * * *", "0 */6 * * *", "20 4 13 * 5", "0 9-17 * * 1-5", "59 1 * * *"),
)
MINUTE = limits.MINUTE_MS


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


# ── What should come ─────────────────────────────────────────────────────────
@cache
def walked(line: str, zone: str) -> tuple[int, ...]:
    """The ticks of the month: by hours that pass where the hour or the minute is any, else by a clock on the wall."""
    minutes, hours, days, months, week = (
        _values(text, most) for text, most in zip(line.split(), (59, 23, 31, 12, 7), strict=True)
    )
    either = not (line.split()[2].startswith("*") or line.split()[4].startswith("*"))

    def on(day: date) -> bool:
        here, weekday = day.day in days, (day.weekday() + 1) % 7 in {each % 7 for each in week}
        return day.month in months and ((here or weekday) if either else (here and weekday))

    if line.startswith("*") or line.split()[1].startswith("*"):
        passing = (
            BEGIN + timedelta(minutes=at) for at in range(int((END - BEGIN) / timedelta(minutes=1)) + 1)
        )
        local = ((at, at.astimezone(ZoneInfo(zone))) for at in passing)
        found = {ms(at) for at, it in local if it.minute in minutes and it.hour in hours and on(it.date())}
    else:
        found = set()
        for days_on in range(-2, 34):
            day = (BEGIN + timedelta(days=days_on)).date()
            for hour in hours if on(day) else ():
                for minute in minutes:
                    wall = datetime.combine(day, time(hour, minute))
                    found.add(ms(_on_the_wall(wall, zone)))
    return tuple(sorted(at for at in found if ms(BEGIN) < at <= ms(END)))


def _on_the_wall(at: datetime, zone: str) -> datetime:
    """That time of a clock on the wall; the end of the gap where it leaves it out."""
    while True:
        there = at.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
        if there.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == at:
            return there
        at += timedelta(minutes=1)


def _values(text: str, most: int) -> set[int]:
    if text.startswith("*"):
        return set(range(0, most + 1, int(text[2:] or 1)))
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


class Wish(Struct, frozen=True):
    """One of the hundred."""

    row: ScheduleRow
    ticks: tuple[int, ...]
    minutes: int  # that each of its jobs takes


def wishes(dice: random.Random) -> Iterator[Wish]:
    job = encode(JobSpec(b"", b"", max_attempts=1))
    for at in range(100):
        line, zone, every = dice.choice(LINES), dice.choice(ZONES), 0
        if at % 5 == 0:
            line, every = "", dice.choice((20, 45, 60, 1440)) * MINUTE
        zone = zone if line else "UTC"
        row = ScheduleRow(
            f"s{at:02}",
            line,
            zone,
            every,
            job,
            b"1",
            dice.choice(("once", "all", "skip")),
            dice.choice(("allow", "skip", "queue")),
        )
        month = range(ms(BEGIN) // every + 1, ms(END) // every + 1) if every else ()
        yield Wish(
            row, tuple(each * every for each in month) or walked(line, zone), dice.choice((0, 10, 90, 200))
        )


def expected(wish: Wish, commits: list[int]) -> list[int]:
    """The ticks for which jobs come when there are commits at these times."""
    made: list[int] = []
    ends: list[int] = []  # of living jobs
    waiting = at = 0
    for now in commits:
        begun = at
        while at < len(wish.ticks) and wish.ticks[at] <= now:
            at += 1
        due = list(wish.ticks[begun:at])
        due = due[-100:] if wish.row.missed == "all" else due[-1:]
        if wish.row.missed == "skip":
            due = [each for each in due if each > now - limits.TICK_LATE_MS]
        for tick in due:
            if wish.row.overlap == "allow" or not ends:
                made.append(tick)
                ends.append(now + wish.minutes * MINUTE)
            elif wish.row.overlap == "queue":
                waiting = tick
        ends = [end for end in ends if end > now]
        if waiting and not ends:
            made.append(waiting)
            ends = [now + wish.minutes * MINUTE] if wish.minutes else []
            waiting = 0
    return made


def moments(dice: random.Random) -> list[int]:
    """When somebody commits: every few minutes, but for some hours or days."""
    found: list[int] = []
    now = ms(BEGIN)
    while now < ms(END) - 11 * limits.HOUR_MS:
        away = dice.random() < 0.004
        now += dice.randint(60, 480) * limits.MINUTE_MS if away else dice.randint(20_000, 5 * MINUTE)
        found.append(now)
    return found


# ── What comes ───────────────────────────────────────────────────────────────
def test_a_month_of_a_hundred_schedules_goes_by_their_policies() -> None:
    dice = random.Random(12)
    there, commits = list(wishes(dice)), moments(dice)
    shard = Shard(checked=False)
    shard.now = ms(BEGIN)
    for wish in there:
        (put,) = shard.apply(ChangeSchedule(wish.row.name, wish.row))
        assert put.code == Code.OK
    minutes = {wish.row.name: wish.minutes for wish in there}
    made: dict[str, list[int]] = {name: [] for name in minutes}
    running: list[tuple[int, bytes, str]] = []
    for now in commits:
        shard.now = now
        over = [each for each in running if each[0] <= now]
        running = [each for each in running if each[0] > now]
        # Those that take no time are over in the commit that made them: claimed and completed before it settles.
        fresh = _claimed(shard, minutes, now, made)
        over += [each for each in fresh if each[0] <= now]
        running += [each for each in fresh if each[0] > now]
        while over:
            shard.apply(CompleteJobs(tuple(Completion(key, token) for _, key, token in over)))
            fresh = _claimed(shard, minutes, now, made)  # those that were remembered
            over = [each for each in fresh if each[0] <= now]
            running += [each for each in fresh if each[0] > now]
    wrong = {
        wish.row.name: (wish.row.missed, wish.row.overlap)
        for wish in there
        if made[wish.row.name] != expected(wish, commits)
    }
    assert wrong == {}
    assert sum(map(len, made.values())) > 10_000
    shard.apply(RunTimers())
    assert sum(row.living for row in shard.state.schedules) == len(running)


def _claimed(
    shard: Shard, minutes: dict[str, int], now: int, made: dict[str, list[int]]
) -> list[tuple[int, bytes, str]]:
    (found,) = shard.apply(ClaimJobs(1_000, "ada", limits.LEASE_MS_MAX))
    for lease in found.leases:
        made[lease.job.schedule].append(lease.job.scheduled_ms)
    return [
        (now + minutes[lease.job.schedule] * MINUTE, lease.job.key, lease.token) for lease in found.leases
    ]
