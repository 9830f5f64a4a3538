"""Scenes of restores and purges: interleavings that chance finds too seldom, played step by step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from osqueue.commit.effects import Effect, Flow
from osqueue.commit.writer import HEAD
from osqueue.core.intents import intents_prefix
from osqueue.core.job_ops import (
    ClaimJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    FailedAttempt,
    FailJobs,
    JobSpec,
    SetResultTtl,
)
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeSettings, RedriveJobs, RunTimers
from osqueue.core.state import QUEUED, waiting
from osqueue.maintenance.garbage_collection import FINISHED
from osqueue.objects.archive import HOURS_REMEMBERED
from osqueue.objects.archive import ROOT as ARCHIVE
from osqueue.objects.staging import SegmentBuilder, StagingArea, wipe_refused
from osqueue.stores.base import Delete, Put, PutIfMatch

from . import secrecy
from .ledger import Violation
from .lives import watched_repairs
from .scenes import ROOT, Actor, Play, cancelled, head_swap, play
from .scenes import waiting as waiting_jobs
from .secrecy import secret_of
from .steer_scenes import archive_tells_all
from .surgeon import Surgeon
from .tight import limited
from .upkeep_scenes import age, collect, endured, finish_large


def segment_staged(effect: Effect) -> bool:
    """A segment is about to be written."""
    return isinstance(effect, Put) and effect.key.startswith(f"{ROOT}segments/")


def request_announced(effect: Effect) -> bool:
    """A request is about to be announced."""
    return isinstance(effect, Put) and effect.key.startswith(intents_prefix(ROOT))


def body_written_again(effect: Effect) -> bool:
    """A part of some contents is about to be wiped."""
    return isinstance(effect, Put | PutIfMatch) and effect.key.startswith(f"{ROOT}bodies/")


def tables_deleted(effect: Effect) -> bool:
    """Tables are about to be deleted."""
    return isinstance(effect, Delete) and effect.keys[0].startswith(f"{ROOT}{FINISHED}")


def _surgeon(stage: Play, actor: Actor) -> Surgeon:
    return Surgeon(actor.client, stage.truth)


def _attach(actor: Actor) -> Flow[Code]:
    """A bulk of two jobs."""
    client = actor.client
    state = yield from client.head()
    assert state is not None
    bulk = SegmentBuilder(StagingArea(ROOT, state.seq, client.writer.machine), state.now_ms)
    yield from bulk.add(client.jobs(2, delayed=False))
    call = yield from client.call(*(yield from bulk.attachments()))
    return call.answer.outcomes[0].code if call.answer else Code.RETRY


def collected_in_a_former_life(stage: Play) -> Any:
    """A segment is collected before its jobs join, and then the head is put back to when it was there."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(paused=False, backoff_base_ms=7)))
    slow.stop_after(_attach(slow), segment_staged)
    surgeon = _surgeon(stage, other)
    surgeon.copy()
    (copy,) = surgeon.copies()
    for wait in range(6):
        stage.later(3.0)
        other.run(other.commit(ChangeSettings(backoff_base_ms=10 + wait)))
        other.run(other.reap())
    assert not stage.truth.keys(f"{ROOT}segments/")
    other.run(surgeon.restore(force=True, wished=copy))
    stage.later(61.0)  # so that it looks at the head before it speaks
    return slow.go_on()


def announced_in_a_former_life(stage: Play) -> Any:
    """A head is lost, and somebody begins an empty one, while a request that the old one took still lies there."""
    slow, other, fresh = map(stage.actor, ("slow", "other", "fresh"))
    other.run(other.commit(RunTimers(), ChangeSettings(paused=False, backoff_base_ms=7)))
    slow.stop_at(slow.commit(EnqueueJobs((JobSpec(bytes(15) + b"\1", b"1"),))), head_swap)
    other.run(other.commit(ChangeSettings(backoff_base_ms=8)))
    slow.go_on(request_announced)
    assert slow.pending is not None
    slow.heard = (stage.perform(slow.pending),)
    other.run(other.client.call(ChangeSettings(backoff_base_ms=9), look=True))
    stage.truth.perform(Delete((ROOT + HEAD,)))
    for wait in range(3):
        fresh.run(fresh.client.call(ChangeSettings(backoff_base_ms=10 + wait), look=True))
    state = stage.invariants.state
    return None if state is None else state.counters.enqueued


