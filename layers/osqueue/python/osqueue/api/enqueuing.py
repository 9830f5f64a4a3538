"""Operations that bring jobs in."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from .. import limits, validation
from ..errors import OsqueueError, Rejected
from ..job import Enqueued
from ..keys import key_of
from .asked import Asked
from .bodies import Accepted, AcceptedJobs, NewJob, NewJobs
from .faults import fault_of
from .flows import Wished
from .passing import CODEC, CODEC_CHARS_MAX, result_fields
from .reading import body_of, item_of


def enqueue(asked: Asked) -> Any:
    """One job, or many in one commit; of one, the result if it is waited for."""
    wait = asked.query.get("wait")
    wait_s = asked.wait_s(wait)
    body = asked.read(dict[str, Raw])
    if "jobs" not in body:
        return _one(asked, body_of(asked.body, NewJob), None if wait is None else wait_s)
    if wait is not None:
        raise Rejected("wait: only the result of a single job can be waited for.", field="wait")
    many = body_of(asked.body, NewJobs)
    check_items(many.jobs, "jobs", many.codec)
    done = (
        asked.run(asked.warm.flows.accept([_wished(each, many.codec) for each in many.jobs]))
        if many.jobs
        else []
    )
    asked.note(each.job_id for each in done)
    return AcceptedJobs(jobs=[_accepted(each) for each in done])


def check_items(items: list[Raw], field: str, codec: str = CODEC) -> None:
    """Raises Rejected when there are too many, or when all of them name a serialiser that cannot be."""
    validation.text(codec, "codec", CODEC_CHARS_MAX, 1)
    if len(items) > limits.ITEMS_PER_REQUEST_MAX:
        raise Rejected(
            f"{field}: {len(items):,} in one request; the most is {limits.ITEMS_PER_REQUEST_MAX:,}. Send them in"
            " several.",
            field=field,
        )


def _wished(item: Raw, codec: str) -> Wished:
    try:
        return Wished(item_of(item, NewJob), codec)
    except OsqueueError as error:
        return Wished(None, codec, error)


def _one(asked: Asked, job: NewJob, wait_s: float | None) -> Any:
    flows = asked.warm.flows
    (done,) = asked.run(flows.accept([Wished(job, "json")]))
    asked.note([done.job_id], state=done.state)
    if done.status == "rejected" and done.error is not None:
        raise done.error
    if wait_s is None or done.status == "completed":
        return _accepted(done)
    job_id = done.job_id or ""
    result = asked.run(flows.wait(key_of(job_id), wait_s))
    return _accepted(Enqueued("completed", job_id, "completed", result))


def _accepted(done: Enqueued) -> Accepted:
    error = done.error
    more: dict[str, Any] = {}
    if done.status == "completed" and error is None:
        try:
            more = result_fields(done.result)
        except OsqueueError as unreadable:
            error = unreadable
    fault = None if error is None else fault_of(error)
    return Accepted(status=done.status, job_id=done.job_id, state=done.state, error=fault, **more)
