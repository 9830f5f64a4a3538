"""Group commit inside one process: who shares a flight, who inherits it, and what becomes of those who leave."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from osqueue import AsyncQueue, Damaged, Queue, Timeout, Unavailable
from osqueue.commit import group
from osqueue.commit.group import BlockingGroup
from osqueue.objects.layout import root_of
from osqueue.stores.base import Get, Put, PutIfAbsent, PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.faulty import FaultyStore
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from tests.support.patience import PATIENCE

HEAD = root_of("mail", 0) + "head"


def is_swap(request: StoreRequest) -> bool:
    return isinstance(request, PutIfMatch | PutIfAbsent) and request.key.endswith("/head")


class Gate(WrappedStore):
    """Holds every swap of the head until the test lets it pass, and counts them."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.open = True
        self.arrived = threading.Semaphore(0)
        self.passage = threading.Semaphore(0)
        self.swaps = 0
        self.inside = 0
        self.most_inside = 0
        self.after: Callable[[], None] = lambda: None  # runs on the caller's thread, the effect done

    def perform(self, request: StoreRequest) -> StoreReply:
        if not is_swap(request):
            return self.inner.perform(request)
        self.swaps += 1
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        try:
            if not self.open:
                self.arrived.release()
                assert self.passage.acquire(timeout=PATIENCE)
            reply = self.inner.perform(request)
            self.after()
            return reply
        finally:
            self.inside -= 1

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        if not is_swap(request):
            return self.inner.perform(request)
        self.swaps += 1
        while not self.open:
            self.arrived.release()
            await asyncio.sleep(0)
        return self.inner.perform(request)

    def pass_all(self) -> None:
        self.open = True
        self.passage.release(100)


class Announced(list[Any]):
    """A waiting list that tells when somebody joins."""

    def __init__(self) -> None:
        super().__init__()
        self.joined = threading.Semaphore(0)

    def append(self, waiter: Any) -> None:
        super().append(waiter)
        self.joined.release()


class Rig:
    """A queue whose first flight is held at the gate while others come to wait."""

    def __init__(self, machine: Any) -> None:
        self.gate = Gate(MemoryStore(machine))
        self.q: Queue[Any] = Queue(self.gate, "mail", machine=machine)
        self.q.enqueue("first")
        self.group = self.q._group(0)
        self.waiting = self.group._waiting = Announced()
        self.pool = ThreadPoolExecutor(40)
        self.gate.open = False

    def lead(self, work: Callable[[], Any]) -> Any:
        """Start somebody, and wait until its swap is at the gate."""
        future = self.pool.submit(work)
        assert self.waiting.joined.acquire(timeout=PATIENCE)
        assert self.gate.arrived.acquire(timeout=PATIENCE)
        return future

    def join(self, *works: Callable[[], Any]) -> list[Any]:
        """Start others, and wait until all of them wait for the next flight."""
        futures = [self.pool.submit(work) for work in works]
        for _ in works:
            assert self.waiting.joined.acquire(timeout=PATIENCE)
        return futures


@pytest.fixture
def rig(machine: Any) -> Any:
    rig = Rig(machine)
    yield rig
    rig.gate.pass_all()
    rig.pool.shutdown()


def results(futures: list[Any]) -> list[Any]:
    return [future.result(PATIENCE) for future in futures]


# ── Threads ──────────────────────────────────────────────────────────────────
def test_those_who_come_meanwhile_share_the_next_flight(rig: Rig) -> None:
    before = rig.gate.swaps
    leader = rig.lead(lambda: rig.q.enqueue("leader"))
    waiters = rig.join(*[lambda at=at: rig.q.enqueue(at) for at in range(30)])
    rig.gate.pass_all()
    assert {done.status for done in results([leader, *waiters])} == {"queued"}
    assert rig.gate.swaps - before == 2
    assert rig.gate.most_inside == 1
    assert rig.q.stats()["queued"] == 32


def test_each_rider_gets_the_answer_to_its_own_operations(rig: Rig) -> None:
    leader = rig.lead(lambda: rig.q.enqueue("leader"))
    waiters = rig.join(lambda: rig.q.claim(1), lambda: rig.q.enqueue("x", delay=60), lambda: rig.q.claim(5))
    rig.gate.pass_all()
    results([leader])
    one, later, rest = results(waiters)
    assert [lease.payload for lease in (*one, *rest)] == ["first", "leader"]
    assert later.state == "scheduled"


