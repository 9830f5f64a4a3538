"""How a plan is cut: into whole days where they fit, so no two tasks write one file; into hours where they do not."""

from __future__ import annotations

import pytest

from osqueue.pipeline import plan
from osqueue.pipeline.archive import HOUR_MS, Hour

MIDNIGHT_MS = 1_767_571_200_000  # 2026-01-05, UTC


def hour(number: int, parts: int = 1, queue: str = "emails") -> Hour:
    """Hours after the 23rd are those of the next days."""
    return Hour(MIDNIGHT_MS + number * HOUR_MS, queue, tuple(f"part-{each}" for each in range(parts)))


@pytest.mark.parametrize(
    ("hours", "parts", "first"),
    [
        ([hour(22), hour(23), hour(24), hour(25)], 3, 2),  # the second day begins a batch of its own
        ([hour(22), hour(23), hour(24), hour(25)], 4, 4),
        ([hour(22), hour(23), hour(24), hour(25)], 1, 1),  # not even the first day fits
        ([hour(20), hour(21), hour(22), hour(24)], 2, 2),
        ([hour(22), hour(46), hour(70), hour(71)], 3, 2),  # of several days the last that fits whole
        ([hour(9, parts=7), hour(10)], 3, 1),  # one hour of too many parts is a batch
        ([hour(9, parts=0), hour(10, parts=0), hour(11)], 2, 2),  # an hour to be emptied counts as a part
        ([hour(9), hour(10), hour(9, queue="mails")], 2, 2),
        ([], 5, 0),
    ],
)
def test_a_batch_ends_with_a_day_where_one_fits(hours: list[Hour], parts: int, first: int) -> None:
    taken, left = plan.batch(hours, parts)
    assert len(taken) == first
    assert [*taken, *left] == hours


def test_all_hours_are_in_one_stretch_of_their_queue_each() -> None:
    hours = [hour(each, queue=queue) for queue in ("emails", "mails") for each in range(30)]
    found = list(plan.stretches("store", "tables", hours, tasks=4))
    assert [at for each in found for at in each.hours] == hours
    assert all({at.queue for at in each.hours} == {each.queue} for each in found)
    days = [{at.partition for at in each.hours} for each in found]
    assert sum(map(len, days)) == len(set().union(*days)) + 2  # a day of more hours than a task has is shared
