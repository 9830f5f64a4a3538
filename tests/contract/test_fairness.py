"""Groups that share alike, over every store and API, blocking and async."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Rejected


def test_a_tenant_behind_the_flood_of_another_one_has_its_turn(opened: Callable[..., Any]) -> None:
    q = opened()
    q.configure(fair=True, group_running=0)
    q.enqueue_many([{"payload": n, "group": "flood"} for n in range(40)])
    for tenant in ("x", "y"):
        q.enqueue_many([{"payload": n, "group": tenant} for n in range(2)])
    assert q.stats()["settings"]["fair"] is True
    got = []
    for _ in range(8):
        (lease,) = q.claim()
        got.append((lease.group, lease.payload))
        lease.complete()
    assert [group for group, _ in got] == ["flood", "x", "y", "flood", "x", "y", "flood", "flood"]
    for group in ("flood", "x", "y"):
        numbers = [payload for each, payload in got if each == group]
        assert numbers == sorted(numbers)
    assert [lease.group for lease in q.claim(3)] == ["flood"] * 3  # alone it gets everything


def test_who_has_fewer_running_goes_first_and_why_says_so(opened: Callable[..., Any]) -> None:
    q = opened()
    q.configure(fair=True, group_running=0)
    waiting = q.enqueue_many([{"payload": n, "group": "busy"} for n in range(5)])[-1]
    assert len(q.claim(3)) == 3
    story = str(q.why(waiting.job_id))
    assert "its group 'busy' has 3 running; groups with fewer go first" in story
    q.enqueue("quiet", group="quiet")
    assert [lease.group for lease in q.claim(2)] == ["quiet", "busy"]
    q.configure(fair=False)
    assert "go first" not in str(q.why(waiting.job_id))


def test_what_is_not_yes_or_no_is_refused_by_name(opened: Callable[..., Any]) -> None:
    with pytest.raises(Rejected, match=r"^fair: "):
        opened().configure(fair="yes")