def failed_in_a_lost_swap(stage: Play) -> Any:
    """Many jobs fail in a commit that another wins, and whose writer dies; then the head is restored."""
    doomed, other = map(stage.actor, ("doomed", "other"))
    jobs = tuple(JobSpec(each.key, b"1", max_attempts=1) for each in other.client.jobs(10, delayed=False))
    other.run(other.commit(EnqueueJobs(jobs)))
    surgeon = _surgeon(stage, other)
    surgeon.copy()
    leases = doomed.run(doomed.commit(ClaimJobs(10, "w", 60_000))).answer.outcomes[0].leases
    failures = tuple(FailedAttempt(each.job.key, each.token, "no" * 50) for each in leases)
    doomed.stop_at(doomed.commit(FailJobs(failures)), head_swap)
    other.run(other.commit(ChangeSettings(backoff_base_ms=8)))
    surgeon.damage()
    other.run(surgeon.mend())
    state = stage.invariants.state
    return None if state is None else waiting(state.dead)


def changed_as_it_leaves(stage: Play) -> Any:
    """A result's life is prolonged in the commit that would move its row out of the head."""
    (worker,) = map(stage.actor, ("worker",))
    (job,) = worker.client.jobs(1, delayed=False)
    worker.run(worker.commit(EnqueueJobs((JobSpec(job.key, b"1", result_ttl_ms=60_000),))))
    worker.work()
    worker.run(worker.commit(SetResultTtl(job.key, 90_000), RunTimers(flush=True)))
    state = stage.invariants.state
    return None if state is None else len(state.finished)


def purged_beside_another(stage: Play) -> Any:
    """Two large payloads lie in one object; one of the jobs is purged."""
    caller, other = map(stage.actor, ("caller", "other"))
    other.run(other.commit(ChangeSettings(paused=False, backoff_base_ms=7)))
    jobs = caller.run(caller.client.staged(caller.client.jobs(2, delayed=False)))
    caller.run(caller.commit(EnqueueJobs(tuple(jobs))))
    return other.run(_surgeon(stage, other).erase(jobs[0].key))


def purged_beside_a_refused_one(stage: Play) -> Any:
    """Of two payloads in one object one was refused, and is about to be wiped when the other one's job is purged."""
    caller, other = map(stage.actor, ("caller", "other"))
    other.run(other.commit(ChangeSettings(paused=False, backoff_base_ms=7)))
    taken, refused = caller.run(caller.client.staged(caller.client.jobs(2, delayed=False)))
    caller.run(caller.commit(EnqueueJobs((taken,))))
    caller.stop_at(wipe_refused(ROOT, [(taken.payload, True), (refused.payload, False)]), body_written_again)
    other.run(_surgeon(stage, other).erase(taken.key))
    caller.go_on()
    if left := [
        each.key.hex()
        for each in (taken, refused)
        if secrecy.found(stage.invariants, stage.truth.keys(ROOT), each.key)
    ]:
        raise Violation(f"{left} can be read, and one was purged, the other refused")
    return left


