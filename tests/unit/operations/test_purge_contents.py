"""What a purge promises about contents: no restore brings a purged job back, and no neighbour keeps its bytes alive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from osqueue import Conflict, Damaged, Queue, Rejected, Throttled, Timeout, limits
from osqueue.commit.driver import BlockingDriver
from osqueue.core.rows import BodyRef
from osqueue.maintenance.head_restore import Restorer, RestoreReport
from osqueue.objects import backups
from osqueue.objects.layout import root_of
from osqueue.objects.staging import wipe_refused
from osqueue.stores.base import Delete, Failed, Get, List, Put, PutIfMatch, Refused, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited
from tests.support.staged import LOST, Meddled

SECRET = "ada@example.com"
HOUR = 3600  # seconds
LARGE = "x" * (limits.INLINE_BYTES_MAX + 1)  # goes into a body object
Perform = Callable[[StoreRequest], StoreReply]


class Raw:
    """A serialiser of one's own."""

    name = "raw"

    def dumps(self, value: Any) -> bytes:
        return bytes(value)

    def loads(self, data: bytes, type: Any) -> bytes:
        return bytes(data)


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


def queue(store: Any, machine: Any, **options: Any) -> Queue[Any]:
    return Queue(store, "mail", machine=machine, **options)


def holders(store: MemoryStore, secret: str = SECRET) -> list[str]:
    """The objects in which a secret can be read."""
    return [key for key in keys(store) if secret.encode() in store.perform(Get(key)).body]  # type: ignore[union-attr]


def keys(store: MemoryStore) -> list[str]:
    return list(store.perform(List("")).keys)  # type: ignore[union-attr]


# ── A restore ────────────────────────────────────────────────────────────────
def restored(store: MemoryStore, machine: Any) -> RestoreReport:
    """The shard after its head was lost."""
    store.perform(Delete((root_of("mail", 0) + "head",)))
    return BlockingDriver(store, machine).run(Restorer("mail", 0, machine, machine.now_ms()).run())


CONTENTS = [
    pytest.param("json", SECRET, id="json"),
    pytest.param("json", SECRET + LARGE, id="json-beside-the-head"),
    pytest.param("msgpack", None, id="msgpack-none"),
    pytest.param("msgpack", 7, id="msgpack-small"),
    pytest.param(Raw(), SECRET.encode(), id="own"),
    pytest.param(Raw(), b"", id="own-empty"),
]


@pytest.mark.parametrize("delay", [0, HOUR], ids=["queued", "scheduled"])
@pytest.mark.parametrize(("serializer", "payload"), CONTENTS)
def test_a_purged_job_is_left_out_by_a_restore_whatever_its_payload(
    store: MemoryStore, machine: Any, serializer: Any, payload: Any, delay: int
) -> None:
    q = queue(store, machine, serializer=serializer)
    other = LARGE.encode() if isinstance(serializer, Raw) else LARGE
    purged, kept = q.enqueue_many([{"payload": each, "delay": delay} for each in (payload, other)])
    q.reap()  # copies the head
    q.purge(purged.job_id)
    assert restored(store, machine).loss.erased == 1
    q = queue(store, machine, serializer=serializer)
    assert q.status(purged.job_id) is None
    machine.advance(delay)
    assert [(lease.job_id, lease.payload) for lease in q.claim(limit=10)] == [(kept.job_id, other)]


@pytest.mark.parametrize("payload", [None, SECRET + LARGE], ids=["inline", "beside the head"])
def test_a_job_purged_where_it_lay_in_a_segment_is_left_out(
    store: MemoryStore, machine: Any, payload: Any
) -> None:
    q = queue(store, machine, serializer="msgpack")
    jobs = [{"payload": at} for at in range(1, 1_501)]
    done = q.enqueue_many([*jobs, {"payload": payload}, *jobs, {"payload": LARGE}])
    q.reap()
    q.purge(done[1_500].job_id)
    assert restored(store, machine).loss.erased == 1
    q = queue(store, machine, serializer="msgpack")
    assert q.status(done[1_500].job_id) is None
    assert q.stats()["queued"] == 3_001


def test_a_job_that_failed_since_the_backup_and_was_purged_is_no_dead_letter(
    store: MemoryStore, machine: Any
) -> None:
    q = queue(store, machine)
    first, *_ = q.enqueue_many([{"payload": SECRET, "max_attempts": 1}] * 400)
    q.reap()  # copies the head
    for _ in range(2):  # so many failures leave the head for a table that the archive has not got yet
        leases = q.claim(limit=200)
        q.fail_many([{"job_id": each.job_id, "token": each.token, "error": SECRET} for each in leases])
    machine.advance(1)
    q.purge(first.job_id)
    loss = restored(store, machine).loss
    assert (loss.erased, loss.buried) == (1, 399)
    assert queue(store, machine).status(first.job_id) is None


