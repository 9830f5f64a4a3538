"""What callers may rely on, over every store, for the blocking queue and the async one alike."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import LeaseLost


def test_a_job_goes_all_the_way(q: Any) -> None:
    done = q.enqueue({"to": "ada"}, kind="welcome", priority=2)
    assert (done.status, done.state) == ("queued", "queued")
    assert q.status(done.job_id).state == "queued"
    (lease,) = q.claim(worker="w1")
    assert (lease.job_id, lease.payload, lease.attempt, lease.kind) == (
        done.job_id,
        {"to": "ada"},
        1,
        "welcome",
    )
    lease.heartbeat()
    job = q.status(done.job_id)
    assert (job.state, job.worker, job.attempt) == ("processing", "w1", 1)
    lease.complete({"sent": True})
    job = q.status(done.job_id)
    assert (job.state, job.attempts[0].outcome) == ("completed", "completed")
    assert q.claim() == []


def test_two_objects_see_one_queue_and_another_queue_sees_nothing(opened: Any) -> None:
    one, two, other = opened(), opened(), opened("other")
    one.enqueue(1)
    two.enqueue(2)
    assert sorted(lease.payload for lease in one.claim(5)) == [1, 2]
    assert two.claim().reason == "empty"
    assert other.claim() == []
    assert other.stats()["queued"] == 0


def test_a_failed_job_is_tried_again_and_then_is_a_dead_letter(q: Any) -> None:
    done = q.enqueue(1, max_attempts=2)
    assert q.claim()[0].fail(ValueError("no"), retry_in=0) == "failing"
    (lease,) = q.claim()
    assert lease.attempt == 2
    assert lease.fail("no again") == "failed"
    job = q.status(done.job_id)
    assert (job.state, [each.error for each in job.attempts]) == ("failed", ["ValueError: no", "no again"])
    assert q.redrive(dry_run=True) == 1
    assert q.redrive(error="nothing like it") == 0
    assert q.redrive(error="again") == 1
    assert q.claim()[0].attempt == 1


def test_a_stalled_job_comes_back_and_its_first_worker_is_too_late(q: Any, clock: Any) -> None:
    done = q.enqueue(1)
    (slow,) = q.claim(lease=5)
    clock.shift_ms += 8_000
    (lease,) = q.claim()
    assert (lease.job_id, lease.attempt) == (done.job_id, 2)
    for late in (slow.heartbeat, slow.complete, slow.release, lambda: slow.fail("x")):
        with pytest.raises(LeaseLost):
            late()
    lease.complete()
    lease.complete()  # a repeat of the complete that won


def test_a_heartbeat_keeps_the_lease(q: Any, clock: Any) -> None:
    q.enqueue(1)
    (lease,) = q.claim(lease=600)
    for _ in range(3):
        clock.shift_ms += 400_000
        lease.heartbeat()
    lease.complete()


def test_a_delayed_job_waits_for_its_time(q: Any, clock: Any) -> None:
    assert q.enqueue(1, delay=60).state == "scheduled"
    assert q.claim() == []
    clock.shift_ms += 63_000
    assert len(q.claim()) == 1


def test_released_jobs_come_first_and_use_no_attempt(q: Any, clock: Any) -> None:
    q.enqueue_many([{"payload": at} for at in range(3)])
    first, second = q.claim(2)
    first.release()
    second.release(delay=60)
    assert [(lease.payload, lease.attempt) for lease in q.claim(3)] == [(0, 1), (2, 1)]
    clock.shift_ms += 63_000
    assert [lease.attempt for lease in q.claim(9) if lease.payload == 1] == [1]


def test_priorities_kinds_and_order(q: Any) -> None:
    q.enqueue_many([{"payload": at, "priority": at % 3, "kind": "ab"[at % 2]} for at in range(12)])
    assert [lease.payload for lease in q.claim(2, kinds=["b"])] == [3, 9]
    assert [lease.payload for lease in q.claim(20)] == [0, 6, 1, 4, 7, 10, 2, 5, 8, 11]


def test_a_waiting_job_is_cancelled_and_a_running_one_is_asked(q: Any) -> None:
    waiting, running, later = q.enqueue_many(
        [{"payload": 1, "priority": 9}, {"payload": 2}, {"payload": 3, "delay": 9}]
    )
    (lease,) = q.claim()
    assert lease.job_id == running.job_id
    assert q.cancel(waiting.job_id) == "cancelled"
    assert q.cancel(later.job_id) == "cancelled"
    assert q.cancel(running.job_id) == "processing"
    lease.heartbeat()
    assert lease.cancel_requested
    lease.cancel("as asked")
    assert [q.status(each.job_id).state for each in (waiting, running, later)] == ["cancelled"] * 3
    assert q.cancel(running.job_id) == "cancelled"


def test_a_complete_wins_over_a_cancel_that_was_only_requested(q: Any) -> None:
    done = q.enqueue(1)
    (lease,) = q.claim()
    q.cancel(done.job_id)
    lease.complete()
    assert q.status(done.job_id).state == "completed"
    assert q.cancel(done.job_id) == "completed"


@pytest.mark.parametrize("end", ["fail", "release"])
def test_a_cancel_requested_ends_with_the_attempt(q: Any, end: str) -> None:
    done = q.enqueue(1)
    (lease,) = q.claim()
    q.cancel(done.job_id)
    lease.fail("no") if end == "fail" else lease.release()
    assert q.status(done.job_id).state == "cancelled"


def test_a_paused_queue_hands_out_nothing(opened: Any) -> None:
    q, other = opened(), opened()
    q.enqueue(1)
    other.pause()
    assert q.claim().reason == "paused"
    q.enqueue(2)
    other.resume()
    assert len(q.claim(5)) == 2


def test_many_are_completed_in_one_commit_and_a_bad_one_fails_alone(q: Any) -> None:
    q.enqueue_many([{"payload": at} for at in range(5)])
    leases = q.claim(5)
    leases[2].complete()
    bad = {"job_id": leases[3].job_id, "token": "0-0"}
    done = q.complete_many(
        [leases[0], {"job_id": leases[1].job_id, "token": leases[1].token, "result": 1}, bad]
    )
    assert [(each.ok, each.code) for each in done] == [(True, "ok"), (True, "ok"), (False, "lease_lost")]
    assert [each.ok for each in q.heartbeat_many([*leases[3:], leases[0]])] == [True, True, False]
    assert [each.code for each in q.fail_many([{"job_id": leases[3].job_id, "token": leases[3].token}])] == [
        "failing"
    ]
    assert [each.ok for each in q.release_many([leases[4]])] == [True]
    assert q.stats()["completed"] == 3


def test_payloads_and_results_of_many_sizes(q: Any) -> None:
    pass_through(q, ["x" * size for size in (0, 1_000, 1_023, 5_000, 262_142)])


@pytest.mark.embedded
def test_payloads_and_results_larger_than_an_api_takes(q: Any) -> None:
    pass_through(q, ["x" * 262_143, "y" * 300_000])


def pass_through(q: Any, payloads: list[str]) -> None:
    """Each payload is its job's result as well."""
    q.enqueue_many([{"payload": each} for each in payloads])
    leases = q.claim(5)
    assert [lease.payload for lease in leases] == payloads
    assert all(each.ok for each in q.complete_many([
        {"job_id": lease.job_id, "token": lease.token, "result": lease.payload} for lease in leases
    ]))  # fmt: skip


