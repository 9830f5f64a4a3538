"""The worker and its leases: heartbeats, cancels, leases that are lost, and giving back at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from osqueue import AsyncQueue, Cancel, LeaseLost, Queue, Unavailable, WorkerJob
from osqueue.clock import Machine
from osqueue.core.wire import decode_head
from osqueue.keys import key_of
from osqueue.shards import root_of
from osqueue.stores.base import Failed, Get, Reply, Request
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from osqueue.worker import Signal
from osqueue.worker.loop import Worker

PATIENCE = 10  # seconds that a test waits for what must come
SHORT = 1.0  # seconds: the shortest lease there is


class Shifted(Machine):
    """The machine's clock, set forward on demand."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@contextlib.contextmanager
def working(q: Any, **options: Any) -> Iterator[Worker]:
    """A worker in a thread for as long as the block lasts."""
    worker = Worker(q, signals=False, **options)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def only(q: Queue[Any]) -> Any:
    (job,), _ = q.jobs()
    return job


def test_heartbeats_keep_long_jobs_alive_with_one_commit_for_all() -> None:
    q: Queue[Any] = Queue.connect("memory://", "emails")
    lost: list[bool] = []
    q.handler(lambda job: lost.append(job.lease_lost.wait(1.5 * SHORT)))
    q.enqueue_many([{"payload": n} for n in range(20)])
    before = q.requests["put"]
    tally = q.run(concurrency=20, lease=SHORT, until_empty=True)
    assert (tally.completed, tally.claimed, lost) == (20, 20, [False] * 20)
    # One claim, four or five heartbeats, and what the twenty endings fell into.
    beats = q.requests["put"] - before - 1
    assert 4 <= beats <= 30


def test_a_cancel_is_seen_at_the_next_heartbeat_and_accepted_by_the_handler() -> None:
    q: Queue[Any] = Queue.connect("memory://", "emails")
    started = threading.Event()

    @q.handler
    def send(job: WorkerJob[Any]) -> Any:
        started.set()
        return Cancel("as you wish") if job.cancelled.wait(PATIENCE) else "not seen"

    job_id = q.enqueue(1).job_id
    assert job_id is not None
    with working(q, lease=SHORT) as worker:
        assert started.wait(PATIENCE)
        assert q.cancel(job_id) == "processing"
    assert worker.tally.cancelled == 1
    assert only(q).state == "cancelled"


def test_a_handlers_own_heartbeat_sees_a_cancel_at_once() -> None:
    q: Queue[Any] = Queue.connect("memory://", "emails")
    seen: list[bool] = []

    @q.handler
    def send(job: WorkerJob[Any]) -> Any:
        q.cancel(job.job_id)
        seen.append(bool(job.cancelled))
        job.heartbeat()
        seen.append(bool(job.cancelled))
        return "finished all the same"

    q.enqueue(1)
    assert q.run(until_empty=True).completed == 1
    assert seen == [False, True]
    assert only(q).state == "completed"


def test_a_coroutine_waits_for_a_cancel_by_awaiting_it() -> None:
    async def main() -> Any:
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails")
        started = asyncio.Event()

        @q.handler
        async def send(job: Any) -> Any:
            started.set()
            await asyncio.wait_for(job.cancelled, PATIENCE)
            return Cancel()

        job_id = (await q.enqueue(1)).job_id
        assert job_id is not None
        work = asyncio.create_task(q.run(lease=SHORT, until_empty=True, signals=False))
        await started.wait()
        await q.cancel(job_id)
        return await work

    assert asyncio.run(main()).cancelled == 1


def test_the_result_of_a_lost_lease_is_discarded() -> None:
    machine = Shifted()
    store = MemoryStore(machine)
    q, other = Queue[Any](store, "emails"), Queue[Any](store, "emails")
    started, taken = threading.Event(), threading.Event()
    told: list[bool] = []
    errors: list[Exception] = []

    @q.handler
    def send(job: WorkerJob[Any]) -> str:
        started.set()
        told.append(job.lease_lost.wait(PATIENCE))
        try:
            job.heartbeat()
        except LeaseLost as error:
            errors.append(error)
        assert taken.wait(PATIENCE)
        return "late"

    q.enqueue(1)
    with working(q, lease=SHORT, concurrency=1) as worker:  # so it has no hand free for the job itself
        assert started.wait(PATIENCE)
        machine.ahead_ms = 60_000  # the store's clock decides: the lease is over
        (lease,) = other.claim(wait=PATIENCE)
        taken.set()
    lease.complete("in time")
    assert (told, len(errors)) == ([True], 1)
    assert (worker.tally.lost, worker.tally.completed) == (1, 0)
    assert [each.outcome for each in only(q).attempts] == ["stalled", "completed"]


class Breaking(WrappedStore):
    """A store that cannot be reached while ``down``."""

    down = False

    def perform(self, request: Request) -> Reply:
        return Failed(Unavailable("down")) if self.down else self.inner.perform(request)

    async def perform_async(self, request: Request) -> Reply:
        return self.perform(request)


