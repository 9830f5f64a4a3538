"""Workers and claims that wait: how often they look, how soon they claim, and what they share. In virtual time."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from osqueue import Queue, limits
from osqueue.commit.effects import AwaitNews, Submit
from osqueue.operations.claims import closed_until
from osqueue.operations.head_board import (
    ACTIVE_SECONDS,
    HINTED_SECONDS,
    JITTER_SHARE,
    HeadBoard,
    Pace,
    WorkWaiter,
    pace_of,
)
from osqueue.stores.base import (
    Found,
    Hinted,
    LookPace,
    Store,
    StoreReply,
    StoreRequest,
    Told,
    Written,
)
from osqueue.stores.file import FileStore
from osqueue.stores.memory import MemoryStore
from osqueue.stores.valkey import ValkeyStore
from tests.support.machines import VirtualMachine
from tests.support.waiters import Process

QUICK = Store.look_pace.quick
TINY = 1e-6


class Worker:
    """Claims with one free hand, again and again, resting in between; every job is completed at once."""

    def __init__(self, q: Queue[Any], poll: float = 1.0, kinds: list[str] | None = None) -> None:
        self.q = q
        self.started: list[float] = []
        self.claims = 0
        self.until = 0.0
        self.waiter = q._flows.work_waiter(kinds, poll)  # type: ignore[union-attr]
        self.flow = self._work(kinds)
        self._asleep = ExitStack()
        self.resume()

    def _work(self, kinds: list[str] | None) -> Any:
        flows: Any = self.q._flows
        while True:
            self.claims += 1
            self.waiter.begin_claim()
            claimed = yield from flows.claim(kinds=kinds)
            for each in claimed.leases:
                self.started.append(self.q.machine.monotonic())
                yield from flows.complete(each.lease.job.key, each.lease.token, None)
            if not claimed.leases:
                self.waiter.closed_until = closed_until(claimed, self.q.machine.monotonic())
                yield from flows.rest(self.waiter)

    def resume(self) -> None:
        """Go on until it waits again."""
        self._asleep.close()
        reply: Any = None
        while True:
            effect = self.flow.send(reply)
            if isinstance(effect, AwaitNews):
                self.until = self.q.machine.monotonic() + effect.seconds
                self._asleep.enter_context(effect.sleeper.waking(self._wake))
                return
            if isinstance(effect, Submit):
                reply = self.q._group(effect.shard).submit(effect.ops, self.q._deadline(effect), effect.look)
            else:
                reply = self.q._driver.perform(effect)

    def _wake(self) -> None:
        self.until = self.q.machine.monotonic()


def let_pass(machine: Any, seconds: float, workers: list[Worker]) -> None:
    end = machine.seconds + seconds
    while (first := min(workers, key=lambda each: each.until)).until <= end:
        machine.advance(max(0.0, first.until - machine.seconds) + 1e-9)
        first.resume()
    machine.advance(max(0.0, end - machine.seconds))


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def here(store: MemoryStore, machine: Any) -> Process:
    return Process(store, machine)


@pytest.fixture
def elsewhere(store: MemoryStore, machine: Any) -> Queue[Any]:
    """The queue in another process."""
    return Queue(store, "mail", machine=machine)


def local(here: Process) -> Process:
    here.look_pace, here.remote = FileStore.look_pace, False
    return here


def waits(elsewhere: Queue[Any], machine: Any, worker: Worker, gap: float, count: int = 30) -> list[float]:
    """How long each of some jobs waits in the queue, sorted; they come at moments of chance."""
    found = []
    for _ in range(count):
        let_pass(machine, gap * (0.5 + machine.uniform() / 2), [worker])
        elsewhere.enqueue(1)
        came = machine.seconds
        let_pass(machine, 2.0, [worker])
        found.append(worker.started[-1] - came)
    return sorted(found)


@pytest.mark.parametrize("gap", [0.3, 30.0])
def test_on_a_folder_a_job_of_another_process_starts_within_milliseconds_however_long_it_was_quiet(
    here: Process, elsewhere: Queue[Any], machine: Any, gap: float
) -> None:
    worker = Worker(Queue(local(here), "mail", machine=machine))
    found = waits(elsewhere, machine, worker, gap)
    assert found[len(found) // 2] <= 0.010
    assert found[-1] <= 0.020


def test_where_looks_cost_money_a_job_starts_soon_while_jobs_come_every_ten_seconds(
    here: Process, elsewhere: Queue[Any], machine: Any
) -> None:
    worker = Worker(Queue(here, "mail", machine=machine))
    found = waits(elsewhere, machine, worker, 8.0)[:-1]  # the first one met an idle worker
    assert found[len(found) // 2] <= 0.075  # and a look, a GET and a PUT of 30 ms make 150
    assert found[-1] <= QUICK * 1.25 + TINY


def test_an_idle_process_looks_once_a_second_whatever_the_number_of_its_queues(
    here: Process, elsewhere: Queue[Any], machine: Any
) -> None:
    elsewhere.enqueue(1)
    workers = [Worker(Queue(here, "mail", machine=machine)) for _ in range(10)]
    let_pass(machine, ACTIVE_SECONDS + 5, workers)
    here.seen.clear()
    let_pass(machine, 60, workers)
    assert 60 / 1.25 - 1 <= len(here.looks()) <= 61
    assert len(here.seen) == len(here.looks())


def test_poll_bounds_what_looks_cost(here: Process, elsewhere: Queue[Any], machine: Any) -> None:
    elsewhere.enqueue(1)
    worker = Worker(Queue(here, "mail", machine=machine), poll=10.0)
    here.seen.clear()
    let_pass(machine, ACTIVE_SECONDS, [worker])
    assert len(here.looks()) <= ACTIVE_SECONDS / 1.0
    let_pass(machine, 60, [worker])
    here.seen.clear()
    let_pass(machine, 600, [worker])
    assert 600 / 12.5 - 1 <= len(here.looks()) <= 61
    assert max(later - at for at, later in pairwise(here.looks())) <= 12.5 + TINY


def test_a_short_poll_is_never_exceeded() -> None:
    for looks in (Store.look_pace, FileStore.look_pace, LookPace(1.0)):
        assert pace_of(looks, 0.02).slow <= 0.02
        assert pace_of(looks, 0.02).quick <= 0.02


def test_heartbeats_of_others_keep_nobody_looking_quickly(
    here: Process, elsewhere: Queue[Any], machine: Any
) -> None:
    elsewhere.enqueue(1)
    (lease,) = elsewhere.claim()
    worker = Worker(Queue(here, "mail", machine=machine))
    let_pass(machine, ACTIVE_SECONDS, [worker])
    here.seen.clear()
    for _ in range(6):
        let_pass(machine, 10, [worker])
        lease.heartbeat()
    assert len(here.seen) <= 62
    assert worker.claims == 1


def test_a_commit_of_this_process_starts_a_job_at_once(here: Process, machine: Any) -> None:
    worker = Worker(Queue(here, "mail", machine=machine))
    let_pass(machine, 60, [worker])
    Queue[Any](here, "mail", machine=machine).enqueue(1)
    came = machine.seconds
    let_pass(machine, 0.001, [worker])
    assert worker.started == [pytest.approx(came, abs=TINY)]


@pytest.mark.parametrize("make", ["delay", "retry", "lease"])
def test_what_becomes_due_is_claimed_on_time_although_nobody_commits(
    here: Process, elsewhere: Queue[Any], machine: Any, make: str
) -> None:
    worker = Worker(Queue(here, "mail", machine=machine))
    elsewhere.enqueue(1, delay=7.3 if make == "delay" else 0)
    if make != "delay":
        (lease,) = elsewhere.claim(lease=7.3)
        if make == "retry":
            lease.fail("no", retry_in=7.3)
    due = machine.seconds + 7.3
    let_pass(machine, 20, [worker])
    (started,) = worker.started
    assert due <= started <= due + QUICK + 0.001


class HintingStore(MemoryStore):
    """A store that tells each new head at once, unless hints are lost."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.listeners: list[tuple[str, Told]] = []
        self.lost = False

    def listen(self, key: str, told: Told) -> Hinted:
        self.listeners.append((key, told))
        return lambda: True

    def perform(self, request: StoreRequest) -> StoreReply:
        reply = super().perform(request)
        if isinstance(reply, Written) and not self.lost:
            for key, told in self.listeners:
                if getattr(request, "key", "") == key:
                    told(reply.version)
        return reply


