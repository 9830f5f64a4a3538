"""Operations on single jobs."""

from __future__ import annotations

from .. import limits
from ..commit.effects import QueueFlow
from ..contract.content import result_fields
from ..contract.schemas import (
    Cancelled,
    EncodedContent,
    JobAnswer,
    JobAnswers,
    JobChange,
    Jobs,
    JobState,
    Result,
    StatusRequest,
)
from ..errors import NotFound
from ..model import validation
from ..model.explain import Story
from ..model.job_filter import headers_of
from ..model.keys import job_id
from ..operations.results import OVER, LocatedJob
from .answers import StatusAnswer, answer_with, fitting
from .request import RequestContext

PAGE_DEFAULT = 100


def list_jobs(request: RequestContext) -> QueueFlow[bytes]:
    """One page of live jobs."""
    query = request.query
    steering = request.warm.steering
    which = {name: query.get(name) for name in ("id", "group", "batch", "worker", "older_than")}
    which["kinds"] = query.get("kind")
    if "header" in query:
        which["headers"] = headers_of(query["header"])

    def page(limit: int) -> QueueFlow[Jobs]:
        found = yield from steering.job_page(query.get("state"), limit, query.get("cursor"), **which)
        return Jobs(jobs=found.jobs, cursor=found.cursor, looked_at=found.looked_at)

    return (yield from fitting(query.get("limit", PAGE_DEFAULT), page))


def status(request: RequestContext) -> QueueFlow[JobAnswer]:
    """A job with its timeline."""
    text = request.id
    asked = request.query.get("include", "")
    found = yield from request.warm.flows.status(text, asked)
    if found is None:
        raise NotFound(
            f"job {text}: no such job in this queue, or its result has expired. The archive may tell."
        )
    if asked:
        request.note([found.job_id], include=asked)
    return answer_with(JobAnswer, found)


def status_many(request: RequestContext) -> QueueFlow[bytes]:
    """Many jobs with their timelines: the first of them, as many as fit."""
    body: StatusRequest = request.read()
    validation.whole_number(len(body.jobs), "jobs", 0, limits.ITEMS_PER_REQUEST_MAX)
    flows = request.warm.flows

    def page(limit: int) -> QueueFlow[JobAnswers]:
        found = yield from flows.status_many(body.jobs[:limit], body.include)
        return JobAnswers(jobs=[None if each is None else answer_with(JobAnswer, each) for each in found])

    request.note(body.jobs, **({"include": ",".join(body.include)} if body.include else {}))
    return (yield from fitting(len(body.jobs), page))


def cancel(request: RequestContext) -> QueueFlow[Cancelled]:
    """Cancel a job."""
    text = request.id
    done = yield from request.warm.steering.cancel(text)
    if done == "not_found":
        raise NotFound(f"job {text}: no such job in this queue, or its result has expired.")
    return Cancelled(status=done)


def run_now(request: RequestContext) -> QueueFlow[JobState]:
    """Let a delayed job be claimable at once."""
    text = request.id
    state = yield from request.warm.steering.run_now(text)
    if state == "not_found":
        raise NotFound(f"job {text}: no such job in this queue, or its result has expired.")
    return JobState(state=state)


def change_job(request: RequestContext) -> QueueFlow[StatusAnswer]:
    """Change how long a result is kept."""
    change: JobChange = request.read()
    yield from request.warm.flows.update_result_ttl(request.id, change.result_ttl)
    return StatusAnswer(204)


def result(request: RequestContext) -> QueueFlow[Result]:
    """What a job answered."""
    wait = request.query.get("wait")
    wait_s = request.wait_s(wait)
    text = request.id
    key, content = yield from _result(request, text, wait_s)
    return Result(job_id=key, **result_fields(content))


def _result(
    request: RequestContext, text: str, wait_s: float
) -> QueueFlow[tuple[str, EncodedContent | None]]:
    flows = request.warm.flows
    found: LocatedJob | None = yield from flows.locate(text)
    if found is None or found.location.state in OVER or not wait_s:
        content = yield from flows.result(text)
        return (text if found is None else job_id(found.key)), content
    return job_id(found.key), (yield from flows.wait(found.key, wait_s))


def story(request: RequestContext) -> QueueFlow[Story]:
    """What happened to a job, and why."""
    return (yield from request.warm.steering.story(request.id))
