"""Ids, results and waiting: what callers may rely on, over every store, for Queue and AsyncQueue alike."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from osqueue import (
    Expired,
    JobCancelled,
    JobFailed,
    NotFinished,
    NotFound,
    Queue,
    Rejected,
    WaitTimeout,
    limits,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8000"


def complete(q: Any, result: Any = "r", **options: Any) -> str:
    """A job that is completed; its id."""
    job_id: str = q.enqueue(1, **options).job_id
    q.claim()[0].complete(result)
    return job_id


def fail(lease: Any) -> None:
    try:
        raise KeyError("colour")
    except KeyError as error:
        lease.fail(error, retry=False)


# ── Ids ──────────────────────────────────────────────────────────────────────
def test_a_second_call_under_an_id_is_a_duplicate_in_every_live_state(q: Any, clock: Any) -> None:
    first = q.enqueue("one", id="a", delay=600, max_attempts=2)
    assert (first.status, first.state) == ("queued", "scheduled")

    def again(state: str) -> None:
        done = q.enqueue("two", id="a")
        assert (done.status, done.state, done.job_id) == ("duplicate", state, first.job_id)

    again("scheduled")
    clock.shift_ms += 603_000
    q.reap()
    again("queued")
    (lease,) = q.claim()
    assert lease.payload == "one"
    again("processing")
    lease.fail("no", retry_in=600)
    again("failing")
    assert q.claim() == []


def test_a_completed_job_answers_for_its_id_and_the_next_one_begins_when_it_expires(
    q: Any, clock: Any
) -> None:
    job_id = complete(q, {"n": 1}, id="a", result_ttl=300)
    for _ in range(2):
        done = q.enqueue("again", id="a")
        assert (done.status, done.job_id) == ("completed", job_id)
        assert (done.state, done.result) == ("completed", {"n": 1})
        q.reap()
    clock.shift_ms += 301_000
    done = q.enqueue("anew", id="a")
    assert (done.status, done.job_id != job_id) == ("queued", True)
    assert [lease.payload for lease in q.claim(5)] == ["anew"]


@pytest.mark.parametrize("reaped", [False, True])
def test_failed_and_cancelled_jobs_give_their_ids_free(q: Any, reaped: bool) -> None:
    q.enqueue("one", id="a")
    fail(q.claim()[0])
    if reaped:
        q.reap()
    assert q.enqueue("two", id="a").status == "queued"
    assert q.cancel("a") == "cancelled"
    if reaped:
        q.reap()
    three = q.enqueue("three", id="a")
    assert three.status == "queued"
    assert [lease.payload for lease in q.claim(5)] == ["three"]  # and only that
    assert q.status("a").job_id == three.job_id
    assert q.stats()["failed"] == 1


def test_many_with_ids_are_told_apart_item_by_item(q: Any) -> None:
    q.enqueue("live", id="live")
    q.enqueue("cancelled", id="cancelled")
    q.cancel("cancelled")
    complete(q, 7, id="done", priority=0)
    items = [{"payload": name, "id": name.strip()} for name in ("live", "done", "cancelled", "new", "new ")]
    done = q.enqueue_many([*items, {"payload": "plain"}, {"payload": "bad", "id": "x" * 257}])
    assert [each.status for each in done] == [
        "duplicate",
        "completed",
        "queued",
        "queued",
        "duplicate",
        "queued",
        "rejected",
    ]
    assert done[1].result == 7
    assert done[3].job_id == done[4].job_id
    assert done[6].error.field == "id"
    assert sorted(lease.payload for lease in q.claim(9)) == ["cancelled", "live", "new", "plain"]


def test_more_jobs_with_ids_than_one_request_holds_are_all_accepted_once(q: Any) -> None:
    items = [{"payload": at, "id": f"job {at % 1_100}"} for at in range(1_200)]
    done = q.enqueue_many(items)
    assert [each.status for each in done] == ["queued"] * 1_100 + ["duplicate"] * 100
    assert [each.job_id for each in done[1_100:]] == [each.job_id for each in done[:100]]
    assert q.stats()["queued"] == 1_100
    assert q.status("job 1050").job_id == done[1_050].job_id


def test_sixteen_who_enqueue_one_id_at_once_make_one_job(
    new_store: Callable[[], Any], clock: Any, q: Any
) -> None:
    queues = [Queue[Any](new_store(), "mail", machine=clock) for _ in range(16)]
    with ThreadPoolExecutor(16) as threads:
        for name in ("a", "b"):
            done = list(threads.map(lambda each, name=name: each.enqueue(1, id=name), queues))  # type: ignore[misc]
            assert sorted(each.status for each in done) == ["duplicate"] * 15 + ["queued"]
            assert len({each.job_id for each in done}) == 1
            assert q.status(name).job_id == done[0].job_id
    assert len(q.claim(20)) == 2
    for each in queues:
        each.close()


def test_jobs_are_found_cancelled_and_read_by_their_ids_in_every_shard(q: Any) -> None:
    q.configure(shards=3)
    names = [f"id {at}" for at in range(6)]
    done = [q.enqueue(at, id=name) for at, name in enumerate(names)]
    assert [q.status(name).job_id for name in names] == [each.job_id for each in done]
    assert {each.job_id[-2:] for each in done} == {"00", "01", "02"}
    assert [q.enqueue(0, id=name).status for name in names] == ["duplicate"] * 6
    assert q.cancel("id 3") == "cancelled"
    found: list[Any] = []
    while leases := q.claim(9):
        found += leases
    for lease in found:
        lease.complete(lease.payload)
    assert [q.result(name) for name in names if name != "id 3"] == [0, 1, 2, 4, 5]


# ── Results ──────────────────────────────────────────────────────────────────
def test_a_result_lives_for_an_hour_unless_told_otherwise(q: Any, clock: Any) -> None:
    usual = complete(q, 1)
    short = complete(q, 2, result_ttl=0.5)
    long = complete(q, 3, result_ttl=limits.RESULT_TTL_MS_MAX / 1000)
    assert q.status(usual).expires_at - q.status(usual).finished_at == timedelta(hours=1)
    clock.shift_ms += 1_000
    assert [_read(q, job) for job in (usual, short, long)] == [1, Expired, 3]
    clock.shift_ms += HOUR_MS - 300_000
    assert [_read(q, job) for job in (usual, long)] == [1, 3]
    clock.shift_ms += 300_000
    assert [_read(q, job) for job in (usual, long)] == [Expired, 3]
    assert [q.status(job) is None for job in (usual, short, long)] == [True, True, False]


def _read(q: Any, job: str) -> Any:
    """A job's result, or the kind of error that tells why there is none."""
    try:
        return q.result(job)
    except (Expired, NotFound, NotFinished, JobCancelled, JobFailed) as error:
        return type(error)


