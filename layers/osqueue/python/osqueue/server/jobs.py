"""Operations on single jobs."""

from __future__ import annotations

from ..commit.effects import QueueFlow
from ..contract.content import EncodedContent, result_fields
from ..contract.schemas import Cancelled, JobChange, Jobs, Result
from ..errors import NotFound
from ..model.explain import Story
from ..model.job import Job
from ..model.keys import job_id
from ..operations.results import OVER, LocatedJob
from .answers import StatusAnswer, fitting
from .request import RequestContext

PAGE_DEFAULT = 100


def list_jobs(asked: RequestContext) -> bytes:
    """One page of live jobs."""
    query = asked.query
    steering = asked.warm.steering

    def page(limit: int) -> Jobs:
        jobs, cursor = asked.run(steering.jobs(query.get("state"), limit, query.get("cursor")))
        return Jobs(jobs=jobs, cursor=cursor)

    return fitting(query.get("limit", PAGE_DEFAULT), page)


def status(asked: RequestContext) -> Job:
    """A job with its timeline."""
    text = asked.id
    found = asked.run(asked.warm.flows.status(text))
    if found is None:
        raise NotFound(
            f"job {text}: no such job in this queue, or its result has expired. The archive may tell."
        )
    return found


def cancel(asked: RequestContext) -> Cancelled:
    """Cancel a job."""
    text = asked.id
    done = asked.run(asked.warm.steering.cancel(text))
    if done == "not_found":
        raise NotFound(f"job {text}: no such job in this queue, or it is over.")
    return Cancelled(status=done)


def change_job(asked: RequestContext) -> StatusAnswer:
    """Change how long a result is kept."""
    change: JobChange = asked.read()
    asked.run(asked.warm.flows.update_result_ttl(asked.id, change.result_ttl))
    return StatusAnswer(204)


def result(asked: RequestContext) -> Result:
    """What a job answered."""
    wait = asked.query.get("wait")
    wait_s = asked.wait_s(wait)
    text = asked.id
    key, content = asked.run(_result(asked, text, wait_s))
    return Result(job_id=key, **result_fields(content))


def _result(asked: RequestContext, text: str, wait_s: float) -> QueueFlow[tuple[str, EncodedContent | None]]:
    flows = asked.warm.flows
    found: LocatedJob | None = yield from flows.locate(text)
    if found is None or found.sighting.state in OVER or not wait_s:
        content = yield from flows.result(text)
        return (text if found is None else job_id(found.key)), content
    return job_id(found.key), (yield from flows.wait(found.key, wait_s))


def story(asked: RequestContext) -> Story:
    """What happened to a job, and why."""
    return asked.run(asked.warm.steering.story(asked.id))
