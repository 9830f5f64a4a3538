"""Scenes of steering: cancels, other times to live, dead letters and settings, each overtaken by what it was about."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from osqueue.commit.effects import Flow
from osqueue.core.archive_record import decode_part
from osqueue.core.job_ops import (
    ClaimJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    FailedAttempt,
    FailJobs,
    JobSpec,
)
from osqueue.core.queue_ops import ChangeSettings, RedriveJobs, RunTimers
from osqueue.core.state import FAILED, FAILING, QUEUED
from osqueue.objects import archive, segment_rewrite
from osqueue.objects.listing import count_states
from osqueue.objects.staging import StagingArea

from .id_scenes import bury_in_segment, entry_of, fill
from .ledger import Violation
from .promises import Ask
from .scenes import FORGOTTEN_SECONDS, ROOT, Actor, Play, cancelled, head_swap, segmented, waiting
from .tight import limited
from .upkeep_scenes import age, collect, floor_raised

SHORT_SECONDS, LONG_SECONDS = 1.0, 3_000.0  # that a result lives


def lives(actor: Actor, name: str, seconds: float) -> Flow[Any]:
    """Another time to live."""
    return actor._asked(
        Ask(actor.client.name, "update_result_ttl", name), actor.flows.update_result_ttl(name, seconds)
    )


def cancel(actor: Actor, name: str) -> Flow[Any]:
    """A cancel by id."""
    return actor._asked(Ask(actor.client.name, "cancel", name), actor.flows.cancel(name))


def flush(actor: Actor) -> None:
    """What is over leaves the head."""
    actor.run(actor.commit(RunTimers(flush=True)))


def claim(actor: Actor, count: int = 1) -> Any:
    """Leases."""
    return actor.run(actor.commit(ClaimJobs(count, "worker", 60_000))).answer.outcomes[0].leases


def fail(actor: Actor) -> None:
    """Claim the next job, which fails for good."""
    (lease,) = claim(actor)
    failure = FailedAttempt(lease.job.key, lease.token, "no luck", -1, 0.5, True)
    actor.run(actor.commit(FailJobs((failure,))))


def pass_by(actor: Actor, key: bytes) -> None:
    """Work until a job that lies in a segment is over, and out of the head."""
    over = False
    while not over:
        (lease,) = claim(actor)
        actor.run(actor.commit(CompleteJobs((Completion(lease.job.key, lease.token, b'"done"'),))))
        over = lease.job.key == key
    flush(actor)


def drop(actor: Actor, key: bytes) -> None:
    """Cancel a job in its segment, until the head tells of it by a tombstone alone."""
    cancelled(actor, key)
    flush(actor)


def settle(actor: Actor, key: bytes) -> None:
    """The same, until the head does not tell of it at all."""
    cancelled(actor, key)
    actor.run(actor.client.rewrite())
    flush(actor)


# ── Jobs in segments ─────────────────────────────────────────────────────────
def cancelled_once_passed(stage: Play, *, gone: bool) -> Any:
    """A job is about to be cancelled in its segment, when it is worked on. ``gone``: the whole segment is."""
    slow, worker, other = map(stage.actor, ("slow", "worker", "other"))
    with limited({"TAIL_BYTES_MAX": 2_000}):
        keys = waiting(other, 40)
        span = stage.invariants.state.lanes[0].backlog.spans[0]  # type: ignore[union-attr]
        slow.stop_at(slow.client.cancel_in_segment(keys[0]), head_swap)
        pass_by(worker, keys[span.count - 1] if gone else keys[0])
        slow.go_on()
    return len(segmented(other))


def cancelled_once_settled(stage: Play) -> Any:
    """A job is about to be cancelled in its segment, when another has cancelled it, and moved that to a vector."""
    slow, other = map(stage.actor, ("slow", "other"))
    with limited({"TAIL_BYTES_MAX": 2_000}):
        keys = waiting(other, 40)
        slow.stop_at(slow.client.cancel_in_segment(keys[0]), head_swap)
        settle(other, keys[0])
        slow.go_on()
    return keys[0] in segmented(other)


def settled_once_folded(stage: Play) -> Any:
    """A job is about to be settled, when the segment it lies in becomes part of an index."""
    slow, other = map(stage.actor, ("slow", "other"))
    with limited({"TAIL_BYTES_MAX": 2_000}):
        key = next(reversed(waiting(other, 160)))
        cancelled(other, key)
        slow.stop_at(slow.client.rewrite(), head_swap)
        fill(other, 160)
        slow.go_on()
    return stage.invariants.state.tombstones == (key,)  # type: ignore[union-attr]


def settled_before_a_retry(stage: Play) -> Any:
    """A job is cancelled, and settled, that waits for a retry in a segment of delayed jobs."""
    other = stage.actor("other")
    for _ in range(12):
        fill(other, 1)
        (lease,) = claim(other)
        other.run(other.commit(FailJobs((FailedAttempt(lease.job.key, lease.token, "no luck", 3_600_000),))))
    cancelled(other, segmented(other)[0])
    other.run(other.client.rewrite())
    return [(span.count, span.failing) for span in stage.invariants.state.delayed.spans if span.vector]  # type: ignore[union-attr]


def settled_by_a_slow_one(stage: Play) -> Any:
    """A caller looks; its job comes, and goes into an index, which is written anew by one who looked before it."""
    slow, quick, other = map(stage.actor, ("slow", "quick", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    born = StagingArea(ROOT, stage.invariants.state.seq, other.client.writer.machine)  # type: ignore[union-attr]
    fill(other, 50)
    slow.stop_at(slow.enqueue("a", "slow", LONG_SECONDS), head_swap)
    quick.run(quick.enqueue("a", "quick", LONG_SECONDS))
    fill(other, 80)
    key = entry_of(stage, "a")
    state = stage.invariants.state
    assert state is not None
    (index,) = [
        span
        for span in state.lanes[0].backlog.spans
        if span.level and key in {job.key for job in stage.invariants.library.jobs(span)}
    ]
    cancelled(other, next(job.key for job in stage.invariants.library.jobs(index) if job.key != key))
    ops = other.run(segment_rewrite.settle_tombstones(ROOT, other.run(other.client.head()), born))
    other.run(other.commit(*ops))
    return slow.go_on()


def prolonged_once_passed(stage: Play, *, by: Callable[[Actor, bytes], None]) -> Any:
    """A waiting job's time to live is about to be changed, when it is over."""
    slow, worker, other = map(stage.actor, ("slow", "worker", "other"))
    bury_in_segment(stage, other, "a")
    key = entry_of(stage, "a")
    slow.stop_at(lives(slow, "a", LONG_SECONDS), head_swap)
    by(worker, key)
    slow.go_on()
    stage.later(10 * SHORT_SECONDS)
    return stage.invariants.stories.lives(key, 0)