WRONG = [0, -1, float("inf"), float("nan"), 31 * 86_400, "60", True]


@pytest.mark.parametrize("ttl", WRONG, ids=repr)
def test_a_ttl_out_of_range_is_refused_by_name(q: Any, ttl: Any) -> None:
    job = complete(q)
    calls: list[Callable[[], Any]] = [
        lambda: q.enqueue(1, result_ttl=ttl),
        lambda: q.enqueue_and_wait(1, result_ttl=ttl),
        lambda: q.update_result_ttl(job, ttl),
    ]
    for call in calls:
        with pytest.raises(Rejected, match="result_ttl") as caught:
            call()
        assert caught.value.field == "result_ttl"
    with pytest.raises(Rejected, match="result_ttl"):
        q.update_result_ttl(job, None)  # of an enqueue it would leave it to the queue
    (item,) = q.enqueue_many([{"payload": 1, "result_ttl": ttl}])
    assert (item.status, item.error.field) == ("rejected", "result_ttl")
    assert q.claim() == []
    assert q.result(job) == "r"


def test_expired_is_told_from_not_found_until_nobody_remembers_the_job(q: Any, clock: Any) -> None:
    job = complete(q, id="a", result_ttl=10)
    with pytest.raises(NotFound):
        q.result(UNKNOWN)
    with pytest.raises(NotFound):
        q.result("no such id")
    clock.shift_ms += 11_000  # of a store on another machine, the time is known within bounds
    for _ in range(2):
        assert [_read(q, name) for name in (job, "a")] == [Expired, Expired]
        assert [q.status(name) for name in (job, "a", UNKNOWN)] == [None, None, None]
        assert [q.cancel(name) for name in (job, "a", UNKNOWN)] == ["not_found"] * 3
        q.reap()
        clock.shift_ms += HOUR_MS
    clock.shift_ms += DAY_MS
    report = q.reap()
    assert (report.forgotten, report.freed) == (1, 1)
    assert [_read(q, name) for name in (job, "a")] == [NotFound, NotFound]
    assert [each.job_id for each in _history(q)] == [job]  # the archive has its record


