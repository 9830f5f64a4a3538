"""The workers of a queue: what each says of itself, and how the registry shows them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from .. import limits
from ..errors import Rejected, shown
from .fields import DescribedField, described_fields
from .validation import kind

RUNNING = "running"
DRAINING = "draining"  # it claims no more, and waits for its handlers
LOST = "lost"  # it has not been heard of for three of its periods, and did not say that it ends
UNREGISTERED = "unregistered"  # somebody holds leases under this name who says nothing of itself
WORKER_ID = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
PID_MAX = 2**32
UPTIME_MS_MAX = 3_650 * limits.DAY_MS
_ID = re.compile(WORKER_ID)


def _kinds(field: DescribedField, value: Any) -> list[str] | None:
    if value is None:
        return None
    if len(value) > limits.WORKER_KINDS_TOLD_MAX:
        raise Rejected(
            f"{field.name}: {len(value):,} of them; the most is {limits.WORKER_KINDS_TOLD_MAX}. Name the first ones.",
            field=field.name,
        )
    return [kind(each) for each in value]


class WorkerEntry(Struct, frozen=True, kw_only=True):
    """What a worker says of itself. The registry adds when it was said, by the store's clock."""

    name: Annotated[
        str, Meta(description="under which it holds leases", min_length=1, max_length=limits.WORKER_CHARS_MAX)
    ]
    host: Annotated[str, Meta(description="the machine's name", max_length=limits.WORKER_CHARS_MAX)] = ""
    pid: Annotated[int, Meta(description="of its process", ge=0, le=PID_MAX)] = 0
    version: Annotated[
        str, Meta(description="of osqueue, or of another program", max_length=limits.WORKER_CHARS_MAX)
    ] = ""
    concurrency: Annotated[
        int, Meta(description="jobs that it works on at once", ge=1, le=limits.RUNNING_MAX)
    ] = 1
    busy: Annotated[int, Meta(description="jobs in hand", ge=0, le=limits.RUNNING_MAX)] = 0
    kinds: (
        Annotated[
            list[str],
            Meta(
                description="that it has handlers for, the first 100 by name; null: any",
                max_length=limits.WORKER_KINDS_TOLD_MAX,
                extra={"read": _kinds},
            ),
        ]
        | None
    ) = None
    draining: Annotated[bool, Meta(description="it claims no more, and waits for its handlers")] = False
    uptime: Annotated[float, Meta(description="seconds that it has run", ge=0, le=UPTIME_MS_MAX / 1000)] = 0.0
    every: Annotated[
        float,
        Meta(description="seconds until it says so again", ge=1, le=limits.WORKER_EVERY_MS_MAX / 1000),
    ] = 60.0


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """A worker, by its own word and by the leases that it holds."""

    name: str
    state: str  # "running", "draining", "lost" or "unregistered"
    holds: int = 0  # leases under its name now; of workers of one name, all of theirs
    oldest_start: datetime | None = None  # of the jobs under these leases
    id: str | None = None  # tells workers of one name apart; None as all below: it is unregistered
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    concurrency: int | None = None
    busy: int | None = None  # jobs in hand when it was heard of last
    kinds: list[str] | None = None  # that it has handlers for, the first 100 by name; None: any
    since: datetime | None = None  # when it began
    seen: datetime | None = None  # when it was heard of last


def worker_id(value: Any) -> str:
    """An id that a worker drew for itself. Raises Rejected."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise Rejected(
            f"worker: {shown(value)} is not a worker's id. Draw one at random: 1 to 64 of A-Z, a-z, 0-9, '_' and '-',"
            " beginning with a letter or digit.",
            field="worker",
        )
    return value


def check_entry(entry: WorkerEntry) -> None:
    """See that what a worker says of itself keeps its bounds. Raises Rejected."""
    for name, field in described_fields(WorkerEntry).items():
        field.read(getattr(entry, name))
