"""The worker: what becomes of jobs, by what their handlers do."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from osqueue import AsyncQueue, Cancel, Fail, JobFailed, Queue, Rejected, Retry, Snooze, WorkerJob
from osqueue.operations.claims import ClaimResult
from osqueue.stores.base import StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from osqueue.worker import run_worker
from osqueue.worker.loop import Worker
from osqueue.worker.outcomes import RunAborted, RunCompleted, RunFailed, RunReleased
from osqueue.worker.reporter import WorkerReporter, resulting_state
from tests.support.at_work import until
from tests.support.patience import PATIENCE


@pytest.fixture
def q() -> Queue[Any]:
    queue: Queue[Any] = Queue.connect("memory://", "emails")
    queue.configure(backoff_base=0.001)
    return queue


def only(q: Queue[Any]) -> Any:
    """The one job of a queue."""
    (job,), _ = q.jobs()
    return job


def test_a_job_is_handed_over_and_its_result_completes_it(q: Queue[Any]) -> None:
    seen: list[WorkerJob[Any]] = []

    @q.handler
    def send(job: WorkerJob[Any]) -> str:
        seen.append(job)
        return "sent"

    job_id = q.enqueue({"to": "ada"}, priority=3).job_id
    tally = q.run(until_empty=True)

    (job,) = seen
    assert (tally.claimed, tally.completed) == (1, 1)
    assert (job.job_id, job.payload, job.attempt, job.max_attempts) == (job_id, {"to": "ada"}, 1, 3)
    assert (job.kind, job.priority, job.idempotency_key) == (None, 3, f"emails/{job_id}")
    assert only(q).state == "completed"


def test_a_worker_that_met_a_limit_ends_once_others_have_done_the_rest(q: Queue[Any]) -> None:
    """No head ever promises it a job: the last one is cancelled while the limit is used up."""
    q.configure(max_running=1)
    q.enqueue(1)
    (held,) = q.claim()
    waiting = q.enqueue(2).job_id
    assert waiting is not None
    q.handler(lambda job: None)
    worker = Worker(q, until_empty=True, signals=False)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    until(lambda: any(line.rest is not None for line in worker._lines._lines))
    q.cancel(waiting)
    held.complete()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert worker.tally.claimed == 0


def test_handlers_really_run_at_the_same_time(q: Queue[Any]) -> None:
    together = threading.Barrier(4)
    q.handler(lambda job: together.wait(PATIENCE))  # breaks unless all four are there at once
    for n in range(8):
        q.enqueue(n)
    assert q.run(concurrency=4, until_empty=True).completed == 8


def test_never_more_handlers_run_than_allowed(q: Queue[Any]) -> None:
    lock, running, most = threading.Lock(), [0], [0]
    as_many = threading.Event()

    @q.handler
    def work(job: WorkerJob[Any]) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            if most[0] == 3:
                as_many.set()
        assert as_many.wait(PATIENCE)
        job.stopping.wait(0.001)
        with lock:
            running[0] -= 1

    q.enqueue_many([{"payload": n} for n in range(60)])
    assert q.run(concurrency=3, until_empty=True).completed == 60
    assert most == [3]


def test_coroutine_handlers_run_together_over_a_blocking_queue(q: Queue[Any]) -> None:
    here: list[int] = []
    everybody = asyncio.Event()

    @q.handler
    async def send(job: Any) -> int:
        here.append(job.payload)
        if len(here) == 5:
            everybody.set()
        await asyncio.wait_for(everybody.wait(), PATIENCE)
        await job.heartbeat()
        return 1

    q.enqueue_many([{"payload": n} for n in range(5)])
    assert q.run(concurrency=5, until_empty=True).completed == 5


def test_an_async_queue_runs_blocking_and_coroutine_handlers() -> None:
    async def main() -> Any:
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails")

        @q.handler(kind="blocking")
        def block(job: WorkerJob[Any]) -> str:
            job.heartbeat()
            return threading.current_thread().name

        @q.handler(kind="coroutine")
        async def wait(job: Any) -> str:
            await job.heartbeat()
            return "done"

        await q.enqueue_many([{"payload": n, "kind": ("blocking", "coroutine")[n % 2]} for n in range(10)])
        return await q.run(until_empty=True)

    assert asyncio.run(main()).completed == 10


def test_a_worker_for_an_async_queue_can_be_run_from_blocking_code() -> None:
    q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails")
    q.handler(lambda job: None)
    asyncio.run(q.enqueue(1))
    assert run_worker(q, until_empty=True).completed == 1


def test_a_blocking_run_inside_a_loop_is_refused_with_the_remedy(q: Queue[Any]) -> None:
    q.handler(lambda job: None)

    async def main() -> None:
        q.run(until_empty=True)

    with pytest.raises(Rejected, match="AsyncQueue"):
        asyncio.run(main())


def test_an_exception_is_retried_until_attempts_are_used_up(q: Queue[Any]) -> None:
    @q.handler
    def send(job: WorkerJob[Any]) -> None:
        raise ValueError(f"attempt {job.attempt}")

    q.enqueue(1, max_attempts=3)
    while only(q).state != "failed":
        q.run(until_empty=True)
    assert [each.error for each in only(q).attempts] == [f"ValueError: attempt {n}" for n in (1, 2, 3)]


class Nasty(Exception):
    """An exception that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "stored"),
    [
        (Nasty(), "Nasty: (its message could not be made)"),
        (ValueError("lone \ud800 surrogate"), "ValueError: lone ? surrogate"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
    ],
    ids=["no message", "not Unicode", "exit", "interrupt"],
)
def test_whatever_a_handler_raises_fails_its_job_and_not_the_worker(
    q: Queue[Any], error: BaseException, stored: str
) -> None:
    @q.handler
    def send(job: WorkerJob[Any]) -> None:
        if job.payload == "bad":
            raise error

    q.enqueue("bad", max_attempts=1)
    q.enqueue("good")
    tally = q.run(until_empty=True)
    assert (tally.failed, tally.completed) == (1, 1)
    assert q.jobs(state="failed")[0][0].error == stored