def _history(q: Any) -> list[Any]:
    found = q.history()
    if not hasattr(found, "__aiter__"):
        return list(found)
    return q._loop.run_until_complete(_collect(found))  # type: ignore[no-any-return]


async def _collect(found: Any) -> list[Any]:
    return [each async for each in found]


def test_a_job_without_a_result_yet_or_without_one_at_all_says_so(q: Any) -> None:
    waiting, queued = q.enqueue(1, delay=60).job_id, q.enqueue(1).job_id
    assert [_read(q, job) for job in (waiting, queued)] == [NotFinished, NotFinished]
    (lease,) = q.claim()
    assert _read(q, queued) is NotFinished
    lease.fail("no", retry_in=60)
    assert _read(q, queued) is NotFinished
    q.cancel(queued)
    q.cancel(waiting)
    for _ in range(2):
        assert [_read(q, job) for job in (queued, waiting)] == [JobCancelled, JobCancelled]
        q.reap()


def test_a_failed_job_tells_its_error(q: Any) -> None:
    job = q.enqueue(1, id="a").job_id
    fail(q.claim()[0])
    for _ in range(2):
        with pytest.raises(JobFailed, match=f"{job} failed after 1 attempts: KeyError") as caught:
            q.result("a")
        error = caught.value
        assert (error.job_id, error.type) == (job, "KeyError")
        assert "colour" in error.error
        assert 'raise KeyError("colour")' in error.traceback
        q.reap()
    q.redrive()
    assert _read(q, job) is NotFinished
    q.claim()[0].complete("at last")
    assert q.result("a") == "at last"


def test_no_result_is_none(q: Any) -> None:
    jobs = [complete(q, None, id="a"), complete(q, ""), complete(q, 0), complete(q, False)]
    for _ in range(2):
        assert [q.result(job) for job in jobs] == [None, "", 0, False]
        done = q.enqueue(1, id="a")
        assert (done.status, done.result) == ("completed", None)
        q.reap()


@pytest.mark.parametrize("size", [1_000, 1_024, 1_025, 40_000, 262_144])
def test_results_of_many_sizes_are_read_wherever_they_lie(q: Any, size: int) -> None:
    is_read_everywhere(q, size)


@pytest.mark.embedded
def test_a_result_larger_than_an_api_takes_is_read_wherever_it_lies(q: Any) -> None:
    is_read_everywhere(q, 1_500_000)


def is_read_everywhere(q: Any, size: int) -> None:
    text = "".join(chr(97 + at % 26) for at in range(size - 2))
    jobs = [complete(q, text, id="a")]
    for _ in range(3):
        assert [q.result(job) for job in jobs] == [text] * len(jobs)
        assert q.enqueue(1, id="a").result == text
        q.reap()  # from the head to a table, and from table to table
        jobs.append(complete(q, text))


def test_many_large_results_at_once_are_all_readable(q: Any) -> None:
    q.enqueue_many([{"payload": at} for at in range(120)])
    leases = q.claim(200)
    done = q.complete_many(
        [{"job_id": each.job_id, "token": each.token, "result": [each.payload] * 400} for each in leases]
    )
    assert all(each.ok for each in done)
    for _ in range(2):
        assert all(q.result(each.job_id) == [each.payload] * 400 for each in leases[::7])
        q.reap()


class Reversed:
    """A serialiser of one's own."""

    name = "reversed"

    def dumps(self, value: Any) -> bytes:
        return str(value)[::-1].encode()

    def loads(self, data: bytes, type: Any) -> Any:
        return data.decode()[::-1]