def test_where_a_store_tells_each_new_head_an_idle_worker_looks_once_a_second_and_starts_as_soon(
    machine: Any,
) -> None:
    store = HintingStore(machine)
    here, elsewhere = Process(store, machine), Queue[Any](store, "mail", machine=machine)
    here.look_pace = ValkeyStore.look_pace
    elsewhere.enqueue(1)
    worker = Worker(Queue(here, "mail", machine=machine))
    here.seen.clear()
    let_pass(machine, 60, [worker])
    assert len(here.looks()) <= 62
    found = waits(elsewhere, machine, worker, 3.0)
    assert found[-1] <= ValkeyStore.look_pace.quick + TINY


def test_a_hint_that_was_lost_brings_quick_looks_back(machine: Any) -> None:
    store = HintingStore(machine)
    here, elsewhere = Process(store, machine), Queue[Any](store, "mail", machine=machine)
    here.look_pace = ValkeyStore.look_pace
    elsewhere.enqueue(1)
    worker = Worker(Queue(here, "mail", machine=machine))
    let_pass(machine, 60, [worker])
    store.lost = True
    found = waits(elsewhere, machine, worker, 10.0)
    assert 0.1 < found[-1] <= HINTED_SECONDS * (1 + JITTER_SHARE) + TINY
    assert found[-2] <= 0.1 * (1 + JITTER_SHARE) + TINY


