"""Scenes of operations that come too late: the head refuses each, although its caller saw nothing against it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from osqueue.commit.effects import Flow
from osqueue.core.job_ops import (
    AttachSpans,
    CancelJob,
    ClaimJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    JobSpec,
    ReplaceJobs,
    Replacement,
    TicketUse,
)
from osqueue.core.ops import Op
from osqueue.core.queue_ops import CancelJobs, ChangeBatch, ChangeSettings, KeepTicket, RecordEvents
from osqueue.core.rows import BatchRow
from osqueue.core.settings import ConsumerSettings
from osqueue.objects.staging import SegmentBuilder, StagingArea

from .id_scenes import bury_in_segment
from .scenes import Actor, Play, head_swap
from .unique_scenes import REPLACE

LEASE_MS = 20_000
START_WITHIN_MS = 5_000
CONSUMER = ConsumerSettings("all", "arn:all", lease_ms=LEASE_MS)


def _code(actor: Actor, *ops: Op) -> Any:
    """Commit operations; return the code of the last outcome."""
    return actor.run(actor.commit(*ops)).answer.outcomes[-1].code


def _job(actor: Actor, **fields: Any) -> JobSpec:
    (job,) = actor.client.jobs(1, delayed=False)
    return replace(job, **fields)


def _replace(stage: Play, actor: Actor, old: JobSpec, new: JobSpec) -> Any:
    """Replace a job by one that is in no head so far; return the code."""
    assert stage.invariants.state is not None
    new = replace(new, seen=stage.invariants.state.seq)
    return _code(actor, ReplaceJobs((Replacement(CancelJob(old.key), new),)))


def kept_by_its_former_holder(stage: Play) -> Any:
    """A consumer stands still until another one holds its ticket, and extends it then."""
    slow, other = map(stage.actor, ("slow", "other"))
    slow.run(slow.commit(ChangeSettings(consumers=(CONSUMER,))))
    slow.fill("", "")
    mine, others = (TicketUse("all", 1, holder) for holder in (1, 2))
    slow.run(slow.commit(ClaimJobs(1, "slow", LEASE_MS, use=mine)))
    stage.later(2 * LEASE_MS / 1000)  # the head's time may lag behind
    other.run(other.commit(ClaimJobs(1, "other", LEASE_MS, use=others)))
    stage.later(LEASE_MS / 2000)
    return _code(slow, KeepTicket(mine, LEASE_MS))


def replaced_after_its_deadline(stage: Play) -> Any:
    """A job is replaced whose start deadline has passed, and which still waits in the head."""
    actor = stage.actor("actor")
    old, new = _job(actor, start_within_ms=START_WITHIN_MS), _job(actor)
    actor.run(actor.commit(EnqueueJobs((old,))))
    stage.later(10 * START_WITHIN_MS / 1000)
    return _replace(stage, actor, old, new)


def replaced_after_a_mass_cancel(stage: Play) -> Any:
    """A caller is about to replace a job in a segment, and all jobs are cancelled."""
    slow, other = map(stage.actor, ("slow", "other"))
    bury_in_segment(stage, other, "a")
    slow.stop_at(slow.enqueue("a", "second", unique=REPLACE), head_swap)
    other.run(other.commit(CancelJobs()))
    return slow.go_on()


def grown_beside_a_listener(stage: Play) -> Any:
    """An operator who saw no listener adds a shard that records nothing, and the queue has a listener."""
    actor = stage.actor("actor")
    actor.run(actor.commit(RecordEvents()))
    return _code(actor, ChangeSettings(shards=2))


# ── Batches that are over ────────────────────────────────────────────────────
def _ended_batch(actor: Actor) -> bytes:
    """Return the key of a sealed batch whose only job has completed."""
    batch, job = _job(actor).key, _job(actor)
    sealed = (
        ChangeBatch(batch, BatchRow("b")),
        EnqueueJobs((replace(job, batch=batch),)),
        ChangeBatch(batch),
    )
    actor.run(actor.commit(*sealed))
    (lease,) = actor.run(actor.commit(ClaimJobs(1, "w", LEASE_MS))).answer.outcomes[0].leases
    actor.run(actor.commit(CompleteJobs((Completion(lease.job.key, lease.token),))))
    return batch


def _staged(actor: Actor, job: JobSpec) -> Flow[AttachSpans]:
    """Return the operation that attaches a segment with one job."""
    state = yield from actor.client.head()
    assert state is not None
    writer = actor.client.writer
    bulk = SegmentBuilder(StagingArea(writer.root, state.seq, writer.machine), state.now_ms)
    yield from bulk.add([job])
    (attach,) = yield from bulk.attachments()
    return attach


def attached_to_an_ended_batch(stage: Play) -> Any:
    """A bulk joins a batch that is over."""
    actor = stage.actor("actor")
    batch = _ended_batch(actor)
    attach = actor.run(_staged(actor, _job(actor, batch=batch)))
    return _code(actor, replace(attach, batch=batch))


def replaced_into_an_ended_batch(stage: Play) -> Any:
    """A job of a batch that is over takes the place of one that waits."""
    actor = stage.actor("actor")
    batch = _ended_batch(actor)
    old, new = _job(actor), _job(actor, batch=batch)
    actor.run(actor.commit(EnqueueJobs((old,))))
    return _replace(stage, actor, old, new)


SCENES: dict[str, Callable[[Play], Any]] = {
    "kept by its former holder": kept_by_its_former_holder,
    "replaced after its deadline": replaced_after_its_deadline,
    "replaced after a mass cancel": replaced_after_a_mass_cancel,
    "grown beside a listener": grown_beside_a_listener,
    "attached to an ended batch": attached_to_an_ended_batch,
    "replaced into an ended batch": replaced_into_an_ended_batch,
}
