"""Scenes of upkeep: collection, merging and completing, each overtaken by others at its most delicate moment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from osqueue import limits
from osqueue.commit.effects import Effect, Flow
from osqueue.commit.writer import CLOCK
from osqueue.core.encoding import decode_head
from osqueue.core.job_ops import ClaimJobs, CompleteJobs, Completion, EnqueueJobs, JobSpec
from osqueue.core.queue_ops import CancelJobs, ChangeSettings, RunTimers
from osqueue.errors import OsqueueError, Unavailable
from osqueue.maintenance import garbage_collection
from osqueue.maintenance.garbage_collection import BODIES, FINISHED, LOOKS_MAX
from osqueue.objects.id_index import FOLDER as IDS
from osqueue.objects.staging import SegmentBuilder, StagingArea
from osqueue.operations.span_merges import staged_merge
from osqueue.stores.base import Failed, Get, Put, PutIfMatch, Refused, StoreReply

from .ledger import Violation
from .scenes import (
    FORGOTTEN_SECONDS,
    QUEUE,
    ROOT,
    Actor,
    Play,
    Wish,
    head_swap,
    id_freed,
    id_taken,
)
from .tight import limited

DELAY_MS = 600_000

AGED_SECONDS = (
    4.0  # three of these are longer than the collector's horizon; more than what lies between two marks
)
PATIENCE_SECONDS = 3_600.0  # of a call that stands still on the way


def floor_raised(effect: Effect) -> bool:
    """A head with a floor of the collector's is about to be written."""
    return isinstance(effect, PutIfMatch) and head_swap(effect) and decode_head(effect.body).gc_floor > 0


def table_read(stage: Play) -> Wish:
    """A table is about to be read to which the head of this moment refers."""
    state = stage.invariants.state
    keys = {ROOT + table.name for table in state.tables} if state is not None else set[str]()
    return lambda effect: isinstance(effect, Get) and effect.key in keys


def table_written(effect: Effect) -> bool:
    """A table is about to be written."""
    return isinstance(effect, Put) and effect.key.startswith(f"{ROOT}{FINISHED}")


def body_written(effect: Effect) -> bool:
    """A payload or a result is about to be written."""
    return isinstance(effect, Put) and effect.key.startswith(f"{ROOT}{BODIES}")


def id_changed(effect: Effect) -> bool:
    """An id's entry is about to be written again."""
    return isinstance(effect, Put | PutIfMatch) and effect.key.startswith(IDS)


def endured(call: Flow[Any]) -> Flow[Any]:
    """A call, or the error that it ends with."""
    try:
        return (yield from call)
    except OsqueueError as error:
        return error


def collect(actor: Actor) -> Flow[Any]:
    """The last step of a pass, alone."""
    state = yield from actor.client.head()
    assert state is not None
    return (yield from actor.client.run(garbage_collection.collect(QUEUE, 0, state)))


def age(stage: Play, actor: Actor) -> None:
    """Let time pass, with commits that mark it."""
    for turn in range(3):
        stage.later(AGED_SECONDS)
        actor.run(actor.commit(ChangeSettings(backoff_base_ms=100 + turn)))


def attach(actor: Actor, jobs: int = 1, delay_ms: int = 0) -> Flow[Any]:
    """Stage a segment, and attach it."""
    state = yield from actor.client.head()
    assert state is not None
    machine = actor.client.writer.machine
    bulk = SegmentBuilder(StagingArea(ROOT, state.seq, machine), state.now_ms)
    news = [JobSpec(machine.bits(128).to_bytes(16, "big"), b"", delay_ms=delay_ms) for _ in range(jobs)]
    yield from bulk.add(news)
    ops = yield from bulk.attachments()
    return (yield from actor.client.call(*ops, timeout=PATIENCE_SECONDS))


def merge(actor: Actor) -> Flow[Any]:
    """Write all delayed segments as one, and exchange the pointers."""
    state = yield from actor.client.head()
    assert state is not None
    op = yield from staged_merge(
        state.delayed.spans, StagingArea(ROOT, state.seq, actor.client.writer.machine)
    )
    return (yield from actor.client.call(op, timeout=PATIENCE_SECONDS))


def finish_large(actor: Actor) -> None:
    """A job comes, and is completed with a result that lies in a body."""
    machine = actor.client.writer.machine
    new = JobSpec(machine.bits(128).to_bytes(16, "big"), b"", kind="large", result_ttl_ms=3_600_000)
    actor.run(actor.commit(EnqueueJobs((new,))))
    (lease,) = actor.run(actor.commit(ClaimJobs(1, "worker", 60_000, ("large",)))).answer.outcomes[0].leases
    stage = StagingArea(ROOT, actor.client.writer.head.state.seq, machine)  # type: ignore[union-attr]
    (result,) = actor.run(stage.bodies([b"x" * 200]))
    actor.run(actor.commit(CompleteJobs((Completion(lease.job.key, lease.token, result),))))


