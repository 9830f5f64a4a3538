"""What a head tells of trouble to come."""

from __future__ import annotations

from osqueue import limits
from osqueue.core.budgets import budgets
from osqueue.core.state import ScheduleRow, State
from osqueue.maintenance.head_checks import BUDGET_REMEDIES, LATE_MS, full_parts, late_schedules

NOW = 1_800_000_000_000


def head(*rows: ScheduleRow) -> State:
    return State(bytes(16), 7, schedules=rows)


def test_every_part_that_turns_calls_away_has_a_remedy() -> None:
    assert {each.name for each in budgets(head()) if each.refuses} == BUDGET_REMEDIES.keys()


def test_schedules_that_take_half_of_their_room_are_told_of() -> None:
    row = ScheduleRow("big", "0 3 * * *", job=bytes(limits.SCHEDULES_BYTES_MAX // 2))
    ((_, check, found, remedy),) = full_parts("mail", head(row))
    assert (check, "schedules: 50%" in found, "cron rm ADDRESS mail" in remedy) == ("budget", True, True)


def test_a_tick_that_nobody_serves_is_told_of() -> None:
    late = ScheduleRow("late", "0 3 * * *", next_ms=NOW - LATE_MS - 1)
    ((_, check, found, remedy),) = late_schedules(head(late), NOW)
    assert (check, "ticks of late" in found, "tzdata" in remedy) == ("schedules", True, True)
    for fine in (
        ScheduleRow("soon", "0 3 * * *", next_ms=NOW - LATE_MS),
        ScheduleRow("paused", "0 3 * * *", next_ms=1, paused=True),
        ScheduleRow("never", "0 3 * * *"),
    ):
        assert list(late_schedules(head(fine), NOW)) == []