def redriven_job(stage: Play, actor: Actor) -> None:
    """A job that had failed waits in a segment again; the head still tells the archive of its end."""
    actor.run(actor.enqueue("a", "first"))
    fail(actor)
    fill(actor, 8)
    actor.run(actor.commit(RedriveJobs(1, 1)))
    fill(actor, 8)
    assert entry_of(stage, "a") in segmented(actor)


def cancelled_once_redriven(stage: Play) -> Any:
    """A job that had failed, and waits again, is cancelled."""
    other = stage.actor("other")
    redriven_job(stage, other)
    return other.run(cancel(other, "a"))


def prolonged_once_redriven(stage: Play) -> Any:
    """The same job gets another time to live."""
    other = stage.actor("other")
    redriven_job(stage, other)
    return other.run(lives(other, "a", LONG_SECONDS))


def failing_in_a_segment(other: Any) -> bytes:
    """Jobs fail, and wait for their next attempts in a segment; one of them."""
    for at in range(12):
        other.run(other.commit(EnqueueJobs((JobSpec(at.to_bytes(16, "big"), b"x" * 40),))))
        (lease,) = claim(other)
        other.run(other.commit(FailJobs((FailedAttempt(lease.job.key, lease.token, "no luck", 600_000),))))
    found: bytes = segmented(other)[0]
    return found


