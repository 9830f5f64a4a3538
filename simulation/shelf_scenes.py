"""Scenes of finished jobs: their tables as they are archived, merged and forgotten, and what stands in the way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from osqueue.commit.writer import HEAD
from osqueue.core.queue_ops import ChangeSettings, RunTimers
from osqueue.core.state import TableRef
from osqueue.errors import OsqueueError
from osqueue.stores.base import Delete

from .id_scenes import NO_ANSWER, damage_segments
from .ledger import Violation
from .scenes import (
    FORGOTTEN_SECONDS,
    ROOT,
    Actor,
    Play,
    clock_read,
    head_read,
    head_swap,
    intent_written,
    part_written,
    waiting,
)
from .tight import limited
from .upkeep_scenes import endured, finish_large, table_read, table_written


def tables_of(stage: Play) -> tuple[TableRef, ...]:
    """The tables that the head points to."""
    state = stage.invariants.state
    assert state is not None
    return state.tables


def finish(actor: Actor, name: str, ttl: float = 1.0) -> None:
    """A job under an id comes, is completed, and leaves the head into a table of its own."""
    actor.run(actor.enqueue(name, "first", ttl))
    actor.work()
    actor.run(actor.commit(RunTimers(flush=True)))


def reap_without_parts(actor: Actor) -> None:
    """A pass during which the store takes no part of the archive."""
    actor.stop_at(endured(actor.reap()), part_written)
    while actor.pending is not None:
        actor.heard = (NO_ANSWER,)
        actor.go_on(part_written)


def damage(stage: Play, *tables: TableRef) -> None:
    """Tables cannot be read for a while."""
    stage.truth.damaged.update(ROOT + table.name for table in tables)


# ── The archive ──────────────────────────────────────────────────────────────
def parts_refused(stage: Play) -> Any:
    """No part can be written, until nobody has to remember the jobs any more; then it can."""
    other = stage.actor("other")
    for name in "abc":
        finish(other, name)
    reap_without_parts(other)
    stage.later(FORGOTTEN_SECONDS)
    reap_without_parts(other)
    return other.run(other.reap()).archived


def part_of_fewer_tables(stage: Play) -> Any:
    """A reaper cannot read a table, and stands still with a part of the one behind it; another one reads both."""
    reaper, other = map(stage.actor, ("reaper", "other"))
    for name in "ab":
        finish(other, name)
    damage(stage, tables_of(stage)[0])
    reaper.stop_at(endured(reaper.reap()), part_written)
    stage.truth.damaged.clear()
    archived = other.run(other.reap()).archived
    reaper.go_on()
    return archived


# ── What a pass tells ────────────────────────────────────────────────────────
def trouble(actor: Actor) -> OsqueueError:
    """A pass that does not come to an end of its work, and tells why."""
    told = actor.run(endured(actor.reap()))
    if not isinstance(told, OsqueueError):
        raise Violation(f"a pass met with trouble, and told {told}")
    return told


def head_is_lost(stage: Play) -> Any:
    """The head is not there any more, and there is a backup of it."""
    other = stage.actor("other")
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    other.run(other.reap())
    stage.truth.perform(Delete((f"{ROOT}{HEAD}",)))
    return trouble(other)


def table_is_damaged(stage: Play) -> Any:
    """A table cannot be read."""
    other = stage.actor("other")
    finish(other, "a")
    damage(stage, *tables_of(stage))
    return trouble(other)


def due_and_damaged(stage: Play) -> Any:
    """Delayed jobs are due, and their segment cannot be read."""
    other = stage.actor("other")
    waiting(other, 30, 600_000)
    damage_segments(stage)
    stage.later(1_200.0)
    return trouble(other)


def announced_and_reaped(stage: Play) -> Any:
    """A writer announces its request and is gone, and nobody comes but a reaper."""
    slow, quick = map(stage.actor, ("slow", "quick"))
    quick.run(quick.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_at(slow.commit(ChangeSettings(paused=True)), head_swap)
    quick.run(quick.commit(ChangeSettings(backoff_base_ms=8)))
    slow.go_on(intent_written)
    slow.go_on(lambda effect: True)
    quick.run(quick.reap())
    state = stage.invariants.state
    if state is None or not state.settings.paused:
        raise Violation("a pass has gone by, and left an announced request as it was")
    return state.settings.paused


# ── Exchanging ───────────────────────────────────────────────────────────────
def written_by_two(stage: Play) -> Any:
    """Two reapers write the same tables anew, from one head; by the clock of the second, fewer rows are left."""
    first, second, other = map(stage.actor, ("first", "second", "other"))
    finish(other, "a")
    finish(other, "b", 600.0)
    for reaper in (first, second):
        reaper.stop_at(reaper.reap(), table_written)
        reaper.go_on(head_swap)
        stage.later(FORGOTTEN_SECONDS)
    archived = first.go_on().archived
    second.go_on()
    return archived


def unreadable(stage: Play, *, index: bool, bytes_max: int) -> Any:
    """A table, or an index of some, cannot be read during a pass."""
    other = stage.actor("other")
    for _ in range(6 if index else 2):
        finish_large(other)
        other.run(other.commit(RunTimers(flush=True)))
    (oldest, *_) = tables_of(stage)
    assert bool(oldest.level) is index
    damage(stage, oldest)
    with limited({"TABLE_BYTES_MAX": bytes_max}):
        other.run(endured(other.reap()))
    stage.truth.damaged.clear()
    return other.run(other.reap()).archived


def merged_meanwhile(stage: Play) -> Any:
    """A table is merged away as a reaper is about to read it: nothing is amiss, and nothing is told."""
    reaper, other = map(stage.actor, ("reaper", "other"))
    for name in "ab":
        finish(other, name, 600.0)
    reaper.stop_at(endured(reaper.reap()), table_read(stage))
    other.run(other.reap())
    told = reaper.go_on()
    if isinstance(told, Exception):
        raise Violation(f"a reaper was overtaken, and told of trouble: {told}")
    return told


# ── Forgetting ───────────────────────────────────────────────────────────────
def prolonged(stage: Play, *, merged: bool) -> Any:
    """As a reaper frees an id, the row that makes its result live on is merged, or cannot be read."""
    caller, reaper, other = map(stage.actor, ("caller", "reaper", "other"))
    caller.run(caller.enqueue("a", "first", 30.0))
    other.work()
    other.run(other.reap())
    reaper.stop_at(endured(reaper.reap()), clock_read)
    caller.run(caller.client.run(caller.flows.update_result_ttl("a", 3_000.0)))
    other.run(other.commit(RunTimers(flush=True)))
    older, younger = tables_of(stage)
    stage.later(FORGOTTEN_SECONDS)
    reaper.go_on(lambda effect: getattr(effect, "key", "") == ROOT + older.name)
    reaper.go_on(head_read)
    if merged:
        other.run(other.reap())
    else:
        damage(stage, younger)
    reaper.go_on()
    stage.truth.damaged.clear()
    return caller.run(caller.enqueue("a", "second"))


def merged_with_an_older_row(stage: Play) -> Any:
    """A result is let live longer, and the table that says so is merged with the one that knows it no longer."""
    caller, other = map(stage.actor, ("caller", "other"))
    other.run(other.commit(ChangeSettings(paused=False)))
    finish(caller, "a", 30.0)
    caller.run(caller.client.run(caller.flows.update_result_ttl("a", 3_000.0)))
    other.run(other.commit(RunTimers(flush=True)))
    other.run(other.reap())
    stage.later(FORGOTTEN_SECONDS)
    return caller.run(caller.enqueue("a", "second"))


SCENES: dict[str, Callable[[Play], Any]] = {
    "parts refused": parts_refused,
    "part of fewer tables": part_of_fewer_tables,
    "a head is lost": head_is_lost,
    "a table is damaged": table_is_damaged,
    "due, and damaged": due_and_damaged,
    "announced, and reaped": announced_and_reaped,
    "written by two": written_by_two,
    "unreadable table": partial(unreadable, index=False, bytes_max=6_000),
    "unreadable index": partial(unreadable, index=True, bytes_max=6_000),
    "unreadable index, too large": partial(unreadable, index=True, bytes_max=500),
    "merged meanwhile": merged_meanwhile,
    "prolonged, and merged": partial(prolonged, merged=True),
    "prolonged, and unreadable": partial(prolonged, merged=False),
    "merged with an older row": merged_with_an_older_row,
}
