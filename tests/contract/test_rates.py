"""Rates, and what a claim that gets nothing is told, over every store and API, blocking and async."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Rejected
from osqueue.model.settings import Kind


def many(q: Any, count: int, **options: Any) -> None:
    q.enqueue_many([{"payload": at, **options} for at in range(count)])


def test_no_more_jobs_start_than_the_rate_allows(opened: Callable[..., Any], clock: Any) -> None:
    q, other = opened(), opened()
    q.configure(rate=(1, 60), burst=3)
    many(q, 8)
    assert (len(q.claim(2)), len(other.claim(5))) == (2, 1)
    none = other.claim()
    assert (list(none), none.reason, none.scope) == ([], "rate_limited", "queue")
    assert 50 < none.retry_after <= 65
    (waiting, *_), _ = q.jobs("queued")
    story = str(q.why(waiting.job_id))
    assert "the queue may start 1 job in 60 s, 3 at once" in story
    assert "next: the next start is allowed 2" in story
    told = q.stats()["settings"]
    assert (list(told["rate"]), told["burst"]) == ([1, 60.0], 3)
    clock.shift_ms += 62_000
    assert len(opened().claim(5, lease=600)) == 1  # of a process that knows nothing of the clock yet
    q.configure(rate=None)
    assert q.stats()["settings"]["rate"] is None
    assert q.claim(20)


def test_kinds_have_rates_and_a_pause_beside_them(opened: Callable[..., Any], clock: Any) -> None:
    q = opened()
    q.configure(kinds={"send": Kind(rate=(1, 60)), "rest": Kind(rate=(10, 1), burst=2)})
    many(q, 3, kind="send")
    many(q, 3, kind="rest")
    q.pause("rest", for_=600)
    assert [lease.kind for lease in q.claim(10, lease=3_600)] == ["send"]
    none = q.claim()
    assert (none.reason, none.scope) == ("rate_limited", "kind")
    assert 50 < none.retry_after <= 65
    only = q.claim(kinds=["rest"])
    assert (only.reason, only.scope) == ("paused", "kind")
    assert 590 < only.retry_after <= 605
    clock.shift_ms += 62_000
    assert [lease.kind for lease in q.claim(10, lease=3_600)] == ["send"]
    q.configure(kinds={"send": Kind(rate=None)})
    assert [lease.kind for lease in q.claim(10)] == ["send"]
    assert q.stats()["settings"]["kinds"]["rest"]["rate"] == [10, 1.0]


def test_a_claim_that_waits_starts_as_soon_as_it_may(opened: Callable[..., Any]) -> None:
    q = opened()
    q.configure(rate=(4, 1), burst=1)
    many(q, 3)
    assert [len(q.claim(wait=20)) for _ in range(3)] == [1, 1, 1]


def test_an_empty_queue_and_a_paused_one_say_so(opened: Callable[..., Any]) -> None:
    q = opened()
    none = q.claim()
    assert (none.reason, none.retry_after, none.scope) == ("empty", None, None)
    q.enqueue(1)
    q.pause()
    none = q.claim()
    assert (none.reason, none.retry_after, none.scope) == ("paused", None, "queue")
    q.pause(for_=60)
    assert 50 < q.claim().retry_after <= 65


def test_shards_share_a_rate(opened: Callable[..., Any], clock: Any) -> None:
    q = opened()
    q.configure(shards=3, rate=(3, 60), burst=1)
    for at in range(30):
        q.enqueue(at)
    assert sum(len(q.claim(10, lease=3_600)) for _ in range(9)) == 3
    none = q.claim()
    assert (none.reason, none.scope) == ("rate_limited", "queue")
    clock.shift_ms += 62_000
    assert sum(len(q.claim(10, lease=3_600)) for _ in range(9)) == 3


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"rate": 5}, "rate"),
        ({"rate": "5/1"}, "rate"),
        ({"rate": (0, 1)}, "rate"),
        ({"rate": (1, 0)}, "rate"),
        ({"rate": (1.5, 1)}, "rate"),
        ({"rate": (1, 1, 1)}, "rate"),
        ({"rate": (1, 31 * 86_400)}, "rate"),
        ({"burst": -1}, "burst"),
        ({"burst": 1.5}, "burst"),
        ({"kinds": {"send": {"rate": (0, 1)}}}, "rate"),
    ],
)
def test_what_is_no_rate_is_refused_by_name(
    opened: Callable[..., Any], settings: dict[str, Any], field: str
) -> None:
    q = opened()
    with pytest.raises(Rejected) as caught:
        q.configure(**settings)
    assert caught.value.field == field
