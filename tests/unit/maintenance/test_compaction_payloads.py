"""Payloads and results in the archive: all of them, for as long as it needs, and nothing where nobody asked."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any
from zlib import crc32

import pytest

from osqueue import Queue, limits
from osqueue.commit.effects import Submit
from osqueue.core.archive_record import ArchiveRecord, content_from
from osqueue.core.encoding import decode_head
from osqueue.core.queue_ops import RunTimers
from osqueue.core.rows import BodyRef
from osqueue.objects.layout import root_of
from osqueue.stores.base import Delete, Get
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited
from tests.support.scene import HEAD, HOUR, ROOT, done, head, names, parts, reaping, told
from tests.support.stepping import writes

LARGE = "a" * 5_000
DAY = 24 * HOUR


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def opened(machine: Any, store: MemoryStore) -> Callable[..., Queue[Any]]:
    return lambda **more: Queue(store, "mail", machine=machine, **more)


@pytest.fixture
def q(opened: Any) -> Queue[Any]:
    """A queue whose archive gets payloads."""
    made: Queue[Any] = opened()
    made.configure(archive_payloads=True)
    return made


def records(store: MemoryStore) -> dict[str, ArchiveRecord]:
    return {each.job_id: each for part in parts(store).values() for each in part}


def bodies(store: MemoryStore) -> set[str]:
    """The objects that rows of finished jobs in the head refer to."""
    return {body.name for row in head(store).finished for body in row.bodies}


# ── What the archive gets ────────────────────────────────────────────────────
@pytest.mark.parametrize("value", [{"to": "ada", "n": 1.50}, "é\n", None, LARGE])
def test_a_completed_job_is_archived_with_its_payload_and_result(
    q: Queue[Any], store: MemoryStore, value: Any
) -> None:
    job = str(q.enqueue(value).job_id)
    q.claim()[0].complete({"sent": value})
    q.reap()
    record = records(store)[job]
    assert q.codec.decode(content_from(record.payload or "", record.codec), "json") == value
    assert q.codec.decode(content_from(record.result or "", record.result_codec), "json") == {"sent": value}
    assert record.left_out == {}


def test_a_result_that_is_none_is_none(q: Queue[Any], store: MemoryStore) -> None:
    (job,) = done(q, result=None)
    q.reap()
    assert (records(store)[job].payload, records(store)[job].result) == ("0", None)


def test_a_cancelled_and_a_failed_job_are_archived_with_their_payloads(
    q: Queue[Any], store: MemoryStore
) -> None:
    cancelled = str(q.enqueue(LARGE, delay=60).job_id)
    q.cancel(cancelled)
    failed = str(q.enqueue("why").job_id)
    q.claim()[0].fail("no", retry=False)
    q.reap()
    found = records(store)
    assert (found[cancelled].payload, found[failed].payload) == (f'"{LARGE}"', '"why"')
    assert (found[cancelled].result, found[failed].result) == (None, None)


def test_a_dead_letter_that_is_let_go_keeps_nothing_for_the_archive_a_second_time(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    q.enqueue("why")
    q.claim()[0].fail("no", retry=False)
    q.reap()
    machine.advance(limits.DEAD_TTL_MS_DEFAULT / 1000)
    q.reap()
    assert len(told(store)) == 1
    assert all(row.payload is None for row in head(store).finished)


@pytest.mark.parametrize("size", [10, 5_000])
def test_other_serialisers_are_archived_in_base64(opened: Any, store: MemoryStore, size: int) -> None:
    q = opened(serializer="msgpack", result_serializer="json")
    q.configure(archive_payloads=True)
    job = str(q.enqueue({"raw": bytes(size)}).job_id)
    q.claim()[0].complete("done")
    q.reap()
    record = records(store)[job]
    assert (record.codec, record.result_codec, record.result) == ("msgpack", "json", '"done"')
    assert q.codec.decode(content_from(record.payload or "", "msgpack"), "msgpack") == {"raw": bytes(size)}


def test_many_contents_of_one_commit_move_beside_the_head_and_reach_the_archive(
    q: Queue[Any], store: MemoryStore
) -> None:
    wanted = {str(q.enqueue(f"{at}" * 700).job_id): f'"{f"{at}" * 700}"' for at in range(100, 180)}
    for lease in q.claim(80):
        lease.complete("r" * 900)
    assert any(isinstance(row.payload, BodyRef) for row in head(store).finished)
    assert all(row.spent == row.payload for row in head(store).finished if isinstance(row.payload, BodyRef))
    q.reap()
    assert {job: record.payload for job, record in records(store).items()} == wanted


def test_a_job_that_ended_while_it_was_off_has_no_payload_in_the_archive(
    q: Queue[Any], store: MemoryStore
) -> None:
    (early,) = done(q)
    q.configure(archive_payloads=False)
    (late,) = done(q)
    q.reap()
    assert (records(store)[early].payload, records(store)[late].payload) == ("0", None)


def test_where_it_is_off_records_are_as_ever_and_a_pass_reads_no_content(machine: Any) -> None:
    asked = {}
    for wished in (False, True):
        store = MemoryStore(machine)
        q: Queue[Any] = Queue(store, "mail", machine=machine)
        q.configure(archive_payloads=wished)
        q.enqueue(LARGE)
        q.claim()[0].complete(LARGE)
        before = dict(q.store.requests)
        q.reap()
        asked[wished] = {name: count - before.get(name, 0) for name, count in q.store.requests.items()}
        (record,) = records(store).values()
        told = (record.payload, record.result, record.result_codec)
        assert told == ((f'"{LARGE}"', f'"{LARGE}"', "json") if wished else (None, None, ""))
    assert asked[True] == {**asked[False], "get": asked[False]["get"] + 2}


def test_every_shard_has_the_setting_and_new_ones_get_it(q: Queue[Any], store: MemoryStore) -> None:
    q.configure(shards=3)
    heads = [decode_head(store.get(Get(f"{root_of('mail', at)}head")).body) for at in range(3)]  # type: ignore[union-attr]
    assert [each.settings.archive_payloads for each in heads] == [True] * 3


# ── Limits ───────────────────────────────────────────────────────────────────
def test_a_content_at_the_limit_is_archived_and_one_byte_more_is_named(
    q: Queue[Any], store: MemoryStore
) -> None:
    with limited({"ARCHIVED_CONTENT_BYTES_MAX": 2_002}):
        fits, large = (str(q.enqueue("x" * size).job_id) for size in (2_000, 2_001))
        for lease in q.claim(2):
            lease.complete("y" * 2_001)
        q.reap()
    found = records(store)
    assert (found[fits].payload, set(found[fits].left_out)) == (f'"{"x" * 2_000}"', {"result"})
    assert (found[large].payload, set(found[large].left_out)) == (None, {"payload", "result"})
    assert "2,003 bytes are more than the 2,002" in found[large].left_out["payload"]


def test_parts_are_cut_by_the_bytes_of_contents(q: Queue[Any], store: MemoryStore) -> None:
    with limited({"ARCHIVE_PART_BYTES": 3 * 2_002}):
        for at in range(7):
            q.enqueue(f"{at}" * 2_000)
        for lease in q.claim(7):
            lease.complete()
        assert q.reap().archived == 7
    assert [len(part) for part in parts(store).values()] == [3, 3, 1]
    assert q.reap().archived == 0


def test_one_step_takes_no_more_tables_than_their_contents_allow(q: Queue[Any], store: MemoryStore) -> None:
    for _ in range(3):
        q.enqueue(LARGE)
        q.claim()[0].complete()
        Queue(store, "mail", machine=q.machine)._run(_flushed(q))
    assert [table.archive_bytes for table in head(store).tables] == [5_002] * 3
    with limited({"TABLE_BYTES_MAX": 12_000}):
        assert q.reap().archived == 3
    assert len(parts(store)) == 2
    assert sum(table.archive_bytes for table in head(store).tables) == 0


def _flushed(q: Queue[Any]) -> Any:
    yield Submit(0, (RunTimers(flush=True),))


# ── For as long as it is needed ──────────────────────────────────────────────
def test_contents_are_referred_to_until_their_part_is_written_and_then_collected(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    q.enqueue(LARGE, result_ttl=1)
    q.claim()[0].complete()
    (body,) = bodies(store)
    for _ in range(30):
        machine.advance(HOUR)
        call = reaping(q)
        call.until(writes("archive/"))  # a pass that dies before its part is written, again and again
        assert ROOT + body in names(store, ROOT)
    q.reap()
    assert len(told(store)) == 1
    for _ in range(40):
        machine.advance(HOUR)
        q.reap()
    assert ROOT + body not in names(store, ROOT)


def test_a_pass_that_dies_between_part_and_commit_leaves_a_duplicate_alone(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    jobs = done(q, 3)
    call = reaping(q)
    call.until(writes("archive/"))
    call.step()
    machine.advance(HOUR)
    q.reap()
    assert [job for job, _ in told(store)] == sorted(jobs * 2)
    assert {each.payload for each in records(store).values()} == {"0", "1", "2"}


def test_a_content_that_is_lost_keeps_no_other_from_the_archive(q: Queue[Any], store: MemoryStore) -> None:
    lost, there = (str(q.enqueue(each * 5_000).job_id) for each in "ab")
    for lease in q.claim(2):
        lease.complete()
    (row,) = (row for row in head(store).finished if row.payload.crc == _crc(f'"{"a" * 5_000}"'))  # type: ignore[union-attr]
    store.perform(Delete((ROOT + row.payload.name,)))  # type: ignore[union-attr]
    q.reap()
    found = records(store)
    assert (found[lost].payload, set(found[lost].left_out)) == (None, {"payload"})
    assert found[there].payload == f'"{"b" * 5_000}"'


def _crc(text: str) -> int:
    return crc32(text.encode())


def test_a_longer_life_of_a_result_takes_no_payload_along(q: Queue[Any], store: MemoryStore) -> None:
    (job,) = done(q)
    q._run(_flushed(q))
    q.update_result_ttl(job, 7_200)
    assert [row.payload for row in head(store).finished] == [None]
    q.reap()
    assert records(store)[job].payload == "0"


# ── Purges ───────────────────────────────────────────────────────────────────
SECRET = "abracadabra"


def _raw(store: MemoryStore) -> dict[str, bytes]:
    found = {name: store.get(Get(name)).body for name in names(store, "")}  # type: ignore[union-attr]
    return {name: gzip.decompress(body) if name.endswith(".gz") else body for name, body in found.items()}


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
@pytest.mark.parametrize("size", [1, 30, 600])
@pytest.mark.parametrize("when", ["in the head", "in a table", "archived", "archived and forgotten"])
def test_after_a_purge_no_byte_of_the_store_tells_the_secret(
    q: Queue[Any], store: MemoryStore, machine: Any, end: str, size: int, when: str
) -> None:
    beside = [q.enqueue("b" * 600) for _ in range(80 if size == 30 else 2)]  # who share its body, perhaps
    job = str(q.enqueue(SECRET * size).job_id)
    for lease in q.claim(len(beside) + 1):
        if lease.job_id != job or end == "complete":
            lease.complete(SECRET * size if lease.job_id == job else "r" * 600)
        elif end == "fail":
            lease.fail(SECRET, retry=False)
        else:
            q.cancel(job)
            lease.cancel()
    if when == "in a table":
        q._run(_flushed(q))
    elif when != "in the head":
        q.reap()
        assert SECRET.encode() in b"".join(_raw(store).values())
    if when == "archived and forgotten" and end != "fail":
        machine.advance(3 * DAY)
        q.reap()
    q.purge(job)
    if when == "archived and forgotten":  # no row tells where contents lay: they are garbage
        for _ in range(40):
            machine.advance(HOUR)
            done(q)
            q.reap()
    assert [name for name, body in _raw(store).items() if SECRET.encode() in body] == []
    q.reap()
    assert [name for name, body in _raw(store).items() if SECRET.encode() in body] == []
    assert HEAD in names(store, ROOT)
