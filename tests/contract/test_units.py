"""Jobs that count as several starts of a rate, over every store and API, blocking and async."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Next, Rejected, limits
from osqueue.model.settings import Kind


def test_a_job_of_many_units_keeps_back_those_behind_it(opened: Callable[..., Any], clock: Any) -> None:
    q, other = opened(), opened()
    q.configure(rate=(1, 60), burst=2)
    job_id = q.enqueue("large", units=5).job_id
    q.enqueue_many([{"payload": "small"}, {"payload": "next", "units": 2}])
    (lease,) = other.claim(10, lease=7_200)
    assert (lease.payload, lease.units) == ("large", 5)
    none = other.claim(10)
    assert (list(none), none.reason, none.scope) == ([], "rate_limited", "queue")
    assert 230 < none.retry_after <= 245
    assert q.status(job_id).units == 5
    (small, last), _ = q.jobs("queued")
    assert (small.units, last.units) == (1, 2)
    clock.shift_ms += 242_000
    assert [each.payload for each in other.claim(10, lease=7_200)] == ["small"]
    told = q.flow().rate
    assert (told.left, told.burst) == (0, 2)
    assert told.next_at is not None


def test_kinds_and_groups_count_them_as_well(q: Any) -> None:
    q.configure(
        kinds={"send": Kind(rate=(1, 60), burst=4)}, group_rate=(1, 60), group_burst=4, group_running=0
    )
    q.configure_group("big", rate=(1, 60), burst=7)
    for at in range(3):
        q.enqueue(at, kind="send", units=3)
        q.enqueue(at, group="small", units=3)
        q.enqueue(at, group="big", units=3)
    got = [lease.group or lease.kind for lease in q.claim(20)]
    assert {each: got.count(each) for each in got} == {"send": 2, "small": 2, "big": 3}


def test_running_limits_count_jobs(q: Any) -> None:
    q.configure(max_running=3, group_running=2)
    for at in range(3):
        q.enqueue(at, group="a", units=100)
    q.enqueue(3, units=100)
    assert sorted(lease.payload for lease in q.claim(10)) == [0, 1, 3]


def test_why_tells_the_units_of_a_job_that_a_rate_holds(q: Any) -> None:
    q.configure(rate=(1, 60), kinds={"send": Kind(rate=(1, 90))}, group_rate=(1, 120), group_running=0)
    q.enqueue(0, kind="send", group="a")
    waiting = q.enqueue(1, kind="send", group="a", units=1_200).job_id
    q.claim(10)
    told = []
    for lifted in ({"rate": None}, {"kinds": {"send": Kind(rate=None)}}, {"group_rate": None}):
        told.append(str(q.why(waiting)))
        q.configure(**lifted)
    for story, whose in zip(told, ("the queue", "kind send", "its group 'a'"), strict=True):
        assert "1,200 units" in story
        assert f"{whose} may start 1 job in " in story
        assert "and this job counts as 1,200 starts" in story
    assert "counts as" not in str(q.why(waiting))


def test_units_stay_with_a_job_and_its_dead_letter_and_reach_what_follows(q: Any) -> None:
    first = q.enqueue(0, units=7, max_attempts=1, then=[Next("next", units=3)])
    (lease,) = q.claim()
    lease.fail("no")
    (letter,), _ = q.dead_letters()
    assert letter.units == 7
    assert q.redrive() == 1
    (lease,) = q.claim()
    assert lease.units == 7
    lease.complete(None)
    assert [each.units for each in q.claim(10)] == [3]
    assert q.status(first.job_id).units == 7


@pytest.mark.parametrize("units", [0, -1, limits.JOB_UNITS_MAX + 1, 1.5, 1.0, True, "3"])
def test_what_are_no_units_is_refused_by_name_with_the_bounds(q: Any, units: Any) -> None:
    with pytest.raises(Rejected, match=r"^units: .*from 1 to 10,?000") as caught:
        q.enqueue(1, units=units)
    assert caught.value.field == "units"
    (answer,) = q.enqueue_many([{"payload": 1, "units": units}])
    assert (answer.status, answer.error.field) == ("rejected", "units")


def test_as_many_units_as_may_be_are_taken(q: Any) -> None:
    q.enqueue(1, units=limits.JOB_UNITS_MAX)
    q.enqueue(2, units=None)
    assert [lease.units for lease in q.claim(2)] == [limits.JOB_UNITS_MAX, 1]
