"""Scenes of restores and purges: interleavings that chance finds too seldom, played step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..archive import ROOT as ARCHIVE
from ..commit.effects import Effect, Flow
from ..commit.writer import HEAD
from ..core.intents import announced
from ..core.ops import (
    Amend,
    Claim,
    Code,
    Complete,
    Completion,
    Configure,
    Enqueue,
    Fail,
    Failure,
    New,
    Sweep,
)
from ..core.state import waiting
from ..staging import Bulk, Stage
from ..stores.base import Delete, Put
from . import secrecy
from .lives import watched_repairs
from .scenes import ROOT, Actor, Play, head_swap, play
from .secrecy import secret_of
from .surgeon import Surgeon


def segment_staged(effect: Effect) -> bool:
    """A segment is about to be written."""
    return isinstance(effect, Put) and effect.key.startswith(f"{ROOT}segments/")


def request_announced(effect: Effect) -> bool:
    """A request is about to be announced."""
    return isinstance(effect, Put) and effect.key.startswith(announced(ROOT))


def _surgeon(stage: Play, actor: Actor) -> Surgeon:
    return Surgeon(actor.client, stage.truth)


def _attach(actor: Actor) -> Flow[Code]:
    """A bulk of two jobs."""
    client = actor.client
    state = yield from client.head()
    assert state is not None
    bulk = Bulk(Stage(ROOT, state.seq, client.writer.machine), state.now_ms)
    yield from bulk.add(client.jobs(2, delayed=False))
    call = yield from client.call(*(yield from bulk.attachments()))
    return call.answer.outcomes[0].code if call.answer else Code.RETRY


def collected_in_a_former_life(stage: Play) -> Any:
    """A segment is collected before its jobs join, and then the head is put back to when it was there."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(Configure(paused=False, backoff_base_ms=7)))
    slow.stop_after(_attach(slow), segment_staged)
    surgeon = _surgeon(stage, other)
    surgeon.copy()
    (copy,) = surgeon.copies()
    for wait in range(6):
        stage.later(3.0)
        other.run(other.commit(Configure(backoff_base_ms=10 + wait)))
        other.run(other.reap())
    assert not stage.truth.keys(f"{ROOT}segments/")
    other.run(surgeon.restore(force=True, wished=copy))
    stage.later(61.0)  # so that it looks at the head before it speaks
    return slow.go_on()


def announced_in_a_former_life(stage: Play) -> Any:
    """A head is lost, and somebody begins an empty one, while a request that the old one took still lies there."""
    slow, other, fresh = map(stage.actor, ("slow", "other", "fresh"))
    other.run(other.commit(Sweep(), Configure(paused=False, backoff_base_ms=7)))
    slow.stop_at(slow.commit(Enqueue((New(bytes(15) + b"\1", b"1"),))), head_swap)
    other.run(other.commit(Configure(backoff_base_ms=8)))
    slow.go_on(request_announced)
    assert slow.pending is not None
    slow.heard = (stage.perform(slow.pending),)
    other.run(other.client.call(Configure(backoff_base_ms=9), look=True))
    stage.truth.perform(Delete((ROOT + HEAD,)))
    for wait in range(3):
        fresh.run(fresh.client.call(Configure(backoff_base_ms=10 + wait), look=True))
    state = stage.invariants.state
    return None if state is None else state.counters.enqueued


def failed_in_a_lost_swap(stage: Play) -> Any:
    """Many jobs fail in a commit that another wins, and whose writer dies; then the head is restored."""
    doomed, other = map(stage.actor, ("doomed", "other"))
    jobs = tuple(New(each.key, b"1", max_attempts=1) for each in other.client.jobs(10, delayed=False))
    other.run(other.commit(Enqueue(jobs)))
    surgeon = _surgeon(stage, other)
    surgeon.copy()
    leases = doomed.run(doomed.commit(Claim(10, "w", 60_000))).answer.outcomes[0].leases
    failures = tuple(Failure(each.job.key, each.token, "no" * 50) for each in leases)
    doomed.stop_at(doomed.commit(Fail(failures)), head_swap)
    other.run(other.commit(Configure(backoff_base_ms=8)))
    surgeon.damage()
    other.run(surgeon.mend())
    state = stage.invariants.state
    return None if state is None else waiting(state.dead)


