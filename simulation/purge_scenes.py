"""Scenes of purges that others come in between: who steers, redrives, copies or purges beside them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from osqueue.commit.effects import Effect
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
from osqueue.core.queue_ops import ChangeSettings, RedriveJobs, RunTimers
from osqueue.objects.backups import FOLDER as BACKUPS
from osqueue.objects.backups import is_purge, save
from osqueue.stores.base import Put, PutIfAbsent, PutIfMatch

from . import secrecy
from .id_scenes import entry_of
from .ledger import Violation
from .repair_scenes import _surgeon, segment_staged
from .scenes import QUEUE, ROOT, Actor, Play, Wish, head_swap, id_taken
from .steer_scenes import LONG_SECONDS, SHORT_SECONDS, archive_tells_all, flush, lives
from .tight import limited
from .upkeep_scenes import age, collect, endured


def purge_noted(effect: Effect) -> bool:
    """A purge is about to write its list for those who restore."""
    return isinstance(effect, Put) and effect.key.startswith(BACKUPS)


def copy_written(effect: Effect) -> bool:
    """A copy of a head is about to be written."""
    return isinstance(effect, PutIfAbsent) and effect.key.startswith(BACKUPS)


def rewritten(prefix: str) -> Wish:
    """An object that is there is about to be written again."""
    return lambda effect: (
        isinstance(effect, PutIfMatch | Put) and effect.key.startswith(prefix) and not is_purge(effect.key)
    )


def bury(actor: Actor, count: int, *, large: bool = False) -> list[bytes]:
    """Jobs that failed for good, oldest first; their keys."""
    jobs = [
        JobSpec(each.key, each.payload, max_attempts=1) for each in actor.client.jobs(count, delayed=False)
    ]
    if large:
        jobs = actor.run(actor.client.staged(jobs))
    for job in jobs:
        actor.run(actor.commit(EnqueueJobs((job,))))
        (lease,) = actor.run(actor.commit(ClaimJobs(1, "worker", 60_000))).answer.outcomes[0].leases
        failure = FailedAttempt(job.key, lease.token, secrecy.secret_of(job.key).decode())
        actor.run(actor.commit(FailJobs((failure,))))
    return [job.key for job in jobs]


def finish(actor: Actor, count: int) -> list[bytes]:
    """Jobs that are completed, in one commit; their keys."""
    jobs = actor.client.jobs(count, delayed=False)
    same = tuple(JobSpec(each.key, each.payload, result_ttl_ms=3_600_000) for each in jobs)
    actor.run(actor.commit(EnqueueJobs(same)))
    leases = actor.run(actor.commit(ClaimJobs(count, "worker", 60_000))).answer.outcomes[0].leases
    done = [
        Completion(each.job.key, each.token, b'"' + secrecy.secret_of(each.job.key) + b'"') for each in leases
    ]
    actor.run(actor.commit(CompleteJobs(tuple(done))))
    return [each.key for each in same]


# ── Steered meanwhile ────────────────────────────────────────────────────────
def prolonged_once_purged(stage: Play) -> Any:
    """A result is about to live longer, when its job is purged."""
    slow, purger, other = map(stage.actor, ("slow", "purger", "other"))
    other.run(other.enqueue("a", "first", LONG_SECONDS))
    other.work()
    finish(other, 1)
    flush(other)
    slow.stop_at(endured(slow.client.run(slow.flows.update_result_ttl("a", LONG_SECONDS))), head_swap)
    purger.run(_surgeon(stage, purger).erase(entry_of(stage, "a")))
    return slow.go_on()


def shortened_beside_a_purged_one(stage: Play) -> Any:
    """A result is about to live longer, when another makes it expire; a purge then rewrites that younger row."""
    slow, purger, other = map(stage.actor, ("slow", "purger", "other"))
    purger.run(purger.commit(ChangeSettings(backoff_base_ms=7)))
    other.run(other.enqueue("a", "first", LONG_SECONDS))
    other.work()
    flush(other)
    slow.stop_at(lives(slow, "a", LONG_SECONDS), head_swap)
    other.run(lives(other, "a", SHORT_SECONDS))
    (beside,) = finish(other, 1)
    flush(other)
    purger.run(_surgeon(stage, purger).erase(beside))
    stage.later(5 * SHORT_SECONDS)
    return slow.go_on()


def enqueued_once_purged(stage: Play, *, shelved: bool) -> Any:
    """A caller stands still between its two writes until its job, which another enqueued, is purged."""
    slow, quick, purger, other = map(stage.actor, ("slow", "quick", "purger", "other"))
    other.run(other.commit(RunTimers(), ChangeSettings(paused=False, backoff_base_ms=7)))
    slow.stop_after(slow.enqueue("a", "slow"), id_taken)
    quick.run(quick.enqueue("a", "quick"))
    other.work()
    if shelved:
        flush(other)
    purger.run(_surgeon(stage, purger).erase(entry_of(stage, "a")))
    return slow.go_on()


# ── Archived with their payloads ─────────────────────────────────────────────
def purged_once_archived(stage: Play) -> Any:
    """A dead letter is purged, when the archive has its payload, and its neighbours of the same commit live on."""
    worker, purger = map(stage.actor, ("worker", "purger"))
    worker.run(worker.commit(ChangeSettings(archive_payloads=True)))
    jobs = [
        JobSpec(each.key, secrecy.secret_of(each.key) * 20, max_attempts=1)
        for each in worker.client.jobs(10, delayed=False)
    ]
    with limited({"INLINE_LEASED_BYTES_MAX": 4_000, "LEASES_BYTES_MAX": 10_000, "FINISHED_BYTES_MAX": 9_000}):
        worker.run(worker.commit(EnqueueJobs(tuple(jobs))))
        leases = worker.run(worker.commit(ClaimJobs(10, "worker", 60_000))).answer.outcomes[0].leases
        first, *rest = leases
        done = tuple(Completion(each.job.key, each.token, b"r" * 400) for each in rest)
        failure = FailedAttempt(first.job.key, first.token, "no luck", final=True)
        worker.run(worker.commit(FailJobs((failure,)), CompleteJobs(done)))
    flush(worker)
    archived = worker.run(worker.reap()).archived
    purger.run(_surgeon(stage, purger).erase(first.job.key))
    return archived


# ── Redriven meanwhile ───────────────────────────────────────────────────────
def redriven_while_it_is_purged(stage: Play, *, limit: int) -> Any:
    """A dead letter in a segment is about to be forgotten, when somebody redrives, and works on, the first ones."""
    purger, worker = map(stage.actor, ("purger", "worker"))
    with limited({"DEAD_BYTES_MAX": 2_000}):
        keys = bury(worker, 20)
        purger.stop_at(_surgeon(stage, purger).erase(_in_segment(stage)[-1]), head_swap)
        worker.run(worker.commit(RedriveJobs(limit, len(keys))))
        for _ in keys:
            worker.work()
        return purger.go_on()


def _in_segment(stage: Play) -> list[bytes]:
    """The dead letters of the first segment."""
    state = stage.invariants.state
    assert state is not None
    return [job.key for job in stage.invariants.library.jobs(state.dead.spans[0])]


def spared(stage: Play) -> Any:
    """A dead letter is redriven while it is purged, so the purge gives it up; then the head is restored."""
    purger, other = map(stage.actor, ("purger", "other"))
    (key,) = bury(other, 1)
    surgeon = _surgeon(stage, other)
    purger.stop_at(_surgeon(stage, purger).erase(key), head_swap)
    other.run(other.commit(RedriveJobs(1, 1)))
    done = purger.go_on()
    stage.later(5.0)
    surgeon.copy()
    other.run(surgeon.restore(force=True, wished=surgeon.copies()[-1]))
    if key not in stage.invariants.found:
        raise Violation(f"{key.hex()} was given up by a purge, and a restore erased it")
    return done


def given_up(stage: Play, *, claimed: bool) -> Any:
    """A dead letter is redriven while it is purged: it keeps the life of its result, and what the archive is to get."""
    purger, other = map(stage.actor, ("purger", "other"))
    (key,) = bury(other, 1)
    purger.stop_at(_surgeon(stage, purger).erase(key), head_swap)
    other.run(other.commit(RedriveJobs(1, 1), *([ClaimJobs(1, "worker", 60_000)] if claimed else [])))
    other.run(other.commit(SetResultTtl(key, 90_000)))
    done = purger.go_on()
    state = stage.invariants.state
    if state is None or key not in state.result_ttls:
        raise Violation(
            f"{key.hex()} was given up by a purge, and lost the life that was asked for its result"
        )
    other.run(other.reap())
    archive_tells_all(stage)
    return done


def blank_in_its_copy(stage: Play) -> Any:
    """The same, but the copy is from before it failed, and blank: nothing is made of the job in it."""
    purger, other = map(stage.actor, ("purger", "other"))
    surgeon = _surgeon(stage, other)
    (new,) = other.client.jobs(1, delayed=False)
    other.run(other.commit(EnqueueJobs((JobSpec(new.key, new.payload, max_attempts=1),))))
    surgeon.copy()
    stage.later(5.0)
    (lease,) = other.run(other.commit(ClaimJobs(1, "worker", 60_000))).answer.outcomes[0].leases
    other.run(other.commit(FailJobs((FailedAttempt(new.key, lease.token, "no luck"),))))
    purger.stop_at(_surgeon(stage, purger).erase(new.key), head_swap)
    other.run(other.commit(RedriveJobs(1, 1)))
    purger.go_on()
    other.run(surgeon.restore(force=True, wished=surgeon.copies()[0]))
    worker = stage.actor("worker")
    return len(worker.run(worker.commit(ClaimJobs(9, "worker", 60_000))).answer.outcomes[0].leases)


# ── Others at the same objects ───────────────────────────────────────────────
def purged_by_two(stage: Play, *, prefix: str, make: Callable[[Play, Actor], list[bytes]]) -> Any:
    """Two jobs in one object are purged at the same time: who writes last must not bring back the other."""
    slow, quick, other = map(stage.actor, ("slow", "quick", "other"))
    first, second = make(stage, other)[:2]
    slow.stop_at(_surgeon(stage, slow).erase(first), rewritten(prefix))
    assert slow.pending is not None, prefix
    done = quick.run(_surgeon(stage, quick).erase(second))
    both = done, slow.go_on()
    secrecy.check(stage.invariants, second)
    return both


def _large_payloads(stage: Play, other: Actor) -> list[bytes]:
    other.run(other.commit(ChangeSettings(paused=False, backoff_base_ms=7)))
    jobs = other.run(other.client.staged(other.client.jobs(3, delayed=False)))
    other.run(other.commit(EnqueueJobs(tuple(jobs))))
    return [job.key for job in jobs]


def _waiting_in_a_copy(stage: Play, other: Actor) -> list[bytes]:
    jobs = other.client.jobs(3, delayed=False)
    other.run(other.commit(EnqueueJobs(tuple(jobs))))
    _surgeon(stage, other).copy()
    return [job.key for job in jobs]


def _attached(stage: Play, other: Actor) -> list[bytes]:
    jobs = [JobSpec(each.key, each.payload) for each in other.client.jobs(20, delayed=False)]
    for job in jobs:
        other.run(other.commit(EnqueueJobs((job,))))
    _surgeon(stage, other).copy()
    (lane,) = stage.invariants.state.lanes  # type: ignore[union-attr]
    return [job.key for job in stage.invariants.library.jobs(lane.backlog.spans[0])]


def _archived(stage: Play, other: Actor) -> list[bytes]:
    keys = bury(other, 3)
    other.run(other.reap())
    return keys


def copied_while_it_is_purged(stage: Play) -> Any:
    """A head is copied just before a purge lets it forget the job."""
    purger, other = map(stage.actor, ("purger", "other"))
    first, _ = finish(other, 2)
    purger.stop_at(_surgeon(stage, purger).erase(first), head_swap)
    _surgeon(stage, other).copy()
    return purger.go_on()


def shelved_while_it_is_purged(stage: Play) -> Any:
    """A result moves into an object beside the head, and its row into a table, when a purge has just looked."""
    purger, other = map(stage.actor, ("purger", "other"))
    first, _ = finish(other, 2)
    purger.stop_at(_surgeon(stage, purger).erase(first), purge_noted)
    with limited({"INLINE_LEASED_BYTES_MAX": 20}):
        other.run(other.commit(ChangeSettings(backoff_base_ms=9)))
    flush(other)
    return purger.go_on()


def collected_while_it_is_purged(stage: Play) -> Any:
    """A purge stands still between writing dead letters anew and its commit, until the new segment was collected."""
    purger, other = map(stage.actor, ("purger", "other"))
    bury(other, 12)
    purger.stop_after(_surgeon(stage, purger).erase(_in_segment(stage)[0]), segment_staged)
    age(stage, other)
    other.run(collect(other))
    return purger.go_on()


# ── Restored later ───────────────────────────────────────────────────────────
def copied_too_late(stage: Play) -> Any:
    """A reaper stands still when it copies a head, until a job is purged; then the head is put back to that copy."""
    reaper, other = map(stage.actor, ("reaper", "other"))
    (job,) = other.client.jobs(1, delayed=False)
    other.run(other.commit(EnqueueJobs((job,))))
    reaper.stop_at(reaper.client.run(save(QUEUE, 0, stage.truth.clock_ms())), copy_written)
    surgeon = _surgeon(stage, other)
    other.run(surgeon.erase(job.key))
    reaper.go_on()
    other.run(surgeon.restore(force=True, wished=surgeon.copies()[0]))
    return job.key in stage.invariants.erased


def restored_once_purged(stage: Play, *, shelved: bool) -> Any:
    """A job is purged, and then the head is put back to when it was over, in the head or in a table."""
    (other,) = map(stage.actor, ("other",))
    first, _ = finish(other, 2)
    if shelved:
        flush(other)
    surgeon = _surgeon(stage, other)
    surgeon.copy()
    other.run(surgeon.erase(first))
    other.run(surgeon.restore(force=True, wished=surgeon.copies()[0]))
    return first in stage.invariants.erased


def payload_blank_in_a_copy(stage: Play) -> Any:
    """A job is purged whose payload was to go to the archive, when a copy of the head has it."""
    (other,) = map(stage.actor, ("other",))
    other.run(other.commit(ChangeSettings(archive_payloads=True)))
    (new,) = other.client.jobs(1, delayed=False)
    other.run(other.commit(EnqueueJobs((JobSpec(new.key, secrecy.secret_of(new.key)),))))
    (lease,) = other.run(other.commit(ClaimJobs(1, "worker", 60_000))).answer.outcomes[0].leases
    other.run(other.commit(CompleteJobs((Completion(new.key, lease.token, b"done"),))))
    surgeon = _surgeon(stage, other)
    surgeon.copy()
    other.run(surgeon.erase(new.key))
    return new.key in stage.invariants.erased


PURGE_SCENES: dict[str, Callable[[Play], Any]] = {
    "purged once archived": purged_once_archived,
    "prolonged once purged": prolonged_once_purged,
    "shortened beside a purged one": shortened_beside_a_purged_one,
    "enqueued once purged": partial(enqueued_once_purged, shelved=False),
    "enqueued once purged from a table": partial(enqueued_once_purged, shelved=True),
    "redriven once blank": partial(redriven_while_it_is_purged, limit=20),
    "redriven beside a purged one": partial(redriven_while_it_is_purged, limit=2),
    "spared": spared,
    "given up as it waits": partial(given_up, claimed=False),
    "given up as it runs": partial(given_up, claimed=True),
    "blank in its copy": blank_in_its_copy,
    "payloads purged by two": partial(purged_by_two, prefix=f"{ROOT}bodies/", make=_large_payloads),
    "copies purged by two": partial(purged_by_two, prefix=BACKUPS, make=_waiting_in_a_copy),
    "segments purged by two": partial(purged_by_two, prefix=f"{ROOT}segments/", make=_attached),
    "parts purged by two": partial(purged_by_two, prefix="archive/", make=_archived),
    "copied while it is purged": copied_while_it_is_purged,
    "shelved while it is purged": shelved_while_it_is_purged,
    "collected while it is purged": collected_while_it_is_purged,
    "copied too late": copied_too_late,
    "restored once purged": partial(restored_once_purged, shelved=False),
    "restored once purged from a table": partial(restored_once_purged, shelved=True),
    "payload blank in a copy": payload_blank_in_a_copy,
}
