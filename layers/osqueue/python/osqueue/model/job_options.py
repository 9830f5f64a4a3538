"""A job's options, each written once: its meaning, its unit, its bounds and its default.

What else knows of them is made from this table: the checks and their words, the request of the API and its schema,
the options of the command line, the columns of Spark, and what callers see of a job. The rows of the head stand in
``core``, which knows nobody, and the reference in ``docs/api.md``: tests compare both with the table.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, TypedDict

from msgspec import Meta, Struct

from .. import limits
from ..core.archive_record import ArchiveRecord
from ..core.job_ops import UniqueRule
from ..core.state import JobRecord, Links
from ..errors import SHOWN_CHARS_MAX, NotSupported, Rejected, shown
from .fields import DescribedField, described_fields, moment
from .follow_ups import Next, read_then, told_then
from .keys import is_key, job_id, key_of
from .option_types import (
    Delay,
    Group,
    Headers,
    Kind,
    MaxAttempts,
    Priority,
    ResultTtl,
    RunWithin,
    StartWithin,
    Units,
)
from .unique import Unique, check_unique, rule_of, unique_of

FUTURE_OPTIONS = ("depends_on", "cron", "rate_limit", "concurrency_key")


_INSTEAD = {
    "depends_on": (
        "not supported: no job waits for others here, so none can be forgotten. Give the one that comes first"
        " then=[Next('kind')], or put several into a batch, whose end makes a job."
    ),
    "cron": "not supported of a job, which comes once. q.schedule(name, cron, payload) makes one at every tick.",
    "rate_limit": (
        "not supported of a job: a rate is a setting of its queue or its kind. q.configure(kinds={'send':"
        " Kind(rate=(10, 1))}) starts ten of a kind a second."
    ),
}


def not_yet(name: str) -> NotSupported:
    """The error for a field that has a name, and no meaning yet."""
    instead = _INSTEAD.get(name, "not supported in this release.")
    return NotSupported(f"{name}: {instead}", field=name)


def _no_job_id(name: str) -> None:
    """Raises Rejected for a client's id that has the form of a job id: it would be taken for that job."""
    if is_key(name):
        raise Rejected(
            f"id: {name!r} has the form of a job id, and would be taken for that job. Put something of your own in"
            f" front of it: 'order-{name}'.",
            field="id",
        )


def _read_batch(option: DescribedField, value: Any) -> bytes:
    if not isinstance(value, str) or not is_key(value):
        raise Rejected(
            f"batch: {shown(value)} is no id of a batch. Give the id of one that q.batch() made.",
            field="batch",
        )
    return key_of(value)


def _read_unique(option: DescribedField, value: Any) -> UniqueRule:
    return rule_of(value)


# ── The table ────────────────────────────────────────────────────────────────
class JobOptions(Struct, frozen=True, kw_only=True):
    """What a caller may say of a job beside its payload."""

    id: (
        Annotated[
            str,
            Meta(
                description="Your own name for the job. While it lives, or its result is kept, there is no second.",
                min_length=1,
                max_length=limits.ID_CHARS_MAX,
                extra={"column": "client_id", "check": _no_job_id},
            ),
        ]
        | None
    ) = None
    kind: Kind | None = None
    group: Group | None = None
    priority: Priority | None = None
    delay: Delay | None = None
    at: (
        datetime
        | Annotated[
            float,
            Meta(description="Not before this time. It excludes a delay.", ge=0, le=limits.AT_MS_MAX / 1000),
        ]
        | None
    ) = None
    max_attempts: MaxAttempts | None = None
    result_ttl: ResultTtl | None = None
    run_within: RunWithin | None = None
    start_within: StartWithin | None = None
    units: Units | None = None
    headers: Headers | None = None
    unique: (
        Annotated[
            Unique,
            Meta(
                description="How its id is kept unique: for how long, and what happens to a job that waits under it.",
                extra={"read": _read_unique, "told": unique_of},
            ),
        ]
        | None
    ) = None
    then: (
        Annotated[
            list[Next],
            Meta(
                description="Its follow-ups: jobs that come when it completes, in that commit, with its result.",
                max_length=limits.FOLLOW_UPS_MAX,
                extra={"read": read_then, "told": told_then},
            ),
        ]
        | None
    ) = None
    batch: (
        Annotated[
            str,
            Meta(
                description="The id of a batch: the job is one of those whose common end is waited for.",
                min_length=1,
                max_length=36,
                extra={"read": _read_batch, "told": job_id},
            ),
        ]
        | None
    ) = None


