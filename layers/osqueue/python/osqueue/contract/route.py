"""What is said of one operation of the API, in the table that has them all (``operations``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct

QUEUES = "/v1/queues"
QUEUE = QUEUES + "/{queue}"
JOBS = QUEUE + "/jobs"
PACERS = "/v1/pacers"
PACER = PACERS + "/{pacer}"


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


def subject_of(path: Mapping[str, str]) -> str:
    """Return the queue or the pacer that the parameters of a path name, or "" if they name neither."""
    return path.get("queue") or path.get("pacer", "")


def subject_text(route: Route, subject: str) -> str:
    """Return the queue or the pacer of a request as part of a message; "" stands for all."""
    kind = "pacer" if route.path.startswith(PACERS) else "queue"
    return f"{kind} {subject}" if subject else f"all {kind}s at once"


def pattern(route: Route) -> re.Pattern[str]:
    """What a path of this route looks like; each parameter is a group of its name."""
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(route.path)))
