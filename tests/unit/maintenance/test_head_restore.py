"""Repairs: a head put back from a backup, and one given the right time. No living writer is run over."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import Conflict, Damaged, NotFound, Queue, Throttled, limits
from osqueue.cli.doctor import account
from osqueue.commit.driver import BlockingDriver
from osqueue.core import encoding
from osqueue.core.encoding import decode_head, encode_head
from osqueue.errors import LeaseLost, Timeout, Unavailable, Unknown
from osqueue.maintenance import doctor as checks
from osqueue.maintenance import head_restore
from osqueue.maintenance.head_restore import Restorer, hourly_backups
from osqueue.maintenance.store_probes import OK, WARNING
from osqueue.stores.base import Failed, Put, PutIfAbsent, PutIfMatch, StoreReply, StoreRequest, Written
from simulation.tight import limited
from tests.support.clinic import HEAD, HOUR, ROOT, SMALL, Careless, Clinic


@pytest.fixture
def clinic(machine: Any) -> Clinic:
    return Clinic(machine)


# ── The clock of a head ──────────────────────────────────────────────────────
def test_a_head_that_is_far_ahead_is_set_back_and_time_goes_on(clinic: Clinic) -> None:
    done = clinic.q.enqueue(1)
    clinic.machine.time_ms += limits.DAY_MS * 1_000
    (lease,) = clinic.queue().claim()
    clinic.machine.time_ms -= limits.DAY_MS * 1_000
    fixed = clinic.run(checks.fix_clock("mail", 0, clinic.machine, clinic.machine.now_ms))
    assert fixed == limits.DAY_MS * 1_000
    assert clinic.said()["clock"] == OK
    lease.heartbeat()
    clinic.machine.advance(31)
    assert clinic.queue().claim()[0].job_id == done.job_id
    assert clinic.run(checks.fix_clock("mail", 0, clinic.machine, clinic.machine.now_ms)) is None


def test_copies_of_a_clock_that_was_ahead_do_not_pass_for_the_newest(clinic: Clinic) -> None:
    """They would be restored from for as long as it was ahead, and would keep newer ones from being made."""
    clinic.q.enqueue("before")
    clinic.q.reap()
    clinic.machine.advance(3 * HOUR)
    clinic.q.enqueue("while it was ahead")
    clinic.q.reap()
    clinic.machine.time_ms -= 3 * limits.HOUR_MS
    repair = checks.fix_clock("mail", 0, clinic.machine, clinic.machine.now_ms)
    assert clinic.run(repair) == 3 * limits.HOUR_MS
    assert len(clinic.run(hourly_backups("mail", 0))) == 1
    clinic.q = clinic.queue()
    for at in range(4):
        clinic.machine.advance(HOUR)
        clinic.q.enqueue(at)
        assert clinic.q.reap().saved == 1
        clinic.write(HEAD, b"")
        assert clinic.restore().live == 3 + at
        clinic.q = clinic.queue()


def test_the_copies_of_a_quiet_queue_are_not_ahead(clinic: Clinic) -> None:
    """Its head keeps the time of its last commit."""
    clinic.q.enqueue("x")
    for _ in range(3):
        clinic.q.reap()
        clinic.machine.advance(HOUR)
    copies = clinic.run(hourly_backups("mail", 0))
    assert clinic.run(checks.fix_clock("mail", 0, clinic.machine, clinic.machine.now_ms)) is None
    assert clinic.run(hourly_backups("mail", 0)) == copies
    assert len(copies) == 3


def test_a_repair_of_the_clock_that_died_is_repeated(clinic: Clinic) -> None:
    clinic.machine.advance(3 * HOUR)
    clinic.q.enqueue("x")
    clinic.q.reap()
    clinic.machine.time_ms -= 3 * limits.HOUR_MS

    def dies(request: StoreRequest) -> StoreRequest | StoreReply:
        return Failed(Unavailable("the process ended")) if isinstance(request, Put) else request

    front = BlockingDriver(Careless(clinic.store, dies), clinic.machine)
    with pytest.raises(Unavailable):
        front.run(checks.fix_clock("mail", 0, clinic.machine, clinic.machine.now_ms))
    (copy,) = clinic.run(hourly_backups("mail", 0))
    assert clinic.run(checks.fix_clock("mail", 0, clinic.machine, clinic.machine.now_ms)) is None
    (fresh,) = clinic.run(hourly_backups("mail", 0))
    assert fresh < copy
    assert decode_head(clinic.read(fresh)).seq == decode_head(clinic.read(HEAD)).seq


def test_a_living_writer_is_not_run_over_by_the_repair_of_the_clock(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.change(now_ms=clinic.machine.now_ms() + limits.DAY_MS)
    others = [clinic.queue()]

    def first_comes_another(request: StoreRequest) -> StoreRequest:
        if isinstance(request, PutIfMatch) and others:
            others.pop().enqueue(2)
        return request

    store = Careless(clinic.store, first_comes_another)
    flow = checks.fix_clock("mail", 0, clinic.machine, clinic.machine.now_ms)
    assert BlockingDriver(store, clinic.machine).run(flow) is not None
    assert [lease.payload for lease in clinic.queue().claim(5)] == [1, 2]


def test_a_clock_that_cannot_be_set_back_for_others_says_so(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.change(now_ms=clinic.machine.now_ms() + limits.DAY_MS)
    store = Careless(
        clinic.store, lambda each: replace(each, version="0") if isinstance(each, PutIfMatch) else each
    )
    with pytest.raises(Throttled, match="faster every time"):
        BlockingDriver(store, clinic.machine).run(
            checks.fix_clock("mail", 0, clinic.machine, clinic.machine.now_ms)
        )


# ── Restoring ────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_head_comes_back_from_the_newest_backup_that_can_be_read(clinic: Clinic, how: str) -> None:
    clinic.q.enqueue("first")
    clinic.q.reap()
    clinic.machine.advance(HOUR)
    clinic.q.enqueue("second")
    clinic.q.reap()
    clinic.machine.advance(HOUR)
    clinic.q.enqueue("third")
    clinic.q.reap()
    old, newer, newest = clinic.run(hourly_backups("mail", 0))
    clinic.write(newest, b"cut")
    clinic.remove(HEAD, "queues/mail") if how == "missing" else clinic.write(HEAD, b"cut")
    done = clinic.restore()
    assert done.backup == newer
    assert clinic.said()["register"] == OK
    assert clinic.read(done.kept) == (b"" if how == "missing" else b"cut")
    assert clinic.said()["head"] == OK
    assert [lease.payload for lease in clinic.queue().claim(5)] == ["first", "second"]
    assert clinic.run(hourly_backups("mail", 0)) == [old, newer, newest]


@pytest.mark.parametrize(("how", "wanted"), [("readable", 2), ("cut", 3)])
def test_a_restored_head_keeps_out_whoever_the_replaced_one_kept_out(
    clinic: Clinic, how: str, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written since the backup may need the format. Of one that cannot be read nobody knows which it had."""
    monkeypatch.setattr(encoding, "FORMATS_READ", (1, 2, 3))
    monkeypatch.setattr(head_restore, "FORMATS_READ", (1, 2, 3))
    clinic.q.enqueue(1)
    clinic.q.reap()
    head = encode_head(replace(decode_head(clinic.read(HEAD)), format=2))
    clinic.write(HEAD, head if how == "readable" else head[:-1])
    clinic.restore(force=True)
    assert decode_head(clinic.read(HEAD)).format == wanted


