"""Waiting for results: woken by commits of this process, few shared looks for those of others, and an end in time."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest

from osqueue import JobCancelled, JobFailed, Queue, WaitTimeout
from osqueue.core.state import COMPLETED, Finished, Job, State
from osqueue.errors import OsqueueError
from osqueue.keys import key_of
from osqueue.shards import Await, root_of
from osqueue.simulation.tight import limited
from osqueue.stores.base import Get, Reply, Request
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from osqueue.waiting import Board, board_of
from tests.unit.stepping import LOST

ROOT = root_of("mail", 0)
HEAD = ROOT + "head"
WAITING = "waiting"


class Process(WrappedStore):
    """The store as another process sees it, with every request and its time noted."""

    def __init__(self, inner: MemoryStore, machine: Any) -> None:
        super().__init__(inner)
        self.machine = machine
        self.seen: list[tuple[float, Request]] = []
        self.silent = 0  # requests that get no answer

    @property
    def place(self) -> object:
        return self

    def perform(self, request: Request) -> Reply:
        self.seen.append((self.machine.monotonic(), request))
        if self.silent:
            self.silent -= 1
            return LOST
        return self.inner.perform(request)

    async def perform_async(self, request: Request) -> Reply:
        return self.perform(request)

    def looks(self) -> list[float]:
        """When the head was read."""
        return [at for at, request in self.seen if isinstance(request, Get) and request.key == HEAD]


class Waiter:
    """One caller who waits for a job; it goes on when its time has come or when it is woken."""

    def __init__(self, q: Queue[Any], job: str, timeout: float = 100.0) -> None:
        self.q = q
        self.flow = q._flows.wait(key_of(job), timeout)
        self.answer: Any = WAITING
        self.until = 0.0  # when it goes on by itself
        self.ended = 0.0
        self._asleep = ExitStack()
        self.resume()

    def resume(self) -> None:
        """Go on until it waits again, or is done."""
        self._asleep.close()
        reply: Any = None
        while True:
            try:
                effect = self.flow.send(reply)
            except StopIteration as stop:
                self.answer, self.ended = stop.value, self.q.machine.monotonic()
                return
            except OsqueueError as error:
                self.answer, self.ended = error, self.q.machine.monotonic()
                return
            if isinstance(effect, Await):
                self.until = self.q.machine.monotonic() + effect.seconds
                self._asleep.enter_context(self.q._flows.board(effect.shard).waking(effect.key, self._wake))
                return
            reply = self.q._driver.perform(effect)

    def _wake(self) -> None:
        self.until = self.q.machine.monotonic()

    @property
    def over(self) -> bool:
        return self.answer is not WAITING


def let_pass(machine: Any, seconds: float, waiters: list[Waiter]) -> None:
    """Time goes by; whoever's turn it is goes on."""
    end = machine.seconds + seconds
    while True:
        going = [each for each in waiters if not each.over]
        first = min(going, key=lambda each: each.until, default=None)
        if first is None or first.until > end:
            break
        machine.advance(max(0.0, first.until - machine.seconds) + 1e-9)  # no sleep is shorter than asked
        first.resume()
    machine.advance(max(0.0, end - machine.seconds))


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def here(store: MemoryStore, machine: Any) -> Process:
    return Process(store, machine)


@pytest.fixture
def q(here: Process, machine: Any) -> Queue[Any]:
    return Queue(here, "mail", machine=machine)


@pytest.fixture
def elsewhere(store: MemoryStore, machine: Any) -> Queue[Any]:
    """The queue in another process."""
    return Queue(store, "mail", machine=machine)


def enqueue(q: Queue[Any], **options: Any) -> str:
    return str(q.enqueue(1, **options).job_id)


# ── Looking ──────────────────────────────────────────────────────────────────
def test_who_waits_looks_five_times_in_the_first_seconds_and_then_once_a_second(
    q: Queue[Any], here: Process, machine: Any
) -> None:
    job = enqueue(q)
    here.seen.clear()
    began = machine.seconds
    waiter = Waiter(q, job)
    let_pass(machine, 20, [waiter])
    looks = [round(at - began, 3) for at in here.looks()]
    assert looks[:5] == [0.05, 0.15, 0.35, 0.75, 1.55]
    assert looks[5:] == [2.55 + at for at in range(18)]
    assert len(here.seen) == len(looks)  # and asks for nothing else
    assert not waiter.over