def changed_as_it_leaves(stage: Play) -> Any:
    """A result's life is prolonged in the commit that would move its row out of the head."""
    (worker,) = map(stage.actor, ("worker",))
    (job,) = worker.client.jobs(1, delayed=False)
    worker.run(worker.commit(Enqueue((New(job.key, b"1", result_ttl_ms=60_000),))))
    worker.work()
    worker.run(worker.commit(Amend(job.key, 90_000), Sweep(flush=True)))
    state = stage.invariants.state
    return None if state is None else len(state.finished)


def purged_beside_another(stage: Play) -> Any:
    """Two large payloads lie in one object; one of the jobs is purged."""
    caller, other = map(stage.actor, ("caller", "other"))
    other.run(other.commit(Configure(paused=False, backoff_base_ms=7)))
    jobs = caller.run(caller.client.staged(caller.client.jobs(2, delayed=False)))
    caller.run(caller.commit(Enqueue(tuple(jobs))))
    return other.run(_surgeon(stage, other).erase(jobs[0].key))


def moved_while_it_is_purged(stage: Play) -> Any:
    """A result moves out of the head, beside another one, between a purge's look and its commit."""
    worker, purger = map(stage.actor, ("worker", "purger"))
    jobs = worker.client.jobs(3, delayed=False)
    same = tuple(New(each.key, b"1", result_ttl_ms=60_000) for each in jobs)
    worker.run(worker.commit(Enqueue(same)))
    leases = worker.run(worker.commit(Claim(3, "w", 60_000))).answer.outcomes[0].leases
    results = [secret_of(each.job.key) * 10 for each in leases]
    done = [
        Completion(each.job.key, each.token, result[:size])
        for each, result, size in zip(leases, results, (150, 145, 120), strict=True)
    ]
    worker.run(worker.commit(Complete(tuple(done[:2]))))
    purger.stop_at(_surgeon(stage, purger).erase(leases[0].job.key), head_swap)
    worker.run(worker.commit(Complete(tuple(done[2:]))))
    return purger.go_on()


def purged_after_it_was_archived(stage: Play) -> Any:
    """A job has failed for good, and the archive tells what it died of; then it is purged."""
    (worker,) = map(stage.actor, ("worker",))
    (job,) = worker.client.jobs(1, delayed=False)
    worker.run(worker.commit(Enqueue((New(job.key, b"1", max_attempts=1),))))
    (lease,) = worker.run(worker.commit(Claim(1, "w", 60_000))).answer.outcomes[0].leases
    worker.run(worker.commit(Fail((Failure(job.key, lease.token, secret_of(job.key).decode()),))))
    worker.run(worker.reap())
    assert secrecy.found(stage.invariants, stage.truth.keys(ARCHIVE), job.key)
    return worker.run(_surgeon(stage, worker).erase(job.key))


def _amended(actor: Actor) -> bytes:
    """A waiting job whose result is to live for another time."""
    (job,) = actor.client.jobs(1, delayed=False)
    actor.run(actor.commit(Enqueue((New(job.key, b"1", max_attempts=1),))))
    actor.run(actor.commit(Amend(job.key, 90_000)))
    return job.key


def failed_with_another_life(stage: Play) -> Any:
    """A job whose result is to live for another time has failed for good since the copy; the head is restored."""
    (worker,) = map(stage.actor, ("worker",))
    key = _amended(worker)
    surgeon = _surgeon(stage, worker)
    surgeon.copy()
    (lease,) = worker.run(worker.commit(Claim(1, "w", 60_000))).answer.outcomes[0].leases
    worker.run(worker.commit(Fail((Failure(key, lease.token, "no luck"),))))
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
    "moved while it is purged": moved_while_it_is_purged,
    "failed with another life": failed_with_another_life,
    "purged with another life": purged_with_another_life,
    "purged after it was archived": purged_after_it_was_archived,
}
