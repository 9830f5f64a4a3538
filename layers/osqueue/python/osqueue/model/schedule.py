"""Schedules as callers write and see them: what is refused, and what a row says in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from .. import crontab, limits
from ..core import scheduling
from ..core.encoding import encode
from ..core.follow_ups import groups_of
from ..core.job_ops import JobSpec
from ..core.state import ScheduleRow, content_bytes
from ..errors import Rejected, shown
from .explain import duration_text
from .fields import moment
from .job_options import OPTIONS, columns_of, options_of
from .validation import plain_text, seconds, text, word

MISSED = (scheduling.ONCE, scheduling.ALL, scheduling.SKIP)
OVERLAP = (scheduling.ALLOW, scheduling.SKIP, scheduling.QUEUE)
# Of the options of a job, those that each job of a schedule can have: not when, or under which id it comes.
JOB_OPTIONS = (
    "kind",
    "priority",
    "max_attempts",
    "result_ttl",
    "run_within",
    "start_within",
    "units",
    "headers",
    "then",
)
SCHEDULE_NAME = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{limits.SCHEDULE_NAME_CHARS_MAX - 1}}}"
_NAME = re.compile(SCHEDULE_NAME)

_decode_spec = msgspec.msgpack.Decoder(JobSpec).decode


class Schedule(Struct, frozen=True, kw_only=True):
    """A schedule of a queue."""

    name: str
    cron: str | None = None  # a crontab line of five fields
    tz: str = "UTC"  # the time zone in which it is meant
    every: float | None = None  # seconds, instead of a line: at whole multiples since 1970
    missed: str = scheduling.ONCE  # of ticks that nobody was there for: "once", "all" or "skip"
    overlap: str = scheduling.ALLOW  # while a job of it lives: "allow", "skip" or "queue"
    paused: bool = False
    next_at: datetime | None = None  # the next tick; None: paused, or there is none
    waiting_for: datetime | None = None  # the tick whose job is made when none lives any more
    living: int = 0  # jobs of it that wait or run
    options: dict[str, Any] = {}  # of its jobs, as enqueue takes them
    payload_bytes: int = 0

    @property
    def words(self) -> str:
        """When it ticks, in English."""
        if self.every is not None:
            return f"Every {duration_text(self.every)}"
        return f"{crontab.in_words(self.cron or '')}, {self.tz}"

    def coming(self, count: int, now: datetime) -> list[datetime]:
        """The next so many ticks after a moment, as if it were not paused. Fewer where nobody here knows its zone."""
        found: list[datetime] = []
        at_ms = round(now.timestamp() * 1000)
        while len(found) < count:
            told = crontab.ticks(self.cron or "", self.tz, round((self.every or 0) * 1000), at_ms, at_ms, 0)
            if told is None or not told[1]:
                break
            at_ms = told[1]
            found.append(moment(at_ms))
        return found


def schedule_name(name: Any) -> str:
    """A schedule's name. Raises Rejected."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Rejected(
            f"name: {shown(name)} is not a schedule's name. Use 1 to {limits.SCHEDULE_NAME_CHARS_MAX} of A-Z, a-z, 0-9,"
            " '.', '_' and '-', beginning with a letter or digit.",
            field="name",
        )
    return plain_text(name)


