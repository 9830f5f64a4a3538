"""Pauses with an end, over every store and API, blocking and async."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from osqueue import Rejected
from osqueue.model.settings import Kind


def test_a_pause_ends_by_itself(opened: Callable[..., Any], clock: Any) -> None:
    q, other = opened(), opened()
    job = q.enqueue(1)
    q.pause(for_=60)
    assert other.claim().reason == "paused"
    stats = q.stats()
    left = datetime.fromisoformat(stats["paused_until"]).timestamp() - clock.now_ms() / 1000
    assert stats["paused"]
    assert 50 < left < 70
    assert "the queue is paused until 2" in str(q.why(job.job_id))
    clock.shift_ms += 63_000
    assert not q.stats()["paused"]
    assert "paused" not in str(q.why(job.job_id))
    assert len(opened().claim()) == 1  # of a process that knows nothing of the clock yet


def test_a_kind_is_paused_until_a_time_or_for_a_while(opened: Callable[..., Any], clock: Any) -> None:
    q = opened()
    job = q.enqueue(1, kind="send")
    q.enqueue(2)
    q.pause("send", until=datetime.fromtimestamp(clock.now_ms() / 1000, UTC) + timedelta(seconds=60))
    assert [lease.kind for lease in q.claim(5, lease=600)] == [None]
    assert q.claim().reason == "paused"
    story = str(q.why(job.job_id))
    assert "kind send is paused until 2" in story
    assert "until then, or until somebody resumes it" in story
    assert q.stats()["settings"]["kinds"]["send"]["paused_until"][:2] == "20"
    clock.shift_ms += 63_000
    assert len(q.claim()) == 1
    q.enqueue(3, kind="send")
    q.pause("send", for_=timedelta(hours=1))
    assert q.claim().reason == "paused"
    q.resume("send")
    assert len(q.claim()) == 1


def test_a_claim_that_waits_goes_on_when_a_pause_ends(opened: Callable[..., Any]) -> None:
    q = opened()
    q.enqueue(1)
    q.pause(for_=0.2)
    assert len(q.claim(wait=20)) == 1


def test_every_shard_ends_its_pause(opened: Callable[..., Any], clock: Any) -> None:
    q = opened()
    q.configure(shards=2)
    for at in range(12):
        q.enqueue(at)
    q.pause(for_=60)
    assert [len(q.claim(20)) for _ in range(3)] == [0, 0, 0]
    clock.shift_ms += 63_000
    assert sum(len(q.claim(20)) for _ in range(4)) == 12


def test_a_job_that_is_throttled_goes_back_and_its_kind_rests_on_every_shard(
    opened: Callable[..., Any], clock: Any
) -> None:
    q, other = opened(), opened()
    q.configure(shards=3)
    for at in range(12):
        q.enqueue(at, kind="send")
    (lease,) = q.claim()
    lease.throttle(60, why="429 from api.example")
    assert [len(q.claim(20)) for _ in range(3)] == [0, 0, 0]
    assert (other.claim().reason, other.claim().scope) == ("paused", "kind")
    assert "429 from api.example" in str(q.why(lease.job_id))
    assert "kind send is paused until 2" in str(q.why(lease.job_id))
    clock.shift_ms += 63_000
    again = [each for _ in range(5) for each in q.claim(20)]
    assert len(again) == 12
    assert {each.attempt for each in again} == {1}


def test_jobs_without_a_kind_are_a_kind_as_well(opened: Callable[..., Any]) -> None:
    q = opened()
    job = q.enqueue(1)
    q.enqueue(2, kind="other")
    (lease,) = q.claim(kinds=[None])
    lease.throttle(60)
    assert [each.kind for each in q.claim(5)] == ["other"]
    assert "the kind without a name is paused until 2" in str(q.why(job.job_id))
    q.resume("")
    assert len(q.claim(5)) == 1


def test_a_queue_is_throttled(opened: Callable[..., Any]) -> None:
    q = opened()
    q.enqueue(1)
    q.enqueue(2)
    (lease,) = q.claim()
    lease.throttle(60, scope="queue")
    none = q.claim()
    assert (none.reason, none.scope) == ("paused", "queue")
    assert 50 < none.retry_after <= 65
    q.resume()
    assert len(q.claim(5)) == 2


def test_a_job_is_given_back_until_a_time(opened: Callable[..., Any], clock: Any) -> None:
    q = opened()
    q.enqueue(1)
    (lease,) = q.claim()
    until = datetime.fromtimestamp(clock.now_ms() / 1000, UTC) + timedelta(seconds=60)
    lease.release(until=until)
    assert q.status(lease.job_id).state == "scheduled"
    clock.shift_ms += 63_000
    (lease,) = q.claim()
    assert lease.attempt == 1
    for wrong in ({"delay": 5, "until": until}, {"until": "soon"}):
        with pytest.raises(Rejected, match="until: "):
            lease.release(**wrong)
    for wrong, field in (({"seconds": 0}, "seconds"), ({"seconds": 5, "scope": "group"}, "scope")):
        with pytest.raises(Rejected, match=f"^{field}: "):
            lease.throttle(**wrong)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"for_": 0}, "for_"),
        ({"for_": "x"}, "for_"),
        ({"until": "soon"}, "until"),
        ({"until": datetime(2030, 1, 1)}, "until"),  # noqa: DTZ001
        ({"until": 5e12}, "until"),
        ({"for_": 5, "until": 1.9e9}, "until"),
    ],
)
def test_an_end_that_is_none_is_refused_by_name(
    opened: Callable[..., Any], wrong: dict[str, Any], field: str
) -> None:
    q = opened()
    with pytest.raises(Rejected) as caught:
        q.pause(**wrong)
    assert caught.value.field == field


def test_a_pause_that_is_none_has_no_end(opened: Callable[..., Any]) -> None:
    q = opened()
    with pytest.raises(Rejected, match="paused_for: "):
        q.configure(paused=False, paused_for=3)
    with pytest.raises(Rejected, match="paused_until: "):
        q.configure(kinds={"send": Kind(paused=False, paused_until=datetime.now(UTC))})
