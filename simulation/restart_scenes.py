"""Scenes of jobs that restart the one which runs under their id: a caller dies or stands still before its commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from osqueue.core.job_ops import (
    ClaimJobs,
    EnqueueJobs,
    FailedAttempt,
    FailJobs,
    JobSpec,
    LeaseRef,
    ReleaseJobs,
)
from osqueue.core.state import LeaseRecord
from osqueue.model.unique import Unique

from .id_scenes import SWEPT_SECONDS, id_read
from .restarts import RESTART
from .scenes import Actor, Play, head_swap

LEASE_MS = 10 * 86_400_000  # longer than any scene lasts
RETRY_MS = 20 * 86_400_000
REPLACE = Unique(on_duplicate="replace")


def enqueue(actor: Actor, payload: str, unique: Unique | None = RESTART) -> Any:
    """A job under the id, of the one group."""
    return actor.enqueue("a", payload, group="g", unique=unique)


def running(actor: Actor) -> LeaseRecord:
    """A job runs under the id."""
    actor.run(enqueue(actor, "first"))
    (lease,) = actor.run(actor.commit(ClaimJobs(1, "worker", LEASE_MS))).answer.outcomes[0].leases
    return lease  # type: ignore[no-any-return]


def failed_away(actor: Actor, lease: LeaseRecord) -> None:
    """The job that ran waits for a retry, in a segment."""
    end = FailedAttempt(lease.job.key, lease.token, "not now", RETRY_MS)
    actor.run(actor.commit(FailJobs((end,))))
    bits = actor.client.writer.machine.bits
    while (state := actor.play.invariants.state) and lease.job.key in {job.key for job in state.delayed.jobs}:
        sooner = JobSpec(bits(128).to_bytes(16, "big"), b"x" * 40, delay_ms=RETRY_MS // 2)
        actor.run(actor.commit(EnqueueJobs((sooner,))))


def failed_meanwhile(stage: Play) -> Any:
    """The job fails before the commit that is to ask it to end, and leaves the head for a segment."""
    slow, other = map(stage.actor, ("slow", "other"))
    lease = running(other)
    slow.stop_at(enqueue(slow, "second"), head_swap)
    failed_away(other, lease)
    return slow.go_on()


def replaced_meanwhile(stage: Play) -> Any:
    """The job goes back to wait before that commit, and a caller who read its id before that replaces it."""
    slow, quick, other = map(stage.actor, ("slow", "quick", "other"))
    lease = running(other)
    quick.stop_at(enqueue(quick, "third", REPLACE), id_read)
    quick.go_on(head_swap_or_read)
    slow.stop_at(enqueue(slow, "second"), head_swap)
    other.run(other.commit(ReleaseJobs((LeaseRef(lease.job.key, lease.token),))))
    quick.go_on()
    return quick.answer, slow.go_on()


def head_swap_or_read(effect: Any) -> bool:
    """The head is about to be asked for, or written."""
    return getattr(effect, "key", "").endswith("/head")


def died_before_it_asked(stage: Play) -> tuple[Actor, LeaseRecord]:
    """A caller dies once the entry names its job."""
    dying, other = map(stage.actor, ("dying", "other"))
    lease = running(other)
    dying.stop_at(enqueue(dying, "second"), head_swap)
    return other, lease


def asked_by_the_next(stage: Play) -> Any:
    """The next caller comes, and then the job that ran fails."""
    other, lease = died_before_it_asked(stage)
    told = other.run(enqueue(other, "third"))
    failed_away(other, lease)
    return told


def kept_by_the_next(stage: Play) -> Any:
    """The next caller does not want to restart anything."""
    other, _ = died_before_it_asked(stage)
    return other.run(enqueue(other, "third", None))


def swept_before_it_asked(stage: Play) -> Any:
    """Nobody comes for days, and the entry is swept while the job still runs."""
    other, _ = died_before_it_asked(stage)
    stage.later(SWEPT_SECONDS)
    other.run(other.sweep())
    return other.run(enqueue(other, "third", None))


SCENES: dict[str, Callable[[Play], Any]] = {
    "failed as it is restarted": failed_meanwhile,
    "replaced as it is restarted": replaced_meanwhile,
    "restarted by the next caller": asked_by_the_next,
    "kept by the next caller": kept_by_the_next,
    "swept before it was restarted": swept_before_it_asked,
}
