"""Waiting for results: woken by commits of this process, few shared looks for those of others, and an end in time."""

from __future__ import annotations

import asyncio
import gc
import random
from itertools import pairwise
from typing import Any

import pytest

from osqueue import AsyncQueue, JobCancelled, JobFailed, Queue, WaitTimeout
from osqueue.errors import Unavailable
from osqueue.objects.layout import read_state
from osqueue.operations.head_board import ACTIVE_SECONDS, HeadWaiter
from osqueue.stores.base import Delete, Failed, Put, Store
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited
from tests.support.waiters import ROOT, Process, Waiter, enqueue, let_pass


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


QUICK = Store.look_pace.quick
TINY = 1e-6


def pauses(looks: list[float]) -> list[float]:
    return [later - at for at, later in pairwise(looks)]


def looks_in(seconds: float) -> float:
    """The most looks of a process in the first seconds after somebody came to wait."""
    return 1 + min(seconds, ACTIVE_SECONDS) / QUICK + 4 + max(0.0, seconds - ACTIVE_SECONDS)


# ── Looking ──────────────────────────────────────────────────────────────────
def test_who_waits_looks_quickly_for_a_while_and_then_about_once_a_second(
    q: Queue[Any], here: Process, machine: Any
) -> None:
    job = enqueue(q)
    here.seen.clear()
    began = machine.seconds
    waiter = Waiter(q, job)
    let_pass(machine, 20, [waiter])
    looks = [at - began for at in here.looks()]
    quick = [at for at in looks if at <= ACTIVE_SECONDS]
    assert quick[0] == pytest.approx(QUICK)
    assert all(QUICK - TINY < pause <= QUICK * 1.25 + TINY for pause in pauses(quick))
    slow = pauses(looks[len(quick) + 1 :])
    assert all(pause < 2.5 * before for before, pause in pairwise(slow))  # each twice as long as the last
    assert slow[-1] >= 1
    assert len(here.seen) == len(looks)  # and asks for nothing else
    assert not waiter.over


@pytest.mark.parametrize("count", [2, 50])
def test_waiters_share_their_looks(q: Queue[Any], here: Process, machine: Any, count: int) -> None:
    jobs = [enqueue(q) for _ in range(count)]
    here.seen.clear()
    waiters = [Waiter(q, job) for job in jobs]
    let_pass(machine, 1.6, waiters)
    assert 12 <= len(here.looks()) <= looks_in(1.6)
    let_pass(machine, 60, waiters)
    assert len(here.looks()) <= looks_in(61.6)


def test_queue_objects_of_one_process_share_their_looks(here: Process, machine: Any) -> None:
    queues = [Queue[Any](here, "mail", machine=machine) for _ in range(10)]
    jobs = [enqueue(queues[0]) for _ in queues]
    here.seen.clear()
    waiters = [Waiter(q, job) for q, job in zip(queues, jobs, strict=True)]
    let_pass(machine, 31.6, waiters)
    assert len(here.looks()) <= looks_in(31.6)


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
    assert min(pauses(looks)) >= QUICK - TINY
    let_pass(machine, ACTIVE_SECONDS + 2, waiters)
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
    let_pass(machine, 1.3, [waiter])
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
        assert waiter.ended - began <= QUICK + TINY
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


def between_others(q: Queue[Any], count: int) -> list[str]:
    """Jobs of a kind that nobody works on, enqueued between others: tables of those cover their keys."""
    q.enqueue_many([{"payload": 0, "kind": "old", "max_attempts": 1} for _ in range(500)])
    jobs = q.enqueue_many([{"payload": 0, "kind": "waited", "max_attempts": 1} for _ in range(count)])
    q.enqueue_many([{"payload": 0, "kind": "new", "max_attempts": 1} for _ in range(500)])
    return [str(each.job_id) for each in jobs]


def finish_others(q: Queue[Any]) -> None:
    """An old job and a new one end in one commit, and those that ended before go to a table."""
    with limited({"FINISHED_BYTES_MAX": 1}):
        q.complete_many([*q.claim(kinds=["old"]), *q.claim(kinds=["new"])])


