"""Scenes of the collector: what it has to spare, and what it must not believe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from osqueue.commit.effects import Effect
from osqueue.commit.writer import HEAD
from osqueue.core.job_ops import ClaimJobs, EnqueueJobs, FailedAttempt, FailJobs, JobSpec
from osqueue.core.queue_ops import ChangeSettings, RunTimers
from osqueue.core.rows import BodyRef
from osqueue.core.state import Span, TableRef
from osqueue.errors import Damaged, OsqueueError, Unavailable
from osqueue.objects.backups import FOLDER as BACKUPS
from osqueue.objects.staging import StagingArea
from osqueue.stores.base import Delete, Failed, Get, Put

from .ledger import Violation
from .lives import watched_repairs
from .scenes import ROOT, Actor, Play, cancelled, head_swap, waiting
from .surgeon import Surgeon
from .tight import limited
from .upkeep_scenes import age, attach, collect, finish_large, floor_raised

ROOMY = {"NAMES_MAX": 10_000}  # one pass looks at all there is
LATER_MS = 36_000_000
STRANGER = f"{ROOT}segments/not-one-of-ours"


def copy_read(effect: Effect) -> bool:
    """A copy of the head is about to be read."""
    return isinstance(effect, Get) and effect.key.startswith(BACKUPS)


def enqueue_large(actor: Actor, count: int, kind: str = "", delay_ms: int = 0) -> None:
    """Let jobs wait whose payloads lie beside the head, each in an object of its own."""
    machine = actor.client.writer.machine
    for _ in range(count):
        head = actor.client.writer.head
        stage = StagingArea(ROOT, head.state.seq if head is not None else 0, machine)
        (payload,) = actor.run(stage.bodies([b"x" * 200]))
        key = machine.bits(128).to_bytes(16, "big")
        new = JobSpec(key, payload, kind=kind, delay_ms=delay_ms, max_attempts=1)
        actor.run(actor.commit(EnqueueJobs((new,))))


def bury(actor: Actor) -> None:
    """The next job of its kind fails for good."""
    (lease,) = actor.run(actor.commit(ClaimJobs(1, "worker", 60_000, ("dead",)))).answer.outcomes[0].leases
    failure = FailedAttempt(lease.job.key, lease.token, "no luck", final=True)
    actor.run(actor.commit(FailJobs((failure,))))


def furnish(stage: Play, actor: Actor) -> None:
    """Let every part of the head lead to objects, some of them by an index."""
    for _ in range(6):
        finish_large(actor)
        actor.run(actor.commit(RunTimers(flush=True)))
    enqueue_large(actor, 12, "dead")
    for _ in range(12):
        bury(actor)
    enqueue_large(actor, 14, "later", LATER_MS)
    enqueue_large(actor, 90)
    finish_large(actor)
    state = stage.invariants.state
    assert state is not None
    spans = [span for lane in state.lanes for span in lane.backlog.spans]
    for pointers in (spans, state.tables):
        assert any(each.level for each in pointers), [each.level for each in pointers]
        assert any(each.bodies and not each.level for each in pointers), [each.level for each in pointers]
    assert any(each.bodies for each in state.delayed.spans)
    assert any(each.bodies for each in state.dead.spans)
    assert any(isinstance(row.result, BodyRef) for row in state.finished)
    assert any(isinstance(job.payload, BodyRef) for lane in state.lanes for job in lane.backlog.ready)


def collected_as_all_is_needed(stage: Play) -> Any:
    """The collector comes when everything is old, and nothing is garbage."""
    other = stage.actor("other")
    furnish(stage, other)
    age(stage, other)
    with limited(ROOMY):
        return other.run(collect(other))


def collected_in_the_dark(stage: Play) -> Any:
    """The same, when an index of segments and one of tables cannot be read."""
    other = stage.actor("other")
    furnish(stage, other)
    age(stage, other)
    state = stage.invariants.state
    assert state is not None
    pointers: Sequence[Span | TableRef] = [
        *(span for lane in state.lanes for span in lane.backlog.spans),
        *state.tables,
    ]
    stage.truth.damaged.update(ROOT + each.name for each in pointers if each.level)
    with limited(ROOMY), suppress(Damaged):
        return other.run(collect(other))
    return None


def collected_without_a_head(stage: Play) -> Any:
    """The head is gone when the collector wants to know what it refers to."""
    reaper, other = map(stage.actor, ("reaper", "other"))
    furnish(stage, other)
    age(stage, other)
    with limited(ROOMY), suppress(OsqueueError):
        reaper.stop_after(collect(reaper), floor_raised)
        stage.truth.perform(Delete((ROOT + HEAD,)))
        return reaper.go_on()
    return None


def collected_beside_a_stranger(stage: Play) -> Any:
    """Somebody has put an object among the segments whose name does not tell when it was born."""
    other = stage.actor("other")
    stage.truth.perform(Put(STRANGER, b"mine"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    age(stage, other)
    other.run(collect(other))
    if stage.truth.read(STRANGER) is None:
        raise Violation("an object was collected that is none of the queue's")
    return stage.truth.read(STRANGER)


def restored_once_collected(stage: Play, *, silent: bool) -> Any:
    """An index is written anew, the collector comes, and then the head is put back to when the old one was there.

    ``silent``: the store does not tell the collector of the old head.
    """
    reaper, other = map(stage.actor, ("reaper", "other"))
    with watched_repairs(stage.ledger), limited({"TAIL_BYTES_MAX": 2_000, **ROOMY}):
        waiting(other, 160)
        surgeon = Surgeon(other.client, stage.truth)
        surgeon.copy()
        state = stage.invariants.state
        assert state is not None
        index = next(span for span in state.lanes[0].backlog.spans if span.level)
        cancelled(other, index.first)
        other.run(other.client.rewrite())
        age(stage, other)
        with suppress(Unavailable):
            reaper.stop_at(collect(reaper), lambda effect: silent and copy_read(effect))
            if silent:
                reaper.heard = ((Failed(Unavailable("nobody knows")),),)
                reaper.go_on()
        surgeon.damage()
        other.run(surgeon.mend())
    return stage.truth.read(ROOT + index.name) is not None


def restored_beside_another_vector(stage: Play) -> Any:
    """The same of a deletion vector."""
    other = stage.actor("other")
    with watched_repairs(stage.ledger), limited({"TAIL_BYTES_MAX": 2_000, **ROOMY}):
        keys = waiting(other, 40)
        surgeon = Surgeon(other.client, stage.truth)
        cancelled(other, keys[0])
        other.run(other.client.rewrite())
        for _ in range(3):
            other.run(other.commit(RunTimers(flush=True)))
        surgeon.copy()
        state = stage.invariants.state
        assert state is not None
        (vector,) = [span.vector for span in state.lanes[0].backlog.spans if span.vector is not None]
        cancelled(other, keys[1])
        other.run(other.client.rewrite())
        age(stage, other)
        other.run(collect(other))
        surgeon.damage()
        other.run(surgeon.mend())
    return stage.truth.read(ROOT + vector.name) is not None


def staged_as_the_collector_comes(stage: Play) -> Any:
    """A bulk has been staged just now, and does not know that the collector is there."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    age(stage, other)
    slow.stop_at(attach(slow), head_swap)
    other.run(collect(other))
    slow.go_on()
    return len(other.run(other.commit(ClaimJobs(10, "worker", 60_000))).answer.outcomes[0].leases)


SCENES: dict[str, Callable[[Play], Any]] = {
    "collected as all is needed": collected_as_all_is_needed,
    "collected in the dark": collected_in_the_dark,
    "collected without a head": collected_without_a_head,
    "collected beside a stranger": collected_beside_a_stranger,
    "restored once collected": partial(restored_once_collected, silent=False),
    "restored once the store was silent": partial(restored_once_collected, silent=True),
    "restored beside another vector": restored_beside_another_vector,
    "staged as the collector comes": staged_as_the_collector_comes,
}
