"""Operations that bring jobs in."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ..commit.effects import QueueFlow
from ..contract.content import result_fields
from ..contract.error_codes import fault_of
from ..contract.schemas import Accepted, AcceptedJobs, NewJob, NewJobs
from ..core.state import COMPLETED
from ..errors import OsqueueError, Rejected
from ..model.job import Enqueued
from ..model.keys import key_of
from ..operations.waiters import OVER
from .answer_room import FAULT_BYTES, AnswerRoom
from .flows import EnqueueItem, UnreadResult
from .reading import body_of, check_items, item_of
from .request import RequestContext


def enqueue(request: RequestContext) -> QueueFlow[Any]:
    """One job, or many in one commit; of one, the result if it is waited for."""
    wait = request.query.get("wait")
    wait_s = request.wait_s(wait)
    body = body_of(request.body, dict[str, Raw])
    if "jobs" not in body:
        return (yield from _one(request, body_of(request.body, NewJob), None if wait is None else wait_s))
    if wait is not None:
        raise Rejected("wait: only the result of a single job can be waited for.", field="wait")
    many = body_of(request.body, NewJobs)
    check_items(many.jobs, "jobs", many.codec)
    done: list[Enqueued] = []
    if many.jobs:
        done = yield from request.warm.flows.accept(
            (yield from request.warm.flows.with_uploads([_item_of(each, many.codec) for each in many.jobs]))
        )
    request.note(each.job_id for each in done)
    return AcceptedJobs(jobs=(yield from _answers(request, done)))


def _item_of(item: Raw, codec: str) -> EnqueueItem:
    try:
        return EnqueueItem(item_of(item, NewJob), codec)
    except OsqueueError as error:
        return EnqueueItem(None, codec, error)


def _one(request: RequestContext, job: NewJob, wait_s: float | None) -> QueueFlow[Any]:
    flows = request.warm.flows
    (done,) = yield from flows.accept((yield from flows.with_uploads([EnqueueItem(job, "json")])))
    request.note([done.job_id], state=done.state)
    if done.status == "rejected" and done.error is not None:
        raise done.error
    if wait_s is None or done.status == "completed":
        return (yield from _answers(request, [done]))[0]
    job_id = done.job_id or ""
    over = Enqueued("completed", job_id, COMPLETED)
    ended = done.state in OVER  # long ago perhaps, in the window of its id
    flow = flows.result(job_id) if ended else flows.wait(key_of(job_id), wait_s)
    return _accepted(replace(over, result=(yield from flow)))


def _answers(request: RequestContext, done: list[Enqueued]) -> QueueFlow[list[Accepted]]:
    """What became of each job, with as many kept results as one answer holds.

    The other answers leave their results out: the jobs are queued by now, so the answer must not fail for its size.
    """
    answers = [_accepted(each) for each in done]
    kept = {at: each.result for at, each in enumerate(done) if isinstance(each.result, UnreadResult)}
    if not kept:
        return answers
    flows = request.warm.flows
    room = AnswerRoom(flows.answer_bytes - len(msgspec.json.encode(AcceptedJobs(jobs=answers))))
    # Each takes the place of its error, which is longer than what an answer says beside a result.
    fitting = [at for at, result in kept.items() if room.take(max(result.size, FAULT_BYTES))]
    for at, content in zip(fitting, (yield from flows.results([kept[at] for at in fitting])), strict=True):
        error = content if isinstance(content, OsqueueError) else None
        answers[at] = _accepted(replace(done[at], result=content, error=error))
    return answers


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
