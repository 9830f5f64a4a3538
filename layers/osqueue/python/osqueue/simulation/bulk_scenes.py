"""Scenes of bulks: runs of one batch that meet where it is refused, in part or as a whole, finished, and forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import batches, limits
from ..commit.effects import Flow
from ..core.ops import Configure
from ..shards import root_of
from ..turns import SLICES
from .clients import Client
from .invariants import Invariants
from .ledger import Ledger, WatchedWriter
from .machine import VirtualMachine
from .scenes import QUEUE, Actor, Play, batch_changed, batch_written

KEPT_SECONDS = batches.KEPT_MS / 1000
WRITERS = 40  # as many as it takes to forget one that was here before them
IDLE_SECONDS = 5.0  # between two of them


def second_shard(stage: Play) -> Actor:
    """Somebody at another shard, which the queue has from now on."""
    watch = Invariants(
        root_of(QUEUE, 1), stage.truth, Ledger(), queue=QUEUE, shard=1, on_bulk=stage.loads.join
    )
    watch.ledger.batches = stage.ledger.batches  # a commit's id tells its shard
    writer = WatchedWriter(watch.root, QUEUE, VirtualMachine(stage.world, "second", "scene"))
    there = Actor(stage, Client(stage.world, watch.ledger, watch, stage.book, "second", writer, 1))
    here = stage.actor("first")
    for each in (there, here):
        each.run(each.commit(Configure(shards=2)))
    return there


def forget(actor: Actor) -> Flow[int]:
    """What passes of a day forget of batches, one after the other."""
    now, gone = actor.client.writer.machine.now_ms(), 0
    for turn in range(SLICES + 1):
        gone += yield from actor.client.run(batches.forget(QUEUE, now + turn * limits.HOUR_MS))
    return gone


def refused_in_part(stage: Play) -> Any:
    """One shard has no room for its part, which two hear; one says so, a third attaches it, then the other says so."""
    slow, quick, other = map(stage.actor, ("slow", "quick", "other"))
    second = second_shard(stage)
    slow.stop_after(slow.load("b", "x", "y"), batch_written)
    second.fill(*"abcde")
    slow.go_on(batch_changed)
    quick.stop_at(quick.resume("b"), batch_changed)
    slow.go_on()
    second.work()
    other.run(other.resume("b"))
    quick.go_on()
    return other.run(other.resume("b"))


def refused_and_loaded(stage: Play) -> Any:
    """Two hear that a batch is refused; one removes it, a third loads another one under its id, then the other does."""
    slow, quick, other = map(stage.actor, ("slow", "quick", "other"))
    other.run(other.commit(Configure(backoff_base_ms=7)))
    slow.stop_after(slow.load("b", "x", "y"), batch_written)
    other.fill(*"abcde")
    slow.go_on(batch_changed)
    quick.stop_at(quick.resume("b"), batch_changed)
    slow.go_on()
    other.work()
    other.run(other.load("b", "x", "y"))
    quick.go_on()
    return other.run(other.load("b", "x", "y"))


def silent_for_too_long(stage: Play) -> Any:
    """A run dies before it attaches its batch; another comes when its request can be told from no forgotten one."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(Configure(backoff_base_ms=7)))
    slow.stop_after(slow.load("b", "x"), batch_written)
    for at in range(WRITERS):
        stage.later(IDLE_SECONDS)
        writer = stage.actor(f"writer {at}")
        writer.run(writer.commit(Configure(backoff_base_ms=10 + at)))
    return other.run(other.resume("b"))


def known_for_a_while(stage: Play) -> Any:
    """A batch is loaded again, when passes have come and it is not to be forgotten yet, and when it is."""
    other = stage.actor("other")
    other.run(other.commit(Configure(backoff_base_ms=7)))
    for _ in range(3):
        other.run(other.load("b", "x"))
        stage.later(KEPT_SECONDS * 2 / 3)
        other.run(forget(other))
    return other.run(other.load("b", "x"))


def finished_as_it_is_forgotten(stage: Play) -> Any:
    """A batch is about to be forgotten that nobody has finished, when somebody does."""
    slow, reaper, other = map(stage.actor, ("slow", "reaper", "other"))
    other.run(other.commit(Configure(backoff_base_ms=7)))
    slow.stop_after(slow.load("b", "x"), batch_written)
    stage.later(2 * KEPT_SECONDS)
    reaper.stop_at(forget(reaper), batch_changed)
    other.run(other.resume("b"))
    reaper.go_on()
    return other.run(other.load("b", "x"))


SCENES: dict[str, Callable[[Play], Any]] = {
    "refused in part": refused_in_part,
    "refused and loaded": refused_and_loaded,
    "silent for too long": silent_for_too_long,
    "known for a while": known_for_a_while,
    "finished as it is forgotten": finished_as_it_is_forgotten,
}
