"""What each route carries: the struct of its request's body and of its answer's. For the documentation of the API."""

from __future__ import annotations

from typing import Any

from ..model.explain import Story
from ..model.job import Job
from ..model.reports import Purged, ReapReport
from . import admin_schemas, schemas

BodyTypes = tuple[Any, Any]  # request, answer; None: no body

BODIES: dict[str, BodyTypes] = {
    "enqueue": (schemas.NewJob | schemas.NewJobs, schemas.Accepted | schemas.AcceptedJobs),
    "claim": (schemas.NewClaim, schemas.Leases),
    "complete": (schemas.Endings, schemas.CompletionResults),
    "heartbeat": (schemas.HeartbeatRequest, schemas.HeartbeatResults),
    "list_jobs": (None, schemas.Jobs),
    "status": (None, Job),
    "cancel": (None, schemas.Cancelled),
    "change_job": (schemas.JobChange, None),
    "result": (None, schemas.Result),
    "story": (None, Story),
    "list_queues": (None, admin_schemas.Queues),
    "stats": (None, dict[str, Any]),
    "configure": (admin_schemas.Settings, dict[str, Any]),
    "redrive": (admin_schemas.Redrive, admin_schemas.Redriven),
    "dead_letters": (None, admin_schemas.DeadLetters),
    "dead_letter_groups": (None, admin_schemas.DeadGroups),
    "purge": (admin_schemas.Purge, Purged),
    "history": (None, admin_schemas.Page),
    "reap": (None, ReapReport),
    "openapi": (None, dict),
    "health": (None, schemas.Health),
}