@pytest.mark.parametrize("count", [2, 50])
def test_waiters_share_their_looks(q: Queue[Any], here: Process, machine: Any, count: int) -> None:
    jobs = [enqueue(q) for _ in range(count)]
    here.seen.clear()
    waiters = [Waiter(q, job) for job in jobs]
    let_pass(machine, 1.6, waiters)
    assert len(here.looks()) == 5
    let_pass(machine, 60, waiters)
    assert len(here.looks()) <= 5 + 61


def test_queue_objects_of_one_process_share_their_looks(here: Process, machine: Any) -> None:
    queues = [Queue[Any](here, "mail", machine=machine) for _ in range(10)]
    jobs = [enqueue(queues[0]) for _ in queues]
    here.seen.clear()
    waiters = [Waiter(q, job) for q, job in zip(queues, jobs, strict=True)]
    let_pass(machine, 31.6, waiters)
    assert len(here.looks()) <= 5 + 31


@pytest.mark.parametrize("seed", range(5))
def test_however_many_come_at_whatever_time_the_looks_stay_bounded(
    q: Queue[Any], here: Process, machine: Any, seed: int
) -> None:
    chance = random.Random(seed)
    job = enqueue(q)
    here.seen.clear()
    waiters: list[Waiter] = []
    for _ in range(100):
        waiters.append(Waiter(q, job))
        let_pass(machine, chance.random() * 0.05, waiters)
    looks = here.looks()
    assert min(later - at for at, later in pairwise(looks)) >= 0.05
    let_pass(machine, 2, waiters)
    here.seen.clear()
    let_pass(machine, 60, waiters)  # nobody is new any more
    assert 60 / 2 <= len(here.looks()) <= 61


def test_a_job_finished_elsewhere_is_seen_by_the_next_look(
    q: Queue[Any], elsewhere: Queue[Any], machine: Any
) -> None:
    waiter = Waiter(q, enqueue(q))
    let_pass(machine, 10, [waiter])
    elsewhere.claim()[0].complete("r")
    assert not waiter.over
    finished = machine.seconds
    let_pass(machine, 1.1, [waiter])
    assert waiter.answer == "r"
    assert waiter.ended - finished <= 1.0


def test_a_job_that_was_over_before_is_seen_by_the_first_look(
    q: Queue[Any], here: Process, machine: Any
) -> None:
    job = enqueue(q)
    q.claim()[0].complete("r")
    for _ in range(2):
        here.seen.clear()
        began = machine.seconds
        waiter = Waiter(q, job)
        let_pass(machine, 1, [waiter])
        assert waiter.answer == "r"
        assert waiter.ended - began < 0.06
        assert len(here.looks()) == 1
        q.reap()


def test_what_was_seen_before_the_caller_came_is_not_believed(
    q: Queue[Any], elsewhere: Queue[Any], machine: Any
) -> None:
    """Else a redriven job would be told as failed."""
    job = enqueue(q)
    first = Waiter(q, enqueue(q))
    q.claim()[0].fail("no", retry=False)
    let_pass(machine, 0.06, [first])
    elsewhere.redrive()
    second = Waiter(q, job)
    let_pass(machine, 5, [first, second])
    assert not second.over
    while leases := elsewhere.claim(2):
        for lease in leases:
            lease.complete("at last")
    let_pass(machine, 5, [first, second])
    assert (first.answer, second.answer) == ("at last", "at last")


def test_looks_that_bring_no_answer_are_repeated_at_the_same_pace(
    q: Queue[Any], here: Process, elsewhere: Queue[Any], machine: Any
) -> None:
    waiter = Waiter(q, enqueue(q))
    here.seen.clear()
    here.silent = 8
    elsewhere.claim()[0].complete("r")
    let_pass(machine, 10, [waiter])
    assert waiter.answer == "r"
    assert len(here.looks()) == 9


