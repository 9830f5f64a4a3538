"""The worker and its leases: heartbeats, cancels, leases that are lost, and giving back at the end."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from osqueue import AsyncQueue, Cancel, LeaseLost, Queue, Unavailable, WorkerJob
from osqueue.clock import Machine
from osqueue.core.encoding import decode_head
from osqueue.core.state import State
from osqueue.model.keys import key_of
from osqueue.objects.layout import root_of
from osqueue.stores.base import Failed, Get, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from osqueue.worker import loop
from osqueue.worker.loop import Worker
from tests.support.at_work import Still, until, working
from tests.support.patience import PATIENCE

SHORT = 1.0  # seconds: the shortest lease there is


class Shifted(Machine):
    """The machine's clock, set forward on demand."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def only(q: Queue[Any]) -> Any:
    (job,), _ = q.jobs()
    return job


def state_of(store: MemoryStore, shard: int = 0) -> State:
    return decode_head(store.get(Get(root_of("emails", shard) + "head")).body)  # type: ignore[union-attr]


def beaten(store: MemoryStore, machine: Still, shard: int = 0) -> bool:
    """Have all short leases of a shard just been extended?"""
    ends = {lease.expires_ms for lease in state_of(store, shard).leases.values()}
    return ends == {machine.now_ms() + round(1000 * SHORT)}


def test_heartbeats_keep_long_jobs_alive_with_one_commit_for_all() -> None:
    machine = Still()
    store = MemoryStore(machine)
    q: Queue[Any] = Queue(store, "emails", machine=machine)
    go_on = threading.Event()
    lost: list[bool] = []

    @q.handler
    def send(job: WorkerJob[Any]) -> None:
        assert go_on.wait(PATIENCE)
        lost.append(bool(job.lease_lost))

    q.enqueue_many([{"payload": n} for n in range(20)])
    with working(q, concurrency=20, lease=SHORT) as worker:
        until(lambda: worker.tally.claimed == 20)
        before = q.requests["put"]
        for _ in range(5):  # two leases long
            machine.advance(0.4 * SHORT)
            until(lambda: beaten(store, machine))
        assert q.requests["put"] - before == 5
        go_on.set()
    assert (worker.tally.completed, worker.tally.claimed, lost) == (20, 20, [False] * 20)


def test_a_cancel_is_seen_at_the_next_heartbeat_and_accepted_by_the_handler() -> None:
    machine = Still()
    q: Queue[Any] = Queue(MemoryStore(machine), "emails", machine=machine)
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
        machine.advance(0.4 * SHORT)
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
    machine = Still()

    async def main() -> Any:
        q: AsyncQueue[Any] = AsyncQueue(MemoryStore(machine), "emails", machine=machine)
        started = asyncio.Event()

        @q.handler
        async def send(job: Any) -> Any:
            started.set()
            await asyncio.wait_for(job.cancelled, PATIENCE)
            return Cancel()

        job_id = (await q.enqueue(1)).job_id
        assert job_id is not None
        worker = Worker(q, lease=SHORT, signals=False)
        work = asyncio.create_task(worker.serve())
        await started.wait()
        await q.cancel(job_id)
        machine.advance(0.4 * SHORT)
        worker.stop()
        return await work

    assert machine.run(main()).cancelled == 1


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
    refused = 0  # requests

    def perform(self, request: StoreRequest) -> StoreReply:
        self.refused += self.down
        return Failed(Unavailable("down")) if self.down else self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


def test_a_lease_is_not_trusted_to_its_end_when_no_heartbeat_gets_through() -> None:
    machine = Still()
    store = Breaking(MemoryStore(machine))
    q: Queue[Any] = Queue(store, "emails", machine=machine)
    jobs: list[WorkerJob[Any]] = []
    left: list[float] = []
    go_on = threading.Event()

    @q.handler
    def send(job: WorkerJob[Any]) -> None:
        jobs.append(job)
        if job.attempt == 1:
            assert job.lease_lost.wait(PATIENCE)
            left.append(job.seconds_left)
            assert go_on.wait(PATIENCE)

    q.enqueue(1)
    with working(q, lease=SHORT, concurrency=1) as worker:  # so it claims nothing meanwhile
        until(lambda: jobs)
        store.down = True
        machine.set_time(0.85 * SHORT)
        until(lambda: store.refused)  # a heartbeat, and every look at the lease comes before one
        assert not jobs[0].lease_lost
        machine.set_time(0.95 * SHORT)
        until(lambda: left)
        store.down = False
        machine.set_time(3 * SHORT)  # the lease is over, even if the heartbeat has still got through
        go_on.set()  # and the next one is claimed at this time, not on both sides of a leap
        until(lambda: worker.tally.completed)
    assert 0 < left[0] <= 0.1 * SHORT
    assert (worker.tally.lost, worker.tally.completed) == (1, 1)


