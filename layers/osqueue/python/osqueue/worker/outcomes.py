"""How a run of a handler ends: a value that names the wanted transition. The reporter commits it.

A handler returns its result, or returns or raises one of ``Snooze``, ``Retry``, ``Fail`` and ``Cancel``. Any other
exception is a failed attempt, retried after the queue's back-off.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from .. import limits
from ..errors import OsqueueError
from ..model import validation
from ..model.validation import StoredError


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


class RunAborted(Struct, frozen=True):
    """The job ends as cancelled."""

    why: str = ""


RunOutcome = RunCompleted | RunFailed | RunReleased | RunAborted


class Directive(Exception):
    """Base of what a handler may return or raise instead of a result."""

    def __init__(self, ending: RunOutcome, text: str) -> None:
        super().__init__(text)
        self.ending = ending


class Snooze(Directive):
    """Not now: the job is offered again after ``seconds``, and this attempt does not count.

    >>> def send(job):
    ...     return Snooze(60)
    """

    def __init__(self, seconds: float) -> None:
        validation.milliseconds(seconds, "seconds", 0, limits.DELAY_MS_MAX)
        super().__init__(RunReleased(seconds), f"not before {seconds} s from now")


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
    return str(text)[: limits.ERROR_CHARS_MAX].encode("utf-8", "replace").decode("utf-8")


def log_text(error: BaseException) -> str:
    """An error for the log: ours in full, of others the type alone, as their text may hold anything."""
    return f"{error.code}: {error.message}" if isinstance(error, OsqueueError) else type(error).__name__
