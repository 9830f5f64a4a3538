"""How errors travel: each kind by its code, with a status of HTTP, and back again as the error it was."""

from __future__ import annotations

from .. import errors
from ..errors import Conflict, JobFailed, OsqueueError, Rejected, Unavailable, WaitTimeout
from .schemas import Fault

# What is not here answers 500: it is a defect of ours, and says nothing of itself to callers.
STATUS: dict[str, int] = {
    "malformed": 400,  # the body is not JSON, or not of the form the route asks for
    "unauthorized": 401,
    "forbidden": 403,
    "no_route": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "conflict": 409,
    "lease_lost": 409,
    "job_failed": 409,
    "job_cancelled": 409,
    "expired": 410,
    "too_large": 413,
    "rejected": 422,
    "not_supported": 422,
    "throttled": 429,
    "not_finished": 202,
    "wait_timeout": 202,  # the job is there, and goes on
    "timeout": 503,
    "unavailable": 503,
    "unknown": 503,
    "damaged": 503,
    "newer_format": 503,
    "not_installed": 503,
}


class Malformed(Rejected):
    """The request's body cannot be read at all."""

    code = "malformed"


class TooLarge(Rejected):
    """Something is larger than the API takes or gives."""

    code = "too_large"


class RequestTimeout(Unavailable):
    """The request did not arrive in time. Nothing was done."""

    code = "request_timeout"


class Unauthorized(Unavailable):
    """The server does not know who calls. Nothing was done, and a call is not at fault: a worker keeps its result."""

    code = "unauthorized"


class Forbidden(Unavailable):
    """Who calls may not do this, or not with this queue."""

    code = "forbidden"


class JobIdTaken(Conflict):
    """The job id that a caller drew stands for another job."""

    field = "job_id"


_KINDS: list[type[OsqueueError]] = [
    each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, OsqueueError)
]
_KINDS += [Malformed, TooLarge, RequestTimeout, Unauthorized, Forbidden]
_CLASSES = {kind.code: kind for kind in _KINDS}


def fault_of(error: OsqueueError) -> Fault:
    """An error as it travels."""
    job_id = getattr(error, "job_id", "") or None
    return Fault(
        code=error.code,
        message=error.message,
        retry_after=error.retry_after,
        field=getattr(error, "field", None),
        job_id=job_id,
        type=(error.type or None) if isinstance(error, JobFailed) else None,
        error=(error.error or None) if isinstance(error, JobFailed) else None,
        traceback=(error.traceback or None) if isinstance(error, JobFailed) else None,
    )


def error_of(fault: Fault) -> OsqueueError:
    """The error it was. A code that this release does not know becomes an error of the base class, with that code."""
    kind = _CLASSES.get(fault.code, OsqueueError)
    if issubclass(kind, JobFailed):
        return kind(
            fault.message,
            job_id=fault.job_id or "",
            type=fault.type or "",
            error=fault.error or "",
            traceback=fault.traceback or "",
        )
    if issubclass(kind, WaitTimeout):
        return kind(fault.message, job_id=fault.job_id or "")
    if issubclass(kind, Rejected):
        return kind(fault.message, field=fault.field)
    # An error of these kinds says when to try again, unless somebody has to change something first.
    found = kind(fault.message, permanent=kind.retry_after is not None and fault.retry_after is None)
    if fault.retry_after is not None:
        found.retry_after = fault.retry_after
    if kind is OsqueueError:
        found.code = fault.code
    return found