def test_tables_are_read_once_however_long_one_waits(
    q: Queue[Any], here: Process, elsewhere: Queue[Any], machine: Any
) -> None:
    jobs = [str(each.job_id) for each in q.enqueue_many([{"payload": at} for at in range(1_200)])]
    job = jobs[1_150]  # deep in a segment: the head alone does not tell what it is up to
    elsewhere.cancel(jobs[0])
    elsewhere.cancel(jobs[-1])
    elsewhere.reap()  # a table whose keys lie on both sides of the job's
    here.seen.clear()
    waiter = Waiter(q, job)
    let_pass(machine, 30, [waiter])
    tables = [request for _, request in here.seen if request.key.startswith(ROOT + "finished/")]  # type: ignore[union-attr]
    assert len(tables) == 1
    while leases := elsewhere.claim(1_000):
        elsewhere.complete_many([{"job_id": x.job_id, "token": x.token, "result": "r"} for x in leases])
    elsewhere.reap()  # it has left the head, and the tables were merged
    let_pass(machine, 2, [waiter])
    assert waiter.answer == "r"


# ── Being woken ──────────────────────────────────────────────────────────────
def complete(q: Queue[Any], job: str) -> None:
    q.claim()[0].complete("r")


def fail(q: Queue[Any], job: str) -> None:
    q.claim()[0].fail(KeyError("k"), retry=False)


def cancel(q: Queue[Any], job: str) -> None:
    q.cancel(job)


def fail_into_a_segment(q: Queue[Any], job: str) -> None:
    with limited({"DEAD_BYTES_MAX": 1}):
        fail(q, job)


@pytest.mark.parametrize(
    ("end", "told"),
    [(complete, "r"), (fail, JobFailed), (cancel, JobCancelled), (fail_into_a_segment, JobFailed)],
)
def test_a_commit_of_this_process_wakes_who_waits_without_a_look(
    q: Queue[Any], here: Process, machine: Any, end: Any, told: Any
) -> None:
    worker = Queue[Any](here, "mail", machine=machine)
    job = enqueue(q)
    waiter = Waiter(q, job)
    let_pass(machine, 10.1, [waiter])
    end(worker, job)
    looks, finished = len(here.looks()), machine.seconds
    let_pass(machine, 0.001, [waiter])
    assert waiter.answer == told if told == "r" else isinstance(waiter.answer, told)
    assert waiter.ended - finished < 0.001
    assert len(here.looks()) == looks


def test_only_those_whose_jobs_are_over_are_woken(q: Queue[Any], machine: Any) -> None:
    jobs = [enqueue(q) for _ in range(5)]
    waiters = [Waiter(q, job) for job in jobs]
    let_pass(machine, 10, waiters)
    q.claim()[0].complete("r")
    woken = [each.until <= machine.seconds for each in waiters]
    assert woken == [True, False, False, False, False]


def test_a_retry_wakes_nobody(q: Queue[Any], machine: Any) -> None:
    waiter = Waiter(q, enqueue(q))
    let_pass(machine, 10, [waiter])
    q.claim()[0].fail("no", retry_in=0)
    assert waiter.until > machine.seconds
    assert not waiter.over


def test_a_commit_before_the_first_pause_ends_wakes_as_well(q: Queue[Any], machine: Any) -> None:
    waiter = Waiter(q, enqueue(q))
    q.claim()[0].complete("r")
    began = machine.seconds
    let_pass(machine, 0.001, [waiter])
    assert (waiter.answer, waiter.ended - began < 0.001) == ("r", True)


# ── The end ──────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("timeout", [0.0, 0.02, 1.0, 7.3])
def test_patience_ends_in_time_and_the_late_result_is_readable(
    q: Queue[Any], elsewhere: Queue[Any], machine: Any, timeout: float
) -> None:
    job = enqueue(q)
    began = machine.seconds
    waiter = Waiter(q, job, timeout)
    let_pass(machine, 20, [waiter])
    assert isinstance(waiter.answer, WaitTimeout)
    assert waiter.answer.job_id == job
    assert waiter.ended - began == pytest.approx(timeout, abs=1e-6)
    elsewhere.claim()[0].complete("late")
    assert q.result(job) == "late"