def test_a_worker_outlives_a_store_that_is_down_and_says_the_result_later() -> None:
    store = Breaking(MemoryStore())
    Queue[Any](store, "emails").enqueue(1)
    q: Queue[Any] = Queue(store, "emails", timeout=0.05)
    came_back = threading.Event()

    @q.handler
    def send(job: WorkerJob[Any]) -> str:
        store.down = True
        threading.Timer(0.4, lambda: (came_back.set(), setattr(store, "down", False))).start()
        return "done"

    assert q.run(until_empty=True).completed == 1
    assert came_back.is_set()


class Dark(WrappedStore):
    """A store that gives no answer about one shard, on demand."""

    shard: int | None = None

    def perform(self, request: StoreRequest) -> StoreReply:
        about = getattr(request, "key", "")
        if self.shard is not None and about.startswith(root_of("emails", self.shard)):
            return Failed(Unavailable("no answer"))
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


@pytest.mark.parametrize("dark", [0, 1])
@pytest.mark.parametrize("kind", [Queue, AsyncQueue])
def test_a_shard_without_answers_costs_no_job_of_another(kind: Any, dark: int) -> None:
    """Neither its lease nor its result, although a call to the silent one lasts longer than a lease."""
    machine = Still()
    store = Dark(memory := MemoryStore(machine))
    q: Queue[Any] = Queue(store, "emails", machine=machine)
    q.configure(shards=2)
    q.enqueue_many([{"payload": 0}])
    q.enqueue_many([{"payload": 1}])
    started = threading.Semaphore(0)
    go_on = threading.Event()
    theirs = kind(store, "emails", timeout=4 * SHORT, machine=machine)

    @theirs.handler
    def send(job: WorkerJob[Any]) -> bool:
        started.release()
        return go_on.wait(PATIENCE)

    with working(theirs, lease=SHORT, concurrency=2):
        for _ in range(2):
            assert started.acquire(timeout=PATIENCE)
        store.shard = dark
        for _ in range(6):  # only heartbeats keep the leases now
            machine.advance(0.4 * SHORT)
            until(lambda: beaten(memory, machine, 1 - dark))
        go_on.set()  # the calls to the silent shard have half of their time yet
        until(lambda: state_of(memory, 1 - dark).counters.completed)
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
    machine = Still()
    q: Queue[Any] = Queue(MemoryStore(machine), "emails", machine=machine)
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
        worker.stop()
        machine.advance(0.05)
    end.set()
    assert worker.tally.released == 1
    assert jobs[0].lease_lost
    waiting, _ = q.jobs(state="queued")
    assert [(job.attempt, [a.outcome for a in job.attempts]) for job in waiting] == [
        (0, ["released"]),
        (0, []),
    ]


class Silent(WrappedStore):
    """Gives no answer until it may."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.asked, self.answer = threading.Event(), threading.Event()

    def perform(self, request: StoreRequest) -> StoreReply:
        self.asked.set()
        assert self.answer.wait(PATIENCE)
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return await asyncio.to_thread(self.perform, request)


@pytest.mark.parametrize("kind", [Queue, AsyncQueue])
def test_a_stop_waits_for_the_call_under_way_and_its_answer_ends_it(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "GIVE_BACK_SECONDS_MAX", PATIENCE)
    rounds: list[float] = []
    begin_turns = Worker._begin_turns
    monkeypatch.setattr(Worker, "_begin_turns", lambda *of: (rounds.append(of[1]), begin_turns(*of)))
    store = Silent()
    q = kind(store, "emails", timeout=PATIENCE)
    q.handler(lambda job: None)
    worker = Worker(q, drain=0, signals=False)
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert store.asked.wait(PATIENCE)
    worker.stop()
    threading.Event().wait(0.2)
    assert thread.is_alive()
    assert len(rounds) < 10  # it waits, and asks itself nothing meanwhile
    store.answer.set()
    thread.join(PATIENCE / 2)
    assert not thread.is_alive()


def test_a_handler_that_cancels_itself_uses_its_attempt() -> None:
    """Its job would come back for ever otherwise, as if it had been given back."""
    q: Queue[Any] = Queue.connect("memory://", "emails")
    q.configure(backoff_base=0.001)
    runs: list[int] = []

    @q.handler
    async def send(job: Any) -> None:
        runs.append(job.attempt)
        task = asyncio.current_task()
        if len(runs) < 5 and task is not None:
            task.cancel()
        await asyncio.sleep(0)

    q.enqueue(1, max_attempts=2)
    while only(q).state not in ("failed", "completed"):
        q.run(until_empty=True)
    assert runs == [1, 2]
    assert (only(q).state, only(q).error) == ("failed", "CancelledError: ")


def test_a_cancelled_run_gives_its_jobs_back() -> None:
    async def main() -> Any:
        machine = Still()
        q: AsyncQueue[Any] = AsyncQueue(MemoryStore(machine), "emails", machine=machine)
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


def test_a_run_that_ends_with_the_program_gives_its_jobs_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the loop cancels everything at once, the handler's task and the reporter among it."""
    monkeypatch.setattr(loop, "GIVE_BACK_SECONDS_MAX", PATIENCE)
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