def test_many_threads_never_have_two_flights_in_the_air(machine: Any) -> None:
    gate = Gate(MemoryStore(machine))
    q: Queue[Any] = Queue(gate, "mail", machine=machine)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(q.enqueue, range(400)))
    assert gate.most_inside == 1
    assert q.stats()["queued"] == 400


def test_an_error_reaches_every_rider_and_the_next_call_is_fine(rig: Rig) -> None:
    store = rig.gate.inner
    good = store.perform(Put("copy", store._objects[HEAD].body))  # type: ignore[attr-defined]
    assert good
    body = store._objects[HEAD].body  # type: ignore[attr-defined]
    leader = rig.lead(lambda: rig.q.enqueue("leader"))
    waiters = rig.join(*[lambda: rig.q.enqueue(1)] * 3)
    store.perform(Put(HEAD, body[:-1]))
    rig.gate.pass_all()
    errors = [future.exception(PATIENCE) for future in (leader, *waiters)]
    assert [type(error) for error in errors] == [Damaged] * 4
    assert len({*map(id, errors)}) == 4, "a traceback would mix the frames of several threads"
    assert len({str(error) for error in errors}) == 1
    store.perform(Put(HEAD, body))
    assert rig.q.enqueue("again").status == "queued"


def test_an_interrupted_leader_hands_its_flight_to_a_rider(rig: Rig) -> None:
    def interrupt() -> None:
        rig.gate.after = lambda: None
        raise KeyboardInterrupt

    leader = rig.lead(lambda: rig.q.enqueue("leader"))
    waiters = rig.join(lambda: rig.q.enqueue("rider"), lambda: rig.q.enqueue("another"))
    rig.gate.after = interrupt
    rig.gate.pass_all()
    with pytest.raises(KeyboardInterrupt):
        leader.result(PATIENCE)
    assert [done.status for done in results(waiters)] == ["queued", "queued"]
    assert sorted(lease.payload for lease in rig.q.claim(9)) == ["another", "first", "leader", "rider"]


def test_an_interrupted_leader_alone_leaves_its_flight_to_the_next_caller(rig: Rig) -> None:
    def interrupt() -> None:
        rig.gate.after = lambda: None
        raise KeyboardInterrupt

    rig.gate.open = True
    rig.gate.after = interrupt
    with pytest.raises(KeyboardInterrupt):
        rig.q.claim(1)
    rig.q.enqueue("next")
    rig.q.enqueue("and one more")  # the lease that nobody received is given back on the way
    assert [lease.payload for lease in rig.q.claim(9)] == ["first", "next", "and one more"]


