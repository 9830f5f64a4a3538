"""What can go wrong, sorted by what the caller should do about it.

Every error carries a stable ``code`` (the same in Python, HTTP and logs) and a message that says
what happened and what to do.
"""

from __future__ import annotations

import inspect
import itertools
import threading
from types import FrameType

NESTED_CALL = (
    "This call was made by a signal handler or `__del__` during another call of the same thread."
    " Nothing was sent, so nothing was enqueued or changed. Set a flag there and call the queue when the other call has"
    " returned, or call it from another thread."
)

SHOWN_CHARS_MAX = 80


def shown(value: object) -> str:
    """Return a value as part of a message: short and without secrets. A value without a text is no error."""
    from .masking import without_secrets  # here, because few processes quote a value

    try:
        return (
            without_secrets(repr(value)[: 8 * SHOWN_CHARS_MAX])[:SHOWN_CHARS_MAX]
            .encode(errors="replace")
            .decode()
        )
    except Exception:  # noqa: BLE001 - a number of thousands of digits, or an object of the caller's own
        return f"(a {type(value).__name__} that cannot be shown)"


def pass_on_interruption(error: BaseException) -> None:
    """Raise ``error`` again if a signal handler raised it, as for a time limit; return otherwise.

    Call it where any exception becomes an error of this library or is logged: a time limit has to reach its own code.
    """
    if is_of_handler(error):
        raise error


def is_of_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised ``error``.

    Python calls a handler in the main thread, with the signal's number and the frame that it interrupts.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        arguments = _positional_arguments(trace.tb_frame)
        for number, frame in itertools.pairwise(arguments):
            if frame is interrupted and isinstance(number, int):
                return True
    return False


def _positional_arguments(frame: FrameType) -> list[object]:
    """Return the positional arguments of a call, as far as the function has not deleted them."""
    code, values = frame.f_code, frame.f_locals
    named = [values.get(name) for name in code.co_varnames[: code.co_argcount]]
    if not code.co_flags & inspect.CO_VARARGS:
        return named
    rest = values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
    return [*named, *(rest if isinstance(rest, tuple) else ())]


class OsqueueError(Exception):
    """Base of every error this library raises on purpose."""

    code = "error"
    retry_after: float | None = None  # seconds
    permanent: bool = False  # repeating will not help until somebody changes something

    # Here and below all but the message may be left out: an error that goes to another process is made of it alone, and
    # then given its attributes.
    def __init__(self, message: str, *, retry_after: float | None = None, permanent: bool = False) -> None:
        super().__init__(message)
        self.message = message
        if permanent:
            self.permanent = True
        if retry_after is not None or permanent:
            self.retry_after = retry_after


def copy_of(error: OsqueueError) -> OsqueueError:
    """Return an equal error for another caller: same type, attributes and cause, and the traceback so far.

    Raising an exception object adds to its traceback, so callers in several threads each need an object of their own.
    """
    from copy import copy  # here: functions start without it

    own = copy(error)
    own.__cause__, own.__context__ = error.__cause__, error.__context__
    own.__suppress_context__ = error.__suppress_context__
    return own.with_traceback(error.__traceback__)


class NotFound(OsqueueError):
    """The thing named does not exist (any more)."""

    code = "not_found"


class Conflict(OsqueueError):
    """The thing exists in a state that forbids the operation."""

    code = "conflict"


class LeaseLost(OsqueueError):
    """The lease token is not the job's newest one. Stop the work: somebody else may be doing it."""

    code = "lease_lost"


class Throttled(OsqueueError):
    """The queue is busy and the operation was **not** applied. Repeat it later."""

    code = "throttled"
    retry_after = 1.0


class Rejected(OsqueueError):
    """The request can never succeed as it is. The message names the field and the remedy."""

    code = "rejected"
    permanent = True

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class NotSupported(Rejected):
    """The request names a feature that this release does not have."""

    code = "not_supported"


class NotInstalled(Rejected):
    """The request needs a package that this Python does not have. The message says how to install it."""

    code = "not_installed"


class Unavailable(OsqueueError):
    """The store cannot be reached or refuses to answer. Nothing was acknowledged."""

    code = "unavailable"
    retry_after = 5.0


class Unknown(Unavailable):
    """It cannot be known any more whether the operation was applied.

    Look at the queue before repeating an enqueue; a claim's leases, if any were granted,
    run out by themselves.
    """

    code = "unknown"


class Timeout(OsqueueError):
    """The deadline passed before an answer arrived. The operation may still be applied."""

    code = "timeout"


class Expired(OsqueueError):
    """The job finished and its result is not kept any more; the archive has its record."""

    code = "expired"


class NotFinished(Conflict):
    """The job has no result yet. Ask again later, or wait for it."""

    code = "not_finished"


class WaitTimeout(Timeout):
    """The job was not finished when the wait ended. It goes on; its result can be read later."""

    code = "wait_timeout"

    def __init__(self, message: str, *, job_id: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id


class JobFailed(OsqueueError):
    """The job failed for good. The error is the last attempt's."""

    code = "job_failed"

    def __init__(
        self, message: str, *, job_id: str = "", type: str = "", error: str = "", traceback: str = ""
    ) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.type = type  # the exception's class, "" where there was none
        self.error = error  # its message
        self.traceback = traceback  # the end of its traceback


class JobCancelled(OsqueueError):
    """The job was cancelled, so there is no result."""

    code = "job_cancelled"


class Damaged(OsqueueError):
    """A stored object is not what was written: it fails its checksum or cannot be decoded."""

    code = "damaged"


class NewerFormat(OsqueueError):
    """A stored object was written by a newer release. This one neither reads nor overwrites it."""

    code = "newer_format"