def moved_while_it_is_purged(stage: Play) -> Any:
    """A result moves out of the head, beside another one, between a purge's look and its commit."""
    worker, purger = map(stage.actor, ("worker", "purger"))
    jobs = worker.client.jobs(3, delayed=False)
    same = tuple(JobSpec(each.key, b"1", result_ttl_ms=60_000) for each in jobs)
    worker.run(worker.commit(EnqueueJobs(same)))
    leases = worker.run(worker.commit(ClaimJobs(3, "w", 60_000))).answer.outcomes[0].leases
    results = [secret_of(each.job.key) * 10 for each in leases]
    done = [
        Completion(each.job.key, each.token, result[:size])
        for each, result, size in zip(leases, results, (150, 145, 120), strict=True)
    ]
    worker.run(worker.commit(CompleteJobs(tuple(done[:2]))))
    purger.stop_at(_surgeon(stage, purger).erase(leases[0].job.key), head_swap)
    worker.run(worker.commit(CompleteJobs(tuple(done[2:]))))
    return purger.go_on()


def purged_after_it_was_archived(stage: Play) -> Any:
    """A job has failed for good, and the archive tells what it died of; then it is purged."""
    (worker,) = map(stage.actor, ("worker",))
    (job,) = worker.client.jobs(1, delayed=False)
    worker.run(worker.commit(EnqueueJobs((JobSpec(job.key, b"1", max_attempts=1),))))
    (lease,) = worker.run(worker.commit(ClaimJobs(1, "w", 60_000))).answer.outcomes[0].leases
    worker.run(worker.commit(FailJobs((FailedAttempt(job.key, lease.token, secret_of(job.key).decode()),))))
    worker.run(worker.reap())
    assert secrecy.found(stage.invariants, stage.truth.keys(ARCHIVE), job.key)
    return worker.run(_surgeon(stage, worker).erase(job.key))


def leased_in_its_copy(stage: Play) -> Any:
    """A job is being worked on in the copy that a head is restored from."""
    (worker,) = map(stage.actor, ("worker",))
    worker.fill("")
    worker.run(worker.commit(ClaimJobs(1, "w", 600_000)))
    surgeon = _surgeon(stage, worker)
    surgeon.copy()
    surgeon.damage()
    worker.run(surgeon.mend())
    return [place.state for place in stage.invariants.found.values()]


def restored_twice(stage: Play) -> Any:
    """A restored head is lost at once, and restored from the same copy."""
    (other,) = map(stage.actor, ("other",))
    other.fill("")
    surgeon = _surgeon(stage, other)
    surgeon.copy()
    for _ in range(2):
        surgeon.damage()
        other.run(surgeon.mend())
        stage.later(5.0)
    return len(stage.invariants.found)


def failed_before_its_copy(stage: Play, *, redriven: bool) -> Any:
    """A job failed for good before the copy, and perhaps waits again in it; the archive gets its failure later."""
    (worker,) = map(stage.actor, ("worker",))
    (job,) = worker.client.jobs(1, delayed=False)
    worker.run(worker.commit(EnqueueJobs((JobSpec(job.key, b"1", max_attempts=1),))))
    (lease,) = worker.run(worker.commit(ClaimJobs(1, "w", 60_000))).answer.outcomes[0].leases
    worker.run(worker.commit(FailJobs((FailedAttempt(job.key, lease.token, "no luck"),))))
    if redriven:
        worker.run(worker.commit(RedriveJobs(1, 1)))
    surgeon = _surgeon(stage, worker)
    surgeon.copy()
    worker.run(worker.reap())
    surgeon.damage()
    worker.run(surgeon.mend())
    return stage.invariants.found[job.key].state


def merged_in_a_former_life(stage: Play, *, before: bool = False) -> Any:
    """A reaper stands still before it deletes tables that it has merged, until a head is restored.

    ``before``: its merge was before the copy, so that the tables are unknown to it and may be younger.
    """
    reaper, other = map(stage.actor, ("reaper", "other"))
    for _ in range(3):
        other.fill("")
        other.work()
        other.run(other.commit(RunTimers(flush=True)))
    surgeon = _surgeon(stage, other)
    if not before:
        surgeon.copy()
    reaper.stop_at(endured(reaper.reap()), tables_deleted)
    if before:
        surgeon.copy()
    other.run(surgeon.restore(force=True, wished=surgeon.copies()[-1 if before else 0]))
    reaper.go_on()
    return sum(len(leaf.rows) for leaf in stage.invariants.leaves)


