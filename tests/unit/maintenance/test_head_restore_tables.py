"""What a restore believes of objects that no head names: tables of lost swaps, of purged jobs, and merged ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Conflict, Expired, Queue, limits
from osqueue.cli.doctor import account
from osqueue.commit.driver import BlockingDriver
from osqueue.commit.effects import Submit
from osqueue.core.encoding import decode_head
from osqueue.core.queue_ops import RunTimers
from osqueue.errors import Unavailable, Unknown
from osqueue.maintenance.doctor import fix_clock
from osqueue.maintenance.head_restore import Restorer, hourly_backups
from osqueue.maintenance.store_probes import OK
from osqueue.objects.backups import name_of
from osqueue.stores.base import Delete, Failed, PutIfMatch, StoreReply, StoreRequest
from simulation.tight import limited
from tests.support.clinic import HEAD, HOUR, ROOT, SMALL, Careless, Clinic, forbids


@pytest.fixture
def clinic(machine: Any) -> Clinic:
    return Clinic(machine)


def _submit(op: Any) -> Any:
    yield Submit(0, (op,))


def lose_the_swap(clinic: Clinic, work: Callable[[Queue[Any]], object]) -> None:
    """Do something by a queue whose swap another wins, and which dies of that: all it has staged stays there."""
    others = [clinic.queue()]

    def first_comes_another(request: StoreRequest) -> StoreRequest | StoreReply:
        if isinstance(request, PutIfMatch) and request.key == HEAD and others:
            others.pop().enqueue("the winner's")
            return request
        return request if others else Failed(Unavailable("the process ended", permanent=True))

    machine = clinic.machine
    doomed: Queue[Any] = Queue(Careless(clinic.store, first_comes_another), "mail", machine=machine)
    with pytest.raises((Unavailable, Unknown)):
        work(doomed)
    assert not others


def test_what_a_lost_swap_would_have_made_dead_is_believed_by_no_restore(clinic: Clinic) -> None:
    clinic.q.enqueue_many([{"payload": at, "max_attempts": 1} for at in range(300)])
    leases = clinic.q.claim(300)
    clinic.q.reap()
    failed = [{"job_id": each.job_id, "token": each.token, "error": "x" * 300} for each in leases]
    lose_the_swap(clinic, lambda doomed: doomed.fail_many(failed))
    clinic.remove(HEAD)
    done = clinic.restore()
    fresh = clinic.queue()
    assert (done.recovered, done.loss.buried) == (0, 0)
    fresh.reap()
    assert [job.state for job in fresh.history() if job.attempts[-1].outcome == "failed"] == []


def test_a_purged_job_does_not_come_back_out_of_a_table_that_a_lost_swap_left(clinic: Clinic) -> None:
    q = clinic.q
    job = str(q.enqueue("ada@example.com", id="ada").job_id)
    q.reap()
    q.claim()[0].complete("ada@example.com")
    lose_the_swap(clinic, lambda doomed: doomed.reap())
    q.purge(job)
    clinic.remove(HEAD)
    assert clinic.restore().loss.erased == 1
    fresh = clinic.queue()
    assert fresh.status(job) is None
    for _ in range(3):
        fresh.reap()
        clinic.machine.advance(25 * HOUR)
        fresh.enqueue("x", delay=30 * 24 * HOUR)
    fresh.reap()
    assert [job.job_id for job in fresh.history()] == []
    assert [name for name in clinic.names() if b"ada@" in clinic.read(name)] == []


def test_what_a_restore_has_to_know_of_a_purge_is_kept_as_long_as_its_backups(clinic: Clinic) -> None:
    q = clinic.q
    q.purge(str(q.enqueue("x").job_id))
    kept = 0
    while any("purged-" in name for name in clinic.names("backup/")):
        clinic.machine.advance(HOUR)
        q.enqueue("x", delay=30 * 24 * HOUR)
        q.reap()
        kept += 1
    assert 8 * 24 <= kept <= 8 * 24 + 2


def test_tables_merged_by_a_reaper_that_died_before_it_deleted_them_are_archived_once(clinic: Clinic) -> None:
    q = clinic.q
    jobs = [str(q.enqueue(at, result_ttl=10 * 24 * HOUR).job_id) for at in range(4)]
    for _ in range(2):
        q.complete_many(q.claim(2))
        q._run(_submit(RunTimers(flush=True)))
    name = name_of("mail", 0, clinic.machine.now_ms())
    clinic.write(name, clinic.read(HEAD))  # between two steps of a pass

    doomed: Queue[Any] = Queue(Careless(clinic.store, forbids(Delete)), "mail", machine=clinic.machine)
    doomed.reap()
    assert len(clinic.names(ROOT + "finished/")) == 3
    for at in range(5):
        clinic.machine.advance(HOUR)
        q.enqueue(at)
        q.claim()[0].complete()
        q.reap()
    clinic.restore(name, force=True)
    fresh = clinic.queue()
    fresh.reap()
    told = [job.job_id for job in fresh.history()]
    assert len(told) == len(set(told))
    assert set(jobs) < set(told)


def test_what_a_restore_wrote_that_came_to_nothing_is_garbage(clinic: Clinic) -> None:
    with limited(SMALL):
        q = clinic.q
        q.enqueue_many([{"payload": "x" * 50} for _ in range(100)])
        q.reap()
        before = set(clinic.names(ROOT))
        others = [clinic.queue()]

        def first_comes_another(request: StoreRequest) -> StoreRequest:
            if isinstance(request, PutIfMatch) and request.key == HEAD and others:
                others.pop().enqueue("y")
            return request

        restorer = Restorer("mail", 0, clinic.machine, clinic.machine.now_ms())
        with pytest.raises(Conflict):
            BlockingDriver(Careless(clinic.store, first_comes_another), clinic.machine).run(
                restorer.run(force=True)
            )
        left = set(clinic.names(ROOT)) - before
        assert left
        for _ in range(3):
            clinic.machine.advance(25 * HOUR)
            q.enqueue("x", delay=30 * 24 * HOUR)
            q.reap()
        assert left.isdisjoint(clinic.names(ROOT))


def test_what_finished_after_a_clock_was_set_back_is_known_though_the_backup_is_of_before(
    clinic: Clinic,
) -> None:
    q = clinic.q
    job = str(q.enqueue("x", result_ttl=24 * HOUR).job_id)
    clinic.change(now_ms=clinic.machine.now_ms() + 10 * limits.MINUTE_MS)
    clinic.queue().reap()  # copies the head in the hour of its name
    clinic.machine.advance(60)
    assert clinic.run(fix_clock("mail", 0, clinic.machine, clinic.machine.now_ms)) is not None
    q = clinic.queue()
    q.claim()[0].complete("done")
    q._run(_submit(RunTimers(flush=True)))
    clinic.machine.advance(5)
    clinic.remove(HEAD)
    assert clinic.restore(name_of("mail", 0, clinic.machine.now_ms())).loss.finished == 1
    assert clinic.queue().result(job) == "done"


def test_tables_below_an_index_that_was_unfolded_since_the_backup_are_archived_all_the_same(
    clinic: Clinic,
) -> None:
    q = clinic.q
    jobs = [str(q.enqueue(at, result_ttl=10 * 24 * HOUR).job_id) for at in range(9)]
    with limited({"FANOUT": 3}):
        for _ in range(9):
            q.claim()[0].complete()
            q._run(_submit(RunTimers(flush=True)))
        clinic.machine.advance(5)
        jobs.append(str(q.enqueue("waits").job_id))
        name = name_of("mail", 0, clinic.machine.now_ms())
        clinic.write(name, clinic.read(HEAD))
        indexes = [table for table in decode_head(clinic.read(HEAD)).tables if table.level]
        clinic.remove(*(ROOT + table.name for table in indexes))  # as a reaper that died right after it
    clinic.machine.advance(HOUR)
    clinic.restore(name, force=True)
    fresh = clinic.queue()
    fresh.claim()[0].complete()
    fresh.reap()
    assert sorted(job.job_id for job in fresh.history()) == sorted(jobs)


def test_tables_that_a_reaper_of_the_old_life_deletes_late_are_needed_by_nobody(clinic: Clinic) -> None:
    q = clinic.q
    jobs = [str(q.enqueue(at, result_ttl=10 * 24 * HOUR).job_id) for at in range(4)]
    for _ in range(2):
        q.complete_many(q.claim(2))
        q._run(_submit(RunTimers(flush=True)))
    name = name_of("mail", 0, clinic.machine.now_ms())
    clinic.write(name, clinic.read(HEAD))
    late: list[StoreRequest] = []

    def on_its_way(request: StoreRequest) -> StoreRequest | StoreReply:
        if isinstance(request, Delete) and any("/finished/" in key for key in request.keys):
            late.append(request)
            return Failed(Unavailable("no answer yet"))
        return request

    Queue[Any](Careless(clinic.store, on_its_way), "mail", machine=clinic.machine).reap()
    clinic.restore(name, force=True)
    for request in late:
        clinic.store.perform(request)
    assert late
    assert clinic.said(deep=True)["objects"] == OK
    assert {clinic.queue().status(job).state for job in jobs} == {"completed"}


def collect(clinic: Clinic) -> set[str]:
    """Some days with a reaper that dies whenever it comes to delete; answers the bodies it was about to."""
    doomed: set[str] = set()

    def dies(request: StoreRequest) -> StoreRequest | StoreReply:
        if isinstance(request, Delete) and any("/finished/" in key for key in request.keys):
            doomed.update(key for key in request.keys if "/bodies/" in key)
            return Failed(Unavailable("the process ended", permanent=True))
        return request

    for _ in range(2 * 25 + 2):  # a day until it is forgotten, and another until no recent backup knows of it
        clinic.machine.advance(HOUR)
        q: Queue[Any] = Queue(Careless(clinic.store, dies), "mail", machine=clinic.machine)
        q.enqueue("x", delay=30 * 24 * HOUR)
        q.reap()
    return doomed


@pytest.mark.parametrize("late", [False, True])
def test_no_restored_table_asks_for_a_result_that_was_forgotten_and_is_collected(
    clinic: Clinic, late: bool
) -> None:
    q = clinic.q
    q.enqueue("x", result_ttl=60)
    q.claim()[0].complete("y" * 5_000)
    q.reap()
    (name,) = clinic.run(hourly_backups("mail", 0))
    collected = collect(clinic)
    if not late:
        clinic.remove(*collected)
    done = clinic.restore(name, force=True)
    clinic.remove(*collected)
    assert collected
    assert clinic.said(deep=True)["objects"] == OK
    assert done.results_gone == 0  # nobody was to get it any more


@pytest.mark.parametrize("shelved", [False, True])
def test_a_result_that_is_lost_has_expired_after_a_restore_and_its_job_does_not_run_again(
    clinic: Clinic, shelved: bool
) -> None:
    q = clinic.q
    job = str(q.enqueue("x", result_ttl=10 * 24 * HOUR).job_id)
    kept = str(q.enqueue("x", result_ttl=10 * 24 * HOUR).job_id)
    for size in (5_000, 10):
        q.claim()[0].complete("y" * size)
    if shelved:
        q.reap()
    name = name_of("mail", 0, clinic.machine.now_ms())
    clinic.write(name, clinic.read(HEAD))
    clinic.remove(*clinic.names(ROOT + "bodies/"))
    done = clinic.restore(name, force=True)
    assert done.results_gone == 1
    assert any(line == "results that are gone: those jobs are known as expired: 1" for line in account(done))
    assert clinic.said(deep=True)["objects"] == OK
    fresh = clinic.queue()
    with pytest.raises(Expired):
        fresh.result(job)
    assert fresh.result(kept) == "y" * 10
    assert fresh.claim() == []
