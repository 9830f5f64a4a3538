"""What waits in a queue, and the assertion about it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, TypeVar, overload

from msgspec import Struct

from ..commit.effects import QueueFlow
from ..core import state as stored
from ..errors import Rejected
from ..model.fields import moment
from ..model.keys import job_id, shard_of
from ..objects.layout import read_state, root_of
from ..objects.segments import read_bodies, segment_jobs, segments_of
from ..queue.asynchronous import AsyncQueue
from ..queue.blocking import Queue

JOBS_SHOWN_MAX = 10  # in the message of a failed assertion

T = TypeVar("T")
ANY: Any = type("Anything", (), {"__repr__": lambda self: "ANY"})()  # matches whatever is there


class Waiting(Struct, frozen=True):
    """A job that waits to be run."""

    job_id: str
    kind: str | None
    payload: Any
    state: str  # queued, scheduled or failing
    priority: int
    due_at: datetime | None  # scheduled and failing


@overload
def enqueued(queue: Queue[T], *, payload: Any = ANY, kind: Any = ANY) -> list[Waiting]: ...
@overload
def enqueued(
    queue: AsyncQueue[T], *, payload: Any = ANY, kind: Any = ANY
) -> Coroutine[Any, Any, list[Waiting]]: ...
def enqueued(queue: Any, *, payload: Any = ANY, kind: Any = ANY) -> Any:
    """The jobs that wait (queued, scheduled, failing), of one kind and payload if given.

    ``payload`` is a value, compared as it comes out of the serialiser, or a function that says whether it matches.
    """
    return queue._run(_matching(queue, payload, kind))


@overload
def assert_enqueued(
    queue: Queue[T], *, payload: Any = ANY, kind: Any = ANY, count: int | None = None
) -> list[Waiting]: ...
@overload
def assert_enqueued(
    queue: AsyncQueue[T], *, payload: Any = ANY, kind: Any = ANY, count: int | None = None
) -> Coroutine[Any, Any, list[Waiting]]: ...
def assert_enqueued(queue: Any, *, payload: Any = ANY, kind: Any = ANY, count: int | None = None) -> Any:
    """Fail unless such a job waits: at least one, or exactly ``count``. Returns those found, as ``enqueued`` does.

    >>> assert_enqueued(q, kind="welcome", payload=lambda p: p["to"].endswith("@example.com"), count=1)
    """
    return queue._run(_asserting(queue, payload, kind, count))


def _asserting(queue: Any, payload: Any, kind: Any, count: int | None) -> QueueFlow[list[Waiting]]:
    found = yield from _matching(queue, payload, kind)
    if len(found) == count or (count is None and found):
        return found
    wanted = [
        f"{name} {value!r}" for name, value in (("kind", kind), ("payload", payload)) if value is not ANY
    ]
    every = yield from _matching(queue, ANY, ANY)
    lines = [f"  {each.state} {each.job_id} kind {each.kind!r} payload {each.payload!r}" for each in every]
    if len(lines) > JOBS_SHOWN_MAX:
        lines[JOBS_SHOWN_MAX:] = [f"  … and {len(lines) - JOBS_SHOWN_MAX:,} more"]
    raise AssertionError(
        f"expected {'a job' if count is None else f'{count} jobs'}{' with ' if wanted else ''}{' and '.join(wanted)}"
        f" waiting in queue {queue.name!r}, found {len(found)}. "
        + (
            "\n".join(["It holds:", *lines])
            if lines
            else "None waits at all (those that have run: test.ran)."
        )
    )


def _matching(queue: Any, payload: Any, kind: Any) -> QueueFlow[list[Waiting]]:
    matches = _matcher(queue, payload)
    jobs = [
        (state, job)
        for state, job in (yield from waiting_jobs(queue))
        if kind is ANY or (job.kind or None) == kind
    ]
    found = []
    for state, job in jobs:
        root = root_of(queue.name, shard_of(job.key))
        (data,) = yield from read_bodies(root, [job.payload])
        value = queue.codec.decode(data, job.codec, queue.codec.payload_type)
        if matches(value):
            due = moment(job.due_ms) if job.due_ms else None
            found.append(Waiting(job_id(job.key), job.kind or None, value, state, job.priority, due))
    return found


def _matcher(queue: Any, payload: Any) -> Callable[[Any], bool]:
    if payload is ANY:
        return lambda value: True
    if callable(payload):
        return lambda value: bool(payload(value))
    codec = queue.codec
    try:
        wanted = codec.decode(codec.encode(payload, "payload"), codec.name, codec.payload_type)
    except Rejected:  # it holds something that only compares, such as unittest.mock.ANY
        wanted = payload
    return lambda value: bool(value == wanted)


def waiting_jobs(queue: Any) -> QueueFlow[list[tuple[str, stored.JobRecord]]]:
    """Every job that waits, with its state: in the order of the queue, then by due time."""
    assert queue.store is not None  # over an API it raises NotSupported
    found: list[tuple[str, stored.JobRecord]] = []
    count = yield from queue._flows.shards()
    for shard in range(count):
        state = yield from read_state(queue.name, shard)
        if state is None:
            continue
        root = root_of(queue.name, shard)
        for lane in state.lanes:
            jobs = yield from _whole(root, state, lane.backlog.spans)
            found += [(stored.QUEUED, job) for job in (*lane.backlog.ready, *jobs, *lane.backlog.tail)]
        late = [*state.delayed.jobs, *(yield from _whole(root, state, state.delayed.spans))]
        found += [(stored.delayed_state(job), job) for job in sorted(late, key=lambda job: job.due_ms)]
    return found


def _whole(root: str, state: stored.State, spans: Sequence[stored.Span]) -> QueueFlow[list[stored.JobRecord]]:
    """The jobs of segments that still wait there."""
    jobs: list[stored.JobRecord] = []
    for span in (yield from segments_of(root, spans)):
        jobs += [job for job in (yield from segment_jobs(root, span)) if job.key not in state.tombstones]
    return jobs