def due_at_once(stage: Play, *, cancels: bool) -> Any:
    """A job in a segment is about to be claimable at once, when others see it to its end, and out of the head."""
    slow, other = map(stage.actor, ("slow", "other"))
    key = failing_in_a_segment(other)
    slow.stop_at(slow.client.run_now(key), head_swap)
    if cancels:
        cancelled(other, key)
    else:
        other.run(other.client.run_now(key))
        other.work()
    flush(other)
    slow.go_on()
    said = count_states(stage.invariants.state)  # type: ignore[arg-type]
    return said[QUEUED], said[FAILING]


def cancelled_as_it_fails(stage: Play) -> Any:
    """Jobs that failed wait for their next attempts in a segment; one of them is cancelled there, and settled."""
    other = stage.actor("other")
    cancelled(other, failing_in_a_segment(other))
    said = count_states(stage.invariants.state)[FAILING]  # type: ignore[arg-type]
    other.run(other.client.rewrite())
    return said, count_states(stage.invariants.state)[FAILING]  # type: ignore[arg-type]


# ── Results ──────────────────────────────────────────────────────────────────
def prolonged_too_late(stage: Play, *, shelved: bool) -> Any:
    """A result is about to live longer, when it expires."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.enqueue("a", "first", 10 * SHORT_SECONDS))
    other.work()
    if shelved:
        flush(other)
    slow.stop_at(lives(slow, "a", LONG_SECONDS), head_swap)
    stage.later(20 * SHORT_SECONDS)
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    return slow.go_on()


def shortened_meanwhile(stage: Play, *, merged: bool) -> Any:
    """A result is about to live longer, when another makes it expire. ``merged``: and its table is another one."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.enqueue("a", "first", LONG_SECONDS))
    other.work()
    flush(other)
    slow.stop_at(lives(slow, "a", LONG_SECONDS), head_swap)
    other.run(lives(other, "a", SHORT_SECONDS))
    flush(other)
    if merged:
        other.run(other.reap())
    stage.later(5 * SHORT_SECONDS)
    return slow.go_on()


def shortened(stage: Play, *, twice: bool) -> Any:
    """A result's life is shortened, and its older record is in a table too large to be merged with younger ones."""
    caller, reaper, other = map(stage.actor, ("caller", "reaper", "other"))
    for name in ("a", *"bcdefghi"):
        caller.run(caller.enqueue(name, "first", LONG_SECONDS))
    other.work()
    reaper.run(reaper.reap())
    if twice:
        caller.run(lives(caller, "a", 2 * LONG_SECONDS))
    caller.run(lives(caller, "a", SHORT_SECONDS))
    for _ in range(2):
        stage.later(FORGOTTEN_SECONDS)
        reaper.run(reaper.reap())
    return caller.run(caller.enqueue("a", "second"))


def many_lives(stage: Play) -> Any:
    """More waiting jobs get another time to live than there is room for."""
    other = stage.actor("other")
    with limited({"RESULT_TTLS_MAX": 2}):
        for name in "abc":
            other.run(other.enqueue(name, name))
        return [other.run(lives(other, name, LONG_SECONDS)) for name in "abc"]


# ── Dead letters, settings, collection ───────────────────────────────────────
def cancelled_at_once(stage: Play) -> Any:
    """A job fails, is redriven, and cancelled before anybody claims it; readers of the archive find both ends."""
    other = stage.actor("other")
    other.run(other.enqueue("a", "first"))
    fail(other)
    other.run(other.commit(RedriveJobs(1, 1)))
    other.run(cancel(other, "a"))
    other.run(other.reap())
    return archive_tells_all(stage)