# ── Collection ───────────────────────────────────────────────────────────────
def attached_before_the_floor(stage: Play) -> Any:
    """A bulk that was staged long ago is attached just before the collector's floor is committed."""
    writer, reaper, other = map(stage.actor, ("writer", "reaper", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    writer.stop_at(attach(writer), head_swap)
    age(stage, other)
    reaper.stop_at(reaper.reap(), floor_raised)
    writer.go_on()
    reaper.go_on()
    return len(other.run(other.commit(ClaimJobs(10, "worker", 60_000))).answer.outcomes[0].leases)


def attached_as_pointers_move(stage: Play) -> Any:
    """A collector follows tables that others exchange, again and again; at last a floor rises past a new segment."""
    writer, reaper, other = map(stage.actor, ("writer", "reaper", "other"))
    finish_large(other)
    other.run(other.commit(RunTimers(flush=True)))
    age(stage, other)
    writer.stop_at(attach(writer), head_swap)
    stage.later(2 * AGED_SECONDS)  # the reaper's floor comes close to the segment, and not past it
    reaper.stop_at(reaper.reap(), floor_raised)
    reaper.go_on(table_read(stage))
    for look, jobs in enumerate((1, 1, 2, 3, 5), 1):  # as many as it takes to have tables merged
        if look == LOOKS_MAX:
            writer.go_on()
            age(stage, other)
        for _ in range(jobs):
            finish_large(other)
        other.run(other.commit(RunTimers(flush=True)))
        other.run(other.reap())
        reaper.go_on(table_read(stage))
    return len(other.run(other.commit(ClaimJobs(10, "worker", 60_000))).answer.outcomes[0].leases)


def merged_after_the_collector(stage: Play) -> Any:
    """A reaper stands still between writing a table anew and its commit, until the new one has been collected."""
    reaper, other = map(stage.actor, ("reaper", "other"))
    finish_large(other)
    other.run(other.commit(RunTimers(flush=True)))
    reaper.stop_at(reaper.reap(), table_written)
    reaper.go_on(head_swap)
    age(stage, other)
    other.run(collect(other))
    return reaper.go_on().archived


def unfolded_after_the_collector(stage: Play) -> Any:
    """The same between writing copies of what is in an index and their commit."""
    reaper, other = map(stage.actor, ("reaper", "other"))
    for _ in range(6):
        finish_large(other)
        other.run(other.commit(RunTimers(flush=True)))
    index = stage.invariants.state.tables[0]  # type: ignore[union-attr]
    assert index.level
    with limited({"TABLE_BYTES_MAX": index.below // 2}):
        reaper.stop_at(reaper.reap(), table_written)
        reaper.go_on(head_swap)
        age(stage, other)
        other.run(collect(other))
        return reaper.go_on().archived


# ── Ids ──────────────────────────────────────────────────────────────────────
def id_not_freed(stage: Play, reply: StoreReply) -> Any:
    """An id is not removed, as the store refuses or fails; its job is forgotten, and somebody uses the id again."""
    caller, reaper, other = map(stage.actor, ("caller", "reaper", "other"))
    caller.run(caller.enqueue("a", "first"))
    other.work()
    other.run(other.reap())
    stage.later(FORGOTTEN_SECONDS)
    reaper.stop_at(reaper.client.passes(1), id_freed)
    while reaper.pending is not None:
        reaper.heard = ((reply,),)
        reaper.go_on(id_freed)
    return caller.run(caller.enqueue("a", "second"))


def taken_over_as_it_is_closed(stage: Play) -> Any:
    """A sweep is about to close an entry without a job, when it gets one that runs, and a second one."""
    dying, reaper, caller, other = map(stage.actor, ("dying", "reaper", "caller", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    dying.stop_after(dying.enqueue("a", "dying"), id_taken)
    stage.later(2 * limits.EXPIRED_KNOWN_MS / 1000)
    reaper.stop_at(reaper.sweep(), id_changed)
    caller.run(caller.enqueue("a", "first"))
    other.work()
    stage.later(AGED_SECONDS)
    caller.run(caller.enqueue("a", "second"))
    reaper.go_on()
    return caller.run(caller.enqueue("a", "third"))


# ── Staged objects ───────────────────────────────────────────────────────────
def enqueued_after_the_collector(stage: Play) -> Any:
    """A caller stands still between staging a payload and its commit, until the payload has been collected."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_at(slow.enqueue("a", "x" * 200), body_written)
    slow.go_on(head_swap)
    age(stage, other)
    other.run(collect(other))
    return slow.go_on()


def completed_after_the_collector(stage: Play) -> Any:
    """The same of a worker and its result."""
    slow, other = map(stage.actor, ("slow", "other"))
    new = JobSpec(slow.client.writer.machine.bits(64).to_bytes(8, "big") + bytes(8), b"")
    other.run(other.commit(EnqueueJobs((new,))))
    (lease,) = slow.run(slow.commit(ClaimJobs(1, "slow", 60_000))).answer.outcomes[0].leases
    flow = slow.flows.complete_encoded([(lease.job.key, lease.token, b"x" * 200)])
    slow.stop_at(slow.client.run(flow), body_written)
    slow.go_on(head_swap)
    age(stage, other)
    other.run(collect(other))
    return slow.go_on()


def attached_after_the_collector(stage: Play) -> Any:
    """The same of a bulk and its segment."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_at(attach(slow), head_swap)
    age(stage, other)
    other.run(collect(other))
    return slow.go_on().answer.outcomes[0].code


def loaded_after_the_collector(stage: Play) -> Any:
    """The same of a bulk that several processes may finish."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_at(slow.load("b", "x"), head_swap)
    age(stage, other)
    other.run(collect(other))
    return slow.go_on()


def rewritten_after_the_collector(stage: Play) -> Any:
    """The same of somebody who writes a segment anew without the jobs that were cancelled in it."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    other.run(attach(other, 3))
    (span,) = stage.invariants.state.lanes[0].backlog.spans  # type: ignore[union-attr]
    other.run(other.client.cancel_in_segment(span.first))
    slow.stop_at(slow.client.rewrite(), head_swap)
    age(stage, other)
    other.run(collect(other))
    slow.go_on()
    return len(other.run(other.commit(ClaimJobs(10, "worker", 60_000))).answer.outcomes[0].leases)


def segments_merged_after_the_collector(stage: Play) -> Any:
    """A writer stands still between writing delayed segments as one and its commit."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    for _ in range(2):
        other.run(attach(other, delay_ms=DELAY_MS))
    slow.stop_at(merge(slow), head_swap)
    age(stage, other)
    other.run(collect(other))
    return slow.go_on().answer.outcomes[0].code


def segments_merged_across_a_rule(stage: Play) -> Any:
    """A writer merges delayed segments of which a mass cancel covers some."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    with limited({"DROPPED_PER_COMMIT_MAX": 1}):
        for jobs in (4, 2):
            other.run(attach(other, jobs, DELAY_MS))
        other.run(other.commit(CancelJobs()))
        other.run(attach(other, 2, DELAY_MS))
        code = slow.run(merge(slow)).answer.outcomes[0].code
        stage.later(DELAY_MS / 1000 + 1)
        for _ in range(12):
            other.run(other.commit(ClaimJobs(1, "worker", 60_000)))
    return code


# ── Clocks ───────────────────────────────────────────────────────────────────
def clock_written(effect: Effect) -> bool:
    """The clock's object is about to be written."""
    return isinstance(effect, Put) and effect.key == f"{ROOT}{CLOCK}"


def asked_for_the_time(stage: Play) -> Any:
    """A worker stands still while it asks for the time, for longer than a lease lasts."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.fill("")
    slow.run(slow.commit())
    stage.later(10.0)  # what it wrote beside the first read of the head says too little by now
    slow.stop_at(slow.client.call(ClaimJobs(1, "slow", 10_000), timeout=600.0), clock_written)
    stage.later(300.0)
    (lease,) = slow.go_on().answer.outcomes[0].leases
    left_ms = lease.expires_ms - stage.truth.clock_ms()
    if left_ms > 13_000:
        raise Violation(f"a lease of 10000 ms was granted for {left_ms - 10_000} ms more")
    return left_ms


SCENES: dict[str, Callable[[Play], Any]] = {
    "asked for the time": asked_for_the_time,
    "attached before the floor": attached_before_the_floor,
    "attached as pointers move": attached_as_pointers_move,
    "id refused to be freed": partial(id_not_freed, reply=Refused()),
    "id perhaps freed": partial(id_not_freed, reply=Failed(Unavailable("nobody knows"))),
    "taken over as it is closed": taken_over_as_it_is_closed,
    "merged after the collector": merged_after_the_collector,
    "unfolded after the collector": unfolded_after_the_collector,
    "enqueued after the collector": enqueued_after_the_collector,
    "completed after the collector": completed_after_the_collector,
    "attached after the collector": attached_after_the_collector,
    "loaded after the collector": loaded_after_the_collector,
    "rewritten after the collector": rewritten_after_the_collector,
    "segments merged after the collector": segments_merged_after_the_collector,
    "segments merged across a rule": segments_merged_across_a_rule,
}
