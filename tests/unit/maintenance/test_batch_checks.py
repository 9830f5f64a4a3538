"""What batches say is left of them, against the jobs that there are."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from osqueue.core.encoding import decode_head
from osqueue.maintenance import batch_checks
from osqueue.maintenance.store_probes import OK, TROUBLE
from osqueue.model.keys import job_id
from simulation.tight import limited
from tests.support.clinic import HEAD, SMALL, Clinic


@pytest.fixture
def clinic(machine: Any) -> Clinic:
    """A queue with a batch whose jobs wait in the head and in segments, run, are delayed, dead, done and cancelled."""
    made = Clinic(machine)
    with limited(SMALL):
        with made.q.batch(name="march") as batch:
            batch.enqueue_many({"payload": "x" * 40, "max_attempts": 1} for _ in range(60))
            batch.enqueue("later", delay=3_600)
        done, died, _ = made.q.claim(3)
        done.complete()
        died.fail("no")
        jobs, _ = made.q.jobs(limit=40)
        for job in jobs[-3:]:
            made.q.cancel(job.job_id)
        made.q.enqueue("of no batch")
    return made


def told(clinic: Clinic, deep: bool = False) -> list[Any]:
    return [each for each in clinic.examine(deep) if each.check == "batches"]


def plant(clinic: Clinic, left: int) -> str:
    """Let the batch say so many; its id."""
    ((key, row),) = decode_head(clinic.read(HEAD)).batches.items()
    clinic.change(batches={key: replace(row, left=left)})
    return job_id(key)


def test_a_batch_that_counts_right_is_not_told_of(clinic: Clinic) -> None:
    state = decode_head(clinic.read(HEAD))
    (row,) = state.batches.values()
    assert (row.total, row.left, row.failed, row.cancelled) == (61, 56, 1, 3)
    assert state.tombstones
    assert told(clinic) == told(clinic, deep=True) == []


@pytest.mark.parametrize("left", [55, 57])
def test_one_that_counts_wrong_is_trouble_and_both_numbers_are_told(clinic: Clinic, left: int) -> None:
    name = plant(clinic, left)
    (found,) = told(clinic)
    assert (found.level, found.queue, found.shard) == (TROUBLE, "mail", 0)
    assert f"batch {name} 'march' says that {left} of its jobs are left; 56 wait or run" in found.found
    assert "doctor ADDRESS mail --shard 0 --restore head --yes" in found.remedy


def test_the_remedy_counts_them_again(clinic: Clinic) -> None:
    plant(clinic, 57)
    clinic.restore("head", force=True)
    assert told(clinic) == []
    (row,) = decode_head(clinic.read(HEAD)).batches.values()
    assert (row.total, row.left) == (61, 55)  # the one that ran had one attempt
    assert (row.failed, row.cancelled) == (2, 4)


def test_many_jobs_in_segments_are_counted_if_that_is_asked_for(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_checks, "READ_MAX", 5)
    plant(clinic, 57)
    (passed,) = told(clinic)
    assert (passed.level, "--deep" in passed.found) == (OK, True)
    (found,) = told(clinic, deep=True)
    assert found.level == TROUBLE


def test_where_a_segment_is_gone_nothing_is_counted(clinic: Clinic) -> None:
    (gone, *_) = clinic.names(HEAD.removesuffix("head") + "segments/")
    clinic.remove(gone)
    assert clinic.said()["objects"] == TROUBLE
    assert told(clinic) == []


def test_of_a_queue_without_batches_nothing_is_told(clinic: Clinic) -> None:
    clinic.change(batches={})
    assert told(clinic) == []