def schedule_row(
    name: Any,
    cron: Any,
    tz: Any,
    every: Any,
    missed: Any,
    overlap: Any,
    codec: str,
    options: Mapping[str, Any],
) -> ScheduleRow:
    """The row of a wished schedule, but for its payload. Raises Rejected."""
    if (cron is None) == (every is None):
        raise Rejected(
            "cron: give a crontab line such as '0 3 * * *', or every=900 for an interval in seconds.",
            field="cron",
        )
    line = "" if cron is None else _line_of(cron)
    every_ms = 0 if every is None else _every_of(every)
    zone = _zone_of(tz)
    for field, value, known in (("missed", missed, MISSED), ("overlap", overlap, OVERLAP)):
        word(value, field, known)
    for option in options:
        if option not in JOB_OPTIONS:
            told = option if option.isprintable() else shown(option)
            hint = "A schedule says by itself when its jobs come." if option in ("at", "delay") else ""
            hint = hint or "Let the handler of its jobs enqueue one with it." if option in OPTIONS else hint
            raise Rejected(
                f"{told}: no option of a schedule. Known: {', '.join(JOB_OPTIONS)}. {hint}".rstrip(),
                field=told,
            )
    spec = JobSpec(b"", b"", codec, **columns_of(options))
    if any(groups_of("", spec.then)):
        raise Rejected(
            "then: a schedule makes its jobs in the first shard, where a group need not be at home. Leave the groups"
            " out, or let the handler of its jobs enqueue them.",
            field="then",
        )
    return ScheduleRow(
        schedule_name(name),
        line,
        zone if line else "UTC",
        every_ms,
        encode(spec),
        b"",
        str(missed),
        str(overlap),
    )


def _line_of(cron: Any) -> str:
    line = text(cron, "cron", limits.CRON_CHARS_MAX, 1).strip()
    line = crontab.NAMES.get(line.lower(), " ".join(line.split()))
    try:
        crontab.check(line)
    except ValueError as error:
        raise Rejected(
            f"cron: {shown(cron)} is no crontab line: {error}. Such as '*/15 * * * *', '0 3 * * mon-fri', '@daily'."
            + (
                " For less than a minute use a Pacer, or Snooze in the handler."
                if len(line.split()) == 6
                else ""
            ),
            field="cron",
        ) from None
    return line


def _every_of(every: Any) -> int:
    value: Any = seconds(every)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and 0 < value * 1000 < limits.EVERY_MS_MIN:
        raise Rejected(
            f"every: {value:g} s; a schedule ticks once a minute at most. For less pace the jobs with a Pacer, or let"
            f" the handler return Snooze({value:g}).",
            field="every",
        )
    if not number or not limits.EVERY_MS_MIN <= value * 1000 <= limits.EVERY_MS_MAX:
        raise Rejected(
            f"every: {shown(every)} is not a number of seconds from {limits.EVERY_MS_MIN // 1000} to"
            f" {limits.EVERY_MS_MAX // 1000:,}.",
            field="every",
        )
    every_ms: int = round(value * 1000)
    return every_ms


def _zone_of(tz: Any) -> str:
    name = text(tz, "tz", limits.SCHEDULE_NAME_CHARS_MAX, 1)
    if not crontab.is_zone_name(name):
        raise Rejected(
            f"tz: {shown(tz)} is not a name of the IANA's time zones: it would depend on the machine, or no machine"
            " knows it. Use a name such as 'Europe/Berlin' or 'UTC'.",
            field="tz",
        )
    if not crontab.is_known_zone(name):
        raise Rejected(
            f"tz: this machine does not know the time zone {shown(tz)}. Use a name such as 'Europe/Berlin', as the"
            " IANA spells it; for newer tables install the package tzdata.",
            field="tz",
        )
    return name


def schedule_view(row: ScheduleRow) -> Schedule:
    """A row as callers see it."""
    spec = _decode_spec(row.job)
    said = {
        option.column: value
        for name in JOB_OPTIONS
        if (value := getattr(spec, (option := OPTIONS[name]).column)) not in (None, "", b"", ())
    }
    return Schedule(
        name=row.name,
        cron=row.cron or None,
        tz=row.zone,
        every=row.every_ms / 1000 or None,
        missed=row.missed,
        overlap=row.overlap,
        paused=row.paused,
        next_at=None if row.paused or not row.next_ms else moment(row.next_ms),
        waiting_for=moment(row.waiting_ms) if row.waiting_ms else None,
        living=row.living,
        options=msgspec.to_builtins(options_of(said)),
        payload_bytes=content_bytes(row.payload),
    )


def views_of(rows: Sequence[ScheduleRow]) -> list[Schedule]:
    """Those of a head that are schedules, sorted by name."""
    return [schedule_view(row) for row in rows if scheduling.exists(row)]
