"""A job's life: every move from one state to another that there is.

The tests walk each of them, the simulator refuses any other, and ``docs/concepts.md`` draws them.
"""

from __future__ import annotations

from msgspec import Struct

from .state import CANCELLED, COMPLETED, FAILED, FAILING, PROCESSING, QUEUED, SCHEDULED

NEW = ""  # where a job comes from that was not there before


class Arrow(Struct, frozen=True):
    """One move, as a commit reports it."""

    origin: str
    target: str
    cause: str
    what: str  # happens, in a word
    when: str = ""  # of several moves with this cause it is this one; or what it does beside


ARROWS: tuple[Arrow, ...] = (
    Arrow(NEW, QUEUED, "enqueue", "enqueue"),
    Arrow(NEW, SCHEDULED, "enqueue", "enqueue(delay, at)", "due in the future"),
    Arrow(NEW, QUEUED, "replace", "replace", "in the place of a job of its id that waited"),
    Arrow(NEW, SCHEDULED, "replace", "replace, debounce", "the same, due in the future"),
    Arrow(NEW, QUEUED, "follow", "follow", "the job before it completed, or its batch is over"),
    Arrow(NEW, SCHEDULED, "follow", "follow", "the same, with a delay"),
    Arrow(SCHEDULED, QUEUED, "due", "due"),
    Arrow(FAILING, QUEUED, "due", "due"),
    Arrow(QUEUED, PROCESSING, "claim", "claim", "one more attempt, a new lease token"),
    Arrow(PROCESSING, COMPLETED, "complete", "complete", "even while a cancel is requested"),
    Arrow(PROCESSING, FAILING, "fail", "fail", "attempts left; due after the back-off or after `retry_in`"),
    Arrow(PROCESSING, FAILED, "fail", "fail", "the last attempt, or `retry=False`"),
    Arrow(PROCESSING, FAILING, "timed_out", "time out", "it ran for longer than `run_within`; attempts left"),
    Arrow(PROCESSING, FAILED, "timed_out", "time out", "the last attempt"),
    Arrow(PROCESSING, QUEUED, "stalled", "stall", "attempts left; without a back-off"),
    Arrow(PROCESSING, FAILED, "stalled", "stall", "the last attempt"),
    Arrow(PROCESSING, CANCELLED, "stalled", "stall", "while a cancel is requested"),
    Arrow(PROCESSING, QUEUED, "release", "release", "the attempt is given back"),
    Arrow(PROCESSING, SCHEDULED, "release", "release(delay)", "the attempt is given back"),
    Arrow(
        PROCESSING,
        CANCELLED,
        "cancel",
        "cancel accepted",
        "the worker accepts a cancel or decides on one; it fails or releases while one is requested",
    ),
    Arrow(QUEUED, CANCELLED, "cancel", "cancel"),
    Arrow(SCHEDULED, CANCELLED, "cancel", "cancel"),
    Arrow(FAILING, CANCELLED, "cancel", "cancel"),
    Arrow(
        QUEUED,
        CANCELLED,
        "replaced",
        "be replaced",
        "by another job of its id; the archive gets no record of it",
    ),
    Arrow(SCHEDULED, CANCELLED, "replaced", "be replaced"),
    Arrow(FAILING, CANCELLED, "replaced", "be replaced"),
    Arrow(QUEUED, CANCELLED, "expired", "expire", "it was not started by its deadline, `start_within`"),
    Arrow(SCHEDULED, CANCELLED, "expired", "expire"),
    Arrow(FAILING, CANCELLED, "expired", "expire"),
    Arrow(FAILED, QUEUED, "redrive", "redrive", "attempts start at 0 again"),
)

# How a job that is over leaves the queue; the archive keeps its record.
LEAVING: dict[str, str] = {
    COMPLETED: "result TTL over",
    CANCELLED: "result TTL over",
    FAILED: "older than `dead_ttl`",
}
EXPIRED = (FAILED, FAILED, "expired")  # as the commit reports it that forgets a dead letter
