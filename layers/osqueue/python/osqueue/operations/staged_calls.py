"""Calls that bring many jobs to a contended head: their writer stages the jobs once, before it sends the request.

Where writers collide, each of them applies all announced requests and writes what the head has no room for. One wins
the swap, and what the others wrote is garbage. So a writer that brings many jobs to such a head writes them itself, as
one segment. Its request refers to the segment, and every other writer only moves a pointer.

Segments of delayed jobs gather that way. Their writers merge them: see ``span_merges``. Should a head have many all the
same, jobs go with the request again, and commits merge segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from .. import limits
from ..commit.effects import QueueFlow, Submit
from ..commit.retry import impatient
from ..core.job_ops import JobSpec
from ..core.ops import Code
from ..core.state import State
from ..core.weights import JOB_WEIGHT
from ..errors import OsqueueError
from ..objects.layout import read_state
from ..objects.staging import SegmentBuilder
from .context import FlowContext

STAGED_BYTES_MIN = 32 * limits.KB  # jobs of one call
DELAYED_SPANS_STAGED_MAX = 40  # segments in a head that takes one more


def stage_call(
    context: FlowContext, news: Sequence[JobSpec], shard: int, batch: bytes, began: float
) -> QueueFlow[Code | None]:
    """Commit the jobs of a call as one segment, and return what became of them all.

    ``began`` is the monotonic time at which the call began. Return None if the jobs have to go with the request.
    """
    writer = context.writers[shard]
    head = writer.head
    if head is None or writer.turns or writer.observed or not _is_one_segment(news):
        return None
    just_read = head.seen.monotonic >= began
    if not (writer.contended(head) or (just_read and writer.shared)):
        return None
    # The segment holds settings. What was seen before the call may be of any age.
    state = head.state if just_read else (yield from read_state(context.queue, shard)) or head.state
    if state.log.until_ms or _has_room(state, news):  # a listener wants an event for each job
        return None
    return (yield from attach_staged(context, news, shard, batch, state))


def attach_staged(
    context: FlowContext, news: Sequence[JobSpec], shard: int, batch: bytes, state: State
) -> QueueFlow[Code | None]:
    """Write the jobs as one segment and attach it. Return None if that is not possible."""
    writer = context.writers[shard]
    stage = yield from context.stage(shard)
    yield from writer.tell_time()  # the segment says when its jobs are due
    now = writer.now_ms(state)
    bulk = SegmentBuilder(stage, now, writer.latest_ms(now), state.settings)
    placed = yield from stage.bodies([new.payload for new in news])  # type: ignore[misc]
    yield from bulk.add([replace(new, payload=payload) for new, payload in zip(news, placed, strict=True)])
    if bulk.parts != 1:
        return None
    attach = [replace(part, batch=batch) for part in (yield from bulk.attachments())]
    yield from context.known_queue()
    answer = yield Submit(shard, tuple(attach))
    codes: set[Code] = {outcome.code for outcome in answer.outcomes}
    if codes & {Code.STALE, Code.DELAYED_LIMIT}:
        return None
    if codes == {Code.SCHEDULED}:
        from .span_merges import merge_from  # here, because only writers that collide merge

        with suppress(OsqueueError):  # the jobs are in the queue, whatever becomes of a merge
            yield from impatient(merge_from(context, shard, attach[0].spans[0].name))
    return codes.pop()


def _is_one_segment(news: Sequence[JobSpec]) -> bool:
    """Return whether the jobs are many, and either all delayed or all of one lane of their own."""
    if _least_bytes(news) < STAGED_BYTES_MIN:
        return False
    delayed = {new.delay_ms > 0 or new.at_ms > 0 for new in news}
    lanes = {(new.priority, new.kind, new.group) for new in news}
    return delayed == {True} or (delayed == {False} and len(lanes) == 1 and not news[0].group)


def _has_room(state: State, news: Sequence[JobSpec]) -> bool:
    """Return whether a head can take these jobs without spilling any, or has enough delayed segments."""
    if news[0].delay_ms or news[0].at_ms:
        return len(state.delayed.spans) >= DELAYED_SPANS_STAGED_MAX
    lanes = [lane.backlog for lane in state.lanes]
    room = limits.TAIL_BYTES_MAX - sum(lane.tail_bytes for lane in lanes)
    if not any(lane.spans or lane.tail for lane in lanes):
        room += limits.READY_BYTES_MAX - sum(lane.ready_bytes for lane in lanes)
    return _least_bytes(news) <= room


def _least_bytes(news: Sequence[JobSpec]) -> int:
    """Return about how many bytes the jobs take in a head, at the least."""
    payloads = [new.payload for new in news if isinstance(new.payload, bytes)]
    return sum(map(len, payloads)) + JOB_WEIGHT * len(news)
