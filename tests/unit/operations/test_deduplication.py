"""Clients' ids: one job per id, whoever else asks for it, whatever is lost, and whoever dies or stalls on the way."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Expired, NotFound, Queue, Rejected, Unavailable, limits
from osqueue.commit.retry import ENTRY
from osqueue.model.keys import key_of
from osqueue.objects import id_index
from osqueue.objects.layout import root_of
from osqueue.stores.base import (
    DeleteIfMatch,
    Found,
    Get,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    StoreReply,
    StoreRequest,
)
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from tests.support.stepping import LOST, Call, interleave, writes

ROOT = root_of("mail", 0)
HEAD = ROOT + "head"
PLACE = id_index.entry_key("mail", "a")
LONG = limits.RESULT_TTL_MS_MAX / 1000 + 2 * 86_400  # seconds after which nothing is remembered


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def opened(machine: Any, store: MemoryStore) -> Callable[..., Queue[Any]]:
    """Queue objects over one store, each with a writer of its own."""
    return lambda front=None, **options: Queue(front or store, "mail", machine=machine, **options)


@pytest.fixture
def q(opened: Any) -> Queue[Any]:
    """A queue in use: registered, its head written."""
    q = opened()
    q.enqueue("before")
    q.claim()[0].complete()
    return q  # type: ignore[no-any-return]


def enqueue(q: Queue[Any], payload: Any = 1, **options: Any) -> Call:
    """A call that enqueues under the id "a", one request at a time."""
    q.claim(kinds=["none"])  # it has seen the head
    return Call(q, q._enqueue(payload, id="a", **options))


def is_swap(request: StoreRequest) -> bool:
    """Does it take the entry over?"""
    return isinstance(request, PutIfMatch) and request.key == PLACE


def stands_for(store: MemoryStore) -> bytes | None:
    """The key that the id "a" stands for."""
    found = store.get(Get(PLACE))
    return id_index.entry_of(found, PLACE).key if isinstance(found, Found) else None


def live(q: Queue[Any]) -> list[Any]:
    """The payloads of all jobs that can be claimed."""
    return [lease.payload for lease in q.claim(100)]


# ── How jobs end ─────────────────────────────────────────────────────────────
def fail(q: Queue[Any], machine: Any) -> None:
    q.claim()[0].fail("no", retry=False)


def cancel(q: Queue[Any], machine: Any) -> None:
    assert q.cancel("a") == "cancelled"


def expire(q: Queue[Any], machine: Any) -> None:
    q.claim()[0].complete("old")
    machine.advance(3_600)


def expire_in_a_table(q: Queue[Any], machine: Any) -> None:
    expire(q, machine)
    q.reap()


def cancel_in_a_table(q: Queue[Any], machine: Any) -> None:
    cancel(q, machine)
    q.reap()


def be_forgotten(q: Queue[Any], machine: Any) -> None:
    expire(q, machine)
    machine.advance(LONG)
    assert q.reap().freed == 1


OVER = [fail, cancel, expire, expire_in_a_table, cancel_in_a_table, be_forgotten]


# ── Alone ────────────────────────────────────────────────────────────────────
def test_an_enqueue_that_meets_nobody_is_two_writes_and_every_fourth_looks_at_the_door(q: Queue[Any]) -> None:
    before = q.requests
    for name in "abcd":
        assert q.enqueue(1, id=name).status == "queued"
    assert {kind: count - before[kind] for kind, count in q.requests.items()} == {
        "get": 1,
        "put": 8,
        "list": 0,
        "delete": 0,
    }


def test_a_taken_id_is_one_write_refused_and_two_reads(q: Queue[Any], opened: Any) -> None:
    q.enqueue(1, id="a")
    before = q.requests
    assert q.enqueue(2, id="a").status == "duplicate"
    assert {kind: count - before[kind] for kind, count in q.requests.items()} == {
        "get": 2,
        "put": 1,
        "list": 0,
        "delete": 0,
    }


def test_the_entry_is_there_before_the_job(q: Queue[Any], store: MemoryStore) -> None:
    call = enqueue(q)
    assert isinstance(call.next, PutIfAbsent)
    assert call.next.key == PLACE
    call.step()
    key = stands_for(store)
    assert key is not None
    assert call.next.key == HEAD
    assert key_of(call.finish().job_id) == key


def test_the_id_itself_stands_in_no_key(q: Queue[Any], store: MemoryStore) -> None:
    q.enqueue(1, id="secret-order")
    assert not any("secret" in key for key in store._objects)


def test_one_id_in_two_queues_is_two_jobs(opened: Any, machine: Any, store: MemoryStore) -> None:
    other = Queue(store, "post", machine=machine)
    assert [each.enqueue(1, id="a").status for each in (opened(), other)] == ["queued", "queued"]


@pytest.mark.parametrize("end", OVER)
def test_an_id_is_used_again_once_its_job_is_over(
    q: Queue[Any], machine: Any, store: MemoryStore, end: Any
) -> None:
    first = q.enqueue("one", id="a")
    end(q, machine)
    second = q.enqueue("two", id="a")
    assert (second.status, second.job_id != first.job_id) == ("queued", True)
    assert q.enqueue("three", id="a").status == "duplicate"
    assert stands_for(store) == key_of(second.job_id or "")
    assert live(q) == ["two"]


def test_a_completed_job_answers_until_its_result_expires(q: Queue[Any], machine: Any) -> None:
    first = q.enqueue(1, id="a")
    q.claim()[0].complete({"sum": 7})
    for reap in (False, True):
        if reap:
            q.reap()
        done = q.enqueue(2, id="a")
        assert (done.status, done.job_id, done.result) == ("completed", first.job_id, {"sum": 7})
    machine.advance(3_599)
    assert q.enqueue(3, id="a").status == "completed"
    machine.advance(1)
    assert q.enqueue(4, id="a").status == "queued"


def test_the_first_accepted_call_fixes_payload_and_options(q: Queue[Any], opened: Any) -> None:
    q.enqueue("one", id="a", priority=3, kind="x", max_attempts=7, delay=60)
    again = opened().enqueue("two", id="a", priority=1, kind="y", max_attempts=1)
    assert (again.status, again.state) == ("duplicate", "scheduled")
    job = q.status("a")
    assert job is not None
    assert (job.priority, job.kind, job.max_attempts, job.state, job.id) == (3, "x", 7, "scheduled", "a")
    q.machine.advance(60)  # type: ignore[attr-defined]
    assert live(q) == ["one"]


def test_one_id_several_times_in_one_call_is_one_job(q: Queue[Any]) -> None:
    items = [{"payload": at, "id": "ab"[at % 2]} for at in range(6)] + [
        {"payload": 6},
        {"payload": 7, "id": ""},
    ]
    done = q.enqueue_many(items)
    assert [each.status for each in done] == ["queued"] * 2 + ["duplicate"] * 4 + ["queued", "rejected"]
    assert [each.job_id for each in done[:6]] == [done[0].job_id, done[1].job_id] * 3
    assert live(q) == [0, 1, 6]


def test_a_redriven_job_whose_id_was_not_used_again_is_its_job(q: Queue[Any], machine: Any) -> None:
    first = q.enqueue("one", id="a")
    fail(q, machine)
    assert q.redrive() == 1
    again = q.enqueue("two", id="a")
    assert (again.status, again.job_id) == ("duplicate", first.job_id)


# ── Two who ask for one id ───────────────────────────────────────────────────
def test_a_creator_that_died_is_helped(q: Queue[Any], opened: Any, store: MemoryStore) -> None:
    enqueue(opened(), "dead").until(writes("/head"))  # and it never comes back
    key = stands_for(store)
    done = q.enqueue("mine", id="a")
    assert (done.status, key_of(done.job_id or "")) == ("queued", key)
    assert live(q) == ["mine"]


def test_a_creator_that_stalled_and_was_helped_is_told_of_a_duplicate(q: Queue[Any], opened: Any) -> None:
    slow = enqueue(opened(), "slow").until(writes("/head"))
    fast = q.enqueue("fast", id="a")
    done = slow.finish()
    assert (done.status, done.state, done.job_id) == ("duplicate", "queued", fast.job_id)
    assert live(q) == ["fast"]
    assert slow.q.enqueue("again", id="a").state == "processing"


@pytest.mark.parametrize("reap", [False, True])
def test_a_creator_that_stalled_until_its_job_was_done_gets_the_result(
    q: Queue[Any], opened: Any, reap: bool
) -> None:
    slow = enqueue(opened(), "slow").until(writes("/head"))
    q.enqueue("fast", id="a")
    q.claim()[0].complete("result")
    if reap:  # it has left the head: the reducer cannot know, and says so
        q.reap()
    done = slow.finish()
    assert (done.status, done.result) == ("completed", "result")
    assert live(q) == []


@pytest.mark.parametrize("end", OVER[:5])
def test_a_creator_that_stalled_until_its_job_was_over_begins_anew(
    q: Queue[Any], opened: Any, machine: Any, end: Any
) -> None:
    slow = enqueue(opened(timeout=86_400), "slow").until(writes("/head"))
    fast = q.enqueue("fast", id="a")
    end(q, machine)
    done = slow.finish()
    assert done.status == "queued"
    assert done.job_id != fast.job_id
    assert q.enqueue("other", id="a").job_id == done.job_id
    assert live(q) == ["slow"]


def test_a_second_caller_who_comes_after_the_creator_is_told_of_a_duplicate(
    q: Queue[Any], opened: Any
) -> None:
    creator = enqueue(opened(), "creator").until(writes("/head"))
    later = enqueue(q, "later").until(writes("/head"))
    first = creator.finish()
    told = later.finish()
    assert (first.status, told.status) == ("queued", "duplicate")
    assert first.job_id == told.job_id
    assert live(q) == ["creator"]


def test_a_second_caller_whose_job_passed_through_the_head_meanwhile_gets_its_result(
    q: Queue[Any], opened: Any
) -> None:
    creator = enqueue(opened(), "creator").until(writes("/head"))
    later = enqueue(opened(), "later").until(writes("/head"))
    creator.finish()
    q.claim()[0].complete(1)
    q.reap()  # the head does not hold it any more
    assert later.finish().status == "completed"
    assert live(q) == []


def test_of_two_take_overs_one_wins_and_the_other_joins_it(q: Queue[Any], opened: Any, machine: Any) -> None:
    q.enqueue("old", id="a")
    cancel(q, machine)
    one = enqueue(opened(), "one").until(is_swap)
    two = enqueue(opened(), "two").until(is_swap)
    one.step()
    loser, winner = two.finish(), one.finish()
    assert {loser.status, winner.status} == {"queued", "duplicate"}
    assert loser.job_id == winner.job_id
    assert live(q) == ["two"]  # it helped the one that had won the entry


@pytest.mark.parametrize("start", [None, *OVER[:4]])
@pytest.mark.parametrize("seed", range(40))
def test_however_calls_for_one_id_interleave_there_is_one_job(
    q: Queue[Any], opened: Any, machine: Any, store: MemoryStore, start: Any, seed: int
) -> None:
    old = q.enqueue("old", id="a").job_id if start else None
    if start:
        start(q, machine)
    calls = [enqueue(opened(), at) for at in range(2 + seed % 2)]
    interleave(calls, random.Random(seed))
    done = [call.finish() for call in calls]
    assert sorted(each.status for each in done) == ["duplicate"] * (len(calls) - 1) + ["queued"]
    (job_id,) = {each.job_id for each in done}
    assert job_id != old
    assert stands_for(store) == key_of(job_id)
    assert live(q) == [at for at, each in enumerate(done) if each.status == "queued"]


# ── Answers that do not arrive ───────────────────────────────────────────────
def test_a_create_whose_answer_is_lost_is_one_job(q: Queue[Any], store: MemoryStore) -> None:
    call = enqueue(q)
    call.lose()
    done = call.finish()
    assert done.status == "queued"
    assert stands_for(store) == key_of(done.job_id)
    assert live(q) == [1]


def test_a_create_that_never_arrived_is_repeated(q: Queue[Any], store: MemoryStore) -> None:
    call = enqueue(q)
    call.step(lambda request: LOST)
    done = call.finish()
    assert done.status == "queued"
    assert stands_for(store) == key_of(done.job_id)


@pytest.mark.parametrize("arrived", [True, False])
def test_a_take_over_whose_answer_is_lost_is_one_job(
    q: Queue[Any], opened: Any, machine: Any, store: MemoryStore, arrived: bool
) -> None:
    q.enqueue("old", id="a")
    cancel(q, machine)
    call = enqueue(opened(), "new").until(is_swap)
    call.lose() if arrived else call.step(lambda request: LOST)
    done = call.finish()
    assert done.status == "queued"
    assert stands_for(store) == key_of(done.job_id)
    assert q.enqueue("other", id="a").status == "duplicate"
    assert live(q) == ["new"]


def test_a_take_over_that_arrives_late_makes_no_second_job(
    q: Queue[Any], opened: Any, machine: Any, store: MemoryStore
) -> None:
    q.enqueue("old", id="a")
    cancel(q, machine)
    call = enqueue(opened(), "new").until(is_swap)
    late = call.next
    call.step(lambda request: LOST)
    call.until(is_swap)  # it read, and tries again
    store.perform(late)  # type: ignore[arg-type]
    done = call.finish()
    assert done.status == "queued"
    assert stands_for(store) == key_of(done.job_id)
    assert live(q) == ["new"]


def test_a_freed_entry_whose_answer_is_lost_is_free(
    q: Queue[Any], opened: Any, machine: Any, store: MemoryStore
) -> None:
    q.enqueue(1, id="a")
    expire(q, machine)
    machine.advance(LONG)
    reaper = opened()
    call = Call(reaper, reaper._reap()).until(lambda each: isinstance(each, DeleteIfMatch))
    call.lose()
    call.finish()
    assert stands_for(store) is None
    assert q.enqueue(2, id="a").status == "queued"
    assert live(q) == [2]


def test_a_create_that_arrives_again_after_its_entry_was_freed_blocks_nobody(
    q: Queue[Any], opened: Any, machine: Any, store: MemoryStore
) -> None:
    call = enqueue(opened(), "first")
    late = call.next
    first = call.finish()
    be_forgotten(q, machine)
    store.perform(late)  # type: ignore[arg-type]
    assert stands_for(store) == key_of(first.job_id)
    done = q.enqueue("second", id="a")
    assert (done.status, q.enqueue("third", id="a").status) == ("queued", "duplicate")
    assert live(q) == ["second"]


def test_an_entry_taken_over_while_it_was_being_freed_stays(
    q: Queue[Any], opened: Any, machine: Any, store: MemoryStore
) -> None:
    q.enqueue(1, id="a")
    expire(q, machine)
    machine.advance(LONG)
    reaper = opened()
    call = Call(reaper, reaper._reap()).until(lambda each: isinstance(each, DeleteIfMatch))
    done = q.enqueue(2, id="a")
    assert done.status == "queued"
    call.finish()
    assert stands_for(store) == key_of(done.job_id or "")
    assert q.enqueue(3, id="a").status == "duplicate"


def test_an_id_freed_between_two_looks_at_it_stands_for_the_new_job(
    q: Queue[Any], opened: Any, machine: Any, store: MemoryStore
) -> None:
    q.enqueue("old", id="a")
    expire(q, machine)
    machine.advance(LONG)
    call = enqueue(opened(), "new").until(lambda each: isinstance(each, Get) and each.key == PLACE)
    call.step()  # it stands for the old job; now look what became of that
    assert q.reap().freed == 1
    done = call.finish()
    assert done.status == "queued"
    assert stands_for(store) == key_of(done.job_id)
    assert q.enqueue("other", id="a").job_id == done.job_id
    assert live(q) == ["new"]


def test_a_creator_that_slept_until_its_job_was_forgotten_begins_anew(
    q: Queue[Any], opened: Any, machine: Any, store: MemoryStore
) -> None:
    slow = enqueue(opened(), "slow")
    slow.lose()  # it created the entry, and slept before it heard so
    q.enqueue("fast", id="a")
    be_forgotten(q, machine)
    done = slow.finish()
    assert done.status == "queued"
    assert stands_for(store) == key_of(done.job_id)
    assert q.enqueue("other", id="a").job_id == done.job_id
    assert live(q) == ["slow"]


class Refusing(WrappedStore):
    """A store that refuses every write of an entry."""

    def perform(self, request: StoreRequest) -> StoreReply:
        return LOST if writes(PLACE)(request) else self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


def test_a_store_that_takes_no_entries_is_asked_for_as_long_as_the_call_may_take(
    store: MemoryStore, opened: Any
) -> None:
    q = opened(Refusing(store))
    with pytest.raises(Unavailable, match=r"Nothing was enqueued or changed\.$"):
        q.enqueue(1, id="a")
    assert q.timeout - 1 < sum(q.machine.slept) <= q.timeout
    assert q.requests["put"] < 40


def test_looking_an_id_up_survives_answers_that_do_not_arrive(q: Queue[Any]) -> None:
    q.enqueue(1, id="a")
    call = Call(q, q._status("a"))
    call.step(lambda request: LOST)
    assert call.finish().state == "queued"
    assert q.machine.slept == [ENTRY.pause_s]  # type: ignore[attr-defined]
    call = Call(q, q._status("a"))
    for _ in range(ENTRY.tries):
        call.step(lambda request: LOST)
    with pytest.raises(Unavailable):
        call.finish()


def test_an_answer_of_refused_is_no_answer_about_the_entry(q: Queue[Any], store: MemoryStore) -> None:
    call = enqueue(q)
    call.step(lambda request: Refused())  # somebody had it, and freed it before it could be read
    done = call.finish()
    assert done.status == "queued"
    assert stands_for(store) == key_of(done.job_id)


# ── Looking jobs up ──────────────────────────────────────────────────────────
def test_every_method_takes_either_id(q: Queue[Any]) -> None:
    done = q.enqueue(1, id="a")
    for name in ("a", done.job_id):
        job = q.status(name)  # type: ignore[arg-type]
        assert job is not None
        assert (job.job_id, job.id) == (done.job_id, "a")
    q.claim()[0].complete("r")
    assert q.result("a") == q.result(done.job_id or "") == "r"
    q.update_result_ttl("a", 60)
    assert q.cancel("a") == "completed"
    q.machine.advance(60)  # type: ignore[attr-defined]
    assert q.status("a") is None
    with pytest.raises(Expired):
        q.result("a")


def test_an_id_never_stands_for_another_job_than_its_own(q: Queue[Any]) -> None:
    one = q.enqueue("one").job_id or ""
    with pytest.raises(Rejected, match="form of a job id"):
        q.enqueue("two", id=one)
    two = q.enqueue("two", id=one.upper()).job_id or ""
    assert q.cancel(one.upper()) == "cancelled"
    assert (q.status(one).state, q.status(two).state) == ("queued", "cancelled")  # type: ignore[union-attr]


def test_an_id_that_stands_for_nothing_is_not_found(q: Queue[Any]) -> None:
    assert (q.status("b"), q.cancel("b")) == (None, "not_found")
    with pytest.raises(NotFound):
        q.result("b")
