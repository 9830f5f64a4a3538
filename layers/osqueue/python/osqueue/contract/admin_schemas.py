"""The bodies of the API's operations on whole queues, for operators. Loaded where they are used."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, UnsetType

from ..model.batch import BatchStatus
from ..model.dead_letters import DeadGroup, DeadLetter
from ..model.event import Event
from ..model.follow_ups import Next
from ..model.job import Job
from ..model.job_options import JobOptions
from ..model.reports import QueueGroup
from ..model.schedule import Schedule
from ..model.settings import Group, WishedSettings
from ..model.worker import WorkerStatus
from .schemas import EncodedContent, RequestBody, ResponseBody


class Settings(WishedSettings, RequestBody, frozen=True):
    """Settings to change; those left out stay as they are."""


class GroupWish(Group, RequestBody, frozen=True):
    """What to change of one group; what is left out stays as it is, null is as the queue says."""


class Queues(ResponseBody, frozen=True, kw_only=True):
    """One page of the queues' statistics, and the cursor of the next."""

    queues: list[dict[str, Any]]
    cursor: str | None = None


class QueueGroups(ResponseBody, frozen=True, kw_only=True):
    """Groups of a queue: those that something holds first, then by name."""

    groups: list[QueueGroup]


class Workers(ResponseBody, frozen=True, kw_only=True):
    """Workers of a queue: those that are lost first, then by name."""

    workers: list[WorkerStatus]
    more: bool = False  # there are others that the answer has no room for


class CancelMany(RequestBody, frozen=True, kw_only=True):
    """Which waiting jobs to cancel: all that match what is named, of those that are there by now."""

    kinds: list[str] | None = None  # 16 at most
    group: str | None = None
    enqueued_before: float | None = None  # Unix seconds
    dry_run: bool = False  # only count
    batch: str | None = None  # the id of one


class Redrive(RequestBody, frozen=True, kw_only=True):
    """Which dead letters to queue again: at most ``limit``, the oldest first."""

    limit: int | None = None
    kinds: list[str] | None = None
    error: str | None = None  # part of the last error
    fingerprint: str | None = None
    jobs: list[str] | None = None  # by job id or client's id
    dry_run: bool = False


class Redriven(ResponseBody, frozen=True, kw_only=True):
    """How many were queued again (or would be), and whether a limit, time or a failure left some."""

    jobs: int
    more: bool = False


class DeadLetterAnswer(DeadLetter, frozen=True):
    """A dead letter, and what was asked for beside it, as in ``JobAnswer``."""

    payload: Raw | UnsetType = UNSET
    traceback: str | UnsetType | None = UNSET
    encoded: dict[str, EncodedContent] | UnsetType = UNSET
    left_out: dict[str, str] | UnsetType = UNSET


class DeadLetters(ResponseBody, frozen=True, kw_only=True):
    """One page of dead letters, and the cursor of the next."""

    jobs: list[DeadLetterAnswer]
    cursor: str | None = None


class DeadGroups(ResponseBody, frozen=True, kw_only=True):
    """Dead letters by error, the largest group first."""

    groups: list[DeadGroup]
    more: bool = False  # there are smaller groups that the answer has no room for


class Purge(RequestBody, frozen=True, kw_only=True):
    """Jobs to erase, by job id or client's id; 1,000 at most. ``dead_only`` leaves alone what is no dead letter."""

    jobs: list[str]
    dead_only: bool = False


class NewSchedule(JobOptions, RequestBody, frozen=True):
    """A schedule to add or to change: a crontab line or an interval in seconds, and what its jobs are like.

    Each job has the payload, and those options that are not about when or under which id it comes.
    """

    cron: str | None = None
    tz: str = "UTC"
    every: float | None = None
    missed: str = "once"  # "once", "all" or "skip"
    overlap: str = "allow"  # "allow", "skip" or "queue"
    payload: Raw | UnsetType = UNSET
    data: bytes | UnsetType = UNSET  # base64: instead of ``payload``
    codec: str | None = None  # of ``data``


class ScheduleChange(RequestBody, frozen=True, kw_only=True):
    """Let a schedule rest, or go on."""

    paused: bool


class Schedules(ResponseBody, frozen=True, kw_only=True):
    """The schedules of a queue, by name."""

    schedules: list[Schedule]


class NewBatch(RequestBody, frozen=True, kw_only=True):
    """A batch to open. ``batch_id`` is the key its client drew, so that a repeated request opens the same one."""

    batch_id: str | None = None
    name: str | None = None
    on_complete: Next | None = None  # the job that comes when none is left
    on_success: Next | None = None  # that which comes when all are completed


class BatchChange(RequestBody, frozen=True, kw_only=True):
    """Seal a batch: no more jobs of it come from outside."""

    sealed: bool


class Batches(ResponseBody, frozen=True, kw_only=True):
    """The batches of a queue, the oldest first."""

    batches: list[BatchStatus]


class EventPage(ResponseBody, frozen=True, kw_only=True):
    """Events in order, none where none came, and the cursor to go on with."""

    events: list[Event]
    cursor: str


class Page(ResponseBody, frozen=True, kw_only=True):
    """One page of a queue's archive: records of one part, and the cursor of the next page."""

    jobs: list[Job]
    part: str = ""  # the part they stand in; repeats are told by (job_id, run) among neighbouring hours
    cursor: str | None = None
