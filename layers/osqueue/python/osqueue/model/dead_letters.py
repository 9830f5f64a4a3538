"""Dead letters as callers see them: one by one, or grouped by the error they died of.

A group is named by its error's fingerprint (``core.fingerprint``): what differs between two occurrences of one error
does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from .. import limits
from ..core import state as stored
from ..core.fingerprint import CHARS, fingerprint, last_error, normalised
from ..core.state import content_bytes
from ..errors import Rejected, shown
from . import validation
from .fields import moment
from .job_options import ViewedOptions, viewed
from .keys import job_id

_MARK = re.compile(rf"[0-9a-f]{{{CHARS}}}")


class DeadLetter(ViewedOptions, frozen=True):
    """A job that failed and is kept: it has no attempts left, or its worker gave it up."""

    job_id: str
    error: str  # the last one
    error_type: str | None
    fingerprint: str  # of that error
    attempts: int  # used since it was enqueued or last redriven
    run: int  # leases ever granted
    worker: str | None  # that held the last of them
    enqueued_at: datetime
    failed_at: datetime
    kept_until: datetime  # then it is let go, and only the archive has its record
    payload_bytes: int


class DeadLetterDetails(DeadLetter, frozen=True, repr_omit_defaults=True):
    """A dead letter with what was asked for beside it, as in ``JobDetails``."""

    payload: Any = UNSET
    traceback: str | UnsetType | None = UNSET
    left_out: dict[str, str] | UnsetType = UNSET


class DeadGroup(Struct, frozen=True):
    """Dead letters that died of the same error."""

    fingerprint: str
    count: int
    error: str  # without what differs between them
    example: DeadLetter  # the latest
    first_at: datetime  # when the first of them failed
    last_at: datetime
    kinds: dict[str, int]  # how many of each kind; "" is the nameless one


class DeadLetterFilter(Struct, frozen=True):
    """Which dead letters a call is about."""

    kinds: tuple[str, ...] | None = None
    error: str = ""  # part of the last error's text
    fingerprint: str = ""
    keys: frozenset[bytes] | None = None

    def matches(self, job: stored.JobRecord) -> bool:
        """Is this one of them?"""
        if self.keys is not None and job.key not in self.keys:
            return False
        if self.kinds is not None and job.kind not in self.kinds:
            return False
        if self.error and self.error not in (job.history[-1].error if job.history else ""):
            return False
        return not self.fingerprint or fingerprint(*last_error(job.history)) == self.fingerprint


def filter_of(kinds: Iterable[str] | None, error: str | None, mark: Any) -> DeadLetterFilter:
    """What a caller asked for, checked."""
    part = "" if error is None else validation.text(error, "error", limits.ERROR_CHARS_MAX)
    if mark is not None and not (isinstance(mark, str) and _MARK.fullmatch(mark)):
        raise Rejected(
            f"fingerprint: {shown(mark)} is none. Pass one of those that the groups of dead letters show.",
            field="fingerprint",
        )
    return DeadLetterFilter(validation.kinds(kinds), part, mark or "")


def dead_letter_view(job: stored.JobRecord, dead_ttl_ms: int) -> DeadLetter:
    """The public view of a dead letter."""
    kind, error = last_error(job.history)
    last = job.history[-1] if job.history else None
    died = last.ended_ms if last is not None else job.enqueued_ms
    return DeadLetter(
        job_id=job_id(job.key),
        error=error,
        error_type=kind or None,
        fingerprint=fingerprint(kind, error),
        attempts=job.attempt,
        run=job.run,
        worker=last.worker if last is not None else None,
        enqueued_at=moment(job.enqueued_ms),
        failed_at=moment(died),
        kept_until=moment(died + dead_ttl_ms),
        payload_bytes=content_bytes(job.payload),
        **viewed(job),
    )


class DeadLetterGroups:
    """Dead letters being sorted by what they died of."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, Any]] = {}

    def add(self, found: DeadLetter) -> None:
        """Count one more."""
        mine = self._groups.setdefault(
            found.fingerprint,
            {"count": 0, "example": found, "first": found.failed_at, "kinds": {}},
        )
        mine["count"] += 1
        mine["first"] = min(mine["first"], found.failed_at)
        if found.failed_at >= mine["example"].failed_at:
            mine["example"] = found
        kind = found.kind or ""
        mine["kinds"][kind] = mine["kinds"].get(kind, 0) + 1

    def found(self) -> list[DeadGroup]:
        """The groups, the largest first."""
        groups = [
            DeadGroup(
                fingerprint=mark,
                count=mine["count"],
                error=normalised(mine["example"].error),
                example=mine["example"],
                first_at=mine["first"],
                last_at=mine["example"].failed_at,
                kinds=dict(sorted(mine["kinds"].items())),
            )
            for mark, mine in self._groups.items()
        ]
        return sorted(groups, key=lambda group: (-group.count, group.fingerprint))
