"""Scenes of jobs that take the place of others: a caller dies or stands still between the commit and the entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from osqueue.core.job_ops import ClaimJobs, CompleteJobs, Completion, LeaseRef, ReleaseJobs
from osqueue.core.queue_ops import ChangeSettings
from osqueue.model.unique import Unique

from .id_scenes import bury_in_segment, entry_of
from .ledger import Violation
from .scenes import FORGOTTEN_SECONDS, Actor, Play, head_swap
from .upkeep_scenes import id_changed

REPLACE = Unique(on_duplicate="replace")
LONG_SECONDS = 40 * FORGOTTEN_SECONDS


def replaced_and_not_told(stage: Play) -> tuple[Actor, Actor]:
    """A caller replaces a job, and dies before the entry names the new one."""
    dying, other = map(stage.actor, ("dying", "other"))
    other.run(other.enqueue("a", "first"))
    dying.stop_at(dying.enqueue("a", "second", LONG_SECONDS, unique=REPLACE), id_changed)
    return dying, other


def asked_for_by_another(stage: Play) -> Any:
    """The next caller, who keeps what is there, finds the job that took the place."""
    _, other = replaced_and_not_told(stage)
    return other.run(other.enqueue("a", "third"))


def replaced_again(stage: Play) -> Any:
    """The next caller replaces the one that took the place; the first then tells the entry of its own, too late."""
    dying, other = replaced_and_not_told(stage)
    other.run(other.enqueue("a", "third", unique=REPLACE))
    dying.go_on()
    return other.run(other.enqueue("a", "fourth", unique=REPLACE))


def forgotten_before_it_is_told(stage: Play) -> Any:
    """The old job is forgotten, and the entry stands for it still, while the new one waits."""
    _, other = replaced_and_not_told(stage)
    other.run(other.reap())
    stage.later(FORGOTTEN_SECONDS)
    for _ in range(3):
        other.run(other.reap())
    return other.run(other.enqueue("a", "third"))


def forgotten_in_between(stage: Play) -> Any:
    """Two replace a job at once and die; the one between the first and the last is forgotten before the first."""
    one, two, other = map(stage.actor, ("one", "two", "other"))
    other.run(other.enqueue("a", "first", LONG_SECONDS))
    two.stop_at(two.enqueue("a", "last", LONG_SECONDS, unique=REPLACE), head_swap)
    one.stop_at(one.enqueue("a", "between", unique=REPLACE), id_changed)
    two.go_on(id_changed)
    for name in "bcde":  # most of a table is to be forgotten
        other.run(other.enqueue(name, "beside"))
    for lease in other.run(other.commit(ClaimJobs(10, "worker", 60_000))).answer.outcomes[0].leases:
        end = ReleaseJobs((LeaseRef(lease.job.key, lease.token),), 60_000_000)
        done = CompleteJobs((Completion(lease.job.key, lease.token, b'"done"'),))
        other.run(other.commit(end if lease.job.client_id == "a" else done))
    other.run(other.reap())
    stage.later(FORGOTTEN_SECONDS)
    for _ in range(3):
        other.run(other.reap())
    stage.later(LONG_SECONDS)
    for _ in range(3):
        other.run(other.reap())
    return other.run(other.enqueue("a", "third"))


def told_too_late(stage: Play) -> Any:
    """The entry is told of a job that took the place when that is over and forgotten, and the old one is not."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.enqueue("a", "first", LONG_SECONDS))
    slow.stop_at(slow.enqueue("a", "second", unique=REPLACE), id_changed)
    for name in "bcde":  # most of a table is to be forgotten
        other.run(other.enqueue(name, "beside"))
    other.work()
    other.run(other.reap())
    stage.later(FORGOTTEN_SECONDS)
    for _ in range(3):
        other.run(other.reap())
    slow.go_on()
    return other.run(other.enqueue("a", "third"))


def started_meanwhile(stage: Play, *, segment: bool) -> Any:
    """A caller is about to replace a job, in the head or in a segment, and it starts."""
    slow, other = map(stage.actor, ("slow", "other"))
    if segment:
        bury_in_segment(stage, other, "a")
    else:
        other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
        other.run(other.enqueue("a", "first"))
    slow.stop_at(slow.enqueue("a", "second", unique=REPLACE), head_swap)
    key = entry_of(stage, "a")
    while (state := stage.invariants.state) is None or key not in state.leases:
        other.run(other.commit(ClaimJobs(3, "worker", 600_000)))
    return slow.go_on()


def replaced_by_two(stage: Play) -> Any:
    """Two replace a job at the same time."""
    slow, quick, other = map(stage.actor, ("slow", "quick", "other"))
    other.run(other.enqueue("a", "first"))
    slow.stop_at(slow.enqueue("a", "slow", unique=REPLACE), head_swap)
    quick.run(quick.enqueue("a", "quick", unique=REPLACE))
    return slow.go_on()


def cancelled_as_it_is_replaced(stage: Play) -> Any:
    """Somebody cancels by id, and the job is replaced before that is committed."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.enqueue("a", "first"))
    slow.stop_at(slow.client.run(slow.flows.cancel("a")), head_swap)
    other.run(other.enqueue("a", "second", unique=REPLACE))
    slow.go_on()
    left = other.run(other.client.run(other.flows.status("a"))).state
    if (slow.answer, left) == ("cancelled", "queued"):
        raise Violation("somebody was told that a is cancelled, and the job that stands for it waits")
    return slow.answer, left


SCENES: dict[str, Callable[[Play], Any]] = {
    "replaced and asked for by another": asked_for_by_another,
    "replaced again": replaced_again,
    "forgotten before its successor is told of": forgotten_before_it_is_told,
    "forgotten in between": forgotten_in_between,
    "told of too late": told_too_late,
    "started as it is replaced": lambda stage: started_meanwhile(stage, segment=False),
    "started as it is replaced in a segment": lambda stage: started_meanwhile(stage, segment=True),
    "replaced by two": replaced_by_two,
    "cancelled as it is replaced": cancelled_as_it_is_replaced,
}
