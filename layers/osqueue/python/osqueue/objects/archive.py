"""The archive: what finished, hour by hour, in immutable parts that outlive the queue.

    archive/queue=<queue>/date=<YYYY-MM-DD>/hour=<HH>/<shard>-<born>-<digest>.jsonl.gz

A part holds the records (``core.archive_record``) of finished jobs that had left the head, and is written by the reaper
before the commit that says so. A pass that dies in between leaves a part that the next pass writes again, perhaps
together with more: readers drop what they have seen by (job_id, run). The hour is that of the writing, by the
clock of heads, so a part is never late for its hour; the archive's store may have another one (``stores.split``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from .. import limits
from ..commit.effects import Flow
from ..commit.retry import OBJECT, ask_all
from ..core.archive_record import ArchiveRecord, decode_part
from ..core.encoding import born_of
from ..core.state import TableRef
from ..errors import Rejected, shown
from ..model.job import Job, archived_view
from ..stores.base import ARCHIVE, Found, Get, List, Listed, Missing
from .layout import unavailable

ROOT = ARCHIVE
PARTS_AT_ONCE = 8
HOURS_REMEMBERED = 3  # archived hours in which a record may be repeated


class Archived(Protocol):
    """A record, or a job as callers see it: what distinguishes one from another."""

    @property
    def job_id(self) -> str: ...
    @property
    def run(self) -> int: ...


R = TypeVar("R", bound=Archived)
_PART = re.compile(r"date=\d{4}-\d\d-\d\d/hour=\d\d/(?:[^/]+/)*[^/]+\.jsonl\.gz")  # behind the queue's folder


def folder_of(queue: str) -> str:
    """Where a queue's parts lie."""
    return f"{ROOT}queue={queue}/"


def hour_of(queue: str, ms: int) -> str:
    """The folder of one hour's parts."""
    return f"{folder_of(queue)}{datetime.fromtimestamp(ms / 1000, UTC):date=%Y-%m-%d/hour=%H}/"


def part_name(queue: str, shard: int, now_ms: int, taken: Sequence[TableRef], number: int = 0) -> str:
    """The part with the records of these tables: two passes that see the same ones write the same part.

    ``number`` tells the parts apart, in order, where payloads and results make several of them.
    """
    digest = hashlib.sha256("".join(table.name for table in taken).encode()).hexdigest()[:12]
    digest += f"{number:04x}" if number else ""
    return f"{hour_of(queue, now_ms)}{shard:02d}-{born_of(taken[-1].name):012x}-{digest}.jsonl.gz"


def is_part(key: str, queue: str) -> bool:
    """Return whether a key of a queue's folder is that of a part."""
    return _PART.fullmatch(key, len(folder_of(queue))) is not None


# ── Reading ──────────────────────────────────────────────────────────────────
def parts(queue: str, since_ms: int | None, after: str = "") -> Flow[list[str]]:
    """One page of the names of parts in order, from an hour or a part on. Empty: there are no more.

    What has no name of a part was put there by another program, and is left out.

    A job is archived in the hour in which it finished or a later one, never an earlier one.
    """
    folder = folder_of(queue)
    if not after and since_ms is not None:
        after = hour_of(queue, since_ms)  # sorts before all parts of that hour
    while True:
        reply = yield List(folder, after=after or folder)
        if not isinstance(reply, Listed):
            raise unavailable(reply, "the list of archive parts")
        found = [key for key in reply.keys if is_part(key, queue)]
        if found or not reply.more:
            return found
        after = reply.keys[-1]


def read(names: Sequence[str]) -> Flow[list[list[ArchiveRecord]]]:
    """The records of some parts. A part purged between listing and reading has none. Raises Damaged."""
    found: list[list[ArchiveRecord]] = []
    for at in range(0, len(names), PARTS_AT_ONCE):
        group = names[at : at + PARTS_AT_ONCE]
        for name, body in zip(group, (yield from bodies(group)), strict=True):
            found.append([] if body is None else decode_part(body, name))
    return found


def bodies(names: Sequence[str]) -> Flow[list[bytes | None]]:
    """Some parts as they lie there, read at once; None: it is not there any more. Raises Unavailable."""
    replies = yield from ask_all([Get(name) for name in names], OBJECT)
    found: list[bytes | None] = []
    for name, reply in zip(names, replies, strict=True):
        if not isinstance(reply, Found | Missing):
            raise unavailable(reply, name)
        found.append(reply.body if isinstance(reply, Found) else None)
    return found


class RecordDeduplicator:
    """Drops repeated records. A record is repeated by parts of the same hour or of hours not far from it."""

    def __init__(self) -> None:
        self._hours: dict[str, set[bytes]] = {}

    def fresh(self, name: str, records: Sequence[R]) -> Iterator[R]:
        """Those of a part that no earlier one had."""
        hour = name.rpartition("/")[0]
        mine = self._hours.setdefault(hour, set())
        for old in sorted(self._hours)[:-HOURS_REMEMBERED]:
            del self._hours[old]
        for each in records:
            who = bytes.fromhex(each.job_id.replace("-", "")) + each.run.to_bytes(8, "big")
            repeated = any(who in seen for seen in self._hours.values())
            mine.add(who)  # a repeated one as well: it may come again in the next hour, and the one after
            if not repeated:
                yield each


class RecordPager:
    """Goes through a queue's archive, page by page: each record once, in the order of the archive."""

    def __init__(
        self, queue: str, since: datetime | float | None = None, until: datetime | float | None = None
    ) -> None:
        self._queue = queue
        self._since, self._until = window(since, until)
        self._after = ""
        self._names: list[str] = []
        self._seen = RecordDeduplicator()

    def page(self) -> Flow[list[ArchiveRecord] | None]:
        """The records of the next few parts; None at the end. Raises Damaged or NewerFormat for a part."""
        if not self._names:
            self._names = yield from parts(self._queue, self._since, self._after)
            if not self._names:
                return None
        group, self._names = self._names[:PARTS_AT_ONCE], self._names[PARTS_AT_ONCE:]
        self._after = group[-1]
        found: list[ArchiveRecord] = []
        for name, records in zip(group, (yield from read(group)), strict=True):
            found.extend(each for each in self._seen.fresh(name, records) if self._wanted(each))
        return found

    def _wanted(self, record: ArchiveRecord) -> bool:
        at = record.finished_ms
        return (self._since is None or at >= self._since) and (self._until is None or at < self._until)


class JobPager:
    """The same as jobs, as callers see them."""

    def __init__(
        self, queue: str, since: datetime | float | None = None, until: datetime | float | None = None
    ) -> None:
        self._records = RecordPager(queue, since, until)

    def page(self) -> Flow[list[Job] | None]:
        """The next jobs; None at the end. Raises Damaged or NewerFormat for a part."""
        records = yield from self._records.page()
        return None if records is None else [archived_view(each) for each in records]


def window(since: datetime | float | None, until: datetime | float | None) -> tuple[int | None, int | None]:
    """Two moments (aware datetimes or Unix seconds) as milliseconds. Raises Rejected."""
    found = [_ms(value, field) for value, field in ((since, "since"), (until, "until"))]
    if found[0] is not None and found[1] is not None and found[0] > found[1]:
        raise Rejected("until: it is before since.", field="until")
    return found[0], found[1]


def _ms(value: Any, field: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise Rejected(f"{field}: the datetime has no time zone. Pass an aware one.", field=field)
        value = value.timestamp()
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value * 1000 <= limits.AT_MS_MAX:
        raise Rejected(f"{field}: {shown(value)} is neither an aware datetime nor Unix seconds.", field=field)
    found: int = round(value * 1000)
    return found