@pytest.mark.parametrize("count", [1, 20])
def test_each_table_that_others_write_is_read_once_for_all_who_wait(
    q: Queue[Any], here: Process, elsewhere: Queue[Any], machine: Any, count: int
) -> None:
    jobs = between_others(q, count)
    waiters = [Waiter(q, job) for job in jobs]
    let_pass(machine, ACTIVE_SECONDS + 2, waiters)
    here.seen.clear()
    for _ in range(60):
        finish_others(elsewhere)
        let_pass(machine, 0.25, waiters)
    reads = here.reads("finished/")
    assert set(reads.values()) == {1}
    assert len(reads) <= 65  # a table for each commit, and an index now and then
    assert len(here.seen) <= 16 + len(reads)  # beside one look a second
    finish(elsewhere, "waited")
    finish_others(elsewhere)
    finish_others(elsewhere)  # they have left the head unseen
    let_pass(machine, 1.3, waiters)
    assert [each.answer for each in waiters] == ["r"] * count
    assert set(here.reads("finished/").values()) == {1}


def finish(q: Queue[Any], kind: str) -> None:
    leases = q.claim(100, kinds=[kind])
    q.complete_many([{"job_id": x.job_id, "token": x.token, "result": "r"} for x in leases])


def test_tables_written_here_are_not_read_at_all(q: Queue[Any], here: Process, machine: Any) -> None:
    worker = Queue[Any](here, "mail", machine=machine)
    waiters = [Waiter(q, job) for job in between_others(q, 20)]
    let_pass(machine, 2, waiters)
    here.seen.clear()
    for _ in range(60):
        finish_others(worker)
        let_pass(machine, 0.25, waiters)
    assert not here.reads("finished/")
    finish(worker, "waited")
    finish_others(worker)
    finish_others(worker)  # the board has seen them in the head
    let_pass(machine, 0.1, waiters)
    assert [each.answer for each in waiters] == ["r"] * 20


def test_dead_letters_in_segments_are_read_once_for_all_who_wait(
    q: Queue[Any], here: Process, elsewhere: Queue[Any], machine: Any
) -> None:
    waiters = [Waiter(q, job) for job in between_others(q, 20)]
    let_pass(machine, 2, waiters)
    here.seen.clear()
    with limited({"DEAD_BYTES_MAX": 1}):
        elsewhere.fail_many([*elsewhere.claim(50, kinds=["old"]), *elsewhere.claim(50, kinds=["new"])])
    let_pass(machine, 10, waiters)
    first = sum(here.reads("segments/").values())
    assert 0 < first <= 4  # the footer and a block of each
    with limited({"DEAD_BYTES_MAX": 1}):
        elsewhere.fail_many(elsewhere.claim(50, kinds=["waited"]))
    let_pass(machine, 10, waiters)
    assert all(isinstance(each.answer, JobFailed) for each in waiters)
    assert sum(here.reads("segments/").values()) - first <= 4


