"""A restore where a deletion vector is lost: its segment is intact, and so are the jobs in it."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from osqueue.cli.doctor import account
from osqueue.core.encoding import decode_head
from osqueue.core.state import Span
from tests.support.clinic import HEAD, HOUR, ROOT, Clinic

JOBS = 1_600  # more than the front of a queue holds
FIRST, SECOND = (
    range(900, 960),
    range(1_000, 1_060),
)  # jobs in segments, more than the head keeps tombstones of


@pytest.fixture
def clinic(machine: Any) -> Clinic:
    return Clinic(machine)


def filled(clinic: Clinic) -> list[str]:
    jobs = [{"payload": f"{at:200}"} for at in range(JOBS)]
    return [
        str(done.job_id) for at in range(0, JOBS, 400) for done in clinic.q.enqueue_many(jobs[at : at + 400])
    ]


def marked(clinic: Clinic) -> list[Span]:
    """The segments in the head that have a vector."""
    lanes = decode_head(clinic.read(HEAD)).lanes
    return [span for lane in lanes for span in lane.backlog.spans if span.vector is not None]


def lose(clinic: Clinic, how: str, spans: list[Span]) -> None:
    for span in spans:
        assert span.vector is not None
        name = ROOT + span.vector.name
        clinic.remove(name) if how == "missing" else clinic.write(name, clinic.read(name)[:-1] + b"?")


def drained(q: Queue[Any]) -> set[int]:
    found: set[int] = set()
    while leases := q.claim(400):
        found |= {int(lease.payload) for lease in leases}
        q.complete_many(leases)
    return found


def cancel(clinic: Clinic, jobs: list[str], which: range) -> None:
    for at in which:
        assert clinic.q.cancel(jobs[at]) == "cancelled"


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_lost_vector_costs_no_job_of_its_segment(clinic: Clinic, how: str) -> None:
    jobs = filled(clinic)
    cancel(clinic, jobs, FIRST)
    spans = marked(clinic)
    assert spans
    lose(clinic, how, spans)
    done = clinic.restore("head", force=True)
    assert (done.loss.segments_gone, done.loss.jobs_gone) == (0, 0)
    ran = drained(clinic.queue())
    assert set(range(JOBS)) - set(FIRST) <= ran
    assert len(ran & set(FIRST)) == done.loss.unmarked
    assert done.live == len(ran)


def test_cancelled_jobs_of_which_nothing_else_tells_may_run_and_that_is_said(clinic: Clinic) -> None:
    jobs = filled(clinic)
    cancel(clinic, jobs, FIRST)
    clinic.q.reap()  # the rows of the cancelled jobs leave the head
    clinic.machine.advance(3 * HOUR)  # so long ago that a restore does not ask the archive
    clinic.q.enqueue(JOBS)
    state = decode_head(clinic.read(HEAD))
    assert not state.finished
    lost = len(FIRST) - len(state.tombstones)
    assert lost > 0
    lose(clinic, "missing", marked(clinic))
    done = clinic.restore("head", force=True)
    assert done.loss.unmarked == lost
    said = "cancelled jobs whose deletion vector is lost; so many of them may run, at most"
    assert f"{said}: {lost}" in account(done)
    ran = drained(clinic.queue())
    assert len(ran & set(FIRST)) == lost
    assert set(range(JOBS)) - set(FIRST) <= ran


def test_a_later_vector_of_the_replaced_head_tells_what_was_cancelled(clinic: Clinic) -> None:
    jobs = filled(clinic)
    cancel(clinic, jobs, FIRST)
    clinic.machine.advance(HOUR)
    clinic.q.reap()  # copies the head
    early = marked(clinic)
    cancel(clinic, jobs, SECOND)
    assert {span.name for span in early} <= {span.name for span in marked(clinic)}
    assert not {span.vector for span in early} & {span.vector for span in marked(clinic)}
    lose(clinic, "missing", early)
    done = clinic.restore(force=True)
    assert (done.loss.segments_gone, done.loss.jobs_gone, done.loss.unmarked) == (0, 0, 0)
    assert done.loss.finished == len(SECOND)
    assert drained(clinic.queue()) == set(range(JOBS)) - set(FIRST) - set(SECOND)


def test_vectors_are_no_segments_of_unknown_jobs(clinic: Clinic) -> None:
    jobs = filled(clinic)
    clinic.q.reap()
    cancel(clinic, jobs, FIRST)
    assert marked(clinic)
    assert clinic.restore(force=True).strays == 0