def test_the_side_of_the_result_may_have_another_serialiser(opened: Any) -> None:
    asks, works = opened(), opened(serializer="msgpack")
    job = asks.enqueue({"a": [1]}, id="a").job_id
    (lease,) = works.claim()
    assert lease.payload == {"a": [1]}
    lease.complete({"raw": b"\xff\x00", 5: None})
    for _ in range(2):
        for q in (asks, works):
            assert q.result(job) == {"raw": b"\xff\x00", 5: None}
            assert q.enqueue(0, id="a").result == {"raw": b"\xff\x00", 5: None}
        asks.reap()


def test_a_result_in_a_serialiser_that_the_reader_does_not_know_is_told(opened: Any) -> None:
    asks, works = opened(), opened(serializer=Reversed())
    job = works.enqueue("payload", id="a").job_id
    works.claim()[0].complete("result")
    assert works.result(job) == "result"
    with pytest.raises(Rejected, match="reversed"):
        asks.result(job)
    with pytest.raises(Rejected, match="reversed"):
        asks.enqueue("x", id="a")


# ── The TTL of a result, changed ─────────────────────────────────────────────
def _queued(q: Any) -> str:
    return str(q.enqueue(1).job_id)


def _deep(q: Any) -> str:
    return str(q.enqueue_many([{"payload": at} for at in range(1_200)])[1_100].job_id)


def _scheduled(q: Any) -> str:
    return str(q.enqueue(1, delay=5).job_id)


def _processing(q: Any) -> str:
    job = q.enqueue(1, priority=0).job_id
    q.claim(lease=600)
    return str(job)


def _failing(q: Any) -> str:
    job = q.enqueue(1).job_id
    q.claim()[0].fail("no", retry_in=5)
    return str(job)


def _work_all(q: Any, clock: Any) -> None:
    clock.shift_ms += 5_000
    while leases := q.claim(500):
        q.complete_many([{"job_id": x.job_id, "token": x.token, "result": "r"} for x in leases])


@pytest.mark.parametrize("state", [_queued, _deep, _scheduled, _failing])
@pytest.mark.parametrize("ttl", [600, 5 * 3_600])
def test_the_ttl_of_a_waiting_job_counts_from_its_end(q: Any, clock: Any, state: Any, ttl: float) -> None:
    job = state(q)
    q.update_result_ttl(job, ttl)
    clock.shift_ms += 1_200_000
    _work_all(q, clock)
    for _ in range(2):
        assert q.result(job) == "r"
        clock.shift_ms += int(ttl * 500 - 100_000)
        q.reap()
    assert q.result(job) == "r"
    clock.shift_ms += 205_000
    assert _read(q, job) is Expired


def test_the_ttl_of_a_running_job_counts_from_its_end(q: Any, clock: Any) -> None:
    q.enqueue(1, id="a")
    (lease,) = q.claim(lease=1_800)
    q.update_result_ttl("a", 600)
    clock.shift_ms += 1_200_000
    lease.complete("r")
    clock.shift_ms += 300_000
    assert q.result("a") == "r"
    clock.shift_ms += 305_000
    assert _read(q, "a") is Expired


@pytest.mark.parametrize("reaps", [0, 1, 2])
@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("ttl", [600, 10 * 3_600])
def test_the_ttl_of_a_job_that_is_over_counts_from_now(
    q: Any, clock: Any, reaps: int, cancelled: bool, ttl: float
) -> None:
    job = q.enqueue(1).job_id if cancelled else complete(q)
    if cancelled:
        q.cancel(job)
    there = JobCancelled if cancelled else "r"
    for _ in range(reaps):
        q.reap()
    clock.shift_ms += 1_200_000
    q.update_result_ttl(job, ttl)
    clock.shift_ms += int(ttl * 1_000) - 300_000
    q.reap()
    assert _read(q, job) == there
    clock.shift_ms += 305_000
    assert _read(q, job) is Expired
    q.reap()
    assert _read(q, job) is Expired
    with pytest.raises(Expired):
        q.update_result_ttl(job, 60)


