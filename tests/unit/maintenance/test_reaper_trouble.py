"""One object that is missing, damaged or forbidden does not keep a pass from the rest of its work."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from osqueue import Damaged, NewerFormat, Queue, limits
from osqueue.commit.effects import Submit
from osqueue.core import tables
from osqueue.core.audit import spans_of
from osqueue.core.queue_ops import RunTimers
from osqueue.core.state import TableRef
from osqueue.errors import NotSupported, OsqueueError, Unavailable
from osqueue.model.keys import KeySource, job_id, key_of
from osqueue.objects import archive, backups, finished_tables, id_index
from osqueue.stores.base import Delete, DeleteIfMatch, Failed, Get, Put, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from simulation.tight import limited
from tests.support.scene import HOUR, ROOT, done, head, names, reaping, told
from tests.support.staged import Meddled

DAY = limits.DAY_MS / 1000


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def opened(machine: Any, store: MemoryStore) -> Callable[..., Queue[Any]]:
    return lambda front=None: Queue(front or store, "mail", machine=machine)


@pytest.fixture
def q(opened: Any) -> Queue[Any]:
    return opened()  # type: ignore[no-any-return]


def shelve(q: Queue[Any]) -> None:
    """Finished jobs leave the head."""

    def flow() -> Any:
        yield Submit(0, (RunTimers(flush=True),))

    q._run(flow())


def remove(store: MemoryStore, table: TableRef) -> None:
    store.delete(Delete((ROOT + table.name,)))


def damage(store: MemoryStore, table: TableRef) -> None:
    store.put(Put(ROOT + table.name, b"x" * table.size))


def make_newer(store: MemoryStore, table: TableRef) -> None:
    body = bytearray(store.get(Get(ROOT + table.name)).body)  # type: ignore[union-attr]
    at = body.rindex(b"OSQF") + 4
    body[at : at + 1] = b"\x7f"
    store.put(Put(ROOT + table.name, bytes(body)))


HOW = [(remove, Unavailable), (damage, Damaged), (make_newer, NewerFormat)]


@pytest.mark.parametrize(("spoil", "error"), HOW)
def test_a_table_that_cannot_be_read_is_told_and_the_others_are_looked_after(
    q: Queue[Any], store: MemoryStore, machine: Any, spoil: Any, error: type[OsqueueError]
) -> None:
    done(q, 3)
    shelve(q)
    (bad,) = head(store).tables
    spoil(store, bad)
    for _ in range(4):
        jobs = done(q, 2)
        machine.advance(HOUR)
        with pytest.raises(error, match=bad.name):
            q.reap()
        assert {job for job, _ in told(store)} >= set(jobs)
    assert head(store).tables[0] == bad
    assert sum(each.count for each in head(store).tables if each.archived) == 8
    assert len(names(store, backups.FOLDER)) == 4
    machine.advance(2 * DAY)
    with pytest.raises(error):
        q.reap()
    assert head(store).tables == (bad,)


def test_a_missing_table_is_asked_for_once_a_step_and_told_with_its_remedy(
    q: Queue[Any], store: MemoryStore
) -> None:
    done(q, 3)
    shelve(q)
    remove(store, head(store).tables[0])
    before = q.requests["get"]
    with pytest.raises(Unavailable, match=r"docs/operations\.md.*osqueue doctor ADDRESS mail"):
        q.reap()
    assert q.requests["get"] - before < 12


def test_a_table_in_the_middle_that_cannot_be_read_parts_its_neighbours(
    q: Queue[Any], store: MemoryStore
) -> None:
    with limited({"TABLE_BYTES_MAX": 1}):  # nothing is merged
        for _ in range(5):
            done(q, 2)
            q.reap()
    bad = head(store).tables[2]
    damage(store, bad)
    with pytest.raises(Damaged):
        q.reap()
    assert [each.count for each in head(store).tables] == [4, 2, 4]
    assert head(store).tables[1] == bad


def prolonged(q: Queue[Any], store: MemoryStore) -> TableRef:
    """A job's result is kept for longer than at first, and two tables know the job: the younger one of them."""
    q.enqueue("named", id="a")
    q.claim()[0].complete("kept")
    done(q, 200)
    q.reap()
    q.update_result_ttl("a", 10 * DAY)
    q.reap()
    _, young = head(store).tables
    return young  # type: ignore[no-any-return]


