"""Which requests the API answers: the one table of routes. What they carry: ``contract``."""

from __future__ import annotations

import re

from msgspec import Struct

QUEUES = "/v1/queues"
QUEUE = QUEUES + "/{queue}"
JOBS = QUEUE + "/jobs"
JOB = JOBS + "/{id}"

HISTORY_MAX = 1_000  # records on a page
QUEUES_MAX = 1_000  # on a page


class Query(Struct, frozen=True):
    """A query parameter."""

    name: str
    type: type  # str, int, float or bool
    what: str
    many: bool = False  # may be given more than once


class Route(Struct, frozen=True):
    """One kind of request."""

    name: str  # of the operation: the server's method and OpenAPI's operationId
    method: str
    path: str  # with {parameters}
    function: str  # which Lambda function answers it
    what: str  # one line for people
    query: tuple[Query, ...] = ()
    faults: tuple[int, ...] = ()  # statuses beside those that every route may answer


_LIMIT = Query("limit", int, "how many at most")
_CURSOR = Query("cursor", str, "where to go on: the cursor of the page before")
_KIND = Query("kind", str, "only jobs of this kind", many=True)
_ERROR = Query("error", str, "only those whose last error contains this")
_MARK = Query("fingerprint", str, "only those of this error")

ROUTES: tuple[Route, ...] = (
    Route(
        "enqueue",
        "POST",
        JOBS,
        "enqueue",
        "Queue one job, or many in one commit. With wait, answer the job's result.",
        (Query("wait", float, "seconds to wait for the result of a single job"),),
        (202, 409),
    ),
    Route("claim", "POST", QUEUE + "/claims", "claim", "Lease jobs. May answer none."),
    Route(
        "complete",
        "POST",
        QUEUE + "/completions",
        "complete",
        "Say how attempts ended: completed, failed, released or cancelled.",
    ),
    Route(
        "heartbeat",
        "POST",
        QUEUE + "/heartbeats",
        "heartbeat",
        "Extend leases, and hear whether somebody wants the jobs cancelled.",
    ),
    Route(
        "list_jobs",
        "GET",
        JOBS,
        "jobs",
        "List live jobs, of one state or all.",
        (Query("state", str, "only jobs in this state"), _LIMIT, _CURSOR),
    ),
    Route("status", "GET", JOB, "jobs", "A job with its timeline.", (), (404,)),
    Route(
        "cancel", "DELETE", JOB, "jobs", "Cancel a waiting job; ask the worker of a running one.", (), (404,)
    ),
    Route("change_job", "PATCH", JOB, "jobs", "Change how long a job's result is kept.", (), (404, 409, 410)),
    Route(
        "result",
        "GET",
        JOB + "/result",
        "jobs",
        "What a job answered.",
        (Query("wait", float, "seconds to wait for it"),),
        (202, 404, 409, 410),
    ),
    Route("story", "GET", JOB + "/story", "jobs", "What happened to a job, and why.", (), (404,)),
    Route(
        "list_queues",
        "GET",
        QUEUES,
        "queues",
        "The queues there are, with their statistics.",
        (_LIMIT, _CURSOR),
    ),
    Route("stats", "GET", QUEUE, "queues", "Jobs by state, counters and settings."),
    Route("configure", "PATCH", QUEUE, "queues", "Change settings; answers the statistics."),
    Route("redrive", "POST", QUEUE + "/redrive", "queues", "Queue dead letters again."),
    Route(
        "dead_letters",
        "GET",
        QUEUE + "/dead",
        "queues",
        "List dead letters.",
        (_LIMIT, _CURSOR, _KIND, _ERROR, _MARK),
    ),
    Route(
        "dead_letter_groups",
        "GET",
        QUEUE + "/dead/groups",
        "queues",
        "Dead letters by the error they died of.",
        (_KIND, _ERROR),
    ),
    Route(
        "purge",
        "POST",
        QUEUE + "/purge",
        "queues",
        "Erase jobs for good: from the queue, its archive and its backups.",
        (),
        (404, 409),
    ),
    Route(
        "history",
        "GET",
        QUEUE + "/history",
        "queues",
        "Archived jobs that finished between two moments (Unix seconds).",
        (
            Query("since", float, "finished at or after"),
            Query("until", float, "finished before"),
            _LIMIT,
            _CURSOR,
        ),
    ),
    Route(
        "reap",
        "POST",
        QUEUE + "/reap",
        "reaper",
        "One pass of upkeep over a queue, as the schedule makes over all of them.",
    ),
    Route("openapi", "GET", "/openapi.json", "queues", "This contract."),
    Route("health", "GET", "/healthz", "queues", "Whether the API answers."),
)

BY_NAME: dict[str, Route] = {route.name: route for route in ROUTES}


def pattern(route: Route) -> re.Pattern[str]:
    """What a path of this route looks like; each parameter is a group of its name."""
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(route.path)))
