"""Scenes of clients' ids: entries that are swept, freed and read while their jobs come, go, or cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from osqueue import limits
from osqueue.commit.effects import Effect
from osqueue.commit.writer import HEAD
from osqueue.core.job_ops import EnqueueJobs, JobSpec
from osqueue.core.queue_ops import ChangeSettings, RunTimers
from osqueue.errors import Unavailable
from osqueue.objects import id_index
from osqueue.stores.base import Delete, Failed, Get

from .scenes import (
    FORGOTTEN_SECONDS,
    QUEUE,
    ROOT,
    Actor,
    Play,
    clock_read,
    head_swap,
    id_freed,
    id_taken,
    segmented,
)
from .upkeep_scenes import PATIENCE_SECONDS, endured, id_changed

SWEPT_SECONDS = 2 * limits.EXPIRED_KNOWN_MS / 1000  # by then an entry is old enough to be swept
BEFORE, BEHIND = 8, 8  # jobs in front of one that is to lie in a segment, and behind it


NO_ANSWER = Failed(Unavailable("no answer"))


def fill(actor: Actor, count: int) -> None:
    """Let nameless jobs wait."""
    for _ in range(count):
        key = actor.client.writer.machine.bits(128).to_bytes(16, "big")
        actor.run(actor.commit(EnqueueJobs((JobSpec(key, b"x" * 40),))))


def entry_of(stage: Play, name: str) -> bytes:
    """The key that an id stands for."""
    _, key = stage.invariants.stories.entries[id_index.entry_key(QUEUE, name)][-1]
    assert key is not None
    return key


def damage_segments(stage: Play) -> None:
    """No segment can be read any more."""
    stage.truth.damaged.update(stage.truth.keys(f"{ROOT}segments/"))


def bury_in_segment(stage: Play, caller: Actor, name: str) -> None:
    """A job under an id waits in a segment."""
    fill(caller, BEFORE)
    caller.run(caller.enqueue(name, "first"))
    fill(caller, BEHIND)
    assert entry_of(stage, name) in segmented(caller)


def id_read(effect: Effect) -> bool:
    """It is about to be read what an id stands for."""
    return isinstance(effect, Get) and effect.key.startswith(id_index.FOLDER)


# ── Sweeping ─────────────────────────────────────────────────────────────────
def swept_where_nobody_can_tell(stage: Play) -> Any:
    """An entry is swept whose job lies in a segment that cannot be read."""
    caller, reaper = map(stage.actor, ("caller", "reaper"))
    bury_in_segment(stage, caller, "a")
    damage_segments(stage)
    stage.later(SWEPT_SECONDS)
    reaper.run(reaper.sweep())
    return entry_of(stage, "a") in segmented(caller)


def helped_before_it_is_closed(stage: Play, *, closed: bool) -> Any:
    """A sweep has closed an entry without a job, when it gets one: from a caller who saw it open, or a new one."""
    dying, helper, reaper, other = map(stage.actor, ("dying", "helper", "reaper", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    dying.stop_after(dying.enqueue("a", "dying"), id_taken)
    stage.later(SWEPT_SECONDS)
    if closed:
        reaper.stop_at(reaper.sweep(), id_freed)
        helper.run(helper.enqueue("a", "helper"))
    else:
        helper.stop_at(helper.enqueue("a", "helper"), head_swap)
        reaper.stop_at(reaper.sweep(), head_swap)  # before all have to look again
        helper.go_on()
    reaper.go_on()
    return other.run(other.enqueue("a", "other"))


def not_closed(stage: Play) -> Any:
    """The store fails until a sweep that closes an entry without a job gives up; a caller helps meanwhile."""
    dying, helper, reaper, other = map(stage.actor, ("dying", "helper", "reaper", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    dying.stop_after(dying.enqueue("a", "dying"), id_taken)
    stage.later(SWEPT_SECONDS)
    reaper.stop_at(reaper.sweep(), id_changed)
    stage.later(limits.REQUEST_TIMEOUT_S)
    reaper.heard = ((NO_ANSWER,),)
    reaper.go_on(lambda effect: id_changed(effect) or id_freed(effect))
    if reaper.pending is not None:
        helper.stop_at(helper.enqueue("a", "helper"), head_swap)
        reaper.go_on()
        helper.go_on()
    return other.run(other.enqueue("a", "other"))


# ── Freeing ──────────────────────────────────────────────────────────────────
def freed_where_nobody_can_tell(stage: Play) -> Any:
    """A job is forgotten whose id stands for another one by now, and the entry cannot be read."""
    caller, reaper, other = map(stage.actor, ("caller", "reaper", "other"))
    caller.run(caller.enqueue("a", "first"))
    other.work()
    other.run(other.reap())
    stage.later(3.0)
    caller.run(caller.enqueue("a", "second"))
    stage.truth.damaged.add(id_index.entry_key(QUEUE, "a"))
    stage.later(FORGOTTEN_SECONDS)
    reaper.run(endured(reaper.reap()))
    stage.truth.damaged.clear()
    return other.run(other.enqueue("a", "third"))


def prolonged_as_it_is_forgotten(stage: Play, *, shelved: bool) -> Any:
    """A reaper looks at the head, and stands still until a result would be forgotten that another makes live longer."""
    caller, reaper, other = map(stage.actor, ("caller", "reaper", "other"))
    for name in ("a", *"bcdefghi"):
        caller.run(caller.enqueue(name, "first", 30.0))
    other.work()
    other.run(other.reap())
    reaper.stop_at(reaper.reap(), clock_read)
    caller.run(caller.client.run(caller.flows.update_result_ttl("a", 3_000.0)))
    if shelved:
        other.run(other.commit(RunTimers(flush=True)))
    stage.later(FORGOTTEN_SECONDS)
    reaper.go_on()
    return caller.run(caller.enqueue("a", "second"))


def died_out_unread(stage: Play) -> Any:
    """All jobs of a table are forgotten at once, and one of them has an id that is used again."""
    caller, other = map(stage.actor, ("caller", "other"))
    caller.run(caller.enqueue("a", "first"))
    other.work()
    other.run(other.reap())
    stage.later(FORGOTTEN_SECONDS)
    other.run(other.reap())
    return caller.run(caller.enqueue("a", "second"))


def used_again_before_it_is_forgotten(stage: Play) -> Any:
    """A job is forgotten whose id stands for another one by now."""
    caller, other = map(stage.actor, ("caller", "other"))
    caller.run(caller.enqueue("a", "first"))
    other.work()
    other.run(other.reap())
    stage.later(3.0)
    caller.run(caller.enqueue("a", "second"))
    stage.later(FORGOTTEN_SECONDS)
    other.run(other.reap())
    return caller.run(caller.enqueue("a", "third"))


def not_told_as_it_is_forgotten(stage: Play) -> Any:
    """A job would be forgotten, and the store does not say what its id stands for."""
    caller, reaper, other = map(stage.actor, ("caller", "reaper", "other"))
    caller.run(caller.enqueue("a", "first"))
    other.work()
    other.run(other.reap())
    stage.later(FORGOTTEN_SECONDS)
    reaper.stop_at(reaper.client.passes(1), id_read)
    while reaper.pending is not None:
        reaper.heard = ((NO_ANSWER,),)
        reaper.go_on(id_read)
    return caller.run(caller.enqueue("a", "second"))


def swept_without_a_head(stage: Play) -> Any:
    """The head is lost, and before it is restored the entries of ids are swept."""
    caller, reaper = map(stage.actor, ("caller", "reaper"))
    caller.run(caller.enqueue("a", "first"))
    stage.later(SWEPT_SECONDS)
    stage.truth.perform(Delete((f"{ROOT}{HEAD}",)))
    reaper.run(endured(reaper.sweep()))
    return entry_of(stage, "a")


# ── Taking ───────────────────────────────────────────────────────────────────
def taken_by_two(stage: Play, *, over: bool) -> Any:
    """Two take an id at the same time: a free one, or one whose job is over."""
    slow, quick, other = map(stage.actor, ("slow", "quick", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    if over:
        other.run(other.enqueue("a", "first"))
        other.work()
        stage.later(3.0)
    slow.stop_at(slow.enqueue("a", "slow"), id_changed if over else id_taken)
    quick.run(quick.enqueue("a", "quick"))
    return slow.go_on()


def perhaps_taken(stage: Play, *, over: bool) -> Any:
    """An id is taken, and the store fails without telling whether it did that; it did not."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    if over:
        other.run(other.enqueue("a", "first"))
        other.work()
        stage.later(3.0)
    slow.stop_at(slow.enqueue("a", "slow"), id_changed if over else id_taken)
    slow.heard = ((NO_ANSWER,),)
    slow.go_on()
    return other.run(other.enqueue("a", "other"))


