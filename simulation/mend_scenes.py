"""Scenes of the doctor's ``--fix-ids``: entries that nobody can read are written anew, while jobs come and go."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from osqueue.commit.effects import Flow
from osqueue.commit.writer import HEAD
from osqueue.core.job_ops import ClaimJobs, CompleteJobs, Completion, FailedAttempt, FailJobs
from osqueue.core.queue_ops import ChangeSettings, RunTimers
from osqueue.maintenance import orphan_ids
from osqueue.objects import id_index
from osqueue.stores.base import Delete

from .id_scenes import bury_in_segment, damage_segments, entry_of
from .scenes import (
    FORGOTTEN_SECONDS,
    QUEUE,
    ROOT,
    Actor,
    Play,
    cancelled,
    head_swap,
    id_freed,
    id_taken,
)
from .upkeep_scenes import id_changed

EXPIRED_SECONDS = 3.0


def mend(actor: Actor) -> Flow[orphan_ids.FixReport]:
    """Repair the entries of one queue."""
    return actor.client.run(orphan_ids.fix(QUEUE, (0,)))


def damage_entry(stage: Play) -> None:
    """Nobody can read what the id stands for, until its entry is written again."""
    stage.truth.damaged.add(id_index.entry_key(QUEUE, "a"))


def mended(stage: Play) -> Any:
    """The entry is damaged, and repaired; what its next caller is told."""
    caller, doctor = map(stage.actor, ("caller", "doctor"))
    damage_entry(stage)
    doctor.run(mend(doctor))
    return caller.run(caller.enqueue("a", "last"))


def complete(actor: Actor, ttl: float) -> None:
    """A job comes under the id, and is completed."""
    actor.run(actor.enqueue("a", "completed", ttl))
    actor.work()


# ── Which job ────────────────────────────────────────────────────────────────
def one_lives(stage: Play) -> Any:
    """The id had a job that is over, and has one that waits."""
    other = stage.actor("other")
    complete(other, 1.0)
    stage.later(EXPIRED_SECONDS)
    other.run(other.enqueue("a", "second"))
    return mended(stage)


def two_are_over(stage: Play) -> Any:
    """Both jobs of the id are over, and the result of the second lives."""
    other = stage.actor("other")
    complete(other, 1.0)
    stage.later(EXPIRED_SECONDS)
    complete(other, 600.0)
    return mended(stage)


def one_was_cancelled(stage: Play) -> Any:
    """The first job of the id was cancelled in its segment and lies there yet; the result of the second lives."""
    other = stage.actor("other")
    bury_in_segment(stage, other, "a")
    cancelled(other, entry_of(stage, "a"))
    quick = other.flows.enqueue("second", {"id": "a", "kind": "quick", "result_ttl": 600.0})
    other.run(other.client.run(quick))
    (lease,) = other.run(other.commit(ClaimJobs(1, "worker", 60_000, ("quick",)))).answer.outcomes[0].leases
    other.run(other.commit(CompleteJobs((Completion(lease.job.key, lease.token, b'"done"'),))))
    return mended(stage)


def one_failed(stage: Play) -> Any:
    """The first job of the id is a dead letter, and the result of the second lives."""
    other = stage.actor("other")
    other.run(other.enqueue("a", "first"))
    (lease,) = other.run(other.commit(ClaimJobs(1, "worker", 60_000))).answer.outcomes[0].leases
    other.run(other.commit(FailJobs((FailedAttempt(lease.job.key, lease.token, "no", final=True),))))
    complete(other, 600.0)
    return mended(stage)


def one_cannot_be_read(stage: Play) -> Any:
    """The job of the id lies in a segment that cannot be read."""
    caller, doctor = map(stage.actor, ("caller", "doctor"))
    bury_in_segment(stage, caller, "a")
    damage_segments(stage)
    damage_entry(stage)
    fixed = doctor.run(mend(doctor))
    stage.truth.damaged.clear()
    caller.run(caller.enqueue("a", "second"))
    return len(fixed.left)


def a_head_is_lost(stage: Play) -> Any:
    """The job of the id is in a head that is lost, and of which there is a backup."""
    caller, doctor = map(stage.actor, ("caller", "doctor"))
    caller.run(caller.enqueue("a", "first"))
    caller.run(caller.reap())
    stage.truth.perform(Delete((f"{ROOT}{HEAD}",)))
    damage_entry(stage)
    return len(doctor.run(mend(doctor)).left)


# ── Others meanwhile ─────────────────────────────────────────────────────────
def freed_as_it_is_mended(stage: Play) -> Any:
    """As an entry is written anew, a reaper frees it with its job, and the id is used again."""
    caller, doctor, other = map(stage.actor, ("caller", "doctor", "other"))
    complete(other, 1.0)
    other.run(other.commit(RunTimers(flush=True)))
    other.run(other.reap())
    damage_entry(stage)
    doctor.stop_at(mend(doctor), id_changed)
    stage.later(FORGOTTEN_SECONDS)
    other.run(other.reap())
    caller.run(caller.enqueue("a", "second"))
    doctor.go_on()
    return caller.run(caller.enqueue("a", "third"))


def removed_by_two(stage: Play) -> Any:
    """Two remove an entry whose job never came; between them, the id is used again."""
    dying, slow, quick, caller = map(stage.actor, ("dying", "slow", "quick", "caller"))
    caller.run(caller.commit(RunTimers(), ChangeSettings(paused=False, backoff_base_ms=7)))
    dying.stop_after(dying.enqueue("a", "dying"), id_taken)
    damage_entry(stage)
    slow.stop_at(mend(slow), id_freed)
    quick.run(mend(quick))
    caller.run(caller.enqueue("a", "first"))
    slow.go_on()
    return caller.run(caller.enqueue("a", "second"))


def mended_before_its_job_comes(stage: Play, *, over: bool) -> Any:
    """Somebody stands still before a job of the id is enqueued, while its entry is damaged, mended and used."""
    slow, doctor, other = map(stage.actor, ("slow", "doctor", "other"))
    other.run(other.commit(RunTimers(), ChangeSettings(paused=False, backoff_base_ms=7)))
    if over:  # the entry is to be written for this one
        complete(other, 1.0)
        stage.later(EXPIRED_SECONDS)
    slow.stop_at(slow.enqueue("a", "slow"), head_swap)
    damage_entry(stage)
    doctor.run(mend(doctor))
    other.run(other.enqueue("a", "other"))
    return slow.go_on()


SCENES: dict[str, Callable[[Play], Any]] = {
    "mended: one lives": one_lives,
    "mended: two are over": two_are_over,
    "mended: one was cancelled": one_was_cancelled,
    "mended: one failed": one_failed,
    "mended: one cannot be read": one_cannot_be_read,
    "mended: a head is lost": a_head_is_lost,
    "freed as it is mended": freed_as_it_is_mended,
    "removed by two": removed_by_two,
    "mended before its job comes": partial(mended_before_its_job_comes, over=False),
    "mended before another job comes": partial(mended_before_its_job_comes, over=True),
}
