"""The operations of the API: one table, one row for each.

The server, the client, ``openapi.json``, the local stack, the CDK app and the tables of the documentation are made
from it. A new operation is a row here and, in the module of ``server/`` that the row names, a function of its name.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

from msgspec import Struct

from ..model.batch import BatchStatus
from ..model.explain import Story
from ..model.reports import CancelledMany, FlowUsage, Purged, ReapReport
from ..model.schedule import Schedule
from . import admin_schemas, schemas

QUEUES = "/v1/queues"
QUEUE = QUEUES + "/{queue}"
JOBS = QUEUE + "/jobs"
JOB = JOBS + "/{id}"

SCHEDULES = QUEUE + "/schedules"
SCHEDULE = SCHEDULES + "/{schedule}"
BATCHES = QUEUE + "/batches"
BATCH = BATCHES + "/{batch}"

HISTORY_MAX = 1_000  # records on a page
QUEUES_MAX = 1_000  # on a page


class Repeat(Enum):
    """When a client may send a call again that brought no answer of use. The value says it to people."""

    ALWAYS = "always"  # the second time changes nothing more
    UNAPPLIED = "when it was not applied"  # what a lost answer granted would be granted twice
    UNREACHED = (
        "when no function took it"  # several commits: some may be done, though the last one was refused
    )


class Query(Struct, frozen=True):
    """A query parameter."""

    name: str
    type: type  # str, int, float or bool
    what: str
    many: bool = False  # may be given more than once


class Route(Struct, frozen=True, kw_only=True):
    """One operation of the API."""

    name: str  # of the server's function, and OpenAPI's operationId
    method: str
    path: str  # with {parameters}
    what: str  # one line for people
    function: str  # which Lambda function answers it
    module: str  # of ``server/``: where its function is; loaded when first needed
    request: Any = None  # the type of the body; None: it has none
    body_optional: bool = False  # no body means all defaults
    answer: Any = None  # the type of the answer's body; None: it has none
    query: tuple[Query, ...] = ()
    faults: tuple[int, ...] = ()  # statuses beside those that every route may answer
    repeat: Repeat = Repeat.ALWAYS


_LIMIT = Query("limit", int, "how many at most")
_CURSOR = Query("cursor", str, "where to go on: the cursor of the page before")
_INCLUDE = Query("include", str, "what else to tell, with commas: payload, traceback, result")
_INCLUDE_DEAD = Query("include", str, "what else to tell, with commas: payload, traceback")
_KIND = Query("kind", str, "only jobs of this kind", many=True)
_ERROR = Query("error", str, "only those whose last error contains this")
_MARK = Query("fingerprint", str, "only those of this error")

ROUTES: tuple[Route, ...] = (
    Route(
        name="enqueue",
        method="POST",
        path=JOBS,
        what="Queue one job, or many in one commit. With wait, answer the job's result.",
        function="enqueue",
        module="enqueue",
        request=schemas.NewJob | schemas.NewJobs,
        answer=schemas.Accepted | schemas.AcceptedJobs,
        query=(Query("wait", float, "seconds to wait for the result of a single job"),),
        faults=(202, 409),
    ),
    Route(
        name="claim",
        method="POST",
        path=QUEUE + "/claims",
        what="Lease jobs. May answer none.",
        function="claim",
        module="claims",
        request=schemas.NewClaim,
        body_optional=True,
        answer=schemas.Leases,
        repeat=Repeat.UNAPPLIED,
    ),
    Route(
        name="complete",
        method="POST",
        path=QUEUE + "/completions",
        what="Say how attempts ended: completed, failed, released or cancelled.",
        function="complete",
        module="claims",
        request=schemas.Endings,
        answer=schemas.CompletionResults,
    ),
    Route(
        name="turn",
        method="POST",
        path=QUEUE + "/turns",
        what="Say how attempts ended and lease jobs, in one commit where both are of one shard. Never waits.",
        function="claim",
        module="claims",
        request=schemas.NewTurn,
        answer=schemas.TurnResults,
        repeat=Repeat.UNAPPLIED,
    ),
    Route(
        name="heartbeat",
        method="POST",
        path=QUEUE + "/heartbeats",
        what="Extend leases, and hear whether somebody wants the jobs cancelled.",
        function="heartbeat",
        module="claims",
        request=schemas.HeartbeatRequest,
        answer=schemas.HeartbeatResults,
    ),
    Route(
        name="list_jobs",
        method="GET",
        path=JOBS,
        what="List live jobs. A page may hold fewer than there are, or none, and a cursor.",
        function="jobs",
        module="jobs",
        answer=schemas.Jobs,
        query=(
            Query("state", str, "only jobs in this state"),
            _LIMIT,
            _CURSOR,
            _KIND,
            Query("id", str, "only the job under this id of its client's"),
            Query("worker", str, "only jobs in the hands of a worker whose name contains this"),
            Query("older_than", float, "only jobs enqueued at least so many seconds ago"),
        ),
    ),
    Route(
        name="status",
        method="GET",
        path=JOB,
        what="A job with its timeline, and with include its payload, result or traceback.",
        function="jobs",
        module="jobs",
        answer=schemas.JobAnswer,
        query=(_INCLUDE,),
        faults=(404,),
    ),
    Route(
        name="status_many",
        method="POST",
        path=QUEUE + "/status",
        what="Many jobs with their timelines. Answers the first of them, as many as fit.",
        function="jobs",
        module="jobs",
        request=schemas.StatusRequest,
        answer=schemas.JobAnswers,
    ),
    Route(
        name="cancel",
        method="DELETE",
        path=JOB,
        what="Cancel a waiting job; ask the worker of a running one.",
        function="jobs",
        module="jobs",
        answer=schemas.Cancelled,
        faults=(404,),
    ),
    Route(
        name="run_now",
        method="POST",
        path=JOB + "/run",
        what="Let a delayed job be claimable at once; answers its state.",
        function="jobs",
        module="jobs",
        answer=schemas.JobState,
        faults=(404,),
    ),
    Route(
        name="change_job",
        method="PATCH",
        path=JOB,
        what="Change how long a job's result is kept.",
        function="jobs",
        module="jobs",
        request=schemas.JobChange,
        faults=(404, 409, 410),
    ),
    Route(
        name="result",
        method="GET",
        path=JOB + "/result",
        what="What a job answered.",
        function="jobs",
        module="jobs",
        answer=schemas.Result,
        query=(Query("wait", float, "seconds to wait for it"),),
        faults=(202, 404, 409, 410),
    ),
    Route(
        name="story",
        method="GET",
        path=JOB + "/story",
        what="What happened to a job, and why.",
        function="jobs",
        module="jobs",
        answer=Story,
        faults=(404,),
    ),
    Route(
        name="list_queues",
        method="GET",
        path=QUEUES,
        what="The queues there are, with their statistics.",
        function="queues",
        module="admin",
        answer=admin_schemas.Queues,
        query=(_LIMIT, _CURSOR),
    ),
    Route(
        name="stats",
        method="GET",
        path=QUEUE,
        what="Jobs by state, counters and settings.",
        function="queues",
        module="admin",
        answer=dict[str, Any],
    ),
    Route(
        name="flow",
        method="GET",
        path=QUEUE + "/flow",
        what="All limits of the queue, and what is used of them.",
        function="queues",
        module="admin",
        answer=FlowUsage,
    ),
    Route(
        name="groups",
        method="GET",
        path=QUEUE + "/groups",
        what="Groups that run, or that something holds, and why.",
        function="queues",
        module="admin",
        answer=admin_schemas.QueueGroups,
        query=(_LIMIT,),
    ),
    Route(
        name="events",
        method="GET",
        path=QUEUE + "/events",
        what="Transitions of jobs, whoever committed them. They are recorded while somebody asks for them.",
        function="queues",
        module="admin",
        answer=admin_schemas.EventPage,
        query=(
            Query(
                "since", str, "the cursor of an event or a page, or a Unix time in seconds; else from now on"
            ),
            _LIMIT,
            Query("wait", float, "seconds to wait for the first"),
        ),
        faults=(404, 410),
    ),
    Route(
        name="configure",
        method="PATCH",
        path=QUEUE,
        what="Change settings; answers the statistics.",
        function="queues",
        module="admin",
        request=admin_schemas.Settings,
        answer=dict[str, Any],
    ),
    Route(
        name="cancel_many",
        method="POST",
        path=QUEUE + "/cancel",
        what="Cancel all waiting jobs of some kinds, a group, a batch or an age; ask the workers of those that run.",
        function="queues",
        module="admin",
        request=admin_schemas.CancelMany,
        body_optional=True,
        answer=CancelledMany,
        repeat=Repeat.UNREACHED,
    ),
    Route(
        name="configure_group",
        method="PATCH",
        path=QUEUE + "/groups/{group}",
        what="Change what one group has of its own; answers the statistics.",
        function="queues",
        module="admin",
        request=admin_schemas.GroupWish,
        answer=dict[str, Any],
    ),
    Route(
        name="list_schedules",
        method="GET",
        path=SCHEDULES,
        what="The schedules of a queue.",
        function="queues",
        module="schedules",
        answer=admin_schemas.Schedules,
    ),
    Route(
        name="put_schedule",
        method="PUT",
        path=SCHEDULE,
        what="Add a schedule, or change it. The same words again change nothing.",
        function="queues",
        module="schedules",
        request=admin_schemas.NewSchedule,
        answer=Schedule,
    ),
    Route(
        name="get_schedule",
        method="GET",
        path=SCHEDULE,
        what="One schedule.",
        function="queues",
        module="schedules",
        answer=Schedule,
        faults=(404,),
    ),
    Route(
        name="change_schedule",
        method="PATCH",
        path=SCHEDULE,
        what="Pause a schedule, or let it go on.",
        function="queues",
        module="schedules",
        request=admin_schemas.ScheduleChange,
        answer=Schedule,
        faults=(404,),
    ),
    Route(
        name="delete_schedule",
        method="DELETE",
        path=SCHEDULE,
        what="Remove a schedule. Its jobs stay.",
        function="queues",
        module="schedules",
        faults=(404,),
    ),
    Route(
        name="run_schedule",
        method="POST",
        path=SCHEDULE + "/run",
        what="Make a job of a schedule now.",
        function="queues",
        module="schedules",
        answer=schemas.Accepted,
        faults=(404, 409),
        repeat=Repeat.UNAPPLIED,
    ),
    Route(
        name="open_batch",
        method="POST",
        path=BATCHES,
        what="Open a batch: jobs whose common end makes another one.",
        function="queues",
        module="batches",
        request=admin_schemas.NewBatch,
        body_optional=True,
        answer=BatchStatus,
        faults=(404,),
    ),
    Route(
        name="list_batches",
        method="GET",
        path=BATCHES,
        what="The batches of a queue: those that are open, and those that were over not long ago.",
        function="queues",
        module="batches",
        answer=admin_schemas.Batches,
    ),
    Route(
        name="get_batch",
        method="GET",
        path=BATCH,
        what="How far a batch is.",
        function="queues",
        module="batches",
        answer=BatchStatus,
        faults=(404,),
    ),
    Route(
        name="change_batch",
        method="PATCH",
        path=BATCH,
        what="Seal a batch: no more jobs of it come from outside.",
        function="queues",
        module="batches",
        request=admin_schemas.BatchChange,
        answer=BatchStatus,
        faults=(404,),
    ),
    Route(
        name="redrive",
        method="POST",
        path=QUEUE + "/redrive",
        what="Queue dead letters again.",
        function="queues",
        module="admin",
        request=admin_schemas.Redrive,
        body_optional=True,
        answer=admin_schemas.Redriven,
        repeat=Repeat.UNREACHED,
    ),
    Route(
        name="dead_letters",
        method="GET",
        path=QUEUE + "/dead",
        what="List dead letters.",
        function="queues",
        module="admin",
        answer=admin_schemas.DeadLetters,
        query=(_LIMIT, _CURSOR, _KIND, _ERROR, _MARK, _INCLUDE_DEAD),
    ),
    Route(
        name="dead_letter_groups",
        method="GET",
        path=QUEUE + "/dead/groups",
        what="Dead letters by the error they died of.",
        function="queues",
        module="admin",
        answer=admin_schemas.DeadGroups,
        query=(_KIND, _ERROR),
    ),
    Route(
        name="purge",
        method="POST",
        path=QUEUE + "/purge",
        what="Erase jobs for good: from the queue, its archive and its backups.",
        function="queues",
        module="admin",
        request=admin_schemas.Purge,
        answer=Purged,
        faults=(404, 409),
        repeat=Repeat.UNREACHED,
    ),
    Route(
        name="history",
        method="GET",
        path=QUEUE + "/history",
        what="Archived jobs that finished between two moments (Unix seconds).",
        function="queues",
        module="admin",
        answer=admin_schemas.Page,
        query=(
            Query("since", float, "finished at or after"),
            Query("until", float, "finished before"),
            _LIMIT,
            _CURSOR,
        ),
    ),
    Route(
        name="reap",
        method="POST",
        path=QUEUE + "/reap",
        what="One pass of upkeep over a queue, as the schedule makes over all of them.",
        function="reaper",
        module="admin",
        answer=ReapReport,
        repeat=Repeat.UNREACHED,
    ),
    Route(
        name="openapi",
        method="GET",
        path="/openapi.json",
        what="This contract.",
        function="queues",
        module="admin",
        answer=dict,
    ),
    Route(
        name="health",
        method="GET",
        path="/healthz",
        what="Whether the API answers.",
        function="queues",
        module="admin",
        answer=schemas.Health,
    ),
)

BY_NAME: dict[str, Route] = {route.name: route for route in ROUTES}


def pattern(route: Route) -> re.Pattern[str]:
    """What a path of this route looks like; each parameter is a group of its name."""
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(route.path)))
