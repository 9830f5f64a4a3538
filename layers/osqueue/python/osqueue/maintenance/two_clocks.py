"""Moments by the clock of heads, where the archive and the backups lie in another store, which has its own clock.

A store tells the time by when it has written something (``commit.writer``). So what was written to the other store is
put in order by something small that is written to the first one after it, or before it.
"""

from __future__ import annotations

from ..commit.effects import Flow
from ..commit.retry import NEEDED, ask
from ..commit.writer import CLOCK
from ..objects import backups
from ..objects.layout import root_of, unavailable
from ..stores.base import Found, Get, Put, Written

TICK_MS = 1_000  # a store may tell whole seconds


def time_now(queue: str, shard: int, body: bytes = b"") -> Flow[int]:
    """What the clock of heads shows between now and the answer, in ms; a tick early at most. Raises Unavailable."""
    return (yield from _written(Put(root_of(queue, shard) + CLOCK, body))).modified_ms


def made_ms(queue: str, shard: int, copy: Found, now_ms: int) -> Flow[int]:
    """When a backup was made by the clock of heads: never later than it was, if the clocks are as far apart as then.

    Raises Unavailable.
    """
    if not copy.apart:
        return copy.modified_ms
    here_ms = yield from time_now(queue, shard)
    probe = backups.purge_list(
        queue, shard, now_ms, ()
    )  # of no jobs: the next reap that makes a copy drops old ones
    there_ms = (yield from _written(probe)).modified_ms
    return copy.modified_ms - (there_ms + TICK_MS - here_ms)


def _written(put: Put) -> Flow[Found]:
    """Write an object, and see when that was."""
    reply = yield from ask(put, NEEDED)
    if isinstance(reply, Written):
        reply = yield from ask(Get(put.key), NEEDED)
    if not isinstance(reply, Found):
        raise unavailable(reply, "its clock")
    return reply
