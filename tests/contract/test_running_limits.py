"""Running limits and paused kinds, over every store and API, blocking and async."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Rejected
from osqueue.model.settings import Kind


def many(q: Any, count: int, **options: Any) -> None:
    q.enqueue_many([{"payload": at, **options} for at in range(count)])


def test_no_more_jobs_run_than_may(opened: Callable[..., Any]) -> None:
    q, other = opened(), opened()
    q.configure(max_running=3)
    many(q, 8)
    mine, theirs = q.claim(2), other.claim(5)
    assert (len(mine), len(theirs)) == (2, 1)
    none = q.claim()
    assert (list(none), none.reason) == ([], "running_limit")
    mine[0].complete()
    assert len(other.claim(5)) == 1
    assert q.stats()["settings"]["max_running"] == 3


def test_over_shards_the_sum_stays_within_the_limit(opened: Callable[..., Any]) -> None:
    q = opened()
    q.configure(max_running=7, shards=3, kinds={"send": Kind(max_running=4)})
    for at in range(30):
        q.enqueue(at, kind="send" if at % 2 else None)
    held: list[Any] = []
    for _ in range(12):
        held += q.claim(5)
    kinds = [lease.kind for lease in held]
    assert len(held) <= 7
    assert kinds.count("send") <= 4
    done = 0
    while held:
        q.complete_many(held)
        done += len(held)
        held = [lease for _ in range(4) for lease in q.claim(10)]
        assert len(held) <= 7
    assert done == 30


def test_a_kind_is_paused_and_resumed(opened: Callable[..., Any]) -> None:
    q = opened()
    many(q, 2, kind="send")
    many(q, 2, kind="other")
    q.pause("send")
    assert {lease.kind for lease in q.claim(10)} == {"other"}
    none = q.claim(10)
    assert (list(none), none.reason) == ([], "paused")
    (waiting, _), _ = q.jobs("queued")
    assert "kind send is paused" in str(q.why(waiting.job_id))
    q.resume("send")
    assert len(q.claim(10)) == 2


def test_why_tells_what_holds_a_job(opened: Callable[..., Any]) -> None:
    q = opened()
    q.configure(kinds={"send": Kind(max_running=1)})
    many(q, 2, kind="send")
    q.claim()
    (waiting,), _ = q.jobs("queued")
    story = str(q.why(waiting.job_id))
    assert "1 job of kind send runs, as many as may, the oldest since " in story
    assert "next: one more starts when one of them ends" in story


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_running": -1}, "max_running"),
        ({"max_running": 1.5}, "max_running"),
        ({"max_running": 3, "shards": 4}, "max_running: 3 over 4 shards"),
        (
            {"shards": 4, "kinds": {"send": Kind(max_running=2)}},
            "kinds: 'send': max_running: 2 over 4 shards",
        ),
        ({"kinds": {"send": {"max_runing": 2}}}, "max_runing: no such setting"),
    ],
)
def test_a_limit_that_cannot_hold_is_refused(q: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(Rejected, match=words):
        q.configure(**settings)
    assert q.stats()["settings"]["max_running"] == 0


def test_more_shards_than_a_limit_allows_are_refused(q: Any) -> None:
    q.configure(max_running=2)
    with pytest.raises(Rejected, match="Allow 3 at least, or use a queue of fewer shards") as caught:
        q.configure(shards=3)
    assert caught.value.field == "max_running"
    q.configure(shards=3, max_running=0)