def archive_tells_all(stage: Play) -> int:
    """How many ends the archive tells, whoever reads it; as many as there were."""
    seen, found = archive.RecordDeduplicator(), 0
    for name in stage.truth.keys(archive.ROOT):
        found += len(list(seen.fresh(name, decode_part(stage.truth.read(name) or b"", name))))
    if found != stage.invariants.ended.total():
        raise Violation(f"invariant 10: of {stage.invariants.ended.total()} ends the archive tells {found}")
    return found


def redriven_by_two(stage: Play) -> Any:
    """Letters of one kind are about to be redriven, as they were read, when somebody else lets others go round."""
    slow, other = map(stage.actor, ("slow", "other"))
    for kind in ("", "", "mail", "", "mail"):
        other.fill(kind)
        fail(other)
    slow.stop_at(slow.client.run(slow.flows.redrive(kinds=["mail"], rate=1.0)), head_swap)
    other.run(other.commit(RedriveJobs(4, 4, ("none",))))
    moved = slow.go_on()
    left = [place.job for place in stage.invariants.found.values() if place.state == FAILED]
    if any(job.kind == "mail" for job in left):
        raise Violation("a redrive went past a dead letter that matches")
    return moved


def shards_by_two(stage: Play) -> Any:
    """Two give the queue more shards, and the one who wishes for fewer comes last."""
    slow, quick = map(stage.actor, ("slow", "quick"))
    quick.run(quick.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_at(slow.commit(ChangeSettings(shards=2)), head_swap)
    quick.run(quick.commit(ChangeSettings(shards=3)))
    slow.go_on()
    return stage.invariants.state.settings.shards  # type: ignore[union-attr]


def collected_by_two(stage: Play) -> Any:
    """Two collectors, and the one with the lower floor comes last."""
    slow, quick = map(stage.actor, ("slow", "quick"))
    quick.run(quick.commit(ChangeSettings(backoff_base_ms=7)))
    age(stage, quick)
    slow.stop_at(collect(slow), floor_raised)
    low = stage.invariants.state.gc_floor  # type: ignore[union-attr]
    age(stage, quick)
    quick.run(collect(quick))
    slow.go_on()
    return stage.invariants.state.gc_floor > low  # type: ignore[union-attr]


SCENES: dict[str, Callable[[Play], Any]] = {
    "cancelled once passed": partial(cancelled_once_passed, gone=False),
    "cancelled once its segment is gone": partial(cancelled_once_passed, gone=True),
    "settled once folded": settled_once_folded,
    "settled before a retry": settled_before_a_retry,
    "settled by a slow one": settled_by_a_slow_one,
    "prolonged once passed": partial(prolonged_once_passed, by=pass_by),
    "prolonged once cancelled": partial(prolonged_once_passed, by=drop),
    "prolonged once settled": partial(prolonged_once_passed, by=settle),
    "cancelled once settled": cancelled_once_settled,
    "cancelled once redriven": cancelled_once_redriven,
    "prolonged once redriven": prolonged_once_redriven,
    "prolonged too late, in the head": partial(prolonged_too_late, shelved=False),
    "prolonged too late, in a table": partial(prolonged_too_late, shelved=True),
    "shortened meanwhile": partial(shortened_meanwhile, merged=False),
    "shortened and merged meanwhile": partial(shortened_meanwhile, merged=True),
    "shortened": partial(shortened, twice=False),
    "shortened twice": partial(shortened, twice=True),
    "many lives": many_lives,
    "cancelled as it fails": cancelled_as_it_fails,
    "due at once, twice": partial(due_at_once, cancels=False),
    "due at once, cancelled": partial(due_at_once, cancels=True),
    "redriven by two": redriven_by_two,
    "cancelled at once": cancelled_at_once,
    "shards by two": shards_by_two,
    "collected by two": collected_by_two,
}
