"""What a caller with a role may do. Whoever knows callers asks here: ``osqueue serve``, and functions behind
tokens with scopes.

``operate`` may do everything. ``read`` may look at everything, contents included, and change nothing. ``enqueue`` is
what a producer needs: to add jobs, follow them and take them back. ``work`` is what a worker needs for those it holds.
Both may take the slots of a pacer and give them back. A pattern for queues covers the pacers of these names as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from fnmatch import fnmatchcase

from .route import Route


class Role(Enum):
    """What a caller may do; who may do everything comes last."""

    READ = "read"
    ENQUEUE = "enqueue"
    WORK = "work"
    OPERATE = "operate"


_FOLLOW = {"status", "status_many", "result"}
_SLOTS = {"get_pacer", "reserve_slot", "return_slot"}
_BATCHES = {"open_batch", "get_batch", "change_batch"}
_ALLOWED: dict[Role, set[str]] = {
    Role.READ: {"status_many"},  # it reads, though its many ids travel in a body
    Role.ENQUEUE: {"enqueue", "cancel", "change_job", "story", "upload"} | _FOLLOW | _BATCHES | _SLOTS,
    Role.WORK: {"claim", "complete", "turn", "heartbeat", "put_worker", "delete_worker", "upload"}
    | _FOLLOW
    | _SLOTS,
}
OPEN = {"health", "openapi"}  # to anybody: they tell of no queue


def covers(patterns: Iterable[str], queue: str) -> bool:
    """Whether what is said of these queues is said of this one; "" stands for all of them."""
    return any(each == "*" or (queue and fnmatchcase(queue, each)) for each in patterns)


def may(role: Role, route: Route) -> bool:
    """Whether somebody of a role may call an operation."""
    if role is Role.OPERATE or route.name in OPEN:
        return True
    return route.name in _ALLOWED[role] or (role is Role.READ and route.method == "GET")
