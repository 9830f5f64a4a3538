"""Which of the live jobs a call is about, and the page of them that it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from .. import limits
from ..errors import Rejected, shown
from . import validation
from .batch import batch_key
from .fields import moment
from .job import Job
from .keys import job_id


class JobFilter(Struct, frozen=True):
    """What a job has to be like; all that is asked for at once."""

    kinds: tuple[str, ...] | None = None
    id: str | None = None  # the client's own
    group: str | None = None
    batch: str | None = None
    headers: tuple[tuple[str, str | None], ...] = ()  # that it carries; None: with any value
    worker: str = ""  # part of the name of who holds the lease
    before: datetime | None = None  # enqueued then or earlier

    def matches(self, job: Job) -> bool:
        """Is this one of them?"""
        return (
            (self.kinds is None or (job.kind or "") in self.kinds)
            and (self.id is None or job.id == self.id)
            and (self.group is None or job.group == self.group)
            and (self.batch is None or job.batch == self.batch)
            and all(_carries(job.headers, *header) for header in self.headers)
            and self.worker in (job.worker or "")
            and (self.before is None or job.enqueued_at <= self.before)
        )


class JobPage(Struct, frozen=True):
    """One page of jobs."""

    jobs: list[Job]
    cursor: str | None  # of the next one
    looked_at: int  # jobs, those that do not match included


def _carries(headers: Mapping[str, str], name: str, value: str | None) -> bool:
    return name in headers if value is None else headers.get(name) == value


def job_filter_of(
    now_ms: int,
    *,
    kinds: Iterable[str] | None = None,
    id: str | None = None,
    group: str | None = None,
    batch: str | None = None,
    headers: Mapping[str, str | None] | None = None,
    worker: str | None = None,
    older_than: float | None = None,
) -> JobFilter:
    """What a caller asked for, checked. Raises Rejected. ``older_than``: seconds since it was enqueued."""
    age_ms = None
    if older_than is not None:
        age_ms = validation.milliseconds(older_than, "older_than", 0, limits.AT_MS_MAX)
    return JobFilter(
        validation.kinds(kinds),
        None if id is None else validation.text(id, "id", limits.ID_CHARS_MAX, 1),
        None if group is None else validation.text(group, "group", limits.GROUP_CHARS_MAX, 1),
        None if batch is None else job_id(batch_key(batch)),
        _checked_headers(headers),
        "" if worker is None else validation.text(worker, "worker", limits.WORKER_CHARS_MAX),
        None if age_ms is None else moment(max(0, now_ms - age_ms)),
    )


def headers_of(wished: Iterable[str]) -> dict[str, str | None]:
    """Headers as the API and the command line name them: NAME=VALUE, or NAME for any value."""
    found: dict[str, str | None] = {}
    for each in wished:
        name, sign, value = each.partition("=")
        found[name] = value if sign else None
    return found


def _checked_headers(value: Any) -> tuple[tuple[str, str | None], ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping) or len(value) > limits.HEADERS_MAX:
        raise Rejected(
            f"headers: {shown(value)} is no mapping of up to {limits.HEADERS_MAX} names to values. Write {{'tenant':"
            " 'acme'}, or {'tenant': None} for any value.",
            field="headers",
        )
    return tuple(
        [
            (
                validation.text(name, "headers", limits.HEADER_NAME_CHARS_MAX, 1),
                None if each is None else validation.text(each, "headers", limits.HEADER_VALUE_CHARS_MAX),
            )
            for name, each in value.items()
        ]
    )