class JobOptionArguments(TypedDict, total=False):
    """The same as keyword arguments of ``enqueue``, for type checkers, which run no code."""

    id: str | None
    kind: str | None
    group: str | None
    priority: int | None
    delay: float | timedelta | None
    at: datetime | float | None
    max_attempts: int | None
    result_ttl: float | timedelta | None
    run_within: float | timedelta | None
    start_within: float | timedelta | None
    units: int | None
    headers: dict[str, str] | None
    unique: Unique | None
    then: Sequence[Next | Mapping[str, Any]] | None
    batch: str | None


class ViewedOptions(Struct, frozen=True, kw_only=True):
    """The options that stay with a job, as whoever looks at it sees them."""

    id: str | None = None  # the client's own id, where the job was enqueued under one
    kind: str | None = None
    group: str | None = None
    priority: int
    max_attempts: int
    run_within: float | None = None  # seconds that one attempt may run
    start_by: datetime | None = None  # when it has to have started
    units: int = 1  # as how many starts of a rate each of its starts counts
    batch: str | None = None  # of which it is
    headers: dict[str, str] = {}


START_BY = "When it has to have started, or it is cancelled; None: there is no deadline."


class JobAttributes:
    """The same as attributes of a job in a worker's hands."""

    _job: JobRecord

    @property
    def id(self) -> str | None:
        """The client's own id, where the job was enqueued under one."""
        return self._job.client_id

    @property
    def kind(self) -> str | None:
        """What enqueue was given."""
        return self._job.kind or None

    @property
    def group(self) -> str | None:
        """What enqueue was given."""
        return self._job.group or None

    @property
    def priority(self) -> int:
        """0 to 9, lower first."""
        return self._job.priority

    @property
    def max_attempts(self) -> int:
        """How many there may be."""
        return self._job.max_attempts

    @property
    def run_within(self) -> float | None:
        """How many seconds one attempt may run; None: there is no limit."""
        return self._job.run_within_ms / 1000 or None

    @property
    def start_by(self) -> datetime | None:
        """When it has to have started; None: there is no deadline."""
        return moment(self._job.start_by_ms) if self._job.start_by_ms else None

    @property
    def units(self) -> int:
        """As how many starts of a rate each of its starts counts."""
        return self._job.units

    @property
    def batch(self) -> str | None:
        """The id of the batch of which it is."""
        return linked(self._job, "batch")

    @property
    def headers(self) -> dict[str, str]:
        """What enqueue was given, by name."""
        return dict(self._job.headers or ())


class JobOrigin:
    """Where a job in a worker's hands comes from, beside enqueue."""

    _job: JobRecord

    @property
    def parent(self) -> str | None:
        """The id of the job that it follows, or of the batch whose end it waited for."""
        return linked(self._job, "parent")

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that made it."""
        return self._job.schedule or None

    @property
    def scheduled_at(self) -> datetime | None:
        """The tick it was made for, or when it was to become claimable; None: at once."""
        return moment(self._job.scheduled_ms) if self._job.scheduled_ms else None


def linked(job: JobRecord | ArchiveRecord, name: str) -> str | None:
    """The id of a job's batch, or of its parent."""
    if isinstance(job, ArchiveRecord):
        return getattr(job, name) or None
    found: bytes = getattr(job.links, name, b"")
    return job_id(found) if found else None


