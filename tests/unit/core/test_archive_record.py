"""Archive records: what they tell, what they leave out, and parts that are damaged or of a newer release."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from osqueue import Damaged, NewerFormat, Queue, Rejected, limits
from osqueue.core.archive_record import (
    ArchivedContents,
    ArchiveRecord,
    archived_contents,
    content_from,
    contents_of,
    cut_by_contents,
    decode_part,
    encode_part,
    to_record,
    unpack_part,
    wants_record,
)
from osqueue.core.encoding import encode
from osqueue.core.erase import strip_part
from osqueue.core.rows import BodyRef
from osqueue.core.state import (
    ARCHIVE_ONLY,
    CANCELLED,
    COMPLETED,
    ENDED,
    EXPIRED_DEAD,
    FAILED,
    UPDATED,
    FinishedJob,
    JobRecord,
    PastAttempt,
)
from osqueue.model.keys import job_id
from osqueue.objects.archive import RecordDeduplicator
from osqueue.stores.base import Get, Put
from osqueue.stores.memory import MemoryStore
from tests.support.scene import HOUR, done, names, parts

NOON = 1_800_000_000_000
KEY = bytes(range(16))
PLAIN = FinishedJob(JobRecord(KEY, b"", NOON), COMPLETED, NOON + 5)
FULL = FinishedJob(
    JobRecord(
        KEY,
        b"",
        NOON,
        priority=2,
        kind="mail",
        max_attempts=9,
        result_ttl_ms=7,
        codec="msgpack",
        attempt=2,
        run=3,
        client_id="order 7",
        scheduled_ms=NOON + 1,
        history=(
            PastAttempt(2, "ada", 1, 2, "stalled"),
            PastAttempt(3, "bob", 3, 4, "failed", "no", "KeyError"),
        ),
    ),
    CANCELLED,
    NOON + 9,
    "secret-token",
    BodyRef("bodies/x", 5, 6_000, 9),
    44,
    "as asked",
)


def lines(data: bytes) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(data).splitlines()]


def test_a_record_leaves_out_what_has_its_default() -> None:
    assert lines(encode_part([to_record(PLAIN)])) == [
        {
            "format": 1,
            "job_id": job_id(KEY),
            "run": 0,
            "state": "completed",
            "enqueued_ms": NOON,
            "finished_ms": NOON + 5,
            "attempt": 0,
            "payload_bytes": 0,
        }
    ]


def test_a_record_tells_the_whole_story_and_neither_payload_token_nor_result() -> None:
    (told,) = lines(encode_part([to_record(FULL)]))
    assert told == {
        "format": 1,
        "job_id": job_id(KEY),
        "run": 3,
        "state": "cancelled",
        "enqueued_ms": NOON,
        "finished_ms": NOON + 9,
        "attempt": 2,
        "payload_bytes": 44,
        "id": "order 7",
        "kind": "mail",
        "priority": 2,
        "scheduled_ms": NOON + 1,
        "max_attempts": 9,
        "result_ttl_ms": 7,
        "codec": "msgpack",
        "result_bytes": 6_000,
        "result_body": "bodies/x",
        "why": "as asked",
        "attempts": [
            {"run": 2, "worker": "ada", "started_ms": 1, "ended_ms": 2, "outcome": "stalled"},
            {
                "run": 3,
                "worker": "bob",
                "started_ms": 3,
                "ended_ms": 4,
                "outcome": "failed",
                "error": "no",
                "error_type": "KeyError",
            },
        ],
    }


def test_a_part_survives_the_round_trip() -> None:
    records = [to_record(PLAIN), to_record(FULL)]
    assert decode_part(encode_part(records), "p") == records
    assert decode_part(encode_part([]), "p") == []


def test_writing_the_same_records_again_writes_the_same_bytes() -> None:
    assert encode_part([to_record(FULL)]) == encode_part([to_record(FULL)])
    assert encode_part([to_record(FULL)])[4:8] == bytes(4)  # no time stamp


def test_a_reader_of_today_reads_what_a_later_release_added() -> None:
    (told,) = lines(encode_part([to_record(PLAIN)]))
    data = gzip.compress(json.dumps({**told, "colour": "red"}).encode())
    assert decode_part(data, "p") == [to_record(PLAIN)]


def test_a_newer_format_is_told_from_damage() -> None:
    (told,) = lines(encode_part([to_record(PLAIN)]))
    good = json.dumps(told).encode()
    with pytest.raises(NewerFormat, match="p was written by a newer release"):
        decode_part(gzip.compress(good + b"\n" + json.dumps({**told, "format": 2}).encode()), "p")


SPOILED = {
    "no gzip": b"no gzip",
    "cut by one byte": encode_part([to_record(FULL)])[:-1],
    "cut short": encode_part([to_record(FULL)])[:20],
    "no JSON": gzip.compress(b"{oops"),
    "no record": gzip.compress(b'{"format": 1}'),
    "no text": gzip.compress(b"\xff\xff"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_damaged_part_is_named(how: str) -> None:
    with pytest.raises(Damaged, match="archive/p is not an archive part"):
        decode_part(SPOILED[how], "archive/p")


@pytest.mark.parametrize("members", [1, 2])
def test_a_part_that_unpacks_to_more_than_any_part_has_is_damaged(
    members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ARCHIVE_PART_UNPACKED_BYTES_MAX", 10_000)
    kept = gzip.compress(b" " * (10_000 // members)) * members
    assert len(unpack_part(kept, "archive/p")) == 10_000
    bomb = gzip.compress(b" " * 5_001) * 2 if members == 2 else gzip.compress(b" " * 1_000_000)
    for read in (decode_part, lambda data, name: strip_part(data, name, ["x"])):
        with pytest.raises(Damaged, match=r"archive/p .* unpacks to more than 10,000 bytes"):
            read(bomb, "archive/p")


ATTEMPTS = tuple(PastAttempt(n, "", 1, 2, "failed", "\x01" * 300) for n in range(1, 9))


@pytest.mark.parametrize(
    "row",
    [
        PLAIN,
        FULL,
        FinishedJob(PLAIN.job, COMPLETED, NOON + 5, why="\x01" * 1_000),
        FinishedJob(JobRecord(KEY, b"", NOON, history=ATTEMPTS), COMPLETED, NOON + 5),
    ],
)
def test_the_largest_part_that_is_written_can_be_read(row: FinishedJob) -> None:
    assert len(unpack_part(encode_part([to_record(row)]), "p")) < 10 * len(encode(row))
    rows = 10 * limits.TABLE_BYTES_MAX
    contents = 2 * max(limits.ARCHIVE_PART_BYTES, 2 * limits.ARCHIVED_CONTENT_BYTES_MAX)
    assert rows + contents <= limits.ARCHIVE_PART_UNPACKED_BYTES_MAX


def test_an_empty_object_is_no_part() -> None:
    with pytest.raises(Damaged):
        decode_part(b"", "archive/p")


def test_a_turned_bit_anywhere_is_noticed_or_harmless() -> None:
    data = encode_part([to_record(FULL)])
    noticed = 0
    for at in range(8 * len(data)):
        spoiled = bytearray(data)
        spoiled[at // 8] ^= 1 << at % 8
        try:
            assert decode_part(bytes(spoiled), "p") == [to_record(FULL)]  # a byte that gzip gives no meaning
        except Damaged:
            noticed += 1
    assert noticed > 7 * len(data)


# ── Payloads and results ─────────────────────────────────────────────────────
def kept(payload: Any, result: Any = b"", codec: str = "json", result_codec: str = "") -> FinishedJob:
    """A row that keeps its contents for the archive."""
    job = JobRecord(KEY, b"", NOON, codec=codec)
    return FinishedJob(job, COMPLETED, NOON + 5, result=result, codec=result_codec, payload=payload)


def contents(row: FinishedJob, *read: Any) -> ArchivedContents:
    found = read or contents_of(row)
    return archived_contents(row, iter(found))


@pytest.mark.parametrize("payload", [b'{"n": 1.50}', '"é"'.encode(), b"", b"[\n 1 ]"])
def test_json_is_text_as_it_was_written(payload: bytes) -> None:
    record = to_record(kept(payload, b"7"), contents(kept(payload, b"7")))
    (back,) = decode_part(encode_part([record]), "p")
    assert (content_from(back.payload or "", "json"), back.result, back.result_codec) == (
        payload,
        "7",
        "json",
    )
    assert len(gzip.decompress(encode_part([record])).splitlines()) == 1


def test_bytes_of_other_serialisers_are_base64() -> None:
    told = contents(kept(b"\x00\xff", b"\x01", "msgpack"))
    assert told == ArchivedContents("AP8=", "AQ==", "msgpack", {})
    assert content_from("AP8=", "msgpack") == b"\x00\xff"
    with pytest.raises(Damaged, match="base64"):
        content_from("%", "msgpack")
    assert contents(kept(b"1", b'"r"', "own", "json")) == ArchivedContents("MQ==", '"r"', "json", {})


def test_a_row_that_keeps_nothing_tells_nothing_of_its_contents() -> None:
    assert contents_of(PLAIN) == contents_of(FULL) == ()
    assert archived_contents(FULL, iter(())) == ArchivedContents()


def test_a_content_that_cannot_be_told_is_named_with_the_reason() -> None:
    told = contents(kept(b"\xff", BodyRef("bodies/x", 0, 9, 9)), b"\xff", Damaged("it is gone."))
    assert (told.payload, told.result) == (None, None)
    assert told.left_out == {
        "payload": "it is no JSON, though its serialiser says so.",
        "result": "it is gone.",
    }


def test_a_content_at_the_limit_is_told_and_one_past_it_is_not() -> None:
    most = limits.ARCHIVED_CONTENT_BYTES_MAX
    at, past = (BodyRef("bodies/x", 0, size, 9) for size in (most, most + 1))
    assert contents_of(kept(at, past)) == (at,)
    told = contents(kept(past, b"7"), b"7")
    assert (told.payload, told.result) == (None, "7")
    assert f"{most + 1:,} bytes are more than the {most:,}" in told.left_out["payload"]


def test_groups_hold_what_a_part_may_and_one_row_at_least() -> None:
    half = BodyRef("bodies/x", 0, limits.ARCHIVE_PART_BYTES // 2, 9)
    rows = [kept(half), kept(b"", half), kept(b"1"), PLAIN, kept(half, half), kept(half, half), PLAIN]
    assert list(cut_by_contents(rows)) == [rows[:2], rows[2:4], rows[4:5], rows[5:]]
    assert list(cut_by_contents([PLAIN] * 9)) == [[PLAIN] * 9]
    assert list(cut_by_contents([])) == []


@pytest.mark.parametrize(
    ("mark", "wanted"), [(ENDED, True), (ARCHIVE_ONLY, True), (UPDATED, False), (EXPIRED_DEAD, False)]
)
def test_each_end_of_a_job_has_one_record(mark: int, wanted: bool) -> None:
    assert wants_record(FinishedJob(PLAIN.job, FAILED, NOON, mark=mark)) is wanted


# ── The archive, read ────────────────────────────────────────────────────────
@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def q(store: MemoryStore, machine: Any) -> Queue[Any]:
    return Queue(store, "mail", machine=machine)


def test_history_tells_what_status_told(q: Queue[Any]) -> None:
    one = q.enqueue(1, id="a", kind="k", priority=2, max_attempts=2)
    q.claim(worker="ada")[0].fail(ValueError("no"), retry_in=0)
    q.claim(worker="bob")[0].complete("r")
    before = q.status("a")
    q.reap()
    (job,) = q.history()
    assert before is not None
    for field in ("job_id", "id", "state", "kind", "priority", "attempt", "max_attempts", "payload_bytes"):
        assert getattr(job, field) == getattr(before, field)
    assert (job.job_id, job.attempts, job.error) == (one.job_id, before.attempts, "ValueError: no")
    assert (job.enqueued_at, job.finished_at) == (before.enqueued_at, before.finished_at)


def test_history_is_cut_to_its_window_by_when_jobs_finished(q: Queue[Any], machine: Any) -> None:
    jobs, times = [], []
    for _ in range(5):
        jobs += done(q)
        times.append(machine.time_ms / 1000)
        q.reap()
        machine.advance(HOUR)
    found = [job.job_id for job in q.history(since=times[1], until=times[4])]
    assert found == jobs[1:4]
    assert [job.job_id for job in q.history(since=times[4])] == jobs[4:]
    assert list(q.history(until=times[0])) == []
    whole = [job.job_id for job in q.history()]
    assert whole == jobs


@pytest.mark.parametrize("value", ["yesterday", -1, float("nan"), float("inf"), True])
def test_a_moment_that_is_none_is_refused(q: Queue[Any], value: Any) -> None:
    for field in ("since", "until"):
        with pytest.raises(Rejected) as caught:
            list(q.history(**{field: value}))
        assert caught.value.field == field
    with pytest.raises(Rejected, match="before since"):
        list(q.history(since=5, until=4))


def test_a_damaged_part_ends_history_with_its_name_and_harms_nothing(
    q: Queue[Any], store: MemoryStore
) -> None:
    done(q)
    q.reap()
    (name,) = names(store, "archive/")
    good = store.get(Get(name)).body  # type: ignore[union-attr]
    store.put(Put(name, good[:-2]))
    with pytest.raises(Damaged, match=name):
        list(q.history())
    done(q)
    assert q.reap().archived == 1
    store.put(Put(name, good))
    assert len(list(q.history())) == 2


def test_a_purged_part_is_no_trouble_to_who_reads_on(q: Queue[Any], store: MemoryStore, machine: Any) -> None:
    for _ in range(3):
        done(q)
        q.reap()
        machine.advance(HOUR)
    reading = q.history()
    first = next(reading)
    store._remove(list(parts(store))[-1])
    assert first.state == "completed"
    assert len(list(reading)) <= 2
    assert len(list(q.history())) == 2


def test_another_queue_has_another_history(q: Queue[Any], store: MemoryStore, machine: Any) -> None:
    other = Queue[Any](store, "mails", machine=machine)
    done(q)
    jobs = done(other, 2)
    q.reap()
    other.reap()
    assert sorted(job.job_id for job in other.history()) == sorted(jobs)
    assert len(list(q.history())) == 1
    assert isinstance(to_record(PLAIN), ArchiveRecord)


def test_a_record_that_comes_again_every_hour_is_told_once() -> None:
    seen = RecordDeduplicator()
    one = to_record(PLAIN)
    told = [
        len(list(seen.fresh(f"archive/queue=q/date=2026-01-01/hour={hour:02d}/p", [one])))
        for hour in range(9)
    ]
    assert told == [1, 0, 0, 0, 0, 0, 0, 0, 0]