def test_a_bulk_is_one_commit_in_order_with_delays_lanes_and_large_payloads(q: Any, clock: Any) -> None:
    items: list[dict[str, Any]] = [{"payload": at} for at in range(2_500)]
    items[7] = {"payload": "late", "delay": 60}
    items[8] = {"payload": "y" * 4_000, "priority": 1}
    done = q.enqueue_many(items)
    assert {each.status for each in done} == {"queued"}
    assert done[7].state == "scheduled"
    assert q.stats()["queued"] == 2_499
    (first,) = q.claim()
    assert first.payload == "y" * 4_000
    found: list[Any] = []
    while leases := q.claim(500):
        found.extend(lease.payload for lease in leases)
        q.complete_many(leases)
    assert found == [at for at in range(2_500) if at not in (7, 8)]
    clock.shift_ms += 63_000
    assert "late" in [lease.payload for lease in q.claim(9)]


def test_a_job_deep_in_the_backlog_is_found_and_cancelled(q: Any) -> None:
    done = q.enqueue_many([{"payload": at} for at in range(3_000)])
    assert q.status(done[2_000].job_id).state == "queued"
    assert q.cancel(done[2_000].job_id) == "cancelled"
    assert q.status(done[2_000].job_id).state == "cancelled"
    assert q.stats()["queued"] == 2_999


