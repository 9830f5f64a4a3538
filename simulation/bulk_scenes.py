"""Scenes of bulks: runs of one batch that meet where it is refused, in part or as a whole, finished, and forgotten."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from osqueue import limits
from osqueue.bulk import receipts
from osqueue.commit.effects import Effect, Flow
from osqueue.commit.writer import HEAD
from osqueue.core.job_ops import ClaimJobs, EnqueueJobs
from osqueue.core.queue_ops import ChangeSettings, RunTimers
from osqueue.core.turns import SLICES
from osqueue.errors import Unavailable
from osqueue.objects.layout import root_of
from osqueue.objects.staging import SegmentBuilder, StagingArea
from osqueue.stores.base import Delete, Failed, Get

from .clients import Client
from .invariants import Invariants
from .ledger import Ledger, Violation, WatchedWriter
from .machine import VirtualMachine
from .scenes import (
    NO_ROOM,
    ONE_LATE,
    QUEUE,
    ROOT,
    Actor,
    Play,
    batch_changed,
    batch_written,
    clock_read,
    head_swap,
)
from .tight import limited
from .upkeep_scenes import age, body_written, collect

KEPT_SECONDS = receipts.KEPT_MS / 1000
WRITERS = 40  # as many as it takes to forget one that was here before them
IDLE_SECONDS = 5.0  # between two of them
DELAY_MS = 60_000  # of a delayed job
PLANNING_SECONDS = 50.0  # that somebody stands still while asking for the time
LARGE = b"x" * 200  # a payload that is staged by itself
ROOM_FOR_ONE = {"DELAYED_SPANS_MAX": 1}  # segment of delayed jobs


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
        each.run(each.commit(ChangeSettings(shards=2)))
    return there


def delay(actor: Actor, wait_ms: int) -> None:
    """Let a delayed job wait in a segment of its own."""
    (job,) = actor.client.jobs(1, delayed=False)
    writer = actor.client.writer
    head = actor.run(actor.client.head())
    bulk = SegmentBuilder(StagingArea(writer.root, head.seq, writer.machine), head.now_ms)
    actor.run(bulk.add([replace(job, delay_ms=wait_ms)]))
    actor.run(actor.commit(*actor.run(bulk.attachments())))


def forget(actor: Actor) -> Flow[int]:
    """What passes of a day forget of batches, one after the other."""
    now, gone = actor.client.writer.machine.now_ms(), 0
    for turn in range(SLICES + 1):
        gone += yield from actor.client.run(receipts.forget(QUEUE, now + turn * limits.HOUR_MS))
    return gone


def refused_in_part(stage: Play) -> Any:
    """One shard has no room for its part, which two hear; one says so, a third attaches it, then the other says so."""
    slow, quick, other = map(stage.actor, ("slow", "quick", "other"))
    second = second_shard(stage)
    slow.stop_after(slow.load("b", "x", "y", delays_ms=ONE_LATE), batch_written)
    delay(second, ONE_LATE[1])
    with limited(ROOM_FOR_ONE):
        slow.go_on(batch_changed)
        quick.stop_at(quick.resume("b"), batch_changed)
        slow.go_on()
    other.run(other.resume("b"))
    quick.go_on()
    told = other.run(other.resume("b"))
    if stage.loads.open():
        raise Violation("there is room for all of a batch, and it cannot be finished")
    return told


def refused_and_loaded(stage: Play) -> Any:
    """Two hear that a batch is refused; one removes it, a third loads another one under its id, then the other does."""
    slow, quick, other = map(stage.actor, ("slow", "quick", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_after(slow.load("b", "x", "y", delays_ms=ONE_LATE), batch_written)
    with limited(NO_ROOM):
        slow.go_on(batch_changed)
        quick.stop_at(quick.resume("b"), batch_changed)
        slow.go_on()
    other.run(other.load("b", "x", "y", delays_ms=ONE_LATE))
    quick.go_on()
    return other.run(other.load("b", "x", "y", delays_ms=ONE_LATE))


def silent_for_too_long(stage: Play) -> Any:
    """A run dies before it attaches its batch; another comes when its request can be told from no forgotten one."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_after(slow.load("b", "x"), batch_written)
    for at in range(WRITERS):
        stage.later(IDLE_SECONDS)
        writer = stage.actor(f"writer {at}")
        writer.run(writer.commit(ChangeSettings(backoff_base_ms=10 + at)))
    return other.run(other.resume("b"))


def known_for_a_while(stage: Play) -> Any:
    """A batch is loaded again, when passes have come and it is not to be forgotten yet, and when it is."""
    other = stage.actor("other")
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    for _ in range(3):
        other.run(other.load("b", "x"))
        stage.later(KEPT_SECONDS * 2 / 3)
        other.run(forget(other))
    return other.run(other.load("b", "x"))