def collected_by_the_former_life(stage: Play) -> Any:
    """A collector stands still before it deletes a table that nobody needs, until a head is restored."""
    dying, collector, other = map(stage.actor, ("dying", "collector", "other"))
    for _ in range(3):
        other.fill("")
        other.work()
        other.run(other.commit(RunTimers(flush=True)))
    dying.stop_at(dying.reap(), tables_deleted)
    age(stage, other)
    collector.stop_at(endured(collect(collector)), tables_deleted)
    assert collector.pending is not None
    surgeon = _surgeon(stage, other)
    surgeon.copy()
    other.run(surgeon.restore(force=True, wished=surgeon.copies()[-1]))
    collector.go_on()
    return sum(len(leaf.rows) for leaf in stage.invariants.leaves)


def archived_since_its_copy(stage: Play) -> Any:
    """The archive has got a record since the copy, of which the head still told; it gets no second one much later."""
    (other,) = map(stage.actor, ("other",))
    other.fill("")
    other.work()
    surgeon = _surgeon(stage, other)
    surgeon.copy()
    (copy,) = surgeon.copies()
    other.run(other.reap())
    for _ in range(HOURS_REMEMBERED + 1):
        stage.later(3_600.0)
        other.fill("")
        other.work()
        other.run(other.reap())
    other.run(surgeon.restore(force=True, wished=copy))
    last = stage.actor("last")
    last.run(last.reap())
    return archive_tells_all(stage)


def collected_since_its_copy(stage: Play) -> Any:
    """A head is put back to a copy that was kept elsewhere; a payload was collected since, and no archive is left."""
    (other,) = map(stage.actor, ("other",))
    other.run(other.commit(ChangeSettings(paused=False, backoff_base_ms=7)))
    jobs = other.run(other.client.staged(other.client.jobs(1, delayed=False)))
    other.run(other.commit(EnqueueJobs(tuple(jobs))))
    surgeon = _surgeon(stage, other)
    surgeon.copy()
    (copy,) = surgeon.copies()
    data = stage.truth.read(copy) or b""
    stage.truth.perform(Delete((copy,)))
    other.work()
    for turn in range(20):
        stage.later(30.0)
        other.run(other.commit(ChangeSettings(backoff_base_ms=10 + turn)))
        other.run(other.reap())
        stage.truth.perform(Delete(tuple(surgeon.copies())))
    assert not stage.truth.keys(f"{ROOT}bodies/")
    stage.truth.perform(Delete(tuple(stage.truth.keys(ARCHIVE))))
    stage.truth.perform(Put(copy, data))
    other.run(surgeon.restore(force=True, wished=copy))
    return len(stage.invariants.found)


def results_collected_since(stage: Play) -> Any:
    """A head is put back to a copy that was kept elsewhere; since then a result has outlived its time."""
    (other,) = map(stage.actor, ("other",))
    finish_large(other)
    surgeon = _surgeon(stage, other)
    surgeon.copy()
    (copy,) = surgeon.copies()
    data = stage.truth.read(copy) or b""
    stage.truth.perform(Delete((copy,)))
    for turn in range(20):
        stage.later(600.0)
        other.run(other.commit(ChangeSettings(backoff_base_ms=10 + turn)))
        other.run(other.reap())
        stage.truth.perform(Delete(tuple(surgeon.copies())))
    assert not stage.truth.keys(f"{ROOT}bodies/")
    stage.truth.perform(Put(copy, data))
    other.run(surgeon.restore(force=True, wished=copy))
    return len(stage.invariants.found)


