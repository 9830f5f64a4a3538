"""How a run of a handler ends: a value that names the wanted transition. The reporter commits it.

A handler returns its result, or returns or raises one of ``Snooze``, ``Throttle``, ``Retry``, ``Fail`` and ``Cancel``.
Any other exception is a failed attempt, retried after the queue's back-off.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct

from .. import limits
from ..errors import OsqueueError, Rejected
from ..model import validation
from ..model.validation import StoredError, message_of
from ..operations.endings import throttled


class RunCompleted(Struct, frozen=True):
    """The job is done."""

    result: Any = None


class RunFailed(Struct, frozen=True):
    """The attempt failed."""

    error: str | StoredError
    retry_in: float | None = None  # seconds; None: the queue's back-off
    retry: bool = True  # False: no further attempt


class RunReleased(Struct, frozen=True):
    """The job goes back; the attempt does not count."""

    delay: float = 0  # seconds
    until: datetime | float | None = None  # or a time


class RunThrottled(Struct, frozen=True):
    """The job goes back; the attempt does not count, and for a while others like it do not start."""

    seconds: float
    scope: str = "kind"  # or "queue"
    why: str = ""


class RunAborted(Struct, frozen=True):
    """The job ends as cancelled."""

    why: str = ""


RunOutcome = RunCompleted | RunFailed | RunReleased | RunThrottled | RunAborted


class Directive(Exception):
    """Base of what a handler may return or raise instead of a result."""

    def __init__(self, ending: RunOutcome, text: str) -> None:
        super().__init__(text)
        self.ending = ending


class Snooze(Directive):
    """Not now: the job is offered again after ``seconds``, or at a time, and this attempt does not count.

    >>> def send(job):
    ...     return Snooze(60)
    """

    def __init__(self, seconds: float | timedelta = 0, until: datetime | float | None = None) -> None:
        wait = validation.seconds(seconds)
        validation.milliseconds(wait, "seconds", 0, limits.DELAY_MS_MAX)
        if until is None:
            super().__init__(RunReleased(wait), f"not before {wait} s from now")
            return
        validation.moment_ms(until, "until", limits.AT_MS_MAX)
        if wait:
            raise Rejected("until: seconds are given, too. Say one of them.", field="until")
        super().__init__(RunReleased(until=until), f"not before {until}")


class Throttle(Directive):
    """Whoever is called asks for a rest: this job and all of its kind, or of the queue, wait for ``seconds``.

    This attempt does not count. The pause is part of the commit that gives the job back; other shards of the queue
    are told at once where they can be. It ends by itself, or when somebody resumes. No pause gets shorter by it.

    >>> def send(job):
    ...     answer = post(job.payload)
    ...     if answer.status == 429:
    ...         return Throttle(float(answer.headers["Retry-After"]), why="429 from api.example")
    """

    def __init__(
        self, seconds: float | timedelta, scope: Literal["kind", "queue"] = "kind", why: str = ""
    ) -> None:
        why = storable(why)
        throttled(b"", "", seconds, scope, why)  # raises Rejected here, and not in the worker
        ending = RunThrottled(validation.seconds(seconds), scope, why)
        super().__init__(ending, why or f"no {scope} for {seconds} s")


class Retry(Directive):
    """The attempt failed; try again in ``seconds`` (None: after the queue's back-off), if attempts are left."""

    def __init__(self, seconds: float | None = None, why: str = "the handler asked for a retry") -> None:
        if seconds is not None:
            validation.milliseconds(seconds, "seconds", 0, limits.DELAY_MS_MAX)
        super().__init__(RunFailed(storable(why), seconds), why)


class Fail(Directive):
    """The job failed and trying again is useless: it becomes a dead letter now."""

    def __init__(self, why: str) -> None:
        super().__init__(RunFailed(storable(why), retry=False), why)


class Cancel(Directive):
    """The job ends as cancelled: the answer to ``job.cancelled``, or the handler's own decision."""

    def __init__(self, why: str = "") -> None:
        super().__init__(RunAborted(storable(why)), why)


class Tally(Struct):
    """What a worker has done, in jobs."""

    claimed: int = 0
    completed: int = 0
    failing: int = 0  # failed attempts that are tried again
    failed: int = 0  # failed for good
    cancelled: int = 0
    released: int = 0  # snoozed, or given back at the end
    lost: int = 0  # the lease ended first: the result was discarded
    stuck: int = 0  # handlers that went on past the time limit of their attempt


def outcome_of_return(value: Any) -> RunOutcome:
    """The outcome that a handler's return value asks for."""
    return value.ending if isinstance(value, Directive) else RunCompleted(value)


def outcomes_of_batch(value: Any, count: int) -> list[RunOutcome]:
    """The outcomes that a return value asks for of a handler that had so many jobs.

    A list has one ending for each, in their order: a result, a directive, or an exception that was caught. Anything
    else is the ending of all.
    """
    if not isinstance(value, list | tuple):
        return [outcome_of_return(value)] * count
    if len(value) != count:
        remedy = "return one for each, in their order, or None"
        return [RunFailed(f"the handler returned {len(value)} endings for {count} jobs: {remedy}")] * count
    return [
        outcome_of_error(each) if isinstance(each, BaseException) else outcome_of_return(each)
        for each in value
    ]


def outcome_of_error(error: BaseException) -> RunOutcome:
    """The outcome that a handler's exception asks for."""
    return error.ending if isinstance(error, Directive) else RunFailed(validation.raised_below(error))


def describe(error: BaseException) -> str:
    """Type and message of an exception, fit to be stored."""
    return validation.error_details(error).text


def raised_at(error: BaseException) -> str:
    """Where an exception was raised. For logs: says nothing of payloads, as a message might."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"


def storable(text: Any) -> str:
    """Text of bounded length that any serialiser takes: lone surrogates replaced."""
    return message_of(text)[: limits.ERROR_CHARS_MAX].encode("utf-8", "replace").decode("utf-8")


def log_text(error: BaseException) -> str:
    """An error for the log: ours in full, of others the type alone, as their text may hold anything."""
    return f"{error.code}: {error.message}" if isinstance(error, OsqueueError) else type(error).__name__