def test_an_interruption_in_the_middle_of_a_reduction_leaves_the_queue_usable(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
    q.enqueue("first")
    draw = machine.bits

    def interrupt(count: int) -> int:
        if count > 64:  # a commit id: the protocol itself is running, not a request
            monkeypatch.undo()
            raise KeyboardInterrupt
        return int(draw(count))

    monkeypatch.setattr(machine, "bits", interrupt)
    with pytest.raises(KeyboardInterrupt):
        q.enqueue("lost")
    assert q.enqueue("second").status == "queued"
    assert [lease.payload for lease in q.claim(9)] == ["first", "second"]


def test_a_leader_that_is_interrupted_before_it_takes_off_leaves_the_flight_to_the_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupting(group.CommitBatch):
        def __init__(self, *args: Any) -> None:
            monkeypatch.undo()
            super().__init__(*args)
            raise KeyboardInterrupt

    rig.q.timeout = 1.0
    leader = rig.lead(lambda: rig.q.enqueue("leader"))
    waiters = rig.join(*[lambda: rig.q.enqueue("rider")] * 3)
    monkeypatch.setattr(group, "CommitBatch", Interrupting)
    rig.gate.pass_all()
    leader.result(PATIENCE)
    ends = [future.exception(PATIENCE) for future in waiters]
    assert [type(end) for end in ends if end] == [KeyboardInterrupt]
    assert rig.q.stats()["queued"] == 4  # with the first and the leader's


def test_riders_of_a_flight_that_was_interrupted_inside_the_protocol_are_told(rig: Rig) -> None:
    machine = rig.q.machine
    draw = machine.bits
    leader = rig.lead(lambda: rig.q.enqueue("leader"))
    waiters = rig.join(*[lambda: rig.q.enqueue("rider")] * 3)

    def interrupt(count: int) -> int:
        machine.bits = draw  # type: ignore[method-assign]
        raise KeyboardInterrupt

    machine.bits = interrupt  # type: ignore[method-assign]
    rig.gate.pass_all()
    leader.result(PATIENCE)
    ends = [future.exception(PATIENCE) for future in waiters]
    assert sum(isinstance(end, KeyboardInterrupt) for end in ends) == 1
    assert all(end is None or isinstance(end, KeyboardInterrupt | Unavailable) for end in ends)
    assert rig.q.enqueue("afterwards").status == "queued"


def test_a_fork_child_speaks_with_a_voice_of_its_own(machine: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
    q.enqueue(1)
    writer = q._writers[0]
    parent, gets = writer.env, q.requests["get"]
    machine.pid = 2
    q.enqueue(2)
    assert writer.env not in ("", parent)
    assert q.requests["get"] == gets + 1  # the parent's head is not trusted
    assert q.stats()["queued"] == 2


def test_threads_of_a_fork_child_start_the_group_afresh_once(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
    q.enqueue(1)
    starting, go_on, starts = threading.Event(), threading.Event(), list[int]()
    real = BlockingGroup._start_afresh

    def slow(group: BlockingGroup, machine: Any) -> None:
        starts.append(1)
        if len(starts) == 1:
            starting.set()
            assert go_on.wait(PATIENCE)
        real(group, machine)

    monkeypatch.setattr(BlockingGroup, "_start_afresh", slow)
    machine.pid = 2
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(q.enqueue, 2)
        assert starting.wait(PATIENCE)
        second = pool.submit(q.enqueue, 3)
        wait([second], timeout=0.1)  # it cannot end before the first goes on
        go_on.set()
        assert [each.result(PATIENCE).status for each in (first, second)] == ["queued"] * 2
    assert len(starts) == 1


def test_a_fork_child_does_not_wait_for_the_parents_flight(rig: Rig) -> None:
    rig.lead(lambda: rig.q.enqueue("parent's"))
    rig.gate.open = True
    rig.q.machine.pid = 2  # type: ignore[attr-defined]
    assert rig.q.enqueue("child's").status == "queued"


def test_a_fork_child_with_coroutines_does_not_wait_for_the_parents_flight(machine: Any) -> None:
    gate = Gate(MemoryStore(machine))
    q: AsyncQueue[Any] = AsyncQueue(gate, "mail", machine=machine)

    async def until_in_the_air() -> list[asyncio.Task[Any]]:
        await q.enqueue("first")
        gate.open = False
        tasks = [asyncio.create_task(q.enqueue(each)) for each in ("in the air", "waits")]
        for _ in range(10):  # until the first is in the air
            await asyncio.sleep(0)
        return tasks

    async def child() -> list[Any]:
        async with asyncio.timeout(PATIENCE):
            await q.enqueue("child's")
            return [lease.payload for lease in await q.claim(9)]

    with asyncio.Runner() as parent:
        parent.run(until_in_the_air())
        gate.open = True
        machine.pid = 2  # and the parent's loop stands still, as it does in the child
        assert asyncio.run(child()) == ["first", "child's"]


def test_a_rider_that_waits_too_long_leaves_alone(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "LEAVE_GRACE_SECONDS", 0.0)
    leader = rig.lead(lambda: rig.q.enqueue("leader"))
    rig.q.timeout = 0.001
    with pytest.raises(Timeout, match="may still be applied"):
        rig.q.enqueue("impatient")
    rig.q.timeout = 25.0
    (patient,) = rig.join(lambda: rig.q.enqueue("patient"))
    rig.gate.pass_all()
    assert {done.status for done in results([leader, patient])} == {"queued"}
    assert [lease.payload for lease in rig.q.claim(9)] == ["first", "leader", "patient"]


def test_a_store_that_never_answers_ends_the_call_at_its_deadline(machine: Any) -> None:
    inner = MemoryStore(machine)
    Queue(inner, "mail", machine=machine).enqueue(1)
    q: Queue[Any] = Queue(FaultyStore(inner, error_rate=1.0, machine=machine), "mail", machine=machine)
    began = machine.monotonic()
    with pytest.raises(Unavailable, match=r"nothing happened\. injected error"):
        q.enqueue(2)
    assert 20 < machine.monotonic() - began <= 25


def test_an_observer_that_raises_does_not_stop_the_queue(machine: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)

    def broken(events: Any) -> None:
        raise RuntimeError("the observer's own fault")

    told: list[Any] = []
    q._observe(broken)
    q._observe(told.extend)
    assert q.enqueue(1).status == "queued"
    assert q.enqueue(2).status == "queued"
    assert len(told) == 2


# ── Coroutines ───────────────────────────────────────────────────────────────
def test_coroutines_share_flights(machine: Any) -> None:
    async def run() -> tuple[int, int]:
        gate = Gate(MemoryStore(machine))
        q: AsyncQueue[Any] = AsyncQueue(gate, "mail", machine=machine)
        await q.enqueue("first")
        before = gate.swaps
        await asyncio.gather(*[q.enqueue(at) for at in range(50)])
        return gate.swaps - before, (await q.stats())["queued"]

    assert asyncio.run(run()) == (1, 51)


def test_a_cancelled_coroutine_takes_nobody_with_it_and_its_leases_are_given_back(machine: Any) -> None:
    async def run() -> list[Any]:
        gate = Gate(MemoryStore(machine))
        q: AsyncQueue[Any] = AsyncQueue(gate, "mail", machine=machine)
        await q.enqueue_many([{"payload": at} for at in range(3)])
        gate.open = False
        claiming = asyncio.create_task(q.claim(2))
        while not gate.arrived.acquire(blocking=False):  # noqa: ASYNC110 - the gate serves threads too
            await asyncio.sleep(0)
        riding = asyncio.create_task(q.enqueue(3))
        waiting = asyncio.create_task(q.enqueue("never sent"))
        await asyncio.sleep(0)
        claiming.cancel()
        waiting.cancel()
        gate.open = True
        assert (await riding).status == "queued"
        for gone in (claiming, waiting):
            with pytest.raises(asyncio.CancelledError):
                await gone
        return [lease.payload for lease in await q.claim(9)]

    assert asyncio.run(run()) == [0, 1, 2, 3]


def test_a_call_that_tidies_up_while_everything_is_cancelled_is_flown(machine: Any) -> None:
    async def run() -> None:
        gate = Gate(MemoryStore(machine))
        q: AsyncQueue[Any] = AsyncQueue(gate, "mail", machine=machine)
        await q.enqueue("first")
        (lease,) = await q.claim()
        gate.open = False
        other = asyncio.create_task(q.enqueue("second"))
        while not gate.arrived.acquire(blocking=False):  # noqa: ASYNC110 - the gate serves threads too
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:  # as asyncio.run does at its end
            task.cancel()
        gate.open = True
        await asyncio.wait_for(lease.release(), PATIENCE)
        assert other.cancelled()

    asyncio.run(run())


def test_a_claim_cancelled_while_it_reads_payloads_gives_its_leases_back(machine: Any) -> None:
    class Slow(WrappedStore):
        reading = asyncio.Event()

        def perform(self, request: StoreRequest) -> StoreReply:
            return self.inner.perform(request)

        async def perform_async(self, request: StoreRequest) -> StoreReply:
            if isinstance(request, Get) and "/bodies/" in request.key and not self.reading.is_set():
                self.reading.set()
                await asyncio.sleep(PATIENCE)
            return self.inner.perform(request)

    async def run() -> Any:
        store = Slow(MemoryStore(machine))
        q: AsyncQueue[Any] = AsyncQueue(store, "mail", machine=machine)
        await q.enqueue("x" * 5_000, max_attempts=1)
        claiming = asyncio.create_task(q.claim())
        await store.reading.wait()
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        (lease,) = await q.claim()
        return lease.attempt, lease.payload

    assert asyncio.run(run()) == (1, "x" * 5_000)


def test_an_error_reaches_every_coroutine(machine: Any) -> None:
    async def run() -> list[Any]:
        store = MemoryStore(machine)
        q: AsyncQueue[Any] = AsyncQueue(store, "mail", machine=machine)
        store.perform(Put(HEAD, b"not a head"))
        return await asyncio.gather(*[q.enqueue(at) for at in range(5)], return_exceptions=True)

    ends = asyncio.run(run())
    assert [type(end) for end in ends] == [Damaged] * 5
    assert len({*map(id, ends)}) == 5