def finished_as_it_is_forgotten(stage: Play) -> Any:
    """A batch is about to be forgotten whose run died before it said that it is done, when somebody does."""
    slow, reaper, other = map(stage.actor, ("slow", "reaper", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_at(slow.load("b", "x"), batch_changed)
    stage.later(2 * KEPT_SECONDS)
    reaper.stop_at(forget(reaper), batch_changed)
    other.run(other.resume("b"))
    reaper.go_on()
    return other.run(other.load("b", "x"))


# ── Staged ───────────────────────────────────────────────────────────────────
def batch_read(effect: Effect) -> bool:
    """It is about to be looked up what a batch is: all of it has been staged."""
    return isinstance(effect, Get) and effect.key.startswith(receipts.FOLDER)


def payloads_left_unwritten(stage: Play) -> Any:
    """The store takes none of the payloads of a bulk."""
    slow = stage.actor("slow")
    slow.run(slow.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_at(slow.load("b", "x", payload=LARGE), body_written)
    while slow.pending is not None:
        slow.heard = ((Failed(Unavailable("nobody knows")),),)
        slow.go_on(body_written)
    return slow.answer


def staged_at_the_same_time(stage: Play) -> Any:
    """Two stage their bulks, and have seen the same head."""
    slow, quick, other = map(stage.actor, ("slow", "quick", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_at(slow.load("b", "x"), batch_read)
    quick.run(quick.load("c", "x"))
    return slow.go_on()


def merged_and_collected(stage: Play) -> Any:
    """Segments of delayed jobs are merged long after they were staged; before they join, the collector comes."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    with limited({"DELAYED_SPANS_LOOSE": 1}):
        slow.stop_at(slow.load("b", "x", tasks=2, delays_ms=(3_600_000,), payload=LARGE), batch_read)
        age(stage, other)
        slow.go_on(head_swap)
        other.run(collect(other))
        return slow.go_on()


def _by_loader(actor: Actor) -> Flow[Any]:
    return actor.load("b", "x", delays_ms=(DELAY_MS,))


def _by_call(actor: Actor) -> Flow[Any]:
    with limited({"ITEMS_PER_REQUEST_MAX": 1}):
        items = [{"payload": at, "delay": DELAY_MS / 1000} for at in range(2)]
        return (yield from actor.client.run(actor.flows.enqueue_many(items)))


def planned_for_long(stage: Play, *, by: Callable[[Actor], Flow[Any]]) -> Any:
    """It takes long until the store tells the time by which the jobs of a bulk are due."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_at(by(slow), clock_read)
    stage.later(PLANNING_SECONDS)
    slow.go_on(head_swap)
    return _due(stage, slow, other)


def planned_in_silence(stage: Play, *, by: Callable[[Actor], Flow[Any]]) -> Any:
    """The queue has been idle for long, and the store fails when the one who stages asks it for the time."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    stage.later(10 * DELAY_MS / 1000)
    slow.stop_at(by(slow), clock_read)
    slow.heard = (Failed(Unavailable("nobody knows")),)
    slow.go_on(head_swap)
    return _due(stage, slow, other)


def _due(stage: Play, slow: Actor, other: Actor) -> float:
    """Let a staged job join, and wait until it can be claimed; for how long it was delayed."""
    began = stage.world.now
    slow.go_on()
    while not other.run(other.commit(ClaimJobs(1, "worker", 60_000))).answer.outcomes[0].leases:
        stage.later(0.5)
    waited_ms = (stage.world.now - began) * 1000
    if waited_ms < DELAY_MS:
        raise Violation(f"a delay of {DELAY_MS} ms ended {DELAY_MS - waited_ms:.0f} ms early")
    return waited_ms


def delayed_the_other_way_round(stage: Play, *, tasks: int) -> Any:
    """The first of two delayed jobs is due long after the second."""
    other = stage.actor("other")
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    kinds = "xy"[: 2 // tasks]
    with limited({"DELAYED_SPANS_LOOSE": 1}):
        other.run(other.load("b", *kinds, tasks=tasks, delays_ms=(20 * DELAY_MS, DELAY_MS)))
    stage.later(2 * DELAY_MS / 1000)
    other.run(other.commit(RunTimers()))
    leases = other.run(other.commit(ClaimJobs(2, "worker", 60_000))).answer.outcomes[0].leases
    if len(leases) != 1:
        raise Violation(f"one job is due, and {len(leases)} can be claimed")
    return len(leases)


# ── Attached ─────────────────────────────────────────────────────────────────
def attached_behind_others(stage: Play) -> Any:
    """A bulk joins a lane where others wait, some of them in the tail."""
    other = stage.actor("other")
    other.fill(*["x"] * 20)
    other.run(other.load("b", "x"))
    (lane,) = stage.invariants.state.lanes  # type: ignore[union-attr]
    return len(lane.backlog.tail)


def delayed_beyond_measure(stage: Play) -> Any:
    """A bulk of delayed jobs finds no room for them, when its run had found some."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    with limited({"DELAYED_SPANS_MAX": 2}):
        slow.stop_after(slow.load("b", "x", tasks=2, delays_ms=(3_600_000,)), batch_written)
        other.run(other.load("c", "x", delays_ms=(3_600_000,)))
        return slow.go_on()


def delayed_without_end(stage: Play, *, staged: bool) -> Any:
    """Delayed jobs come and come, in bulks or one by one."""
    other = stage.actor("other")
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    with limited({"DELAYED_SPANS_MAX": 2, "DELAYED_SPANS_SOFT": 100}):
        for _ in range(4 if staged else 40):
            if staged:
                delay(other, 60 * DELAY_MS)
            else:
                (job,) = other.client.jobs(1, delayed=False)
                other.run(other.commit(EnqueueJobs((replace(job, delay_ms=60 * DELAY_MS),))))
    spans = stage.invariants.state.delayed.spans  # type: ignore[union-attr]
    if len(spans) > 2:
        raise Violation(f"the head points to {len(spans)} segments of delayed jobs, and has room for 2")
    return len(spans)


def decided_by_another(stage: Play) -> Any:
    """Two runs load a batch, each with jobs of its own, and the slow one comes to hear whose it is."""
    slow, quick = map(stage.actor, ("slow", "quick"))
    quick.run(quick.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_at(slow.load("b", "x"), batch_written)
    quick.run(quick.load("b", "x", "y"))
    return slow.go_on()


def refused_and_unknown(stage: Play) -> Any:
    """Of two shards one refuses its part of a batch, and of the other nobody can tell."""
    slow, other = map(stage.actor, ("slow", "other"))
    second = second_shard(stage)
    slow.stop_after(slow.load("b", "x", "y", delays_ms=ONE_LATE), batch_written)
    for at in range(WRITERS):
        stage.later(IDLE_SECONDS)
        writer = stage.actor(f"writer {at}")
        writer.run(writer.commit(ChangeSettings(backoff_base_ms=10 + at)))
    delay(second, ONE_LATE[1])
    with limited(ROOM_FOR_ONE):
        other.run(other.resume("b"))
    return other.run(other.resume("b"))


def abandoned_for_a_month(stage: Play) -> Any:
    """A run that decided a batch stands still until it is forgotten and another one has its id; then it goes on."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_after(slow.load("b", "x"), batch_written)
    stage.later(2 * KEPT_SECONDS)
    other.run(forget(other))
    other.run(other.load("b", "x"))
    return slow.go_on()


def attached_without_a_head(stage: Play) -> Any:
    """The head is gone when a bulk is about to be attached."""
    slow, other = map(stage.actor, ("slow", "other"))
    other.run(other.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_after(slow.load("b", "x"), batch_written)
    stage.truth.perform(Delete((ROOT + HEAD,)))
    told = slow.go_on()
    if stage.truth.read(ROOT + HEAD) is not None:
        raise Violation("an old request has made a head")
    return told


SCENES: dict[str, Callable[[Play], Any]] = {
    "refused in part": refused_in_part,
    "refused and loaded": refused_and_loaded,
    "silent for too long": silent_for_too_long,
    "known for a while": known_for_a_while,
    "finished as it is forgotten": finished_as_it_is_forgotten,
    "payloads left unwritten": payloads_left_unwritten,
    "staged at the same time": staged_at_the_same_time,
    "merged and collected": merged_and_collected,
    "planned for long": partial(planned_for_long, by=_by_loader),
    "planned in silence": partial(planned_in_silence, by=_by_loader),
    "enqueued for long": partial(planned_for_long, by=_by_call),
    "enqueued in silence": partial(planned_in_silence, by=_by_call),
    "delayed the other way round": partial(delayed_the_other_way_round, tasks=1),
    "merged the other way round": partial(delayed_the_other_way_round, tasks=2),
    "attached behind others": attached_behind_others,
    "delayed beyond measure": delayed_beyond_measure,
    "delayed without end, staged": partial(delayed_without_end, staged=True),
    "delayed without end": partial(delayed_without_end, staged=False),
    "decided by another": decided_by_another,
    "refused and unknown": refused_and_unknown,
    "attached without a head": attached_without_a_head,
    "abandoned for a month": abandoned_for_a_month,
}