def fall(depth: int) -> None:
    if not depth:
        raise KeyError("no such mailbox")
    fall(depth - 1)


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "coroutine"])
def test_what_a_handler_raised_is_told_with_its_class_and_the_end_of_its_traceback(
    q: Queue[Any], awaits: bool
) -> None:
    def send(job: WorkerJob[Any]) -> None:
        fall(2)

    async def send_async(job: Any) -> None:
        fall(2)

    q.handler(send_async if awaits else send)
    done = q.enqueue(1, max_attempts=1)
    q.run(until_empty=True)
    with pytest.raises(JobFailed) as caught:
        q.result(done.job_id or "")
    assert (caught.value.type, caught.value.error) == ("KeyError", "'no such mailbox'")
    lines = caught.value.traceback.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[1].endswith("in send_async" if awaits else "in send")  # the handler's own frame is the first
    assert lines[-1] == "KeyError: 'no such mailbox'"
    assert only(q).attempts[0].error_type == "KeyError"


def test_the_cause_of_an_exception_is_in_its_traceback(q: Queue[Any]) -> None:
    @q.handler
    def send(job: WorkerJob[Any]) -> None:
        try:
            fall(0)
        except KeyError as error:
            raise OSError("cannot send") from error

    done = q.enqueue(1, max_attempts=1)
    q.run(until_empty=True)
    with pytest.raises(JobFailed, match="cannot send") as caught:
        q.result(done.job_id or "")
    assert "no such mailbox" in caught.value.traceback
    assert "direct cause" in caught.value.traceback


def test_a_payload_and_a_result_that_cannot_be_converted_tell_their_class(q: Queue[Any]) -> None:
    @q.handler
    def send(job: WorkerJob[Any]) -> object:
        return object()

    done = q.enqueue(1, max_attempts=1)
    q.run(until_empty=True)
    with pytest.raises(JobFailed) as caught:
        q.result(done.job_id or "")
    assert caught.value.type == "Rejected"


def test_results_of_a_worker_with_another_serialiser_are_read_back_right() -> None:
    store = MemoryStore()
    client: Queue[Any] = Queue(store, "emails")
    worker: Queue[Any] = Queue(store, "emails", serializer="msgpack")

    @worker.handler
    def send(job: WorkerJob[Any]) -> Any:
        return {"got": job.payload, "raw": "x" * job.payload}

    ids = [client.enqueue(size, id=f"job-{size}").job_id or "" for size in (1, 5_000)]
    assert worker.run(until_empty=True).completed == 2
    for reader in (client, worker):
        for job_id, size in zip(ids, (1, 5_000), strict=True):
            assert reader.result(job_id) == {"got": size, "raw": "x" * size}
            assert reader.enqueue(0, id=f"job-{size}").result == {"got": size, "raw": "x" * size}


def test_a_snooze_comes_back_later_and_uses_no_attempt(q: Queue[Any]) -> None:
    runs: list[tuple[int, int]] = []

    @q.handler
    def send(job: WorkerJob[Any]) -> Any:
        runs.append((job.run, job.attempt))
        return Snooze(0.01) if job.run < 3 else "sent"

    q.enqueue(1, max_attempts=1)
    while only(q).state != "completed":
        q.run(until_empty=True)
    assert runs == [(1, 1), (2, 1), (3, 1)]


