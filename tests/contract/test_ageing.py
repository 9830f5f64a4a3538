"""Priorities with ageing, over every store and API, blocking and async."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Rejected


def test_a_job_that_has_waited_is_served_before_more_urgent_ones_that_came_later(
    opened: Callable[..., Any], clock: Any
) -> None:
    q = opened()
    q.configure(ageing=60)
    old = q.enqueue("old", priority=7)
    clock.shift_ms += 150_000
    q.enqueue("urgent", priority=3)
    q.enqueue("new", priority=6)
    assert q.stats()["settings"]["ageing"] == 60
    story = str(q.why(old.job_id))
    assert "queued behind about 1 job; priority 7: it has waited 2.5 min, so it counts as 5" in story
    assert [lease.payload for lease in q.claim(5)] == ["urgent", "old", "new"]


def test_without_ageing_priorities_are_strict(opened: Callable[..., Any], clock: Any) -> None:
    q = opened()
    q.configure(ageing=60)
    q.configure(ageing=0)
    q.enqueue("old", priority=7)
    clock.shift_ms += 10**8
    q.enqueue("new", priority=6)
    assert [lease.payload for lease in q.claim(5)] == ["new", "old"]


@pytest.mark.parametrize("wrong", [-1, "x", 31 * 86_400])
def test_what_is_no_ageing_is_refused_by_name(opened: Callable[..., Any], wrong: Any) -> None:
    with pytest.raises(Rejected, match=r"^ageing: "):
        opened().configure(ageing=wrong)
