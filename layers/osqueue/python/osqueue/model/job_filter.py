"""Which of the live jobs a call is about."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from .. import limits
from . import validation
from .fields import moment
from .job import Job


class JobFilter(Struct, frozen=True):
    """What a job has to be like; all that is asked for at once."""

    kinds: tuple[str, ...] | None = None
    id: str | None = None  # the client's own
    worker: str = ""  # part of the name of who holds the lease
    before: datetime | None = None  # enqueued then or earlier

    def matches(self, job: Job) -> bool:
        """Is this one of them?"""
        return (
            (self.kinds is None or (job.kind or "") in self.kinds)
            and (self.id is None or job.id == self.id)
            and self.worker in (job.worker or "")
            and (self.before is None or job.enqueued_at <= self.before)
        )


def job_filter_of(
    kinds: Iterable[str] | None, id: str | None, worker: str | None, older_than: float | None, now_ms: int
) -> JobFilter:
    """What a caller asked for, checked. Raises Rejected. ``older_than``: seconds since it was enqueued."""
    age_ms = None
    if older_than is not None:
        age_ms = validation.milliseconds(older_than, "older_than", 0, limits.AT_MS_MAX)
    return JobFilter(
        validation.kinds(kinds),
        None if id is None else validation.text(id, "id", limits.ID_CHARS_MAX, 1),
        "" if worker is None else validation.text(worker, "worker", limits.WORKER_CHARS_MAX),
        None if age_ms is None else moment(max(0, now_ms - age_ms)),
    )