def test_a_damaged_table_is_read_once_and_named_in_the_end(
    q: Queue[Any], here: Process, elsewhere: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    (job,) = between_others(q, 1)
    waiter = Waiter(q, job, 30.0)
    let_pass(machine, 2, [waiter])
    finish_others(elsewhere)
    finish_others(elsewhere)
    state = elsewhere._run(read_state("mail", 0))
    assert state is not None
    for table in state.tables:
        store.put(Put(ROOT + table.name, bytes(table.size)))
    here.seen.clear()
    let_pass(machine, 30, [waiter])
    assert list(here.reads("finished/").values()) == [1] * len(state.tables)
    assert isinstance(waiter.answer, WaitTimeout)
    assert state.tables[0].name in waiter.answer.message


def test_a_lost_table_is_asked_for_twice_and_no_more(
    q: Queue[Any], here: Process, elsewhere: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    (job,) = between_others(q, 1)
    waiter = Waiter(q, job)
    let_pass(machine, 2, [waiter])
    finish_others(elsewhere)
    finish_others(elsewhere)
    state = elsewhere._run(read_state("mail", 0))
    assert state is not None
    store.delete(Delete(tuple(ROOT + table.name for table in state.tables)))
    here.seen.clear()
    let_pass(machine, 30, [waiter])
    assert list(here.reads("finished/").values()) == [2] * len(state.tables)
    finish(elsewhere, "waited")
    finish_others(elsewhere)
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


def test_a_refusal_that_waiting_does_not_mend_is_told_at_once(
    q: Queue[Any], here: Process, machine: Any
) -> None:
    job = enqueue(q)
    here.refusal = Failed(Unavailable("AccessDenied: s3:GetObject", permanent=True))
    began = machine.seconds
    waiter = Waiter(q, job)
    let_pass(machine, 20, [waiter])
    assert isinstance(waiter.answer, Unavailable)
    assert waiter.answer.message == "AccessDenied: s3:GetObject"
    assert waiter.ended - began <= QUICK + TINY


def test_a_waiter_raises_no_refusal_of_a_look_before_it_came(
    q: Queue[Any], elsewhere: Queue[Any], here: Process, machine: Any
) -> None:
    job = enqueue(q)
    with q._board(0).present(HeadWaiter(q._flows.pace()), machine.monotonic()):  # keeps what looks brought
        here.refusal = Failed(Unavailable("AccessDenied: s3:GetObject", permanent=True))
        refused = [Waiter(q, job), Waiter(q, job)]
        let_pass(machine, 2, refused)
        first, second = (each.answer for each in refused)
        assert (type(first), type(second)) == (Unavailable, Unavailable)
        assert first is not second, "two callers raise one exception object"
        here.refusal = None
        waiter = Waiter(q, job)
        elsewhere.claim()[0].complete("r")
        let_pass(machine, 2, [waiter])
        assert waiter.answer == "r"


def test_a_store_that_was_silent_to_the_end_is_named(q: Queue[Any], here: Process, machine: Any) -> None:
    job = enqueue(q)
    here.refusal = Failed(Unavailable("SlowDown"))
    waiter = Waiter(q, job, 10.0)
    let_pass(machine, 5, [waiter])
    other = Waiter(q, job, 3.0)
    let_pass(machine, 10, [waiter, other])
    for each in (waiter, other):
        assert isinstance(each.answer, WaitTimeout)
        assert "SlowDown" in each.answer.message
    here.refusal = None
    waiter = Waiter(q, job, 3.0)
    let_pass(machine, 5, [waiter])
    assert "SlowDown" not in waiter.answer.message


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
    assert (board._waiters, board._present, board.state, board.version) == ({}, {}, None, None)


def test_nothing_is_left_of_a_call_that_was_given_up_even_while_its_error_is_kept() -> None:
    """What a suspended call does at its end takes a lock, so it must not be left to the garbage collector."""

    async def run() -> None:
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "mail")
        last: BaseException | None = None
        try:
            await asyncio.wait_for(q.enqueue_and_wait("x"), 0.01)
        except TimeoutError as error:
            last = error
        assert last is not None
        assert q._flows.board(0)._waiters == {}

    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()


@pytest.mark.parametrize("turns", range(5))
def test_a_cancel_that_comes_together_with_the_result_is_heard(turns: int) -> None:
    async def run() -> None:
        store = MemoryStore()
        q, worker = AsyncQueue[Any](store, "mail"), AsyncQueue[Any](store, "mail")

        async def work() -> None:
            await q.enqueue_and_wait("x", timeout=3600)
            await asyncio.Event().wait()

        task = asyncio.create_task(work())
        for _ in range(50):
            await asyncio.sleep(0)
        assert any(each._wake for each in q._board(0)._present)
        (lease,) = await worker.claim()
        await lease.complete()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert task.cancelled()

    asyncio.run(run())


def test_enqueue_and_wait_answers_a_kept_result_without_a_look(q: Queue[Any], here: Process) -> None:
    q.enqueue(1, id="a")
    q.claim()[0].complete("kept")
    here.seen.clear()
    assert q.enqueue_and_wait(2, timeout=0, id="a") == "kept"
    assert len(here.seen) == 3  # the entry refused, the entry, the head
    with pytest.raises(WaitTimeout):
        q.enqueue_and_wait(2, timeout=0)
