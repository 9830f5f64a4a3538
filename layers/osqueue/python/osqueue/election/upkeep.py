"""Upkeep where no schedule does it: loops that make a pass over every queue of a store. One of them works at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, Protocol

import msgspec

from ..errors import OsqueueError, Timeout
from ..queue.blocking import Queue
from ..stores.base import Store
from .blocking import Election

ELECTION = "reaper"
HEARTBEAT_S_MIN = 3.0
HEARTBEAT_S_MAX = 300.0
BEATS_PER_PASS = 3
STALE_BEATS = 3.5  # for which a loop may be silent before another one takes over

ReapRow = dict[str, Any]
Told = tuple[str, ReapRow | OsqueueError]  # a queue, and its report or the error that kept it from one


class StopEvent(Protocol):
    """When to end: an event that can be waited for."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float) -> bool: ...


def one_pass(names: Iterable[str], open_queue: Callable[[str], Queue[Any]]) -> Iterator[Told]:
    """Reap one queue after the other. The trouble of one stops no other."""
    for name in names:
        try:
            yield name, {"queue": name, **msgspec.structs.asdict(open_queue(name).reap())}
        except OsqueueError as error:
            yield name, error


def election_of(store: Store, queue: str | None, every: float) -> Election:
    """The election of the loops that have the same to do: one queue, or all of them."""
    heartbeat = min(max(every / BEATS_PER_PASS, HEARTBEAT_S_MIN), HEARTBEAT_S_MAX)
    digest = "" if queue is None else f"-{sha256(queue.encode()).hexdigest()[:16]}"
    return Election(store, ELECTION + digest, heartbeat=heartbeat, stale_after=heartbeat * STALE_BEATS)


def keep_up(
    election: Election,
    make_pass: Callable[[], Iterable[Told]],
    every: float,
    stop: StopEvent,
    tell: Callable[[str, ReapRow | OsqueueError], object],
    trouble: Callable[[OsqueueError], object],
) -> None:
    """Campaign, and while elected make a pass every so many seconds, until ``stop``.

    ``tell`` receives each queue in which there was something to do, ``trouble`` what keeps the election from going
    on: once, not at every beat. A store that refuses everything may allow it again, so the loop goes on.
    """
    told = ""
    while not stop.is_set():
        try:
            with election.lead(timeout=0):
                while election.is_leader and not stop.is_set():
                    for name, row in make_pass():
                        if isinstance(row, OsqueueError) or _did_something(row):
                            tell(name, row)
                    told = ""  # a whole pass: what comes now is a new trouble
                    stop.wait(every)
        except Timeout:
            stop.wait(election.heartbeat)  # another one leads
        except OsqueueError as error:
            if error.message != told:
                trouble(error)
                told = error.message
            stop.wait(election.heartbeat)


def _did_something(row: ReapRow) -> bool:
    return any(value for field, value in row.items() if field != "queue")
