"""Upkeep and what it may overtake (collection, staged objects, tables, ids) with one check removed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from msgspec.structs import replace

from osqueue.commit.effects import Flow, QueueFlow, Submit
from osqueue.commit.retry import RetryPolicy, ask_all
from osqueue.core import reduce
from osqueue.core.draft import Draft
from osqueue.core.job_ops import AttachBulk, AttachSpans, CompleteJobs, EnqueueJobs
from osqueue.core.ops import Code, Op, Outcome
from osqueue.core.queue_ops import MergeSpans, MergeTables, RaiseGcFloor, ReplaceSpan
from osqueue.core.state import State
from osqueue.errors import OsqueueError
from osqueue.maintenance import garbage_collection, orphan_ids
from osqueue.maintenance.reaper import Reaper
from osqueue.objects import id_index
from osqueue.objects.layout import read_state, root_of
from osqueue.stores.base import Deleted, DeleteIfMatch, Failed, Put, Refused, StoreReply, StoreRequest

from .control import Control, Mutation, dispatched, in_runs, in_scene, patched


# ── Staged objects ───────────────────────────────────────────────────────────
def of_any_age(op: type[Op]) -> AbstractContextManager[None]:
    """An operation may refer to objects that the collector may have taken."""
    real = reduce._APPLY[op]

    def apply(draft: Draft, wished: Any) -> Outcome:
        floor, draft.gc_floor = draft.gc_floor, 0
        answer = real(draft, wished)
        draft.gc_floor = floor
        return answer

    return dispatched(op, apply)


# ── Collection ───────────────────────────────────────────────────────────────
def floor_never_committed() -> AbstractContextManager[None]:
    """What nobody refers to is deleted, and may be referred to afterwards."""
    return patched((garbage_collection, "RaiseGcFloor", lambda floor, after: RaiseGcFloor(0, after)))


def head_read_before_the_floor() -> AbstractContextManager[None]:
    """What the head refers to is looked up in the head that the pass came with."""
    known: dict[tuple[str, int], State] = {}
    real = garbage_collection.collect

    def collect(queue: str, shard: int, before: State) -> QueueFlow[int]:
        known[queue, shard] = before
        return (yield from real(queue, shard, before))

    def read(queue: str, shard: int) -> QueueFlow[State | None]:
        yield from ()
        return known[queue, shard]

    return patched((garbage_collection, "collect", collect), (garbage_collection, "read_state", read))


def floor_of_others() -> AbstractContextManager[None]:
    """Names are listed when all has been looked up, under the floor of that moment."""
    real = garbage_collection._spare

    def spare(queue: str, shard: int, names: set[str]) -> QueueFlow[OsqueueError | None]:
        before = set(names)
        trouble: OsqueueError | None = yield from real(queue, shard, names)
        state = yield from read_state(queue, shard)
        assert state is not None
        late, _ = yield from garbage_collection._listed(root_of(queue, shard), "", state.gc_floor)
        names |= late - before
        return trouble

    return patched((garbage_collection, "_spare", spare))


# ── Tables ───────────────────────────────────────────────────────────────────
def deleted_whatever_was_answered() -> AbstractContextManager[None]:
    """Tables go once others were to take their place, whether or not these did."""
    return _believed("_exchange")


def unfolded_whatever_was_answered() -> AbstractContextManager[None]:
    """The same of an index and the tables in it."""
    return _believed("_unfolded")


def _believed(step: str) -> AbstractContextManager[None]:
    real = getattr(Reaper, step)

    def go_through(self: Any, *args: Any, **more: Any) -> QueueFlow[Any]:
        flow, reply = real(self, *args, **more), None
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                return stop.value
            reply = yield effect
            if isinstance(effect, Submit):
                reply = replace(reply, outcomes=(Outcome(((int(Code.OK), 1),)),))

    return patched((Reaper, step, go_through))


# ── Ids ──────────────────────────────────────────────────────────────────────
def ids_taken_from_others() -> AbstractContextManager[None]:
    """An id is given a key, whether or not it has one."""
    return patched((id_index, "PutIfAbsent", Put))


def ids_replaced_whatever_they_stand_for() -> AbstractContextManager[None]:
    """An id is taken over, even if it was taken over since it was read."""
    return patched((id_index, "PutIfMatch", lambda key, body, version: Put(key, body)))


def ids_closed_whatever_they_stand_for() -> AbstractContextManager[None]:
    """An entry without a job is closed, even if it was taken over since it was read."""
    return patched((orphan_ids, "PutIfMatch", lambda key, body, version: Put(key, body)))


def ids_that_stay_count_as_freed(reply: type[StoreReply]) -> AbstractContextManager[None]:
    """An entry counts as removed when the store gave this answer."""

    def insist(requests: Sequence[StoreRequest], policy: RetryPolicy) -> Flow[list[StoreReply]]:
        replies = yield from ask_all(requests, policy)
        return [
            Deleted() if isinstance(request, DeleteIfMatch) and isinstance(each, reply) else each
            for request, each in zip(requests, replies, strict=True)
        ]

    return patched((id_index, "ask_all", insist))


def _aged(op: type[Op]) -> Mutation:
    return partial(of_any_age, op)


CONTROLS: tuple[Control, ...] = (
    Control(
        "age of payloads", _aged(EnqueueJobs), (in_scene("enqueued after the collector", "invariant 8"),)
    ),
    Control(
        "age of results",
        _aged(CompleteJobs),
        (in_scene("completed after the collector", "invariant 8"), in_runs("large results", "invariant 8")),
    ),
    Control(
        "age of segments", _aged(AttachSpans), (in_scene("attached after the collector", "invariant 8"),)
    ),
    Control("age of bulks", _aged(AttachBulk), (in_scene("loaded after the collector", "invariant 8"),)),
    Control(
        "age of rewritten segments",
        _aged(ReplaceSpan),
        (in_scene("rewritten after the collector", "invariant 8"),),
    ),
    Control(
        "age of merged segments",
        _aged(MergeSpans),
        (in_scene("segments merged after the collector", "invariant 8"),),
    ),
    Control("age of tables", _aged(MergeTables), (in_scene("merged after the collector", "invariant 8"),)),
    Control(
        "floor committed before collecting",
        floor_never_committed,
        (in_scene("completed after the collector", "invariant 8"), in_runs("large results", "invariant 8")),
    ),
    Control(
        "head read after the floor",
        head_read_before_the_floor,
        (in_scene("attached before the floor", "invariant 8"),),
    ),
    Control(
        "no floor but one's own",
        floor_of_others,
        (in_scene("attached as pointers move", "invariant 8"),),
    ),
    Control(
        "tables deleted once exchanged",
        deleted_whatever_was_answered,
        (in_scene("merged after the collector", "invariant 8"),),
    ),
    Control(
        "indexes deleted once exchanged",
        unfolded_whatever_was_answered,
        (in_scene("unfolded after the collector", "invariant 8"),),
    ),
    Control(
        "ids refused to be freed",
        partial(ids_that_stay_count_as_freed, Refused),
        (in_scene("id refused to be freed", "accepted a second time"),),
    ),
    Control(
        "ids perhaps freed",
        partial(ids_that_stay_count_as_freed, Failed),
        (in_scene("id perhaps freed", "accepted a second time"),),
    ),
    Control(
        "ids closed conditionally",
        ids_closed_whatever_they_stand_for,
        (in_scene("taken over as it is closed", "a second job was accepted"),),
    ),
    Control(
        "ids created once", ids_taken_from_others, (in_scene("taken by two", "a second job was accepted"),)
    ),
    Control(
        "ids replaced conditionally",
        ids_replaced_whatever_they_stand_for,
        (in_scene("taken over by two", "a second job was accepted"),),
    ),
)