OPTIONS = described_fields(JobOptions)
ITEM_FIELDS = ("payload", *OPTIONS)  # of an item of enqueue_many
_COLUMNS = {option.column: option for option in OPTIONS.values()}
_VIEWED = [
    (name, OPTIONS[name].column)
    for name in ViewedOptions.__struct_fields__
    if name in OPTIONS and name != "batch"
]


# ── From callers to rows ─────────────────────────────────────────────────────
def check_names(names: Mapping[str, Any], call: str) -> None:
    """Raises TypeError, as Python itself does, for a keyword argument that is no option."""
    for name in names:
        if name not in OPTIONS:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")


def check_item(item: Any) -> Mapping[str, Any]:
    """One item of enqueue_many: a mapping of known fields with a payload. Their values are not looked at."""
    if type(item) is dict and len(item) == 1 and "payload" in item:  # the common case
        return item
    if not isinstance(item, Mapping):
        raise Rejected(f"jobs: each is a mapping with a 'payload', not {type(item).__name__}.", field="jobs")
    for name in item:
        if name not in ITEM_FIELDS:
            if name in FUTURE_OPTIONS:
                raise not_yet(name)
            told = name if isinstance(name, str) and name.isprintable() else shown(name)
            told = told[:SHOWN_CHARS_MAX]
            raise Rejected(f"{told}: no such field. Known: {', '.join(ITEM_FIELDS)}.", field=told)
    if "payload" not in item:
        raise Rejected("payload: it is missing. Every job has one (None is allowed).", field="payload")
    return item


def check_option(name: str, value: Any) -> Any:
    """One option as a row keeps it. Raises Rejected."""
    return OPTIONS[name].read(value)


def columns_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row that options fill; the others keep their defaults. Raises Rejected.

    What is no option, such as an item's payload, is passed over.
    """
    found = {}
    for name, value in options.items():
        option = OPTIONS.get(name)
        if option is not None and not (value is None and option.optional):
            found[option.column] = option.read(value)
    if "delay_ms" in found and "at_ms" in found:
        raise Rejected("at: give either delay or at, not both.", field="at")
    if "unique" in found:
        check_unique(found)
    return found


def columns_asked(asked: JobOptions) -> dict[str, Any]:
    """The same of a request."""
    return columns_of(
        {
            name: value
            for name, option in OPTIONS.items()
            if (value := getattr(asked, name)) is not option.default
        }
    )


def options_of(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Checked columns as the options that a request carries."""
    found = {}
    for column, value in columns.items():
        option = _COLUMNS[column]
        found[option.name] = dict(value or ()) if option.type is dict else option.told(value)
    return found


# ── From rows to callers ─────────────────────────────────────────────────────
def viewed(job: JobRecord | ArchiveRecord) -> dict[str, Any]:
    """The fields of ``ViewedOptions``."""
    found = {name: getattr(job, column) for name, column in _VIEWED}
    found["kind"] = job.kind or None
    found["group"] = job.group or None
    found["run_within"] = job.run_within_ms / 1000 or None
    found["start_by"] = moment(job.start_by_ms) if job.start_by_ms else None
    found["headers"] = dict(job.headers or ())
    found["batch"] = linked(job, "batch")
    return found


def columns_viewed(view: ViewedOptions) -> dict[str, Any]:
    """The inverse: the columns of a row that a view tells of, whatever the bounds of whoever wrote it."""
    found = {column: getattr(view, name) for name, column in _VIEWED}
    found["kind"] = view.kind or ""
    found["group"] = view.group or ""
    found["run_within_ms"] = round((view.run_within or 0) * 1000)
    found["start_by_ms"] = 0 if view.start_by is None else round(view.start_by.timestamp() * 1000)
    found["headers"] = tuple(view.headers.items()) or None
    if view.batch:
        found["links"] = Links(batch=key_of(view.batch))
    return found
