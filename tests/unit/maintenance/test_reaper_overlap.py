"""Passes that overlap, overtake each other and die anywhere: what they leave is what one undisturbed pass leaves."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from osqueue import OsqueueError, Queue, limits
from osqueue.objects import archive, id_index
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited
from tests.support.scene import HOUR, ROOT, clone, done, head, names, parts, reaping, told
from tests.support.stepping import LOST, interleave, writes

FORGOTTEN = (
    limits.EXPIRED_KNOWN_MS / 1000 + HOUR
)  # seconds after which a result of the usual TTL is forgotten


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def q(store: MemoryStore, machine: Any) -> Queue[Any]:
    return Queue(store, "mail", machine=machine)


def build(q: Queue[Any], machine: Any) -> None:
    """A shard in which a pass has something to do in each of its steps."""
    with limited({"FINISHED_BYTES_MAX": 800}):
        for at in range(4):
            done(q, 3, result_ttl=1)
            q.enqueue(at, id=f"old{at}", result_ttl=1)
            done(q, 1)
        q.reap()
        machine.advance(FORGOTTEN)
        for at in range(6):
            q.enqueue(at, id=f"new{at}")
            q.claim()[0].complete("y" * 2_000 if at % 2 else at)
            q.cancel(str(q.enqueue(at).job_id))
            q.enqueue(at)
            q.claim()[0].fail("no", retry=False)


def outcome(store: MemoryStore, machine: Any) -> Any:
    """What callers can learn of a shard, and what the archive tells."""
    q = Queue[Any](store, "mail", machine=machine)
    jobs = {each.job_id for each in q.history()}
    views = {job: q.status(job) for job in jobs}
    named = {name: q.status(name) for name in [f"{age}{at}" for age in ("old", "new") for at in range(6)]}
    answers = {}
    for job in jobs:
        try:
            answers[job] = q.result(job)
        except OsqueueError as error:
            answers[job] = error.code
    counts = sum(table.count for table in head(store).tables)
    return jobs, sorted(set(told(store))), views, named, answers, counts, names(store, id_index.FOLDER)


@pytest.fixture
def built(q: Queue[Any], store: MemoryStore, machine: Any) -> tuple[MemoryStore, Any]:
    """The store before a pass, and what there is after an undisturbed one."""
    build(q, machine)
    twin = clone(store, machine)
    report = Queue[Any](twin, "mail", machine=machine).reap()
    assert min(report.archived, report.forgotten, report.freed, report.saved) > 0
    assert len(set(told(twin))) == len(told(twin))
    return store, outcome(twin, machine)


@pytest.mark.parametrize("seed", range(40))
def test_two_passes_at_once_do_what_one_does(built: Any, machine: Any, seed: int) -> None:
    store, wanted = built
    calls = [reaping(Queue(store, "mail", machine=machine)) for _ in range(2)]
    interleave(calls, random.Random(seed))
    for call in calls:
        call.finish()
    assert outcome(store, machine) == wanted


def length(store: MemoryStore, machine: Any) -> int:
    """How many requests an undisturbed pass makes."""
    call = reaping(Queue(clone(store, machine), "mail", machine=machine))
    count = 0
    while not call.over:
        call.step()
        count += 1
    return count


def test_one_pass_may_overtake_another_anywhere(built: Any, machine: Any) -> None:
    store, wanted = built
    for steps in range(length(store, machine)):
        twin = clone(store, machine)
        slow = reaping(Queue(twin, "mail", machine=machine))
        for _ in range(steps):
            slow.step()
        Queue[Any](twin, "mail", machine=machine).reap()
        slow.finish()
        assert outcome(twin, machine) == wanted, f"overtaken after {steps} requests"


@pytest.mark.parametrize("last", ["performed", "lost", "never arrived"])
def test_a_pass_that_died_anywhere_is_finished_by_the_next(built: Any, machine: Any, last: str) -> None:
    store, wanted = built
    began = machine.seconds
    for steps in range(length(store, machine)):
        machine.advance(began - machine.seconds)  # results that last a second are asked for below
        twin = clone(store, machine)
        call = reaping(Queue(twin, "mail", machine=machine))
        for _ in range(steps):
            call.step()
        if last == "performed":
            call.step()
        else:
            call.lose() if last == "lost" else call.step(lambda request: LOST)
            with suppress(OsqueueError):  # it goes on as well as it can
                call.finish()
        Queue[Any](twin, "mail", machine=machine).reap()
        assert outcome(twin, machine) == wanted, f"{last} after {steps} requests"


def test_a_record_written_twice_is_read_once(built: Any, machine: Any) -> None:
    store, _ = built
    call = reaping(Queue(store, "mail", machine=machine)).until(writes(archive.ROOT))
    call.step()  # and it dies
    q = Queue[Any](store, "mail", machine=machine)
    done(q, 2)
    machine.advance(HOUR / 2)
    q.reap()
    assert len(told(store)) > len(set(told(store)))
    seen = [(each.job_id, each.attempts[-1].run if each.attempts else 0) for each in q.history()]
    assert len(seen) == len(set(seen)) == len(set(told(store)))


# ── After a long time without passes ─────────────────────────────────────────
SMALL = {"FINISHED_BYTES_MAX": 400, "FANOUT": 3, "TABLE_BYTES_MAX": 3_000}


def test_a_shard_that_was_not_reaped_for_long_is_archived_in_small_steps(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    with limited(SMALL):
        jobs = [job for at in range(80) for job in done(q, 2, result=at)]
        assert max(table.level for table in head(store).tables) >= 2
        assert len(head(store).tables) < 40
        assert q.reap().archived > 100
        while q.reap().archived:
            pass
        assert [job for job, _ in told(store)] == sorted(jobs)
        assert all(table.archived for table in head(store).tables)
        assert [q.result(job) for job in jobs] == [at for at in range(80) for _ in range(2)]
        parts_of_one = [len(each) for each in parts(store).values()]
        assert max(parts_of_one) <= 40  # none holds more than a pass may keep in memory
        named = {ROOT + table.name for table in head(store).tables if not table.level}
        assert named <= set(names(store, ROOT + "finished/"))
        machine.advance(FORGOTTEN)
        for _ in range(3):
            q.reap()
        assert head(store).tables == ()


@pytest.mark.parametrize("seed", range(10))
def test_two_passes_over_a_neglected_shard_do_what_one_does(
    q: Queue[Any], store: MemoryStore, machine: Any, seed: int
) -> None:
    with limited(SMALL):
        for at in range(30):
            done(q, 2, result=at)
        twin = clone(store, machine)
        alone = Queue[Any](twin, "mail", machine=machine)
        alone.reap()
        alone.reap()
        calls = [reaping(Queue(store, "mail", machine=machine)) for _ in range(2)]
        interleave(calls, random.Random(seed))
        for call in calls:
            call.finish()
        q.reap()
        assert outcome(store, machine) == outcome(twin, machine)