def test_a_snoozed_job_waits_for_its_time(q: Queue[Any]) -> None:
    q.handler(lambda job: Snooze(60))
    q.enqueue(1)
    assert q.run(until_empty=True).released == 1
    assert only(q).state == "scheduled"


@pytest.mark.parametrize("raises", [False, True], ids=["returned", "raised"])
def test_a_cancel_ends_the_job_as_cancelled(q: Queue[Any], raises: bool) -> None:
    @q.handler
    def send(job: WorkerJob[Any]) -> Any:
        if raises:
            raise Cancel("no address")
        return Cancel("no address")

    q.enqueue(1)
    assert q.run(until_empty=True).cancelled == 1
    assert only(q).state == "cancelled"


def test_a_fail_is_final_whatever_attempts_are_left(q: Queue[Any]) -> None:
    q.handler(lambda job: Fail("no such user"))
    q.enqueue(1, max_attempts=10)
    assert q.run(until_empty=True).failed == 1
    assert (only(q).state, only(q).attempt, only(q).error) == ("failed", 1, "no such user")


def test_a_retry_says_when_and_uses_an_attempt(q: Queue[Any]) -> None:
    q.handler(lambda job: Retry(3600, "rate limited"))
    q.enqueue(1)
    assert q.run(until_empty=True).failing == 1
    job = only(q)
    assert (job.state, job.attempt, job.error) == ("failing", 1, "rate limited")
    assert 3500 < (job.due_at - job.attempts[0].ended_at).total_seconds() <= 3601


def test_a_verdict_with_nonsense_in_it_fails_the_job(q: Queue[Any]) -> None:
    q.handler(lambda job: Snooze(-1))
    q.enqueue(1, max_attempts=1)
    assert q.run(until_empty=True).failed == 1
    assert "seconds" in only(q).error


def test_kinds_without_a_handler_are_never_claimed(q: Queue[Any]) -> None:
    done: list[Any] = []
    q.handler(kind="resize")(lambda job: done.append(job.payload))
    q.enqueue_many(
        [{"payload": n, "kind": kind} for n, kind in enumerate(["resize", "other", None, "resize"])]
    )
    assert q.run(until_empty=True).claimed == 2
    assert sorted(done) == [0, 3]
    assert {(job.kind, job.attempts) for job in q.jobs(state="queued")[0]} == {("other", ()), (None, ())}


def test_a_handler_without_a_kind_takes_what_no_other_does(q: Queue[Any]) -> None:
    done: list[tuple[str, Any]] = []
    q.handler(kind="resize")(lambda job: done.append(("resize", job.kind)))

    @q.handler
    def rest(job: WorkerJob[Any]) -> None:
        done.append(("rest", job.kind))

    q.enqueue_many([{"payload": 0, "kind": kind} for kind in ("resize", "other", None)])
    q.run(until_empty=True)
    assert sorted(done, key=repr) == [("resize", "resize"), ("rest", "other"), ("rest", None)]


def test_a_second_handler_for_a_kind_is_refused(q: Queue[Any]) -> None:
    q.handler(kind="resize")(lambda job: None)
    with pytest.raises(Rejected, match="resize"):
        q.handler(kind="resize")(lambda job: None)


def test_a_worker_without_handlers_is_refused(q: Queue[Any]) -> None:
    with pytest.raises(Rejected, match="@q"):
        q.run()


@pytest.mark.parametrize(
    ("option", "value"),
    [("concurrency", 0), ("concurrency", 1001), ("lease", 0.5), ("poll", 0), ("drain", -1), ("name", "")],
)
def test_an_option_that_makes_no_sense_is_named(q: Queue[Any], option: str, value: Any) -> None:
    q.handler(lambda job: None)
    with pytest.raises(Rejected, match=option):
        q.run(**{option: value})


def test_a_payload_that_does_not_decode_blocks_nobody() -> None:
    store = MemoryStore()
    Queue(store, "emails").enqueue_many(
        [{"payload": value, "max_attempts": 1} for value in ("poison", 1, "poison", 2)]
    )
    q: Queue[int] = Queue(store, "emails", type=int)
    done: list[int] = []
    q.handler(lambda job: done.append(job.payload))
    tally = q.run(concurrency=2, until_empty=True)
    assert (tally.completed, tally.failed) == (2, 2)
    assert sorted(done) == [1, 2]
    assert "payload" in q.jobs(state="failed")[0][0].error


