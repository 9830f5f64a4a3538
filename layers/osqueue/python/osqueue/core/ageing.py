"""Ageing: a job that waits becomes more urgent, one priority for each ``ageing``.

That is the same as an order by ``since + priority·ageing``, a job's *turn*, which does not change while it waits. So a
job is passed only by jobs of priorities before its own that come less than the difference times ``ageing`` after it.
"""

from __future__ import annotations

from .backlog import BacklogDraft
from .state import JobRecord


def since_ms(job: JobRecord) -> int:
    """When a queued job could first be claimed; a retry counts from the end of the attempt before it."""
    return max(job.enqueued_ms, job.scheduled_ms, job.history[-1].ended_ms if job.history else 0)


def _first_since_ms(lane: BacklogDraft) -> int:
    """The same of a lane's first job; where that lies in a segment, the time in its key, which is drawn before."""
    if lane.ready:
        return since_ms(lane.ready[0])
    return int.from_bytes(lane.spans[0].first[:6], "big") if lane.spans else since_ms(lane.tail[0])


def turn_of(priority: int, lane: BacklogDraft, ageing_ms: int) -> tuple[int, bytes]:
    """The turn of a lane's first job: the smallest goes first."""
    return _first_since_ms(lane) + priority * ageing_ms, lane.head_key()
