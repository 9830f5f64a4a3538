"""The reaper: each step in its order, passes that overlap or die anywhere, hours, and clocks that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import Damaged, Expired, NotFound, Queue, limits
from osqueue.core.archive_record import ArchiveRecord, decode_part, encode_part
from osqueue.core.encoding import decode_head, staged_name
from osqueue.core.tables import to_merge
from osqueue.model.keys import key_of
from osqueue.objects import archive, backups, id_index
from osqueue.objects.archive import RecordPager
from osqueue.objects.layout import root_of
from osqueue.stores.base import Delete, DeleteIfMatch, Get, List, Put, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from simulation.tight import limited
from tests.support.scene import HEAD, HOUR, ROOT, done, head, names, parts, reaping, told
from tests.support.stepping import Call, writes

FORGOTTEN = (
    limits.EXPIRED_KNOWN_MS / 1000 + HOUR
)  # seconds after which a result of the usual TTL is forgotten


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def opened(machine: Any, store: MemoryStore) -> Callable[..., Queue[Any]]:
    return lambda at=None: Queue(at or store, "mail", machine=machine)


@pytest.fixture
def q(opened: Any) -> Queue[Any]:
    return opened()  # type: ignore[no-any-return]


def at_hour(machine: Any, seconds: float) -> None:
    """Let time pass up to this many seconds after the next full hour."""
    machine.advance((-machine.time_ms % (HOUR * 1000)) / 1000 + seconds)


# ── Steps ────────────────────────────────────────────────────────────────────
def test_a_pass_over_nothing_writes_nothing_but_a_backup(q: Queue[Any], store: MemoryStore) -> None:
    assert q.reap() == type(q.reap())()
    q.enqueue(1)
    assert q.reap() == replace(type(q.reap())(), saved=1)
    seq = head(store).seq
    assert q.reap() == type(q.reap())()
    assert head(store).seq == seq


def test_finished_jobs_leave_the_head_reach_the_archive_and_are_found(
    q: Queue[Any], store: MemoryStore
) -> None:
    jobs = done(q, 3, result={"n": 1})
    report = q.reap()
    assert (report.archived, report.forgotten) == (3, 0)
    assert head(store).finished == ()
    assert [table.archived for table in head(store).tables] == [True]
    assert [job for job, _ in told(store)] == sorted(jobs)
    assert [q.result(job) for job in jobs] == [{"n": 1}] * 3
    assert q.reap().archived == 0
    assert len(told(store)) == 3
    assert head(store).counters.archived == 3


def test_the_part_is_written_before_the_commit_that_relies_on_it_and_old_tables_go_after_it(
    q: Queue[Any], opened: Any, store: MemoryStore
) -> None:
    done(q, 3)
    call = reaping(opened())
    call.until(writes(archive.ROOT))
    (old,) = head(store).tables
    assert not old.archived
    call.step()
    assert not head(store).tables[0].archived
    call.until(lambda request: isinstance(request, Delete))
    assert head(store).tables[0].archived
    assert ROOT + old.name in names(store, ROOT)
    call.finish()
    assert ROOT + old.name not in names(store, ROOT)


def test_a_failed_job_is_told_when_it_fails_and_not_again_when_it_is_let_go(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    job = q.enqueue(1).job_id
    q.claim()[0].fail("no", retry=False)
    q.reap()
    (record,) = [each for records in parts(store).values() for each in records]
    assert (record.job_id, record.state, record.attempts[-1].error) == (job, "failed", "no")
    assert q.status(str(job)).state == "failed"  # type: ignore[union-attr]
    machine.advance(limits.DEAD_TTL_MS_DEFAULT / 1000)
    q.reap()
    q.reap()
    assert len(told(store)) == 1
    assert q.status(str(job)) is None
    with pytest.raises(Expired):
        q.result(str(job))


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("end", ["complete", "fail", "cancel", "cancel while it waits"])
def test_a_redriven_job_has_a_record_of_each_of_its_ends(
    q: Queue[Any], store: MemoryStore, between: bool, end: str
) -> None:
    job = str(q.enqueue(1).job_id)
    q.claim()[0].fail("no", retry=False)
    if between:
        q.reap()
    q.redrive()
    if end == "cancel while it waits":
        q.cancel(job)
    else:
        (lease,) = q.claim()
        lease.complete("r") if end == "complete" else lease.cancel() if end == "cancel" else lease.fail(
            "no", retry=False
        )
    q.reap()
    records = sorted((each for part in parts(store).values() for each in part), key=lambda each: each.run)
    last = {"complete": "completed", "fail": "failed"}.get(end, "cancelled")
    assert [(each.job_id, each.state) for each in records] == [(job, "failed"), (job, last)]
    assert records[0].run < records[1].run
    assert [each.state for each in q.history()] == ["failed", last]


def test_tables_of_like_size_become_one(q: Queue[Any], store: MemoryStore) -> None:
    jobs: list[str] = []
    for _ in range(30):
        jobs += done(q, 2)
        q.reap()
    assert len(head(store).tables) <= 6
    assert sum(table.count for table in head(store).tables) == len(jobs)
    assert all(q.result(job) == "r" for job in jobs)
    assert to_merge(head(store).tables) == ()
    assert len(names(store, ROOT + "finished/")) == len(head(store).tables)


def test_a_job_is_forgotten_a_day_after_its_result_expired(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    (job,) = done(q)
    q.reap()
    machine.advance(HOUR)
    q.reap()
    with pytest.raises(Expired):
        q.result(job)
    machine.advance(limits.EXPIRED_KNOWN_MS / 1000 - 1)
    assert q.reap().forgotten == 0
    with pytest.raises(Expired):
        q.result(job)
    machine.advance(1)
    assert q.reap().forgotten == 1
    with pytest.raises(NotFound):
        q.result(job)
    assert head(store).tables == ()
    assert len(told(store)) == 1


def test_a_large_result_is_collected_once_nobody_remembers_it(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    done(q, result="x" * 5_000)
    q.reap()
    assert names(store, ROOT + "bodies/")
    for _ in range(60):  # days enough, with commits and backups in each
        machine.advance(HOUR)
        q.enqueue(1, delay=1e6)
        q.reap()
    assert names(store, ROOT + "bodies/") == []


def test_ids_are_freed_before_their_jobs_are_forgotten(
    q: Queue[Any], opened: Any, store: MemoryStore, machine: Any
) -> None:
    (job,) = done(q, id="a")
    q.reap()
    machine.advance(FORGOTTEN)
    call = reaping(opened())
    call.until(lambda request: isinstance(request, DeleteIfMatch))
    assert head(store).tables[0].count == 1
    call.step()
    assert names(store, id_index.FOLDER) == []
    assert head(store).tables[0].count == 1
    with pytest.raises(Expired):
        q.result(job)
    report = call.finish()
    assert (report.freed, report.forgotten) == (1, 1)
    assert head(store).tables == ()


@pytest.mark.parametrize("ttl", [1, 60])
def test_a_shortened_ttl_is_not_undone_by_an_older_table(
    q: Queue[Any], store: MemoryStore, machine: Any, ttl: float
) -> None:
    days = 20 * 86_400
    done(q, 400, result_ttl=days)  # a large table that no merge touches any more
    (job,) = done(q, result_ttl=days)
    q.reap()
    q.update_result_ttl(job, ttl)
    for _ in range(40):
        machine.advance(HOUR * 4)
        q.reap()
        with pytest.raises((Expired, NotFound)):
            q.result(job)


def apart(q: Queue[Any], store: MemoryStore, **options: Any) -> str:
    """A job in a table too large to be merged with what comes; a second table stands after it."""
    jobs = done(q, 200, **options)
    q.reap()
    (table,) = head(store).tables
    assert table.count == 200
    return jobs[0]


def test_a_prolonged_ttl_is_not_cut_short_by_an_older_table(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    job = apart(q, store)
    q.update_result_ttl(job, 10 * 86_400)
    q.reap()
    assert [table.count for table in head(store).tables] == [200, 1]
    for _ in range(9):
        machine.advance(86_400)
        q.reap()
        assert q.result(job) == "r"
    machine.advance(86_400)
    with pytest.raises(Expired):
        q.result(job)


def test_an_id_is_not_freed_while_its_job_is_remembered_by_a_younger_table(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    q.enqueue("named", id="a")
    q.claim()[0].complete("kept")
    done(q, 200)
    q.reap()
    q.update_result_ttl("a", 10 * 86_400)
    q.reap()
    assert [table.count for table in head(store).tables] == [201, 1]
    machine.advance(FORGOTTEN)
    assert q.reap().forgotten
    assert q.result("a") == "kept"
    again = q.enqueue("again", id="a")
    assert (again.status, again.result) == ("completed", "kept")
    machine.advance(12 * 86_400)
    assert q.reap().freed == 1
    assert q.enqueue("anew", id="a").status == "queued"


def named(q: Queue[Any], payload: Any) -> Call:
    """A call that is about to commit a job under the id "a"."""
    q.claim(kinds=["none"])  # it has seen the head
    return Call(q, q._enqueue(payload, id="a")).until(writes("/head"))


def test_a_merged_table_is_as_young_as_what_it_tells_of(
    opened: Any, store: MemoryStore, machine: Any
) -> None:
    """Else a caller who looked for the job before it came would not be told to look again."""
    worker, reaper = opened(), opened()
    done(worker, 200)  # a table too large to be merged with the next
    reaper.reap()
    creator = named(opened(), "one")
    call = reaping(reaper).until(lambda request: isinstance(request, List))
    call.until(
        lambda request: request == Get(HEAD, flushed=True)
    )  # it has swept, and is about to look for tables
    worker.enqueue("other", priority=9)
    later = named(opened(), "two")  # it saw the job nowhere
    assert creator.finish().status == "queued"
    worker.claim()[0].complete("once")
    with limited({"FINISHED_BYTES_MAX": 1}):
        worker.enqueue("more", priority=9)
    assert not head(store).finished
    assert not head(store).tables[-1].archived
    call.finish()
    assert [(table.archived, table.count) for table in head(store).tables] == [(True, 200), (True, 1)]
    finished = later.finish()
    assert (finished.status, finished.result) == ("completed", "once")
    assert "two" not in [lease.payload for lease in worker.claim(9)]


# ── Backups ──────────────────────────────────────────────────────────────────
def test_the_head_is_copied_once_an_hour_and_copies_of_a_week_are_kept(
    q: Queue[Any], opened: Any, store: MemoryStore, machine: Any
) -> None:
    q.enqueue(1)
    at_hour(machine, 10)
    assert [q.reap().saved, opened().reap().saved] == [1, 0]
    (name,) = names(store, backups.FOLDER)
    assert name == backups.name_of("mail", 0, machine.time_ms)
    assert decode_head(store.get(Get(name)).body) == head(store)  # type: ignore[union-attr]
    machine.advance(HOUR)
    assert q.reap().saved == 1
    for _ in range(9 * 24):
        machine.advance(HOUR)
        q.reap()
    kept = names(store, backups.FOLDER)
    hours = limits.BACKUPS_KEPT_MS // limits.HOUR_MS
    assert len(kept) == hours + 1
    assert kept[-1] == backups.name_of("mail", 0, machine.time_ms)
    assert kept[0] == backups.name_of("mail", 0, machine.time_ms - limits.BACKUPS_KEPT_MS)


def test_a_damaged_head_is_not_copied(q: Queue[Any], opened: Any, store: MemoryStore) -> None:
    q.enqueue(1)
    call = reaping(opened()).until(lambda request: isinstance(request, Get) and "backup/" in request.key)
    call.step()
    good = store.get(Get(HEAD)).body  # type: ignore[union-attr]
    store.put(Put(HEAD, good[:-1] + bytes([good[-1] ^ 1])))
    with pytest.raises(Damaged):
        call.finish()
    assert names(store, backups.FOLDER) == []


# ── Parts ────────────────────────────────────────────────────────────────────
def rows(count: int = 3) -> list[ArchiveRecord]:
    return [ArchiveRecord(1, f"job{at}", 1, "completed", 5, 6, 1, 10) for at in range(count)]


def test_the_bytes_of_a_part_depend_on_its_records_alone() -> None:
    assert encode_part(rows()) == encode_part(rows())
    assert decode_part(encode_part(rows()), "p") == rows()


def test_parts_of_other_tables_have_other_names(q: Queue[Any], store: MemoryStore, machine: Any) -> None:
    done(q)
    q.reap()
    (table,) = head(store).tables
    now = machine.time_ms
    other = replace(table, name=staged_name("finished", 99, 7, 0))
    same_seq = replace(table, name=table.name[:-1] + "9")
    told = [
        archive.part_name("mail", 0, now, taken) for taken in ([table], [other], [same_seq], [table, other])
    ]
    assert len(set(told)) == 4
    assert archive.part_name("mail", 0, now, [table]) == told[0]
    assert archive.part_name("mail", 1, now, [table]) != told[0]


def test_passes_that_see_the_same_tables_write_one_part(
    q: Queue[Any], opened: Any, store: MemoryStore
) -> None:
    done(q, 3)
    q.enqueue("flushed", delay=9)
    one, two = reaping(opened()).until(writes(archive.ROOT)), reaping(opened()).until(writes(archive.ROOT))
    one.step()
    (before,) = parts(store)
    two.step()
    assert list(parts(store)) == [before]
    one.finish()
    two.finish()
    assert len(told(store)) == 3


def test_a_part_lies_in_the_hour_of_its_writing_not_of_its_jobs(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    at_hour(machine, HOUR - 1)
    (job,) = done(q)
    finished = machine.time_ms
    machine.advance(2)
    q.reap()
    (name,) = parts(store)
    assert name.startswith(archive.hour_of("mail", machine.time_ms))
    assert not name.startswith(archive.hour_of("mail", finished))
    assert [each.job_id for each in q.history(since=finished / 1000, until=finished / 1000 + 1)] == [job]
    assert list(q.history(since=finished / 1000 + 1)) == []


def test_a_part_whose_writing_took_it_past_the_hour_is_in_the_next_one_as_well(
    q: Queue[Any], opened: Any, store: MemoryStore, machine: Any
) -> None:
    done(q)
    at_hour(machine, HOUR - 1)
    call = reaping(opened()).until(writes(archive.ROOT))
    machine.advance(2)
    call.finish()
    assert [name for name in parts(store) if name.startswith(archive.hour_of("mail", machine.time_ms))]
    assert len(list(q.history())) == 1


class Remote(WrappedStore):
    """A store whose clock can only be learnt from what is written there."""

    def clock_ms(self) -> None:
        return None

    def perform(self, request: StoreRequest) -> Any:
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> Any:
        return self.inner.perform(request)


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_reaper_whose_clock_is_two_hours_off_goes_by_the_stores(
    store: MemoryStore, machine: Any, new_machine: Any, hours: int
) -> None:
    wrong = new_machine(2, machine.time_ms + hours * HOUR * 1000)
    q = Queue[Any](Remote(store), "mail", machine=machine)
    reaper = Queue[Any](Remote(store), "mail", machine=wrong)
    (job,) = done(q, result_ttl=1.5 * HOUR)
    q.enqueue("waits", delay=HOUR)
    q.enqueue("runs")
    q.claim(lease=HOUR)
    report = reaper.reap()
    assert (report.archived, report.expired, report.promoted, report.saved) == (1, 0, 0, 1)
    (name,) = parts(store)
    assert name.startswith(archive.hour_of("mail", machine.time_ms))
    assert names(store, backups.FOLDER) == [backups.name_of("mail", 0, machine.time_ms)]
    assert q.result(job) == reaper.result(job) == "r"
    assert head(store).now_ms <= machine.time_ms


def test_the_trouble_of_one_shard_does_not_keep_the_others_from_their_pass(
    q: Queue[Any], store: MemoryStore
) -> None:
    q.configure(shards=3)
    done(q, 1)
    for _ in range(8):
        done(q, 1)
    spoiled = root_of("mail", 1) + "head"
    good = store.get(Get(spoiled)).body  # type: ignore[union-attr]
    store.put(Put(spoiled, good[:-3]))
    with pytest.raises(Damaged):
        Queue[Any](store, "mail", machine=q.machine).reap()
    assert {int(name.rpartition("/")[2][:2]) for name in parts(store)} == {0, 2}
    store.put(Put(spoiled, good))
    Queue[Any](store, "mail", machine=q.machine).reap()
    assert len(told(store)) == 9


def test_history_goes_from_page_to_page(q: Queue[Any], store: MemoryStore, machine: Any) -> None:
    jobs = []
    for _ in range(2 * archive.PARTS_AT_ONCE + 1):
        jobs += done(q)
        q.reap()
        machine.advance(HOUR)
    assert [each.job_id for each in q.history()] == jobs
    pages = RecordPager("mail")
    call = Call(q, pages.page())
    assert len(call.finish()) == archive.PARTS_AT_ONCE


def test_keys_of_the_archive_name_no_more_than_queue_and_time(q: Queue[Any], store: MemoryStore) -> None:
    q.enqueue("secret", id="secret", kind="secret")
    q.claim()[0].complete("secret")
    q.reap()
    assert not any("secret" in name for name in store._keys)
    assert not any(key_of(str(q.enqueue(1).job_id)).hex() in name for name in store._keys)