def test_a_delayed_job_cancelled_deep_in_a_segment_does_not_spoil_the_numbers(q: Any) -> None:
    done = q.enqueue_many([{"payload": at, "delay": 60} for at in range(1_200)])
    assert q.cancel(done[600].job_id) == "cancelled"
    stats = q.stats()
    assert (stats["queued"], stats["scheduled"], stats["cancelled"]) == (0, 1_199, 1)


def test_pages_show_every_job_once(q: Any) -> None:
    q.enqueue_many([{"payload": at} for at in range(1_100)])
    q.enqueue(1, delay=60)
    q.claim(3)
    seen, cursor = [], None
    while True:
        jobs, cursor = q.jobs(limit=250, cursor=cursor)
        seen.extend(jobs)
        if cursor is None:
            break
    assert len({job.job_id for job in seen}) == len(seen) == 1_101
    assert len(q.jobs("processing")[0]) == 3
    assert len(q.jobs("scheduled")[0]) == 1


def test_shards_share_the_work(q: Any) -> None:
    q.configure(shards=3)
    ids = [q.enqueue(at).job_id for at in range(9)]
    assert {int(text[-2:], 16) for text in ids} == {0, 1, 2}
    found = []
    while leases := q.claim(10):
        found.extend(leases)
    assert sorted(lease.payload for lease in found) == list(range(9))
    assert all(each.ok for each in q.complete_many(found))
    assert q.stats()["completed"] == 9


def test_a_reap_pass_archives_what_is_over(q: Any, clock: Any) -> None:
    q.enqueue_many([{"payload": at} for at in range(3)])
    first, second = q.claim(2, lease=600)
    first.complete()
    clock.shift_ms += 603_000
    report = q.reap()
    assert (report.archived, report.expired) == (1, 1)
    assert q.stats()["counters"]["completed"] == 1
    assert q.status(first.job_id).state == "completed"  # its result lives on for its TTL
    assert q.status(second.job_id).state == "queued"
    again = q.reap()
    assert (again.archived, again.expired) == (0, 0)
    clock.shift_ms += 3_600_000
    assert q.status(first.job_id) is None
    clock.shift_ms += 86_400_000
    assert q.reap().forgotten == 1
    assert q.status(first.job_id) is None


def test_settings_are_kept(opened: Any) -> None:
    kinds = {"send": {"max_attempts": 7, "run_within": 60.0}}
    opened().configure(backoff_base=5, backoff_cap=50, dead_ttl=3_600, archive_payloads=True, kinds=kinds)
    told = opened().stats()["settings"]
    assert told["archive_payloads"] is True
    assert (told["backoff_base"], told["backoff_cap"], told["dead_ttl"]) == (5.0, 50.0, 3_600.0)
    assert told["kinds"] == kinds
    opened().enqueue(1, kind="send", start_within=600)
    (lease,) = opened().claim()
    lease.heartbeat(progress=0.5, note="half")
    seen = opened().status(lease.job_id)
    assert (seen.max_attempts, seen.run_within, seen.progress, seen.note) == (7, 60.0, 0.5, "half")
    assert seen.start_by == lease.start_by is not None
