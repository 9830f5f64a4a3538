"""Rates of groups over every store and API, blocking and async."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Rejected, Throttled, limits


def fill(q: Any, group: str, count: int = 3) -> None:
    for at in range(count):
        q.enqueue(at, group=group)


def test_each_group_starts_so_many_jobs_and_the_claim_says_when_more_may(
    opened: Callable[..., Any], clock: Any
) -> None:
    q, other = opened(), opened()
    q.configure(group_rate=(1, 60), group_burst=2, group_running=0)
    fill(q, "a")
    fill(q, "b", 1)
    assert [lease.group for lease in q.claim(10, lease=600)] == ["a", "a", "b"]
    none = other.claim(10)
    assert (list(none), none.reason) == ([], "groups_closed")
    assert 58 < none.retry_after <= 60
    clock.shift_ms += 61_000
    assert [lease.payload for lease in other.claim(10)] == [2]
    told = q.stats()["settings"]
    assert (list(told["group_rate"]), told["group_burst"]) == ([1, 60.0], 2)
    q.configure(group_rate=None)
    assert q.stats()["settings"]["group_rate"] is None


def test_where_too_many_groups_owe_starts_no_further_one_starts(
    q: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GROUP_DEBTS_MAX", 2)
    q.configure(group_rate=(1, 60))
    for group in "abc":
        fill(q, group, 1)
    assert [lease.group for lease in q.claim(10)] == ["a", "b"]
    none = q.claim(10)
    assert none.reason == "group_limit"
    assert 50 < none.retry_after <= 60


def test_why_tells_the_rate_of_a_group(q: Any) -> None:
    q.configure(group_rate=(1, 60), group_running=0)
    first, second = (q.enqueue(at, group="a").job_id for at in range(2))
    q.claim(10)
    text = str(q.why(second))
    assert "its group 'a' may start 1 job in 60 s, 1 at once" in text
    assert "next: the next start is allowed" in text
    assert first not in text


# ── Groups with limits of their own ──────────────────────────────────────────
def test_a_group_has_limits_of_its_own_and_lets_go_of_them(q: Any) -> None:
    q.configure(group_rate=(1, 60), shards=3)
    q.configure_group("a/7 é", running=3, rate=(50, 60), burst=5)
    q.configure_group("b", rate=(2, 60))
    fill(q, "a/7 é", 5)
    fill(q, "c", 2)
    got = [lease.group for _ in range(9) for lease in q.claim(10)]
    assert sorted(got) == ["a/7 é"] * 3 + ["c"]
    assert {group: {**row, "rate": list(row["rate"])} for group, row in q.stats()["groups"].items()} == {
        "a/7 é": {"running": 3, "rate": [50, 60.0], "burst": 5},
        "b": {"rate": [2, 60.0]},
    }
    q.configure_group("a/7 é", running=None, burst=None)
    q.configure(groups={"b": {"rate": None}})
    assert list(q.stats()["groups"]) == ["a/7 é"]
    assert q.stats()["groups"]["a/7 é"].keys() == {"rate"}


@pytest.mark.parametrize(
    ("group", "wished", "field"),
    [
        ("", {"running": 1}, "group"),
        ("a", {}, "groups"),
        ("a", {"running": -1}, "running"),
        ("a", {"rate": (0, 1)}, "rate"),
        ("a", {"burst": "many"}, "burst"),
        ("a", {"speed": 1}, "speed"),
    ],
)
def test_what_is_no_limit_of_a_group_is_refused(
    q: Any, group: str, wished: dict[str, Any], field: str
) -> None:
    with pytest.raises(Rejected) as caught:
        q.configure_group(group, **wished)
    assert caught.value.field == field


def test_as_many_groups_have_some_as_may(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    q = opened(timeout=2)  # an API is asked again for so long
    monkeypatch.setattr(limits, "GROUP_SETTINGS_MAX", 1)
    q.configure_group("a", running=2)
    with pytest.raises(Throttled, match="settings of their own"):
        q.configure_group("b", running=2)
    q.configure_group("a", running=3)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"group_rate": 5}, "group_rate"),
        ({"group_rate": (0, 1)}, "group_rate"),
        ({"group_rate": (1, 31 * 86_400)}, "group_rate"),
        ({"group_burst": -1}, "group_burst"),
        ({"group_burst": limits.RATE_BURST_MAX + 1}, "group_burst"),
    ],
)
def test_what_is_no_rate_is_refused_by_name(q: Any, settings: dict[str, Any], field: str) -> None:
    with pytest.raises(Rejected) as caught:
        q.configure(**settings)
    assert caught.value.field == field
