"""Scenes of heads that are lost and restored, while jobs wait for their groups and for rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from osqueue.core.groups import STOP
from osqueue.core.job_ops import ClaimJobs, EnqueueJobs, FailedAttempt, FailJobs, LeaseRef, ReleaseJobs
from osqueue.core.queue_ops import ChangeSettings

from .scenes import Actor, Play
from .surgeon import Surgeon

WAIT_MS = 3_600_000


def _begin(stage: Play, **settings: Any) -> tuple[Actor, Surgeon]:
    """Return a worker and an operator of a queue in which two jobs of one group wait."""
    worker = stage.actor("worker")
    jobs = tuple([replace(job, group="a", max_attempts=1) for job in worker.client.jobs(2, delayed=False)])
    if settings.get("group_on_dead") != STOP:
        jobs = tuple([replace(job, max_attempts=5) for job in jobs])
    worker.run(worker.commit(ChangeSettings(**settings), EnqueueJobs(jobs)))
    return worker, Surgeon(worker.client, stage.truth)


def _claim(worker: Actor) -> Any:
    return worker.run(worker.commit(ClaimJobs(5, "w", 60_000))).answer.outcomes[0].leases


def _lose_and_restore(worker: Actor, surgeon: Surgeon) -> Any:
    """Restore the lost head; return what a claim brings then."""
    surgeon.damage()
    worker.run(surgeon.mend())
    return _claim(worker)


def awaited_in_its_copy(stage: Play, *, put_off: bool = False) -> Any:
    """A group waits, in the copy that a head is restored from, for its job that failed or was put off."""
    worker, surgeon = _begin(stage, group_on_failure="hold")
    (lease,) = _claim(worker)
    if put_off:
        worker.run(worker.commit(ReleaseJobs((LeaseRef(lease.job.key, lease.token),), WAIT_MS)))
    else:
        failed = FailedAttempt(lease.job.key, lease.token, "no", retry_ms=WAIT_MS)
        worker.run(worker.commit(FailJobs((failed,))))
    surgeon.copy()
    return _lose_and_restore(worker, surgeon)


def died_since_its_copy(stage: Play) -> Any:
    """A job is a dead letter that stops its group, and waits in the copy that the head is restored from."""
    worker, surgeon = _begin(stage, group_on_dead=STOP)
    surgeon.copy()
    (lease,) = _claim(worker)
    worker.run(worker.commit(FailJobs((FailedAttempt(lease.job.key, lease.token, "no"),))))
    for _ in range(2):  # the archive gets the failure
        stage.later(3.0)
        worker.run(worker.reap())
    return _lose_and_restore(worker, surgeon)


def started_since_its_copy(stage: Play) -> Any:
    """As many jobs start as a rate allows, after the copy that the head is restored from."""
    worker, surgeon = _begin(stage, rate=(1, WAIT_MS), burst=2, group_running=0)
    surgeon.copy()
    assert len(_claim(worker)) == 2
    worker.fill("", "")
    return _lose_and_restore(worker, surgeon)


LIFE_SCENES: dict[str, Callable[[Play], Any]] = {
    "awaited in its copy": awaited_in_its_copy,
    "put off in its copy": lambda stage: awaited_in_its_copy(stage, put_off=True),
    "died since its copy": died_since_its_copy,
    "started since its copy": started_since_its_copy,
}