def test_a_result_that_came_at_the_last_moment_is_no_timeout(
    q: Queue[Any], elsewhere: Queue[Any], machine: Any
) -> None:
    waiter = Waiter(q, enqueue(q), 10.0)
    let_pass(machine, 9.9, [waiter])
    elsewhere.claim()[0].complete("r")
    let_pass(machine, 0.2, [waiter])
    assert waiter.answer == "r"


def test_nothing_is_left_of_those_who_went(q: Queue[Any], machine: Any) -> None:
    jobs = [enqueue(q), enqueue(q)]
    board = q._flows.board(0)
    waiters = [Waiter(q, jobs[0], 1.0), Waiter(q, jobs[1], 50.0), Waiter(q, jobs[1], 50.0)]
    let_pass(machine, 2, waiters)
    waiters[1].flow.close()  # a caller that was interrupted
    waiters[1]._asleep.close()
    q.claim()[0].complete()
    q.claim()[0].complete()
    let_pass(machine, 2, waiters[2:])
    assert board._wakes == {}
    assert (board._open, board.state, board.version) == (0, None, None)


def test_enqueue_and_wait_answers_a_kept_result_without_a_look(q: Queue[Any], here: Process) -> None:
    q.enqueue(1, id="a")
    q.claim()[0].complete("kept")
    here.seen.clear()
    assert q.enqueue_and_wait(2, timeout=0, id="a") == "kept"
    assert len(here.seen) == 3  # the entry refused, the entry, the head
    with pytest.raises(WaitTimeout):
        q.enqueue_and_wait(2, timeout=0)


# ── The board ────────────────────────────────────────────────────────────────
def state(seq: int, *over: bytes, epoch: int = 1) -> State:
    rows = tuple(Finished(Job(key, b"", 0), COMPLETED, 0) for key in over)
    return State(commit=bytes(16), epoch=epoch, seq=seq, finished=rows)


def test_a_board_nobody_stands_at_keeps_nothing() -> None:
    board = Board()
    board.see(state(1), "v1")
    assert board.state is None
    with board.open():
        board.see(state(1), "v1")
        assert board.version == "v1"
    assert board.state is None


def test_an_older_head_does_not_take_the_place_of_a_newer_one_but_wakes_all_the_same() -> None:
    board = Board()
    woken: list[str] = []
    with board.open(), board.waking(b"k", lambda: woken.append("k")):
        board.see(state(5), "v5")
        looks = board.looks
        board.see(state(4, b"k"), "v4")
        assert (board.version, board.looks, woken) == ("v5", looks, ["k"])
        board.see(state(1, epoch=2), "new")  # the head was made anew
        assert (board.version, board.looks) == ("new", looks + 1)


def test_each_of_several_who_wait_for_one_job_is_woken_until_it_leaves() -> None:
    board = Board()
    woken: list[int] = []
    wakes: list[Callable[[], None]] = [lambda at=at: woken.append(at) for at in range(3)]  # type: ignore[misc]
    with board.open(), board.waking(b"k", wakes[0]), board.waking(b"k", wakes[1]):
        with board.waking(b"k", wakes[2]):
            board.see(state(1, b"k", b"other"), "v")
        assert woken == [0, 1, 2]
        board.see(state(2, b"k"), "v")
        assert woken == [0, 1, 2, 0, 1]
    assert board._wakes == {}


def test_a_shard_of_a_store_has_one_board_and_it_goes_with_its_last_queue(store: MemoryStore) -> None:
    board = board_of(store, ROOT)
    assert board_of(store, ROOT) is board
    assert board_of(store, root_of("mail", 1)) is not board
    assert board_of(MemoryStore(), ROOT) is not board
    board.looks = 7
    del board
    gc.collect()
    assert board_of(store, ROOT).looks == 0