def test_a_hint_that_comes_before_a_waiter_is_not_lost() -> None:
    board, waiter = HeadBoard("root/"), WorkWaiter(Pace(0.01, 10.0))
    board.hinted = lambda: True
    board.hint("new")
    with board.present(waiter, 100.0):
        assert board.look_at(waiter, 100.0) == 100.01
        board.looking(waiter.pace, 100.01, 0.0)
        assert board.look_at(waiter, 100.01) == 100.01 + HINTED_SECONDS


class ExactMachine(VirtualMachine):
    """A machine whose wall clock moves with the other one, by fractions of a millisecond too."""

    def now_ms(self) -> int:
        return self.time_ms + int(self.seconds * 1000)

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


class Measured(Process):
    """A store whose clock is known by what it writes. One request takes a millisecond."""

    def __init__(self, inner: MemoryStore, machine: Any, tick_ms: int) -> None:
        super().__init__(inner, machine)
        self.clock_tick_ms = tick_ms

    def clock_ms(self) -> None:
        return None

    def perform(self, request: StoreRequest) -> StoreReply:
        self.machine.advance(0.001)
        reply = super().perform(request)
        if isinstance(reply, Found):
            written_ms = reply.modified_ms // self.clock_tick_ms * self.clock_tick_ms
            reply = Found(reply.body, reply.version, written_ms)
        return reply


class Place(NamedTuple):
    """A kind of store as two processes see it, and how late jobs may start there, in seconds."""

    machine: ExactMachine
    here: Process
    elsewhere: Queue[Any]
    late: float