def test_a_result_that_cannot_be_serialised_fails_its_own_job_only(q: Queue[Any]) -> None:
    together = threading.Barrier(4)  # so that all four end in one commit

    @q.handler
    def send(job: WorkerJob[Any]) -> Any:
        together.wait(PATIENCE)
        return object() if job.payload == 2 else job.payload

    q.enqueue_many([{"payload": n, "max_attempts": 1} for n in range(4)])
    tally = q.run(concurrency=4, until_empty=True)
    assert (tally.completed, tally.failed) == (3, 1)
    assert "cannot be serialised" in q.jobs(state="failed")[0][0].error


def test_a_poison_job_never_blocks_those_behind_it(q: Queue[Any]) -> None:
    @q.handler
    def send(job: WorkerJob[Any]) -> None:
        if job.payload == 0:
            raise ValueError("poison")

    q.enqueue_many([{"payload": n} for n in range(50)])
    while q.stats()["failed"] == 0:
        q.run(concurrency=1, until_empty=True)
    assert q.stats()["counters"]["completed"] == 49


def test_all_endings_of_a_turn_and_the_next_claim_share_one_commit(q: Queue[Any]) -> None:
    reporter = WorkerReporter(q, "me", 30)
    q.enqueue_many([{"payload": n} for n in range(10)])
    _, (claimed,) = q._run(reporter.turn([], [(5, None)]))
    assert isinstance(claimed, ClaimResult)
    jobs = [WorkerJob[Any](q.name, granted, q.machine) for granted in claimed.leases]
    endings = [
        RunCompleted(1),
        RunFailed("no"),
        RunFailed("no", retry_in=9),
        RunReleased(),
        RunAborted("why"),
    ]
    before = q.stats()["commits"]

    answers, (claimed,) = q._run(reporter.turn(list(zip(jobs, endings, strict=True)), [(3, None)]))

    assert isinstance(claimed, ClaimResult)
    assert len(claimed.leases) == 3
    assert [resulting_state(*pair) for pair in zip(endings, answers, strict=True)] == [
        *("completed", "failing", "failing", "released", "cancelled")
    ]
    assert q.stats()["commits"] == before + 1


def test_a_loss_in_a_turn_is_told_of_its_own_job_only(q: Queue[Any]) -> None:
    reporter = WorkerReporter(q, "me", 30)
    q.enqueue_many([{"payload": n} for n in range(2)])
    _, (claimed,) = q._run(reporter.turn([], [(2, None)]))
    assert isinstance(claimed, ClaimResult)
    jobs = [WorkerJob[Any](q.name, granted, q.machine) for granted in claimed.leases]
    jobs[0].token = "another"
    answers, _ = q._run(reporter.turn([(job, RunCompleted(1)) for job in jobs], []))
    assert [resulting_state(RunCompleted(1), done) for done in answers] == ["lost", "completed"]


class Watched(WrappedStore):
    """Remembers when it was asked what; can be out of order."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.times: list[float] = []
        self.asked = threading.Semaphore(0)

    def perform(self, request: StoreRequest) -> StoreReply:
        self.times.append(time.monotonic())
        self.asked.release()
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


def test_an_idle_worker_looks_less_and_less_often_and_writes_nothing() -> None:
    store = Watched()
    q: Queue[Any] = Queue(store, "emails")
    q.handler(lambda job: None)
    worker = Worker(q, poll=0.08, signals=False)
    thread = threading.Thread(target=worker.run)
    thread.start()
    for _ in range(8):
        assert store.asked.acquire(timeout=PATIENCE)
    worker.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    pauses = [b - a for a, b in zip(store.times, store.times[1:], strict=False)]
    assert min(pauses[-2:]) >= 0.08
    assert q.requests["put"] == 0


def test_an_idle_worker_stops_at_once() -> None:
    q: Queue[Any] = Queue.connect("memory://", "emails")
    q.handler(lambda job: None)
    worker = Worker(q, poll=3600, signals=False)
    thread = threading.Thread(target=worker.run)
    thread.start()
    worker.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_store_with_hiccups_loses_nothing() -> None:
    address = "memory://worker-hiccups"
    q: Queue[Any] = Queue.connect(f"{address}?error_rate=0.2&lost_reply_rate=0.1&seed=7", "emails")
    calm: Queue[Any] = Queue.connect(address, "emails")
    done: list[int] = []
    q.handler(lambda job: done.append(job.payload))
    calm.enqueue_many([{"payload": n, "max_attempts": 20} for n in range(300)])
    until = time.monotonic() + PATIENCE
    while calm.stats()["counters"]["completed"] < 300 and time.monotonic() < until:
        q.run(concurrency=8, lease=1, until_empty=True)
    assert set(done) == set(range(300))
    assert calm.stats()["counters"]["completed"] == 300
    assert calm.stats()["failed"] == 0