@pytest.mark.parametrize("claimed", [True, False], ids=["claimed", "waiting"])
def test_a_job_that_was_redriven_while_it_was_purged_lives_on_also_after_a_restore(
    store: MemoryStore, machine: Any, claimed: bool
) -> None:
    q = queue(store, machine)
    gone, kept = (str(q.enqueue(at, max_attempts=1).job_id) for at in ("gone", "kept"))
    for lease in q.claim(2):
        lease.fail(lease.payload)
    others = [queue(store, machine)]

    def meddle(request: StoreRequest, perform: Perform) -> StoreReply:
        reply = perform(request)
        if isinstance(request, Put) and backups.is_purge(request.key) and others:
            other = others.pop()
            assert other.redrive(error="kept") == 1
            assert not claimed or other.claim()
        return reply

    purging = queue(Meddled(store, meddle), machine)
    with pytest.raises(Conflict if claimed else Throttled):
        purging.purge([gone, kept], dead_only=True)
    assert not others
    machine.advance(HOUR)
    q.reap()  # copies the head in which it lives on
    restored(store, machine)
    q = queue(store, machine)
    state = q.status(kept)
    assert state is not None
    assert state.state == ("failed" if claimed else "queued")
    assert q.status(gone) is None


# ── Results that were refused ────────────────────────────────────────────────
def late(q: Queue[Any], machine: Any, beside: int = 1) -> tuple[Any, list[Any]]:
    """A lease that is over, its job claimed again; and leases that hold."""
    q.enqueue("slow", result_ttl=30 * 24 * HOUR)
    (slow,) = q.claim(lease=1)
    q.enqueue_many([{"payload": at, "result_ttl": 30 * 24 * HOUR} for at in range(beside)])
    held = q.claim(limit=beside, lease=HOUR)
    machine.advance(2)
    (again,) = q.claim(lease=HOUR)
    assert again.job_id == slow.job_id
    return slow, held


def said(lease: Any, result: Any) -> dict[str, Any]:
    return {"job_id": lease.job_id, "token": lease.token, "result": result}


def test_a_large_result_that_came_too_late_does_not_live_on_beside_another(
    store: MemoryStore, machine: Any
) -> None:
    q = queue(store, machine)
    slow, (first, second) = late(q, machine, 2)
    results = [said(first, "1" + LARGE), said(slow, SECRET + LARGE), said(second, "2" + LARGE)]
    done = q.complete_many(results)
    assert [each.code for each in done] == ["ok", "lease_lost", "ok"]
    assert holders(store) == []
    assert [q.result(each.job_id) for each in (first, second)] == ["1" + LARGE, "2" + LARGE]


def test_results_that_all_were_accepted_cost_no_further_request(store: MemoryStore, machine: Any) -> None:
    asked: list[StoreRequest] = []

    def note(request: StoreRequest, perform: Perform) -> StoreReply:
        asked.append(request)
        return perform(request)

    q = queue(Meddled(store, note), machine)
    q.enqueue_many([{"payload": at} for at in range(100)])
    leases = q.claim(limit=100)
    asked.clear()
    assert all(done.ok for done in q.complete_many([said(each, LARGE) for each in leases]))
    assert [type(each) for each in asked] == [Put, PutIfMatch]  # one object, one commit


def test_an_object_of_which_nothing_was_accepted_is_the_collectors(store: MemoryStore, machine: Any) -> None:
    q = queue(store, machine)
    slow, _ = late(q, machine)
    before = set(keys(store))
    (done,) = q.complete_many([said(slow, SECRET + LARGE)])
    assert done.code == "lease_lost"
    (name,) = set(keys(store)) - before
    assert holders(store) == [name]
    for _ in range(3):
        machine.advance(24 * HOUR)
        q.enqueue("time goes by", delay=30 * 24 * HOUR)
        q.reap()
    assert holders(store) == []


@pytest.mark.parametrize("trouble", ["get", "put", "both"])
def test_a_store_in_trouble_keeps_no_answer_back(store: MemoryStore, machine: Any, trouble: str) -> None:
    def meddle(request: StoreRequest, perform: Perform) -> StoreReply:
        body = "/bodies/" in getattr(request, "key", "")
        reading = isinstance(request, Get) and trouble != "put"
        writing = isinstance(request, PutIfMatch) and trouble != "get"
        return LOST if body and (reading or writing) else perform(request)

    q = queue(Meddled(store, meddle), machine)
    slow, (held,) = late(q, machine)
    done = q.complete_many([said(held, LARGE), said(slow, SECRET + LARGE)])
    assert [each.code for each in done] == ["ok", "lease_lost"]
    assert len(holders(store)) == 1
    assert queue(store, machine).result(held.job_id) == LARGE


