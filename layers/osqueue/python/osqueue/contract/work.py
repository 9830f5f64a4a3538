"""The operations by which jobs come and are worked off: the rows of ``operations`` that stand alone.

The functions that answer them are those whose cold starts somebody waits for, so they load what these rows name and not
what operators are told.
"""

from __future__ import annotations

from . import schemas
from .route import JOBS, QUEUE, Query, Repeat, Route

WORKERS = QUEUE + "/workers"
WORKER = WORKERS + "/{worker}"

WORK: tuple[Route, ...] = (
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
        name="put_worker",
        method="PUT",
        path=WORKER,
        what="Say that a worker is there, under an id that it drew. It says so again and again.",
        function="heartbeat",
        module="workers",
        request=schemas.NewWorkerEntry,
        faults=(404,),
    ),
    Route(
        name="delete_worker",
        method="DELETE",
        path=WORKER,
        what="Say that a worker ends.",
        function="heartbeat",
        module="workers",
    ),
)