def test_a_job_without_a_result_to_come_has_no_ttl_to_change(q: Any, clock: Any) -> None:
    job = q.enqueue(1, id="a").job_id
    fail(q.claim()[0])
    for name in (job, "a"):
        with pytest.raises(NotFinished):
            q.update_result_ttl(name, 60)
    for name in (UNKNOWN, "unknown"):
        with pytest.raises(NotFound):
            q.update_result_ttl(name, 60)


# ── Waiting ──────────────────────────────────────────────────────────────────
def test_who_waits_gets_the_result(q: Any, at_work: Any) -> None:
    with at_work(lambda lease: lease.complete([lease.payload] * 2)) as done:
        assert q.enqueue_and_wait("x") == ["x", "x"]
        assert q.enqueue_and_wait("y" * 5_000, kind="k", priority=1, max_attempts=1) == ["y" * 5_000] * 2
    assert done == ["x", "y" * 5_000]


def test_a_kept_result_answers_at_once(q: Any) -> None:
    complete(q, {"n": 1}, id="a")
    for _ in range(2):
        assert q.enqueue_and_wait("again", timeout=0, id="a") == {"n": 1}
        q.reap()
    assert q.claim() == []


def test_a_caller_joins_the_live_job_of_its_id(q: Any, opened: Any, at_work: Any) -> None:
    first = opened().enqueue("first", id="a")
    with at_work(lambda lease: lease.complete(lease.payload)) as done:
        assert q.enqueue_and_wait("second", id="a") == "first"
    assert done == ["first"]
    assert q.status("a").job_id == first.job_id


def test_patience_that_ends_leaves_the_job_to_go_on_and_its_result_to_be_read(q: Any, clock: Any) -> None:
    with pytest.raises(WaitTimeout) as caught:
        q.enqueue_and_wait("slow", timeout=0.1, id="a")
    (lease,) = q.claim()
    assert caught.value.job_id == lease.job_id
    with pytest.raises(WaitTimeout):
        q.enqueue_and_wait("slow", timeout=0, id="a")
    lease.complete("late")
    assert q.result(caught.value.job_id) == "late"
    assert q.enqueue_and_wait("again", timeout=0, id="a") == "late"


def test_a_failure_reaches_who_waits_with_type_message_and_traceback(q: Any, at_work: Any) -> None:
    with at_work(fail), pytest.raises(JobFailed) as caught:
        q.enqueue_and_wait(1)
    assert caught.value.type == "KeyError"
    assert "colour" in caught.value.error
    assert 'raise KeyError("colour")' in caught.value.traceback
    assert q.status(caught.value.job_id).state == "failed"


def test_a_job_that_is_retried_is_waited_for(q: Any, at_work: Any) -> None:
    def end(lease: Any) -> None:
        lease.fail("no", retry_in=0) if lease.attempt == 1 else lease.complete(lease.attempt)

    with at_work(end):
        assert q.enqueue_and_wait(1) == 2


def test_a_cancel_reaches_who_waits(q: Any, at_work: Any) -> None:
    with at_work(lambda lease: lease.cancel("not needed")), pytest.raises(JobCancelled, match="not needed"):
        q.enqueue_and_wait(1)


def test_a_finished_job_that_has_left_the_head_reaches_who_waits(
    q: Any, new_store: Callable[[], Any], clock: Any, at_work: Any
) -> None:
    def end(lease: Any) -> None:
        lease.complete("r")
        reaper.reap()

    with Queue[Any](new_store(), "mail", machine=clock) as reaper, at_work(end):
        assert q.enqueue_and_wait(1) == "r"


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "5", None])
def test_a_timeout_out_of_range_is_refused_and_nothing_is_enqueued(q: Any, timeout: Any) -> None:
    with pytest.raises(Rejected) as caught:
        q.enqueue_and_wait(1, timeout=timeout)
    assert caught.value.field == "timeout"
    assert q.claim() == []


def test_what_keeps_a_job_out_keeps_nobody_waiting(q: Any) -> None:
    with pytest.raises(Rejected, match="priority"):
        q.enqueue_and_wait(1, timeout=30, priority=10)
