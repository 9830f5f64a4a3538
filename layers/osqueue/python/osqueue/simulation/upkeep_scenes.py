"""Scenes of upkeep: collection, merging and completing, each overtaken by others at its most delicate moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..commit.effects import Effect, Flow
from ..core.ops import Claim, Complete, Completion, Configure, Enqueue, New, Sweep
from ..core.wire import decode_head
from ..garbage import LOOKS_MAX
from ..staging import Bulk, Stage
from ..stores.base import Get, PutIfMatch
from .scenes import ROOT, Actor, Play, head_swap

AGED_SECONDS = 10.0  # longer than the collector's horizon, and than what lies between two marks
PATIENCE_SECONDS = 3_600.0  # of a call that stands still on the way


def floor_raised(effect: Effect) -> bool:
    """A head with a floor of the collector's is about to be written."""
    return isinstance(effect, PutIfMatch) and head_swap(effect) and decode_head(effect.body).gc_floor > 0


def table_read(effect: Effect) -> bool:
    """A table is about to be read."""
    return isinstance(effect, Get) and effect.key.startswith(f"{ROOT}finished/")


def age(stage: Play, actor: Actor, times: int = 3) -> None:
    """Let time pass, with commits that mark it."""
    for turn in range(times):
        stage.later(AGED_SECONDS)
        actor.run(actor.commit(Configure(backoff_base_ms=100 + turn)))


def attach(actor: Actor) -> Flow[Any]:
    """Stage a segment with one job, and attach it."""
    state = yield from actor.client.head()
    assert state is not None
    machine = actor.client.writer.machine
    bulk = Bulk(Stage(ROOT, state.seq, machine), state.now_ms)
    yield from bulk.add([New(machine.bits(128).to_bytes(16, "big"), b"")])
    ops = yield from bulk.attachments()
    return (yield from actor.client.call(*ops, timeout=PATIENCE_SECONDS))


def finish_large(actor: Actor) -> None:
    """A job comes, and is completed with a result that lies in a body."""
    machine = actor.client.writer.machine
    new = New(machine.bits(128).to_bytes(16, "big"), b"", kind="large", result_ttl_ms=3_600_000)
    actor.run(actor.commit(Enqueue((new,))))
    (lease,) = actor.run(actor.commit(Claim(1, "worker", 60_000, ("large",)))).answer.outcomes[0].leases
    stage = Stage(ROOT, actor.client.writer.head.state.seq, machine)  # type: ignore[union-attr]
    (result,) = actor.run(stage.bodies([b"x" * 200]))
    actor.run(actor.commit(Complete((Completion(lease.job.key, lease.token, result),))))


# ── Collection ───────────────────────────────────────────────────────────────
def attached_before_the_floor(stage: Play) -> Any:
    """A bulk that was staged long ago is attached just before the collector's floor is committed."""
    writer, reaper, other = map(stage.actor, ("writer", "reaper", "other"))
    other.run(other.commit(Configure(backoff_base_ms=7)))
    writer.stop_at(attach(writer), head_swap)
    age(stage, other)
    reaper.stop_at(reaper.reap(), floor_raised)
    writer.go_on()
    reaper.go_on()
    return len(other.run(other.commit(Claim(10, "worker", 60_000))).answer.outcomes[0].leases)


def attached_as_pointers_move(stage: Play) -> Any:
    """A collector follows tables that others exchange, again and again; at last a floor rises past a new segment."""
    writer, reaper, other = map(stage.actor, ("writer", "reaper", "other"))
    finish_large(other)
    other.run(other.commit(Sweep(flush=True)))
    age(stage, other, 1)
    writer.stop_at(attach(writer), head_swap)
    age(stage, other, 1)
    reaper.stop_at(reaper.reap(), floor_raised)
    reaper.go_on(table_read)
    for look, jobs in enumerate((1, 1, 2, 3, 5), 1):  # as many as it takes to have tables merged
        if look == LOOKS_MAX:
            writer.go_on()
            age(stage, other)
        for _ in range(jobs):
            finish_large(other)
        other.run(other.commit(Sweep(flush=True)))
        other.run(other.reap())
        if reaper.pending is not None:
            reaper.go_on(table_read)
    while reaper.pending is not None:
        reaper.go_on(table_read)
    return len(other.run(other.commit(Claim(10, "worker", 60_000))).answer.outcomes[0].leases)


SCENES: dict[str, Callable[[Play], Any]] = {
    "attached before the floor": attached_before_the_floor,
    "attached as pointers move": attached_as_pointers_move,
}