# ── Enqueueing ───────────────────────────────────────────────────────────────
def accepted_where_nobody_can_tell(stage: Play) -> Any:
    """A caller looks, and stands still; meanwhile its job comes, into a segment that cannot be read."""
    slow, quick, other = map(stage.actor, ("slow", "quick", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_at(slow.enqueue("a", "slow"), head_swap)
    bury_in_segment(stage, quick, "a")
    damage_segments(stage)
    return slow.go_on()


def repeated_once_forgotten(stage: Play) -> Any:
    """A caller repeats a call, and stands still; its job, which has no id, is forgotten with all of its table."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    job = EnqueueJobs(
        (JobSpec(slow.client.writer.machine.bits(128).to_bytes(16, "big"), b"", result_ttl_ms=1_000, seen=1),)
    )
    slow.stop_at(slow.client.call(job, timeout=PATIENCE_SECONDS), head_swap)
    other.run(other.commit(job))
    other.work()
    other.run(other.reap())
    stage.later(FORGOTTEN_SECONDS)
    other.run(other.reap())
    slow.go_on()
    return slow.answer.answer.outcomes[0].code


SCENES: dict[str, Callable[[Play], Any]] = {
    "used again before it is forgotten": used_again_before_it_is_forgotten,
    "not told as it is forgotten": not_told_as_it_is_forgotten,
    "swept without a head": swept_without_a_head,
    "taken by two": partial(taken_by_two, over=False),
    "taken over by two": partial(taken_by_two, over=True),
    "perhaps taken": partial(perhaps_taken, over=False),
    "perhaps taken over": partial(perhaps_taken, over=True),
    "swept where nobody can tell": swept_where_nobody_can_tell,
    "helped before it is closed": partial(helped_before_it_is_closed, closed=False),
    "helped before it is removed": partial(helped_before_it_is_closed, closed=True),
    "not closed": not_closed,
    "freed where nobody can tell": freed_where_nobody_can_tell,
    "prolonged as it is forgotten, in the head": partial(prolonged_as_it_is_forgotten, shelved=False),
    "prolonged as it is forgotten, in a table": partial(prolonged_as_it_is_forgotten, shelved=True),
    "died out unread": died_out_unread,
    "repeated once forgotten": repeated_once_forgotten,
    "accepted where nobody can tell": accepted_where_nobody_can_tell,
}
