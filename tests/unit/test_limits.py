"""Every public limit, at the limit and one past it, through the public methods."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from osqueue import Queue, Rejected, Throttled, limits
from osqueue.objects.layout import root_of
from osqueue.stores.base import List
from osqueue.stores.memory import MemoryStore


@pytest.fixture
def q(machine: Any) -> Queue[Any]:
    return Queue(MemoryStore(machine), "mail", machine=machine)


def at_and_past(call: Callable[[Any], Any], fits: Any, past: Any) -> None:
    """The one is taken, the other refused."""
    call(fits)
    with pytest.raises(Rejected):
        call(past)


@pytest.mark.parametrize(
    ("field", "fits", "past"),
    [
        ("priority", 0, -1),
        ("priority", limits.PRIORITY_MAX, limits.PRIORITY_MAX + 1),
        ("kind", "k" * limits.KIND_CHARS_MAX, "k" * (limits.KIND_CHARS_MAX + 1)),
        ("kind", "é" * limits.KIND_CHARS_MAX, "é" * (limits.KIND_CHARS_MAX + 1)),
        ("max_attempts", 1, 0),
        ("max_attempts", limits.ATTEMPTS_MAX, limits.ATTEMPTS_MAX + 1),
        ("delay", 0, -0.001),
        ("delay", limits.DELAY_MS_MAX / 1000, limits.DELAY_MS_MAX / 1000 + 0.001),
        ("at", 0, -0.001),
        ("at", limits.AT_MS_MAX / 1000, limits.AT_MS_MAX / 1000 + 1),
        ("result_ttl", 0.001, 0),
        ("result_ttl", limits.RESULT_TTL_MS_MAX / 1000, limits.RESULT_TTL_MS_MAX / 1000 + 0.001),
    ],
)
def test_an_option_of_enqueue(q: Queue[Any], field: str, fits: Any, past: Any) -> None:
    at_and_past(lambda value: q.enqueue(1, **{field: value}), fits, past)
    assert len(q.jobs()[0]) == 1


@pytest.mark.parametrize(
    ("field", "fits", "past"),
    [
        ("limit", 1, 0),
        ("limit", limits.CLAIM_LIMIT_MAX, limits.CLAIM_LIMIT_MAX + 1),
        ("worker", "w", ""),
        ("worker", "w" * limits.WORKER_CHARS_MAX, "w" * (limits.WORKER_CHARS_MAX + 1)),
        ("lease", limits.LEASE_MS_MIN / 1000, limits.LEASE_MS_MIN / 1000 - 0.001),
        ("lease", limits.LEASE_MS_MAX / 1000, limits.LEASE_MS_MAX / 1000 + 0.001),
        (
            "kinds",
            [f"k{at}" for at in range(limits.KINDS_PER_CLAIM_MAX)],
            [f"k{at}" for at in range(limits.KINDS_PER_CLAIM_MAX + 1)],
        ),
    ],
)
def test_an_option_of_claim(q: Queue[Any], field: str, fits: Any, past: Any) -> None:
    q.enqueue(1, kind="k0")
    at_and_past(lambda value: q.claim(**{field: value}), fits, past)
    assert q.stats()["processing"] == 1


@pytest.mark.parametrize("value", [limits.DELAY_MS_MAX / 1000])
def test_a_retry_and_a_release_as_late_as_can_be(q: Queue[Any], value: float) -> None:
    q.enqueue_many([{"payload": 1}] * 2)
    first, second = q.claim(2)
    at_and_past(lambda value: first.fail("no", retry_in=value), value, value + 0.001)
    at_and_past(lambda value: second.release(delay=value), value, value + 0.001)
    assert (q.stats()["failing"], q.stats()["scheduled"]) == (1, 1)


def test_the_farthest_time_can_be_shown(q: Queue[Any]) -> None:
    done = q.enqueue(1, at=datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
    assert q.status(done.job_id).due_at == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)  # type: ignore[union-attr, arg-type]
    assert q.claim() == []


def test_an_aware_time_of_any_zone_is_taken(q: Queue[Any], machine: Any) -> None:
    from datetime import timezone

    soon = datetime.fromtimestamp(machine.now_ms() / 1000 + 10, timezone(timedelta(hours=9)))
    assert q.enqueue(1, at=soon).state == "scheduled"
    machine.advance(10)
    assert len(q.claim()) == 1


@pytest.mark.parametrize("over", [0, 1])
def test_an_inline_payload_and_a_body(q: Queue[Any], over: int) -> None:
    payload = "x" * (limits.INLINE_BYTES_MAX - 2 + over)  # two quotes in JSON
    q.enqueue(payload)
    bodies = q.store.perform(List(root_of("mail", 0) + "bodies/"))
    assert len(bodies.keys) == over  # type: ignore[union-attr]
    (lease,) = q.claim()
    assert lease.payload == payload
    lease.complete(payload)
    bodies = q.store.perform(List(root_of("mail", 0) + "bodies/"))
    assert len(bodies.keys) == 2 * over  # type: ignore[union-attr]


def test_a_payload_over_what_a_store_takes_is_refused(q: Queue[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAYLOAD_BYTES_MAX", 5_000)
    at_and_past(q.enqueue, "x" * 4_998, "x" * 4_999)


def test_large_payloads_share_body_objects_up_to_their_size(
    q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODY_BYTES_MAX", 10_000)
    payloads = [chr(97 + at) * 2_998 for at in range(7)]
    q.enqueue_many([{"payload": each} for each in payloads])
    bodies = q.store.perform(List(root_of("mail", 0) + "bodies/"))
    assert len(bodies.keys) == 3  # type: ignore[union-attr]
    assert [lease.payload for lease in q.claim(7)] == payloads


@pytest.mark.parametrize("count", [limits.ITEMS_PER_REQUEST_MAX, limits.ITEMS_PER_REQUEST_MAX + 1])
def test_a_call_at_and_past_one_request(q: Queue[Any], count: int) -> None:
    done = q.enqueue_many([{"payload": at} for at in range(count)])
    assert len({each.job_id for each in done}) == count
    segments = q.store.perform(List(root_of("mail", 0) + "segments/"))
    assert bool(segments.keys) == (count > limits.ITEMS_PER_REQUEST_MAX)  # type: ignore[union-attr]
    found: list[int] = []
    while leases := q.claim(400):
        found.extend(lease.payload for lease in leases)
        assert all(each.ok for each in q.complete_many(leases))
    assert found == list(range(count))


def test_more_items_than_a_call_may_have(q: Queue[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ITEMS_PER_CALL_MAX", 5)
    at_and_past(lambda count: q.enqueue_many([{"payload": 1}] * count), 5, 6)
    assert q.stats()["queued"] == 5


def test_completions_and_heartbeats_of_more_than_one_request(
    q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ITEMS_PER_REQUEST_MAX", 10)
    q.enqueue_many([{"payload": at} for at in range(25)])
    leases = [lease for _ in range(3) for lease in q.claim(10)]
    assert [each.ok for each in q.heartbeat_many(leases)] == [True] * 25
    assert [each.job_id for each in q.complete_many(leases)] == [lease.job_id for lease in leases]
    assert q.stats()["completed"] == 25


def test_more_kinds_than_lanes(q: Queue[Any]) -> None:
    for at in range(limits.LANES_MAX):
        q.enqueue(at, kind=f"k{at}")
    assert q.enqueue(100, kind="one more").state == "queued"
    done = q.enqueue_many([{"payload": 1, "kind": "k1"}, {"payload": 101, "kind": "one more"}])
    assert [each.status for each in done] == ["queued", "queued"]
    bulk = q.enqueue_many([{"payload": at, "kind": "one more" if at == 7 else "k1"} for at in range(1_500)])
    assert {each.status for each in bulk} == {"queued"}
    assert [lease.payload for lease in q.claim(5, kinds=["one more"])] == [100, 101, 7]


def test_more_delayed_jobs_than_there_is_room_for_are_told_how_to_go_on(
    q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osqueue.core.spill.DELAYED_SPANS_MAX", 0)
    with pytest.raises(Throttled, match="delay: too many delayed jobs"):
        q.enqueue(1, delay=60)
    done = q.enqueue_many([{"payload": 1}, {"payload": 1, "delay": 60}])
    assert [each.status for each in done] == ["queued", "rejected"]
    bulk = q.enqueue_many([{"payload": 1, "delay": 60 if at == 7 else 0} for at in range(1_500)])
    assert [at for at, each in enumerate(bulk) if each.status == "rejected"] == [7]


@pytest.mark.parametrize("shards", [1, limits.SHARDS_MAX])
def test_as_many_shards_as_can_be(q: Queue[Any], shards: int) -> None:
    q.configure(shards=shards)
    done = q.enqueue_many([{"payload": 1}])
    assert q.status(done[0].job_id).state == "queued"  # type: ignore[union-attr, arg-type]
    assert len(q.claim()) == 1
    with pytest.raises(Rejected):
        q.configure(shards=limits.SHARDS_MAX + 1)


def test_an_error_is_cut_to_what_is_kept(q: Queue[Any]) -> None:
    q.enqueue(1)
    (lease,) = q.claim()
    lease.fail("x" * 100_000)
    assert q.status(lease.job_id).error == "x" * 300  # type: ignore[union-attr]


@pytest.mark.parametrize("limit", [1, 1_000])
def test_a_page_of_any_allowed_size(q: Queue[Any], limit: int) -> None:
    q.enqueue_many([{"payload": at} for at in range(5)])
    seen, cursor = [], None
    while True:
        jobs, cursor = q.jobs(limit=limit, cursor=cursor)
        seen.extend(jobs)
        if cursor is None:
            break
    assert len({job.job_id for job in seen}) == len(seen) == 5