@pytest.fixture(params=["memory", "folder", "valkey", "S3"])
def place(request: pytest.FixtureRequest) -> Place:
    machine = ExactMachine()
    inner = MemoryStore(machine)
    kinds: dict[str, tuple[Process, Process, LookPace, float]] = {
        "memory": (Process(inner, machine), Process(inner, machine), MemoryStore.look_pace, 0.002),
        "folder": (Process(inner, machine), Process(inner, machine), FileStore.look_pace, 0.004),
        "valkey": (Measured(inner, machine, 1), Measured(inner, machine, 1), ValkeyStore.look_pace, 0.05),
        "S3": (Measured(inner, machine, 1_000), Measured(inner, machine, 1_000), Store.look_pace, 2.2),
    }
    here, other, here.look_pace, late = kinds[request.param]
    return Place(machine, here, Queue(other, "mail", machine=machine), late)


@pytest.mark.parametrize("idle", [0.0, 2 * limits.CLOCK_AGE_MS_MAX / 1000])
@pytest.mark.parametrize("make", ["delay", "retry", "lease"])
def test_what_becomes_due_is_claimed_as_exactly_as_the_store_tells_the_time(
    place: Place, make: str, idle: float
) -> None:
    machine, elsewhere = place.machine, place.elsewhere
    worker = Worker(Queue(place.here, "mail", machine=machine))
    machine.advance(idle)
    for number in range(5):
        elsewhere.enqueue(number, delay=1.3 if make == "delay" else 0)
        if make != "delay":
            (lease,) = elsewhere.claim(lease=1.3)
            if make == "retry":
                lease.fail("no", retry_in=1.3)
        due = machine.seconds + 1.3
        let_pass(machine, 5.0 + machine.uniform(), [worker])
        assert len(worker.started) == number + 1
        assert due - 0.005 <= worker.started[-1] <= due + place.late


@pytest.mark.parametrize("late", [0.0, 0.05])
def test_a_claim_that_waits_beside_others_finds_what_becomes_due(place: Place, late: float) -> None:
    machine, q = place.machine, Queue[Any](place.here, "mail", machine=place.machine)
    machine_passes(q, machine)
    place.elsewhere.enqueue(1, delay=1.0)
    due = machine.seconds + 1.0
    beside = Worker(Queue(place.here, "mail", machine=machine), kinds=["other"])
    if late:  # it is due when the claim comes, and the one beside has seen nothing else
        let_pass(machine, 1.0 + late, [beside])
    (lease,) = q.claim(wait=20)
    assert lease.payload == 1
    assert machine.seconds <= due + late + place.late


def test_a_rate_without_a_burst_is_reached(place: Place) -> None:
    place.elsewhere.configure(rate=(20, 1), burst=1)
    place.elsewhere.enqueue_many([{"payload": at} for at in range(200)])
    worker = Worker(Queue(place.here, "mail", machine=place.machine))
    let_pass(place.machine, 5.0, [worker])
    starts = worker.started
    share = (len(starts) - 1) / (starts[-1] - starts[0]) / 20
    assert (0.45 if place.here.clock_tick_ms > 1 else 0.85) <= share <= 1.0 + TINY


def test_a_long_poll_delays_no_job_that_becomes_due(
    here: Process, elsewhere: Queue[Any], machine: Any
) -> None:
    worker = Worker(Queue(here, "mail", machine=machine), poll=60.0)
    for number in range(10):
        elsewhere.enqueue(number, delay=90.0)
        due = machine.seconds + 90.0
        let_pass(machine, 200.0, [worker])
        assert due <= worker.started[-1] <= due + QUICK + 0.001


def test_jobs_that_it_may_not_claim_make_no_claims(
    here: Process, elsewhere: Queue[Any], machine: Any
) -> None:
    worker = Worker(Queue(here, "mail", machine=machine), kinds=["b"])
    for _ in range(20):
        elsewhere.enqueue(1, kind="a")
        let_pass(machine, 1.0, [worker])
    assert worker.claims == 1
    elsewhere.pause()
    elsewhere.enqueue(1, kind="b")
    let_pass(machine, 5.0, [worker])
    assert worker.claims == 1
    elsewhere.resume()
    let_pass(machine, 2.0, [worker])
    assert len(worker.started) == 1