def test_a_lease_is_not_trusted_to_its_end_when_no_heartbeat_gets_through() -> None:
    store = Breaking(MemoryStore())
    q: Queue[Any] = Queue(store, "emails")
    left: list[float] = []

    @q.handler
    def send(job: WorkerJob[Any]) -> None:
        if job.attempt > 1:
            return
        store.down = True
        assert job.lease_lost.wait(PATIENCE)
        left.append(job.seconds_left)
        store.down = False

    q.enqueue(1)
    lease = 4 * SHORT  # a tenth of it is what a busy machine may be late by
    with working(q, lease=lease) as worker:
        for _ in range(PATIENCE * 20):
            if worker.tally.completed:
                break
            threading.Event().wait(0.05)
    assert 0 < left[0] <= 0.1 * lease
    assert (worker.tally.lost, worker.tally.completed) == (1, 1)


def test_a_worker_outlives_a_store_that_is_down_and_says_the_result_later() -> None:
    store = Breaking(MemoryStore())
    q: Queue[Any] = Queue(store, "emails", timeout=0.05)
    came_back = threading.Event()

    @q.handler
    def send(job: WorkerJob[Any]) -> str:
        store.down = True
        threading.Timer(0.4, lambda: (setattr(store, "down", False), came_back.set())).start()
        return "done"

    q.enqueue(1)
    assert q.run(until_empty=True).completed == 1
    assert came_back.is_set()


class Dark(WrappedStore):
    """A store that gives no answer about one shard, on demand."""

    shard: int | None = None

    def perform(self, request: Request) -> Reply:
        about = getattr(request, "key", "")
        if self.shard is not None and about.startswith(root_of("emails", self.shard)):
            return Failed(Unavailable("no answer"))
        return self.inner.perform(request)

    async def perform_async(self, request: Request) -> Reply:
        return self.perform(request)


@pytest.mark.parametrize("dark", [0, 1])
@pytest.mark.parametrize("kind", [Queue, AsyncQueue])
def test_a_shard_without_answers_costs_no_job_of_another(kind: Any, dark: int) -> None:
    """Neither its lease nor its result, although a call to the silent one lasts longer than a lease."""
    store = Dark(MemoryStore())
    q: Queue[Any] = Queue(store, "emails")
    q.configure(shards=2)
    q.enqueue_many([{"payload": 0}])
    q.enqueue_many([{"payload": 1}])
    started = threading.Semaphore(0)
    go_on = threading.Event()
    theirs = kind(store, "emails", timeout=4 * SHORT)

    @theirs.handler
    def send(job: WorkerJob[Any]) -> bool:
        started.release()
        return go_on.wait(PATIENCE)

    with working(theirs, lease=SHORT, concurrency=2):
        for _ in range(2):
            assert started.acquire(timeout=PATIENCE)
        store.shard = dark
        threading.Event().wait(2.5 * SHORT)  # only heartbeats keep the leases now
        go_on.set()
        healthy = root_of("emails", 1 - dark) + "head"
        patience = time.monotonic() + 3 * SHORT
        while not decode_head(store.inner.get(Get(healthy)).body).counters.completed:  # type: ignore[union-attr]
            assert time.monotonic() < patience
            threading.Event().wait(0.01)
        store.shard = None
    (job,) = [job for job in q.jobs(state="completed")[0] if key_of(job.job_id)[15] != dark]
    assert [each.outcome for each in job.attempts] == ["completed"]


def test_a_stop_waits_for_running_handlers() -> None:
    q: Queue[Any] = Queue.connect("memory://", "emails")
    started = threading.Event()

    @q.handler
    def send(job: WorkerJob[Any]) -> bool:
        started.set()
        return job.stopping.wait(PATIENCE)

    q.enqueue_many([{"payload": n} for n in range(3)])
    with working(q, concurrency=1) as worker:
        assert started.wait(PATIENCE)
    assert (worker.tally.completed, worker.tally.released) == (1, 0)
    assert q.stats()["queued"] == 2


@pytest.mark.parametrize("coroutine", [False, True], ids=["thread", "coroutine"])
def test_what_is_not_done_in_time_is_given_back_without_using_an_attempt(coroutine: bool) -> None:
    q: Queue[Any] = Queue.connect("memory://", "emails")
    started, end = threading.Event(), threading.Event()
    jobs: list[Any] = []

    def block(job: WorkerJob[Any]) -> str:
        jobs.append(job)
        started.set()
        end.wait(PATIENCE)
        return "too late"

    async def wait(job: Any) -> str:
        jobs.append(job)
        started.set()
        await asyncio.sleep(PATIENCE)
        return "too late"

    q.handler(wait if coroutine else block)
    q.enqueue("first")
    q.enqueue("second")
    with working(q, concurrency=1, drain=0.05) as worker:
        assert started.wait(PATIENCE)
    end.set()
    assert worker.tally.released == 1
    assert jobs[0].lease_lost
    waiting, _ = q.jobs(state="queued")
    assert [(job.attempt, [a.outcome for a in job.attempts]) for job in waiting] == [
        (0, ["released"]),
        (0, []),
    ]