def test_a_damaged_head_is_kept_beside_the_backups(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.q.reap()
    clinic.write(HEAD, b"what is left of it")
    done = clinic.restore()
    assert done.kept.startswith("backup/mail/00/damaged-")
    assert clinic.read(done.kept) == b"what is left of it"


def test_copies_of_damaged_heads_do_not_crowd_out_the_backups(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.q.reap()
    for _ in range(30):
        clinic.write(HEAD, b"cut")
        clinic.restore()
    for _ in range(30):
        clinic.machine.advance(HOUR)
        clinic.queue().enqueue(1)
        clinic.queue().reap()
    assert set(clinic.said(deep=True).values()) <= {OK, WARNING}


def test_a_head_that_can_be_read_is_replaced_only_when_one_insists(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.q.reap()
    clinic.q.enqueue(2)
    before = clinic.read(HEAD)
    with pytest.raises(Conflict, match="--yes"):
        clinic.restore()
    assert clinic.read(HEAD) == before
    done = clinic.restore(force=True)
    assert done.enqueued_since == 1
    assert any("enqueued since the backup" in line and line.endswith(": 1") for line in account(done))
    assert [lease.payload for lease in clinic.queue().claim(5)] == [1]


def test_a_backup_that_is_not_there_or_damaged_is_refused(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.write(HEAD, b"cut")
    with pytest.raises(NotFound, match="no backup that can be read"):
        clinic.restore()
    with pytest.raises(NotFound, match="no backup '2026-01-01T00'"):
        clinic.restore("2026-01-01T00")
    name = "backup/mail/00/2026-01-01T00"
    clinic.write(name, b"cut too")
    with pytest.raises(Damaged):
        clinic.restore(name)
    assert clinic.read(HEAD) == b"cut"


def test_a_restore_never_races_a_living_writer(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.q.reap()
    clinic.remove(HEAD)
    others = [clinic.queue()]

    def first_comes_another(request: StoreRequest) -> StoreRequest:
        if isinstance(request, PutIfAbsent) and request.key == HEAD and others:
            others.pop().enqueue("the first of a new head")
        return request

    restorer = Restorer("mail", 0, clinic.machine, clinic.machine.now_ms())
    store = Careless(clinic.store, first_comes_another)
    with pytest.raises(Conflict, match="meanwhile"):
        BlockingDriver(store, clinic.machine).run(restorer.run())
    assert [lease.payload for lease in clinic.queue().claim(5)] == ["the first of a new head"]


def test_a_restore_whose_answer_is_lost_knows_its_own_head(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.q.reap()
    clinic.write(HEAD, b"cut")

    def loses_the_answer(request: StoreRequest) -> StoreRequest | StoreReply:
        if isinstance(request, PutIfMatch):
            assert isinstance(clinic.store.perform(request), Written)
            return Failed(Timeout("no answer"))
        return request

    restorer = Restorer("mail", 0, clinic.machine, clinic.machine.now_ms())
    BlockingDriver(Careless(clinic.store, loses_the_answer), clinic.machine).run(restorer.run())
    assert clinic.said()["head"] == OK


def test_a_writer_of_the_old_life_cannot_commit_and_its_leases_are_lost(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    (lease,) = clinic.q.claim()
    clinic.q.reap()
    stalled = clinic.queue()
    stalled.enqueue(2)
    epoch = decode_head(clinic.read(HEAD)).epoch
    clinic.write(HEAD, b"cut")
    clinic.restore()
    before = clinic.read(HEAD)
    assert decode_head(before).epoch != epoch
    with pytest.raises(Unknown):
        stalled.enqueue("late")
    assert decode_head(clinic.read(HEAD)).counters.enqueued == decode_head(before).counters.enqueued
    with pytest.raises((LeaseLost, Unknown)):
        lease.complete()
    with pytest.raises(LeaseLost):
        lease.complete()
    (again,) = clinic.queue().claim()
    assert (again.payload, again.attempt) == (1, 2)
    again.complete()


def test_jobs_finished_since_the_backup_are_known_by_the_archive_and_by_tables(clinic: Clinic) -> None:
    with limited(SMALL):
        jobs = [done.job_id for done in clinic.q.enqueue_many([{"payload": at} for at in range(60)])]
        clinic.q.reap()  # the backup
        for lease in clinic.q.claim(20):
            lease.complete(f"done {lease.payload}")
        clinic.q.reap()  # archived
        for lease in clinic.q.claim(20):
            lease.complete(f"done {lease.payload}")
        clinic.q.enqueue(60)  # spills what is finished into a table
        unspilled = len(decode_head(clinic.read(HEAD)).finished)
        assert 0 < unspilled < 20
        clinic.remove(HEAD)
        done = clinic.restore()
        known = 40 - unspilled
        assert (done.loss.finished, done.recovered, done.loss.tables_gone) == (known, known - 20, 0)
        fresh = clinic.queue()
        for at in (0, 19, 20, known - 1):
            assert fresh.result(jobs[at]) == f"done {at}"
        rest = []
        while leases := fresh.claim(10):
            rest += [lease.payload for lease in leases]
            fresh.complete_many(leases)
        assert rest == list(range(known, 60))
        fresh.reap()
        assert sorted(job.job_id for job in fresh.history()) == sorted(jobs)


def test_a_queue_can_go_on_without_the_objects_that_are_lost(clinic: Clinic) -> None:
    with limited(SMALL):
        for at in range(30):
            clinic.q.enqueue_many([{"payload": at * 10 + each} for each in range(10)])
        lost = clinic.names(ROOT + "segments/")[0]
        clinic.remove(lost)
        done = clinic.restore("head", force=True)
        assert done.loss.segments_gone == 1
        assert clinic.said(deep=True)["objects"] == OK
        left = []
        fresh = clinic.queue()
        while leases := fresh.claim(50):
            left += [lease.payload for lease in leases]
            fresh.complete_many(leases)
        assert len(left) + done.loss.jobs_gone == 300
        assert left == sorted(left)


def test_the_younger_row_of_a_job_is_right_after_a_restore_as_well(clinic: Clinic) -> None:
    """A table that was written anew is younger than the one behind it, and what it tells of is older."""
    q = clinic.q
    day = 24 * HOUR
    kept, *_ = [str(q.enqueue(at, result_ttl=day if at < 40 else 1).job_id) for at in range(200)]
    for lease in q.claim(200):
        lease.complete("r")
    q.reap()
    q.update_result_ttl(kept, 10 * day)
    q.reap()
    clinic.machine.advance(day + HOUR)
    q.reap()
    old, young = decode_head(clinic.read(HEAD)).tables
    assert (old.count, young.count) == (40, 1)
    assert old.name > young.name
    clinic.restore("head", force=True)
    assert clinic.queue().result(kept) == "r"
    clinic.remove(HEAD)
    clinic.restore()
    assert clinic.queue().result(kept) == "r"


def test_how_a_stalled_job_ended_is_known_to_the_last_heartbeat(clinic: Clinic) -> None:
    job = clinic.q.enqueue("x", max_attempts=1).job_id
    clinic.q.reap()
    clinic.machine.advance(1)
    (lease,) = clinic.q.claim()
    clinic.machine.advance(20)
    lease.heartbeat()
    clinic.machine.advance(60)
    clinic.q.reap()
    clinic.q.reap()
    told = clinic.q.status(job).attempts
    clinic.remove(HEAD)
    clinic.restore()
    assert clinic.queue().status(job).attempts == told


def test_an_id_whose_job_is_nowhere_after_a_restore_can_be_used_again(clinic: Clinic) -> None:
    clinic.q.enqueue(1, id="kept")
    clinic.q.reap()
    clinic.q.enqueue(2, id="lost")
    clinic.remove(HEAD)
    clinic.restore()
    fresh = clinic.queue()
    assert fresh.enqueue(1, id="kept").status == "duplicate"
    assert fresh.enqueue(2, id="lost").status == "queued"
    assert sorted(lease.payload for lease in fresh.claim(5)) == [1, 2]


def test_garbage_collection_after_a_restore_takes_nothing_that_is_needed(clinic: Clinic) -> None:
    with limited(SMALL):
        for at in range(20):
            clinic.q.enqueue_many([{"payload": f"{at * 10 + each}" * 600} for each in range(10)])
        clinic.q.reap()
        clinic.remove(HEAD)
        clinic.restore()
        q = clinic.queue()
        for _ in range(60):
            clinic.machine.advance(HOUR)
            q.enqueue("x")
            q.reap()
        assert clinic.said(deep=True)["objects"] == OK
        count = 0
        while leases := q.claim(50):
            count += len([lease.payload for lease in leases])
            q.complete_many(leases)
        assert count == 260


def test_two_restores_from_one_backup_never_begin_with_the_same_number(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.q.reap()
    seen: set[int] = set()
    runs: set[int] = set()
    for _ in range(3):
        clinic.remove(HEAD)
        done = clinic.restore()
        (lease,) = clinic.queue().claim()
        assert done.seq > max(seen, default=0)
        assert lease.run not in runs
        seen.add(done.seq)
        runs.add(lease.run)
        clinic.machine.advance(1)


def test_a_forced_restore_can_be_undone(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.q.reap()
    clinic.q.enqueue(2)
    kept = clinic.restore(force=True).kept
    assert [lease.payload for lease in clinic.queue().claim(5)] == [1]
    clinic.restore(kept, force=True)
    assert [lease.payload for lease in clinic.queue().claim(5)] == [1, 2]


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happened_since_the_backup_no_job_of_it_is_lost(clinic: Clinic, seed: int) -> None:
    chance = random.Random(seed)
    with limited(SMALL | {"DEAD_BYTES_MAX": 500, "DELAYED_BYTES_MAX": 500}):
        live(clinic, chance, 60)
        clinic.machine.advance(HOUR)
        clinic.q.reap()
        backup = clinic.run(hourly_backups("mail", 0))[-1]
        known = {job.job_id for job in everything(clinic.q)}
        live(clinic, chance, chance.choice([0, 10, 80]))
        clinic.remove(HEAD) if chance.random() < 0.5 else clinic.write(HEAD, b"cut")
        before = {job.job_id: job.state for job in clinic.q.history()}
        clinic.restore(backup)
        assert {each.level for each in clinic.examine(deep=True)} <= {OK, WARNING}

        q = clinic.queue()
        over = {job for job, state in before.items() if state in ("completed", "cancelled")}
        for _ in range(12):
            clinic.machine.advance(120)
            q.redrive()
            while leases := q.claim(20):
                assert over.isdisjoint(lease.job_id for lease in leases)
                q.complete_many(leases)
        q.reap()
        assert q.stats()["queued"] == q.stats()["scheduled"] == q.stats()["failed"] == 0
        ends = [job.job_id for job in q.history() if job.state in ("completed", "cancelled")]
        assert known <= set(ends)
        assert len(ends) == len(set(ends))
        assert {each.level for each in clinic.examine(deep=True)} <= {OK, WARNING}


def live(clinic: Clinic, chance: random.Random, steps: int) -> None:
    """Some life in a queue."""
    q = clinic.q
    for _ in range(steps):
        what = chance.random()
        if what < 0.35:
            size = chance.choice([1, 1, 40])
            q.enqueue_many(
                [
                    {
                        "payload": "x" * chance.choice([5, 5, 2_000]),
                        "delay": chance.choice([0, 0, 600]),
                        "max_attempts": chance.choice([1, 3]),
                    }
                    for _ in range(size)
                ]
            )
        elif what < 0.9:
            for lease in q.claim(chance.choice([1, 5, 30])):
                end = chance.random()
                if end < 0.6:
                    lease.complete(end)
                elif end < 0.75:
                    lease.fail("no")
                elif end < 0.8:
                    q.cancel(lease.job_id)
        elif what < 0.95:
            q.reap()
        clinic.machine.advance(chance.choice([0, 1, 20]))


def everything(q: Queue[Any]) -> Iterator[Any]:
    """Every live job."""
    cursor = None
    while True:
        page, cursor = q.jobs(limit=100, cursor=cursor)
        yield from page
        if cursor is None:
            return