def test_a_purge_of_the_neighbour_at_the_same_time_is_not_undone(store: MemoryStore, machine: Any) -> None:
    purging: list[str] = []

    def meddle(request: StoreRequest, perform: Perform) -> StoreReply:
        if isinstance(request, PutIfMatch) and "/bodies/" in request.key and purging:
            queue(store, machine).purge(purging.pop())
        return perform(request)

    q = queue(Meddled(store, meddle), machine)
    slow, (held, third) = late(q, machine, 2)
    purging.append(held.job_id)
    q.complete_many([said(held, "bob@" + LARGE), said(slow, SECRET + LARGE), said(third, LARGE)])
    assert purging == []
    assert holders(store) == []
    assert holders(store, "bob@") == []
    assert q.result(third.job_id) == LARGE


def test_a_copy_that_others_write_again_and_again_is_not_passed_over(
    store: MemoryStore, machine: Any
) -> None:
    others = queue(store, machine)
    job_id = str(others.enqueue(SECRET).job_id)
    others.reap()  # copies the head

    def meddle(request: StoreRequest, perform: Perform) -> StoreReply:
        if isinstance(request, PutIfMatch) and request.key.startswith(backups.FOLDER):
            return Refused()
        return perform(request)

    with pytest.raises(Throttled):
        queue(Meddled(store, meddle), machine).purge(job_id)
    queue(store, machine).purge(job_id)
    assert holders(store) == []


def test_a_caller_whose_time_is_up_hears_of_its_commit_all_the_same() -> None:
    staged = [(BodyRef("bodies/1", 0, 5, 0), True), (BodyRef("bodies/1", 5, 5, 0), False), (b"inline", False)]
    flow = wipe_refused("root/", staged)
    assert next(flow) == Get("root/bodies/1")
    with pytest.raises(StopIteration):
        flow.throw(Timeout("the request took too long"))


# ── Payloads that were refused ───────────────────────────────────────────────
@pytest.fixture
def no_room() -> Iterator[None]:
    """No delayed job is taken."""
    with limited({"DELAYED_SPANS_MAX": 0}):
        yield


@pytest.mark.parametrize("more", [0, 1_500], ids=["in one request", "in a bulk"])
@pytest.mark.parametrize("named", [False, True])
def test_a_large_payload_that_was_refused_does_not_live_on_beside_another(
    no_room: None, store: MemoryStore, machine: Any, more: int, named: bool
) -> None:
    q = queue(store, machine)
    jobs: list[dict[str, Any]] = [
        {"payload": "1" + LARGE},
        {"payload": SECRET + LARGE, "delay": HOUR},
        {"payload": "2" + LARGE},
        *({"payload": at} for at in range(more)),
    ]
    if named:
        jobs[1]["id"] = "of the caller"
    done = q.enqueue_many(jobs)
    assert [each.status for each in done[:3]] == ["queued", "rejected", "queued"]
    assert holders(store) == []
    assert [lease.payload for lease in q.claim(2)] == ["1" + LARGE, "2" + LARGE]


def test_a_lost_answer_of_the_store_is_asked_for_again(
    no_room: None, store: MemoryStore, machine: Any
) -> None:
    lost: list[Failed] = [LOST, LOST]

    def meddle(request: StoreRequest, perform: Perform) -> StoreReply:
        reply = perform(request)
        overwriting = isinstance(request, Get | PutIfMatch) and "/bodies/" in request.key
        return lost.pop() if overwriting and lost else reply

    q = queue(Meddled(store, meddle), machine)
    q.enqueue_many([{"payload": SECRET + LARGE, "delay": HOUR}, {"payload": LARGE}])
    assert holders(store) == []


def test_a_job_beside_an_object_that_is_cut_short_is_refused_in_words(
    store: MemoryStore, machine: Any
) -> None:
    q = Queue[Any](store, "mail", machine=machine)
    with limited({"READY_BYTES_MAX": 900, "TAIL_BYTES_MAX": 9_000, "BLOCK_BYTES_MAX": 400}):
        for at in range(120):
            q.enqueue(f"{at:50}")
        leases = [lease for _ in range(15) for lease in q.claim(1)]
    jobs = {lease.job_id for lease in leases}
    q.complete_many(leases)
    root = root_of("mail", 0)
    for place in store.list(List(f"{root}segments/")).keys:
        store.put(Put(place, store.get(Get(place)).body[:-9]))  # type: ignore[union-attr]
    with pytest.raises(Damaged, match="segments/"):
        q.purge(jobs)


@pytest.mark.parametrize("jobs", [[["a"]], [{"job_id": "a"}], [None], b"a"])
def test_what_is_no_id_is_refused_by_name(store: MemoryStore, jobs: Any) -> None:
    with pytest.raises(Rejected, match="job"):
        Queue[Any](store, "mail").purge(jobs)


def test_a_job_that_is_named_twice_is_one_job(store: MemoryStore, machine: Any) -> None:
    q = Queue[Any](store, "mail", machine=machine)
    job = str(q.enqueue("x", id="a").job_id)
    done = q.purge(["a", job])
    assert (done.jobs, done.cancelled, done.ids) == ((job,), 1, 1)
    job = str(q.enqueue("x", id="a").job_id)
    q.claim()[0].fail("no", retry=False)
    assert q.purge(["a", job], dead_only=True).jobs == (job,)