def vectors_lost(stage: Play, *, shelved: bool, copied: bool = False) -> Any:
    """Jobs were cancelled in a segment, and its deletion vector is lost.

    ``shelved``: the head tells of none of them any more. ``copied``: the vector was another one in the copy.
    """
    (other,) = map(stage.actor, ("other",))
    surgeon = _surgeon(stage, other)
    with limited({"TAIL_BYTES_MAX": 2_000}):
        keys = waiting_jobs(other, 40)
        cancelled(other, *keys[:3])
        other.run(other.client.rewrite())
        if shelved:
            other.run(other.commit(RunTimers(flush=True)))
        state = stage.invariants.state
        if copied:
            surgeon.copy()
            cancelled(other, keys[3])
            other.run(other.client.rewrite())
            other.run(other.commit(RunTimers(flush=True)))
        assert surgeon.lose_vectors(state)
        other.run(surgeon.restore(force=True, wished=surgeon.copies()[0] if copied else HEAD))
    found = stage.invariants.found
    again = sum(key in found and found[key].state == QUEUED for key in keys[:3])
    if again and (copied or not shelved):
        raise Violation(
            f"{again} jobs run again after a restore, of which it could know that they were cancelled"
        )
    return again


def _amended(actor: Actor) -> bytes:
    """A waiting job whose result is to live for another time."""
    (job,) = actor.client.jobs(1, delayed=False)
    actor.run(actor.commit(EnqueueJobs((JobSpec(job.key, b"1", max_attempts=1),))))
    actor.run(actor.commit(SetResultTtl(job.key, 90_000)))
    return job.key


def failed_with_another_life(stage: Play) -> Any:
    """A job whose result is to live for another time has failed for good since the copy; the head is restored."""
    (worker,) = map(stage.actor, ("worker",))
    key = _amended(worker)
    surgeon = _surgeon(stage, worker)
    surgeon.copy()
    (lease,) = worker.run(worker.commit(ClaimJobs(1, "w", 60_000))).answer.outcomes[0].leases
    worker.run(worker.commit(FailJobs((FailedAttempt(key, lease.token, "no luck"),))))
    worker.run(worker.reap())
    surgeon.damage()
    worker.run(surgeon.mend())
    return stage.invariants.found[key].job.result_ttl_ms


def purged_with_another_life(stage: Play) -> Any:
    """Such a job has been purged since the copy."""
    (worker,) = map(stage.actor, ("worker",))
    key = _amended(worker)
    surgeon = _surgeon(stage, worker)
    surgeon.copy()
    worker.run(surgeon.erase(key))
    surgeon.damage()
    worker.run(surgeon.mend())
    return key in stage.invariants.erased


def mended(scene: Callable[[Play], Any]) -> Any:
    """Play a scene; what it answers. A violation is raised."""

    def watched(stage: Play) -> Any:
        with watched_repairs(stage.ledger):
            return scene(stage)

    return play(watched)


REPAIR_SCENES: dict[str, Callable[[Play], Any]] = {
    "collected in a former life": collected_in_a_former_life,
    "announced in a former life": announced_in_a_former_life,
    "failed in a lost swap": failed_in_a_lost_swap,
    "changed as it leaves": changed_as_it_leaves,
    "purged beside another": purged_beside_another,
    "purged beside a refused one": purged_beside_a_refused_one,
    "moved while it is purged": moved_while_it_is_purged,
    "leased in its copy": leased_in_its_copy,
    "restored twice": restored_twice,
    "failed before its copy": partial(failed_before_its_copy, redriven=False),
    "redriven before its copy": partial(failed_before_its_copy, redriven=True),
    "merged in a former life": merged_in_a_former_life,
    "merged before its copy": partial(merged_in_a_former_life, before=True),
    "collected by the former life": collected_by_the_former_life,
    "archived since its copy": archived_since_its_copy,
    "collected since its copy": collected_since_its_copy,
    "results collected since": results_collected_since,
    "vectors lost": partial(vectors_lost, shelved=False),
    "vectors lost, and the rows gone": partial(vectors_lost, shelved=True),
    "vectors lost of a copy": partial(vectors_lost, shelved=True, copied=True),
    "failed with another life": failed_with_another_life,
    "purged with another life": purged_with_another_life,
    "purged after it was archived": purged_after_it_was_archived,
}
