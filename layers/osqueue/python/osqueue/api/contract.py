"""What each route carries: the struct of its request's body and of its answer's. For the documentation of the API."""

from __future__ import annotations

from typing import Any

from ..maintenance.reaper import Report
from ..model.explain import Story
from ..model.job import Job
from ..operations.purge import Purged
from . import bodies, steering

Carried = tuple[Any, Any]  # request, answer; None: no body

BODIES: dict[str, Carried] = {
    "enqueue": (bodies.NewJob | bodies.NewJobs, bodies.Accepted | bodies.AcceptedJobs),
    "claim": (bodies.NewClaim, bodies.Leases),
    "complete": (bodies.Endings, bodies.ToldEndings),
    "heartbeat": (bodies.Beats, bodies.ToldBeats),
    "list_jobs": (None, bodies.Jobs),
    "status": (None, Job),
    "cancel": (None, bodies.Cancelled),
    "change_job": (bodies.JobChange, None),
    "result": (None, bodies.Result),
    "story": (None, Story),
    "list_queues": (None, steering.Queues),
    "stats": (None, dict[str, Any]),
    "configure": (steering.Settings, dict[str, Any]),
    "redrive": (steering.Redrive, steering.Redriven),
    "dead_letters": (None, steering.DeadLetters),
    "dead_letter_groups": (None, steering.DeadGroups),
    "purge": (steering.Purge, Purged),
    "history": (None, steering.Page),
    "reap": (None, Report),
    "openapi": (None, dict),
    "health": (None, bodies.Health),
}