def test_a_cancelled_run_gives_its_jobs_back() -> None:
    async def main() -> Any:
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails")
        started = asyncio.Event()

        @q.handler
        async def send(job: Any) -> None:
            started.set()
            await asyncio.sleep(PATIENCE)

        await q.enqueue(1)
        work = asyncio.create_task(q.run(signals=False))
        await started.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        return (await q.jobs(state="queued"))[0]

    (job,) = asyncio.run(main())
    assert (job.attempt, job.attempts[0].outcome) == (0, "released")


def test_a_run_that_ends_with_the_program_gives_its_jobs_back(tmp_path: Path) -> None:
    """Then the loop cancels everything at once, the handler's task and the desk among it."""
    address = f"file://{tmp_path}?fsync=off"

    async def main() -> None:
        q: AsyncQueue[Any] = AsyncQueue.connect(address, "emails")
        started = asyncio.Event()

        @q.handler
        async def send(job: Any) -> None:
            started.set()
            await asyncio.sleep(PATIENCE)

        await q.enqueue(1, max_attempts=1)
        work = asyncio.create_task(q.run(signals=False))
        await started.wait()
        assert not work.done()

    asyncio.run(main())
    job = only(Queue.connect(address, "emails"))
    assert (job.state, job.attempt, [each.outcome for each in job.attempts]) == ("queued", 0, ["released"])


def test_a_signal_stops_every_worker_of_a_loop() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def main() -> None:
        queues = [AsyncQueue.connect("memory://", name) for name in ("a", "b", "c")]
        for q in queues:
            q.handler(lambda job: None)
        runs = [asyncio.create_task(q.run()) for q in queues]
        await asyncio.sleep(0.05)
        runs[1].cancel()  # one of them goes before
        await asyncio.wait({runs[1]})
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(runs[0], runs[2]), PATIENCE)

    asyncio.run(main())
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_handler_that_the_program_gave_its_loop_stays() -> None:
    async def main() -> None:
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails")
        q.handler(lambda job: None)
        worker = Worker(q)
        run = asyncio.create_task(worker.serve())
        for _ in range(2):
            await asyncio.sleep(0.05)
            told.clear()
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(told.wait(), PATIENCE)
            worker.stop()
            await asyncio.wait_for(run, PATIENCE)

    asyncio.run(main())


SCRIPT = """
import sys, threading
from osqueue import Queue

q = Queue.connect(sys.argv[1], "emails")

def say(text):
    sys.stdout.write(f"{text}\\n")  # in one piece: two threads say something
    sys.stdout.flush()

@q.handler(kind="polite")
def polite(job):
    say("started")
    job.stopping.wait(30)
    say("stopping")

@q.handler(kind="stubborn")
def stubborn(job):
    say("started")
    threading.Event().wait(30)

say(q.run(concurrency=2, drain=float(sys.argv[2])))
"""


def process(address: str, drain: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, address, str(drain)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONWARNINGS": "error"}
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_handlers_finish_and_gives_the_rest_back(
    tmp_path: Path, number: signal.Signals
) -> None:
    q: Queue[Any] = Queue.connect(f"file://{tmp_path}?fsync=off", "emails")
    q.enqueue_many([{"payload": 0, "kind": kind} for kind in ("polite", "stubborn")])
    with process(f"file://{tmp_path}?fsync=off", drain=0.5) as worker:
        assert worker.stdout is not None
        assert [worker.stdout.readline() for _ in range(2)] == ["started\n"] * 2
        worker.send_signal(number)
        said, _ = worker.communicate(timeout=PATIENCE)
        assert worker.returncode == 0
    states = {(job.kind, job.state, job.attempt) for job in q.jobs()[0]}
    assert "stopping" in said
    assert states == {("polite", "completed", 1), ("stubborn", "queued", 0)}


def test_a_second_signal_ends_the_worker_now(tmp_path: Path) -> None:
    q: Queue[Any] = Queue.connect(f"file://{tmp_path}?fsync=off", "emails")
    q.enqueue_many([{"payload": 0, "kind": kind} for kind in ("polite", "stubborn")])
    with process(f"file://{tmp_path}?fsync=off", drain=600) as worker:
        assert worker.stdout is not None
        assert [worker.stdout.readline() for _ in range(2)] == ["started\n"] * 2
        worker.send_signal(signal.SIGTERM)
        assert worker.stdout.readline() == "stopping\n"
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=PATIENCE)
        assert worker.returncode == 0
    states = {job.kind: job.state for job in q.jobs()[0]}
    assert states["stubborn"] == "queued"
    assert states["polite"] in ("completed", "queued")  # it had said so; whether it had ended is a race


def test_a_signal_wakes_those_who_wait_and_those_who_come_later() -> None:
    happened = Signal()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(happened.wait(PATIENCE)))
    thread.start()
    assert not happened

    async def main() -> None:
        waiting = asyncio.ensure_future(asyncio.wait_for(happened, PATIENCE))
        await asyncio.sleep(0)
        await asyncio.to_thread(happened.set)
        await waiting
        await happened  # and at once when it has happened

    asyncio.run(main())
    thread.join(PATIENCE)
    assert woken == [True]
    assert happened.is_set()