def test_a_pause_that_ends_wakes_those_who_wait_although_nobody_writes(
    here: Process, elsewhere: Queue[Any], machine: Any
) -> None:
    elsewhere.enqueue(1, kind="b")
    elsewhere.enqueue(1)
    elsewhere.pause(for_=30)
    elsewhere.pause("b", for_=60)
    begun = machine.seconds
    worker = Worker(Queue(here, "mail", machine=machine))
    let_pass(machine, 100, [worker])
    first, second = worker.started
    assert begun + 30 <= first <= begun + 30 + QUICK + 0.01
    assert begun + 60 <= second <= begun + 60 + QUICK + 0.01


def test_those_who_wait_for_a_rate_start_when_it_allows_and_do_not_look_meanwhile(
    here: Process, elsewhere: Queue[Any], machine: Any
) -> None:
    elsewhere.configure(rate=(1, 30))
    elsewhere.enqueue_many([{"payload": at} for at in range(4)])
    q: Queue[Any] = Queue(here, "mail", machine=machine)
    worker = Worker(q)
    let_pass(machine, 100, [worker])
    assert len(worker.started) == 4
    for before, after in pairwise(worker.started):
        assert 30 - TINY <= after - before <= 30 + QUICK + 0.01
    assert worker.claims <= 12


def test_a_limit_that_is_lifted_is_noticed_within_a_minute(
    here: Process, elsewhere: Queue[Any], machine: Any
) -> None:
    elsewhere.configure(rate=(1, 3_600))
    elsewhere.enqueue_many([{"payload": at} for at in range(4)])
    q: Queue[Any] = Queue(here, "mail", machine=machine)
    worker = Worker(q)
    let_pass(machine, 10, [worker])
    gets = q.requests["get"]
    let_pass(machine, 40, [worker])
    assert q.requests["get"] - gets <= 2
    elsewhere.configure(rate=None)
    let_pass(machine, 65, [worker])
    assert len(worker.started) == 4


def test_another_one_looks_when_the_one_whose_turn_it_is_has_gone_or_hangs(
    here: Process, elsewhere: Queue[Any], machine: Any
) -> None:
    first, second, third = (Worker(Queue(here, "mail", machine=machine)) for _ in range(3))
    let_pass(machine, 5, [first, second, third])
    elsewhere.enqueue(1)
    let_pass(machine, 5, [second, third])  # the first one stands still
    assert len(second.started) + len(third.started) == 1
    for gone in (first, second):
        gone._asleep.close()
        gone.flow.close()
    third.until = min(third.until, machine.seconds)
    elsewhere.enqueue(1)
    before = len(third.started)
    let_pass(machine, 1.5, [third])
    assert len(third.started) == before + 1


def test_a_claim_that_waits_is_one_of_them(here: Process, elsewhere: Queue[Any], machine: Any) -> None:
    q: Queue[Any] = Queue(here, "mail", machine=machine)
    claims: list[float] = []
    machine_passes(q, machine)
    elsewhere.enqueue(1, delay=3.0)
    due = machine.seconds + 3.0
    (lease,) = q.claim(wait=20)
    claims.append(machine.seconds)
    assert lease.payload == 1
    assert due <= claims[0] <= due + QUICK + 0.001
    lease.complete()
    here.seen.clear()
    assert q.claim(wait=60) == []
    assert len(here.seen) <= 2 + ACTIVE_SECONDS / QUICK + 50


def machine_passes(q: Queue[Any], machine: Any) -> None:
    """Who waits lets time pass."""
    q.__dict__["_await"] = lambda effect: machine.advance(effect.seconds + 1e-9)