def test_ids_are_not_freed_while_a_younger_table_that_may_know_the_job_cannot_be_read(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    young = prolonged(q, store)
    damage(store, young)
    machine.advance(2 * DAY)
    for _ in range(2):
        with pytest.raises(Damaged):
            q.reap()
    assert [each.count for each in head(store).tables] == [1, 1]
    assert names(store, id_index.FOLDER) != []
    writes = q.requests["put"]
    with pytest.raises(Damaged):
        q.reap()
    assert q.requests["put"] - writes <= 1  # a table whose rows have to stay is not written again and again


class Unconditional(WrappedStore):
    """A store that deletes nothing conditionally."""

    def perform(self, request: StoreRequest) -> StoreReply:
        if isinstance(request, DeleteIfMatch):
            return Failed(NotSupported("conditional deletion needs another client. Remedy: install it."))
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


def test_without_conditional_deletion_all_is_done_but_the_forgetting_of_jobs_with_ids(
    opened: Any, store: MemoryStore, machine: Any
) -> None:
    q = opened(Unconditional(store))
    done(q, 3)
    q.enqueue(1, id="a")
    q.claim()[0].complete()
    shelve(q)
    machine.advance(2 * DAY)
    for _ in range(3):
        with pytest.raises(NotSupported, match="Remedy"):
            q.reap()
        machine.advance(HOUR)
    assert len(told(store)) == 4
    assert [each.count for each in head(store).tables] == [1]
    assert len(names(store, archive.ROOT)) == 1
    assert len(names(store, backups.FOLDER)) == 3


# ── Collection ───────────────────────────────────────────────────────────────
def orphan(store: MemoryStore, folder: str) -> str:
    name = f"{ROOT}{folder}/{1:012x}-{7:016x}-0"
    store.put(Put(name, b"nobody's"))
    return name


def test_what_a_damaged_table_may_name_is_not_collected_and_the_rest_is(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    with limited({"TABLE_BYTES_MAX": 1}):
        for _ in range(2):
            done(q, result="x" * 3_000, result_ttl=20 * DAY)
            q.reap()
    loose = [orphan(store, folder) for folder in ("bodies", "segments", "finished")]
    bodies = names(store, ROOT + "bodies/")
    damage(store, head(store).tables[0])
    for _ in range(40):
        machine.advance(HOUR)
        q.enqueue(1, delay=1e6)
        with pytest.raises(Damaged):
            q.reap()
    assert names(store, ROOT + "bodies/") == bodies
    assert loose[0] in bodies
    assert not {*loose[1:]} & {*names(store, ROOT + "segments/"), *names(store, ROOT + "finished/")}


def test_each_table_is_looked_into_once_for_all_backups_of_a_day(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    with limited({"TABLE_BYTES_MAX": 1}):
        for _ in range(40):
            done(q, result="x" * 3_000, result_ttl=20 * DAY)
            q.reap()
            machine.advance(HOUR)
        count = len(head(store).tables)
        before = q.requests["get"]
        q.reap()
        assert q.requests["get"] - before <= count + 24 + 12


# ── Memory ───────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("ttl", [1.0, 20 * DAY])
def test_an_index_of_large_tables_is_forgotten_table_by_table(
    q: Queue[Any], store: MemoryStore, machine: Any, monkeypatch: Any, ttl: float
) -> None:
    small = {"TABLE_BYTES_MAX": 3_000, "BLOCK_BYTES_MAX": 400, "FANOUT": 4}
    most = [0]
    real = tables.merge_rows

    def merge(runs: Any) -> Any:
        most[0] = max(most[0], sum(map(len, runs)))
        return real(runs)

    monkeypatch.setattr(tables, "merge_rows", merge)
    with limited(small):
        for at in range(14):
            jobs = [{"payload": 1, "result_ttl": 1.0 if n % 3 else ttl} for n in range(30)]
            q.enqueue_many([{**job, "id": f"{at}-{n}"} for n, job in enumerate(jobs)])
            q.complete_many(q.claim(30))
            q.reap()
        assert any(each.level for each in head(store).tables)
        machine.advance(2 * DAY)
        most[0] = 0
        forgotten = q.reap().forgotten + q.reap().forgotten
        assert forgotten == 14 * (20 if ttl > 1 else 30)
        assert most[0] <= 80
        left = head(store).tables
        assert sum(each.count for each in left) == (140 if ttl > 1 else 0)


def test_what_an_index_holds_is_known_without_reading_it() -> None:
    leaf = TableRef("t", 0, 10, 5_000, bytes(16), bytes(16), 0, 0)
    _, index = tables.encode_table_index([leaf, leaf], "i")
    _, above = tables.encode_table_index([index, leaf], "j")
    assert [tables.bytes_below(each) for each in (leaf, index, above)] == [5_000, 10_000, 15_000]


def test_rows_are_cut_into_tables_of_a_size(q: Queue[Any], store: MemoryStore) -> None:
    done(q, 200)
    q.reap()
    (table,) = head(store).tables
    rows = q._run(finished_tables.rows(ROOT, table))
    count = iter(range(99))
    with limited({"TABLE_BYTES_MAX": 3_000, "BLOCK_BYTES_MAX": 400}):
        cut = list(tables.encode_tables(rows, True, lambda: f"n{next(count)}"))
        assert len(cut) > 3
        for data, each in cut:
            assert (len(data), each.archived) == (each.size, True)
            assert each.size <= 3_000 + 1_000  # and its footer
    assert sum(each.count for _, each in cut) == 200
    assert all(one.last < two.first for (_, one), (_, two) in pairwise(cut))


# ── Segments ─────────────────────────────────────────────────────────────────
def delayed(q: Queue[Any]) -> None:
    """Jobs that become due in segments."""
    for at in range(12):
        q.enqueue("x" * 50, delay=60 + at)


def dead(q: Queue[Any]) -> None:
    """Dead letters in segments, and none in front of them."""
    for _ in range(12):
        q.enqueue("x" * 50)
        q.claim()[0].fail("no", retry=False)


@pytest.mark.parametrize("put", [delayed, dead])
@pytest.mark.parametrize(("how", "error"), [("gone", Unavailable), ("damaged", Damaged)])
def test_a_segment_that_keeps_jobs_from_their_time_is_told(
    q: Queue[Any], store: MemoryStore, machine: Any, put: Any, how: str, error: type[OsqueueError]
) -> None:
    with limited({"DELAYED_BYTES_MAX": 400, "DEAD_BYTES_MAX": 400}):
        put(q)
        first = next(spans_of(head(store)))
        kept = store.get(Get(ROOT + first.name)).body  # type: ignore[union-attr]
        if how == "gone":
            store.delete(Delete((ROOT + first.name,)))
        else:
            store.put(Put(ROOT + first.name, b"x" * first.size))
        machine.advance(15 * DAY)
        for _ in range(2):
            with pytest.raises(error, match=first.name):
                q.reap()
        store.put(Put(ROOT + first.name, kept))
        q.reap()
    assert (q.stats()["scheduled"], q.stats()["failed"]) == (0, 0)


def test_a_segment_that_others_have_moved_past_is_no_trouble(
    opened: Any, store: MemoryStore, machine: Any
) -> None:
    def meddled(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
        """Every look at a segment comes too late: another pass has used it up, and it was collected."""
        if isinstance(request, Get) and "/segments/" in request.key:
            store.put(Put(request.key, kept[request.key]))
            opened().reap()
            store.delete(Delete((request.key,)))
        return perform(request)

    with limited({"DELAYED_BYTES_MAX": 400}):
        delayed(opened())
        machine.advance(DAY)
        places = [ROOT + span.name for span in spans_of(head(store))]
        kept = {place: store.get(Get(place)).body for place in places}  # type: ignore[union-attr]
        opened(Meddled(store, meddled)).reap()
    assert opened().stats()["queued"] == 12


def test_a_table_that_another_pass_has_merged_meanwhile_is_no_trouble(
    opened: Any, store: MemoryStore, machine: Any
) -> None:
    q = opened()
    young = prolonged(q, store)
    machine.advance(2 * DAY)
    call = reaping(opened()).until(lambda request: isinstance(request, Get) and young.name in request.key)
    q.update_result_ttl("a", 11 * DAY)
    opened().reap()
    assert young not in head(store).tables
    call.finish()


# ── Cancelled jobs in segments ───────────────────────────────────────────────
@pytest.mark.parametrize(("how", "error"), [("gone", Unavailable), ("damaged", Damaged)])
def test_a_segment_that_cannot_be_read_keeps_nobody_from_cancelling_jobs_of_others(
    q: Queue[Any], store: MemoryStore, how: str, error: type[OsqueueError]
) -> None:
    with limited({"READY_BYTES_MAX": 900, "TAIL_BYTES_MAX": 700, "TOMBSTONES_MAX": 4}):
        jobs = [str(q.enqueue("x" * 50).job_id) for _ in range(120)]
        spans = list(spans_of(head(store)))
        inside = [[job for job in jobs if span.first <= key_of(job) <= span.last] for span in spans]
        assert [q.cancel(job) for job in inside[2][:2]] == ["cancelled"] * 2
        if how == "gone":
            store.delete(Delete((ROOT + spans[2].name,)))
        else:
            store.put(Put(ROOT + spans[2].name, b"x" * spans[2].size))
        others = [job for each in inside[4:8] for job in each[:3]]
        assert [q.cancel(job) for job in others] == ["cancelled"] * 12
        with limited({"TOMBSTONES_MAX": 2}), pytest.raises(error, match=spans[2].name):
            q.cancel(inside[8][0])
    assert len(head(store).tombstones) >= 2


def test_a_missing_head_of_a_shard_that_was_in_use_is_told(
    q: Queue[Any], store: MemoryStore, opened: Any
) -> None:
    assert opened().reap().saved == 0  # nothing was ever there
    q.enqueue("x")
    q.reap()
    store.delete(Delete((f"{ROOT}head",)))
    with pytest.raises(Unavailable, match=r"head.*osqueue doctor ADDRESS mail"):
        opened().reap()


def test_a_purge_in_a_shard_without_a_head_keeps_no_pass_from_its_work(q: Queue[Any], machine: Any) -> None:
    """The list of purged jobs stays there, and tells nothing of whether the shard was in use."""
    q.purge(job_id(KeySource(machine).draw(0, 1)[0]))
    assert q.reap() == type(q.reap())()


def test_a_head_that_is_missing_where_there_are_copies_of_it_is_told(
    q: Queue[Any], store: MemoryStore
) -> None:
    done = q.enqueue(1)
    q.reap()
    q.purge(str(done.job_id))
    store.delete(Delete((ROOT + "head",)))
    with pytest.raises(Unavailable, match="--restore"):
        q.reap()
