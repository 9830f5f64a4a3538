"""What callers see of jobs and attempts: nothing that a row keeps for them is forgotten on the way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from osqueue.core.archive_record import ArchiveRecord, AttemptRecord, past_attempts, to_record
from osqueue.core.encoding import encode
from osqueue.core.erase import blank_job
from osqueue.core.state import FAILED, FinishedJob, JobRecord, LeaseRecord, PastAttempt
from osqueue.core.weights import job_weight
from osqueue.model.fields import described_fields, moment
from osqueue.model.job import Attempt, Job, archived_view, attempt_view, finished_view, lease_view
from osqueue.model.job_options import ViewedOptions

T0 = 1_800_000_000_000
# Of every column of an attempt another value. Whoever adds a column adds one: the tests below need it.
ATTEMPT = PastAttempt(2, "w1", T0, T0 + 5, FAILED, "mailbox full", "OSError", T0 + 3)
JOB = JobRecord(
    bytes(16), b"12", T0, due_ms=T0 + 7, attempt=2, run=3, scheduled_ms=T0 + 9, history=(ATTEMPT,)
)
ROW = FinishedJob(JOB, FAILED, T0 + 6, result=b"123", payload_bytes=2, why="asked for", expires_ms=T0 + 8)
OF_ATTEMPTS = described_fields(Attempt)
OF_JOBS = described_fields(Job)


def test_every_field_has_a_meaning() -> None:
    assert list(OF_ATTEMPTS) == list(Attempt.__struct_fields__)
    assert {*OF_JOBS, *ViewedOptions.__struct_fields__} == set(Job.__struct_fields__)
    assert all(each.about.description for each in (*OF_ATTEMPTS.values(), *OF_JOBS.values()))


def test_an_attempt_is_shown_with_all_its_columns() -> None:
    assert [each.column for each in OF_ATTEMPTS.values()] == list(PastAttempt.__struct_fields__)
    seen = attempt_view(ATTEMPT)
    for name, field in OF_ATTEMPTS.items():
        stored = getattr(ATTEMPT, field.column)
        assert stored
        assert getattr(seen, name) == (moment(stored) if field.column.endswith("_ms") else stored)


def test_what_an_attempt_lacks_is_none() -> None:
    seen = attempt_view(PastAttempt(1, "w1", T0, T0 + 5, "completed"))
    assert (seen.error, seen.error_type, seen.heartbeat_at) == (None, None, None)


def test_an_attempt_goes_into_the_archive_and_back_whole() -> None:
    record = to_record(ROW)
    assert past_attempts(record) == JOB.history
    assert msgspec.json.decode(msgspec.json.encode(record))["attempts"] == [
        {name: getattr(ATTEMPT, name) for name in PastAttempt.__struct_fields__}
    ]
    assert isinstance(record.attempts[0], AttemptRecord)


# The outcome is one of a few short words.
TEXTS = {name for name, value in msgspec.structs.asdict(ATTEMPT).items() if isinstance(value, str)} - {
    "outcome"
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_jobs_weight_counts_the_texts_of_its_attempts(name: str) -> None:
    long: dict[str, Any] = {name: "é" * 200}
    job = replace(JOB, history=(replace(ATTEMPT, **long),) * 8)
    assert len(encode(job)) <= job_weight(job)


@pytest.mark.parametrize("name", sorted(TEXTS - {"worker"}))
def test_a_purge_leaves_nothing_of_what_workers_said(name: str) -> None:
    (blank,) = blank_job(JOB).history
    text = getattr(ATTEMPT, name)
    assert getattr(blank, name) == "x" * len(text)


def test_a_record_tells_as_its_row_does() -> None:
    record = to_record(ROW)
    for name in ArchiveRecord.__struct_fields__:
        of = JOB if name in JobRecord.__struct_fields__ else ROW
        if hasattr(of, name) and name not in ("headers", "payload", "result"):
            assert getattr(record, name) == getattr(of, name), name
    assert (record.result_bytes, record.result_body, record.headers) == (3, None, {})


def test_a_finished_job_is_shown_alike_by_the_queue_and_by_the_archive() -> None:
    shown, archived = finished_view(ROW), archived_view(to_record(ROW))
    assert archived == replace(shown, due_at=moment(JOB.scheduled_ms), expires_at=None)
    assert (shown.state, shown.error, shown.payload_bytes) == (FAILED, "mailbox full", 2)


def test_every_field_of_a_job_comes_from_a_row_or_is_made_of_one() -> None:
    columns = {*JobRecord.__struct_fields__, *LeaseRecord.__struct_fields__, *FinishedJob.__struct_fields__}
    made = {name for name, field in OF_JOBS.items() if field.column not in columns}
    assert made == {"job_id", "error", "parent", "then", "follow_ups"}
    lease = LeaseRecord(JOB, "token", "w1", T0 + 1, T0 + 2, T0 + 3, 30_000, cancel=True)
    seen = lease_view(lease)
    assert (seen.worker, seen.heartbeat_at, seen.cancel_requested) == ("w1", moment(T0 + 2), True)
