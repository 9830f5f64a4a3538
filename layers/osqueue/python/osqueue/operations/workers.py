"""The registry of workers: how one says that it is there, and who looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from ..commit.effects import QueueFlow, Submit, together
from ..core.state import State
from ..model.fields import moment
from ..model.worker import (
    DRAINING,
    LOST,
    RUNNING,
    UNREGISTERED,
    WorkerEntry,
    WorkerStatus,
    check_entry,
    worker_id,
)
from ..objects import worker_registry
from ..objects.layout import read_state
from ..objects.worker_registry import KEPT_MS, FoundWorker

if TYPE_CHECKING:
    from .context import FlowContext

ClockFlow = Callable[[int, State], QueueFlow[int]]  # shard, its state → the store's time in ms

LOST_AFTER = 3  # of its periods without a word a worker is lost


def put_worker(flows: FlowContext, name: str, entry: WorkerEntry) -> QueueFlow[bool]:
    """Say that a worker is there, under an id that it drew; False: there is no such queue yet, so nothing is written.

    Raises Rejected, Unavailable, Conflict (the queue is being removed).
    """
    worker_id(name)
    check_entry(entry)
    yield Submit(0, ())  # a look at the head: what belongs to no queue, nobody would ever remove
    if not (yield from flows.state_seen(0)).seq:
        return False
    yield from worker_registry.write(flows.queue, name, entry)
    return True


def delete_worker(flows: FlowContext, name: str) -> QueueFlow[None]:
    """Say that a worker ends. Raises Rejected, Unavailable."""
    yield from worker_registry.remove(flows.queue, worker_id(name))


def workers(queue: str, shards: int, clock: ClockFlow) -> QueueFlow[list[WorkerStatus]]:
    """All workers that are registered or hold leases: those that are lost first, then by name."""
    states = [state for state in (yield from _states(queue, shards)) if state is not None]
    if not states:
        return []
    held = _held(states)
    found = yield from worker_registry.entries(queue)
    now_ms = 0
    if found:  # no earlier than the latest word, also where whoever asks may not read the store's clock
        now_ms = max((yield from clock(0, states[0])), *(each.seen_ms for each in found))
    known = [_status(each, held, now_ms) for each in found if now_ms - each.seen_ms <= KEPT_MS]
    names = {each.name for each in known}
    strangers = [_unregistered(name, held) for name in held if name not in names]
    return sorted([*known, *strangers], key=lambda each: (each.state != LOST, each.name, each.id or ""))


def _states(queue: str, shards: int) -> QueueFlow[list[State | None]]:
    return (yield from together([read_state(queue, shard) for shard in range(shards)]))


class _Held(Struct):
    """The leases under one name."""

    count: int = 0
    oldest_ms: int = 0


def _held(states: list[State]) -> dict[str, _Held]:
    found: dict[str, _Held] = {}
    for state in states:
        for lease in state.leases.values():
            held = found.setdefault(lease.worker, _Held(0, lease.started_ms))
            held.count += 1
            held.oldest_ms = min(held.oldest_ms, lease.started_ms)
    return found


def _status(found: FoundWorker, held: dict[str, _Held], now_ms: int) -> WorkerStatus:
    entry = found.entry
    silent_ms = now_ms - found.seen_ms
    state = DRAINING if entry.draining else RUNNING
    theirs = held.get(entry.name, _Held())
    return WorkerStatus(
        name=entry.name,
        state=LOST if silent_ms > LOST_AFTER * entry.every * 1000 else state,
        holds=theirs.count,
        oldest_start=moment(theirs.oldest_ms) if theirs.count else None,
        id=found.id,
        host=entry.host,
        pid=entry.pid,
        version=entry.version,
        concurrency=entry.concurrency,
        busy=entry.busy,
        kinds=entry.kinds,
        since=moment(found.seen_ms - round(entry.uptime * 1000)),
        seen=moment(found.seen_ms),
    )


def _unregistered(name: str, held: dict[str, _Held]) -> WorkerStatus:
    theirs = held[name]
    return WorkerStatus(
        name=name, state=UNREGISTERED, holds=theirs.count, oldest_start=moment(theirs.oldest_ms)
    )
