"""Transitions of jobs as callers see them, and the cursors by which a listener goes on."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec
from msgspec import Struct

from ..core import state as stored
from ..errors import Rejected, shown
from .fields import moment
from .keys import job_id

NAMES = (
    stored.QUEUED,
    stored.SCHEDULED,
    stored.PROCESSING,
    stored.FAILING,
    stored.COMPLETED,
    stored.FAILED,
    stored.CANCELLED,
    stored.STALLED,
)


class Event(Struct, frozen=True):
    """One committed transition of a job (or of ``count`` jobs that were enqueued together)."""

    queue: str
    job_id: str | None  # None when the event is about several jobs without a common id
    id: str | None  # the id that the client gave the job, if any
    name: str  # what happened: one of NAMES
    from_state: str | None  # None: the job is new
    to_state: str
    at: datetime  # aware, UTC: the time of the commit
    # enqueue, follow (another job, or a batch, ended), claim, complete, fail, stalled, release, cancel, due, redrive,
    # expired, timed_out; replaced, and replace for the job that took its place
    cause: str
    attempt: int  # attempts used so far
    run: int  # leases granted so far
    worker: str | None  # who held the lease, where there was one
    count: int = 1  # jobs
    kind: str | None = None
    headers: tuple[str, ...] = ()  # the names of the job's headers; their values stay in the queue
    cursor: str = ""  # to go on behind it, where ``events`` of a queue told it; else empty


def public_event(queue: str, event: stored.Transition) -> Event | None:
    """The public form of a committed transition; None for one that leaves the job in its state.

    A job whose lease ran out is ``stalled`` when it goes back to the queue; with no attempts left it ``failed``.
    """
    if event.origin == event.target:
        return None  # a dead letter that has been kept for its time: it was told as failed long ago
    again = event.cause == stored.STALLED and event.target == stored.QUEUED
    return Event(
        queue=queue,
        job_id=job_id(event.key) if event.key else None,
        id=event.client_id,
        name=stored.STALLED if again else event.target,
        from_state=event.origin or None,
        to_state=event.target,
        at=moment(event.at_ms),
        cause=event.cause,
        attempt=event.attempt,
        run=event.run,
        worker=event.worker or None,
        count=event.count,
        kind=event.kind or None,
        headers=event.headers,
    )


def public_events(queue: str, events: Iterable[stored.Transition]) -> tuple[Event, ...]:
    """The public form of a commit's transitions, in order."""
    found = (public_event(queue, each) for each in events)
    return tuple(event for event in found if event is not None)


class ShardPosition(Struct, frozen=True, array_like=True):
    """How far a listener has read in one shard."""

    epoch: int  # of the head
    seq: int  # of a head that had dropped no transition behind this position yet
    position: int  # of the next transition


PREFIX = "ev1-"  # no number, and no time, begins so
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[ShardPosition, ...]).decode


def cursor_of(positions: Mapping[int, ShardPosition]) -> str:
    """The positions in all shards, as text."""
    data = _encode([positions[shard] for shard in range(len(positions))])
    return PREFIX + base64.urlsafe_b64encode(data).decode().rstrip("=")


def positions_of(cursor: str) -> dict[int, ShardPosition]:
    """The inverse; raises Rejected."""
    data = cursor.removeprefix(PREFIX)
    try:
        if data == cursor:
            raise ValueError
        found = _decode(base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)))
        if not found:
            raise ValueError
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise Rejected(
            f"since: {shown(cursor)} is no cursor. Pass the cursor of an event, a time, or nothing for what comes"
            " from now on.",
            field="since",
        ) from None
    return dict(enumerate(found))
