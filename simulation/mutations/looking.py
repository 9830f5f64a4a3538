"""Looking at jobs, one by one or all of them, and at the archive, with one check removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from msgspec.structs import replace

from osqueue.commit.effects import Flow, QueueFlow
from osqueue.core import archive_record
from osqueue.core.archive_record import ArchiveRecord
from osqueue.core.state import ARCHIVE_ONLY, ENDED, FinishedJob, State, TableRef
from osqueue.errors import Damaged, NotFound, OsqueueError, Unavailable
from osqueue.objects import archive, finished_tables, listing, lookup, snapshot
from osqueue.objects.archive import RecordDeduplicator
from osqueue.operations.results import ResultFlows

from .control import Control, in_scene, patched


# ── Jobs ─────────────────────────────────────────────────────────────────────
def records_for_the_archive_count() -> AbstractContextManager[None]:
    """A job is over if the head has a record of an end of it for the archive."""
    return patched((lookup, "ARCHIVE_ONLY", "no mark"))


def cancelled_jobs_wait() -> AbstractContextManager[None]:
    """A job waits if it lies in a segment, cancelled or not."""
    real = lookup.find_many_in_state

    def look_many(root: str, state: State, keys: Any) -> Flow[Any]:
        return (yield from real(root, replace(state, tombstones=()), keys))

    return patched((lookup, "find_many_in_state", look_many))


def oldest_tables_first() -> AbstractContextManager[None]:
    """Of two tables that know a job the older one is believed."""
    real = finished_tables.find_many

    def find_many(root: str, tables: Sequence[TableRef], keys: Iterable[bytes], known: Any = ()) -> Flow[Any]:
        return (yield from real(root, tables[::-1], keys, known))

    return patched((finished_tables, "find_many", find_many))


def gone_is_nowhere() -> AbstractContextManager[None]:
    """A job is nowhere if a table that may know it is gone."""
    return _nowhere(NotFound)


def unreadable_is_nowhere() -> AbstractContextManager[None]:
    """A job is nowhere if what may know it cannot be read."""
    return _nowhere(Damaged)


def _nowhere(error: type[OsqueueError]) -> AbstractContextManager[None]:
    real = lookup.find_in_state

    def look(*args: Any) -> Flow[Any]:
        with suppress(error):
            return (yield from real(*args))
        return None

    return patched((lookup, "find_in_state", look))


def results_do_not_go() -> AbstractContextManager[None]:
    """A result that a row names is there, or lost."""

    def gone(self: Any, key: bytes, row: FinishedJob, missing: NotFound) -> Flow[OsqueueError]:
        yield from ()
        return Damaged(missing.message)

    return patched((ResultFlows, "_gone", gone))


# ── All jobs ─────────────────────────────────────────────────────────────────
def pages_with_records_for_the_archive() -> AbstractContextManager[None]:
    """A page tells of an end of a job that the head has a record of for the archive."""
    real = listing._Page.fill

    def fill(self: Any, root: str, state: State, skip: int) -> QueueFlow[None]:
        rows = tuple(replace(row, mark=ENDED) if row.mark == ARCHIVE_ONLY else row for row in state.finished)
        yield from real(self, root, replace(state, finished=rows), skip)

    return patched((listing._Page, "fill", fill))


def pages_with_cancelled_jobs() -> AbstractContextManager[None]:
    """A page shows what lies in segments, cancelled or not."""
    real = listing._Page.spans

    def spans(self: Any, state: State, *more: Any) -> QueueFlow[None]:
        yield from real(self, replace(state, tombstones=()), *more)

    return patched((listing._Page, "spans", spans))


def cancelled_jobs_count() -> AbstractContextManager[None]:
    """What lies in segments is counted, cancelled or not."""
    real = listing.count_states
    return patched((listing, "count_states", lambda state: real(replace(state, tombstones=()))))


def snapshots_with_cancelled_jobs() -> AbstractContextManager[None]:
    """A snapshot shows what lies in segments, cancelled or not."""
    real = snapshot.read

    def read(queue: str, piece: snapshot.Piece) -> Flow[list[snapshot.LiveJob]]:
        return (yield from real(queue, replace(piece, dropped=frozenset())))

    return patched((snapshot, "read", read))


def snapshots_without_what_is_gone() -> AbstractContextManager[None]:
    """A snapshot has no jobs where there is no segment any more."""
    real = snapshot.read

    def read(queue: str, piece: snapshot.Piece) -> Flow[list[snapshot.LiveJob]]:
        with suppress(NotFound):
            return (yield from real(queue, piece))
        return []

    return patched((snapshot, "read", read))


# ── The archive ──────────────────────────────────────────────────────────────
def records_come_again() -> AbstractContextManager[None]:
    """A record that is in two parts is told twice."""
    return patched((RecordDeduplicator, "fresh", lambda self, name, records: iter(records)))


def repeats_are_not_noted() -> AbstractContextManager[None]:
    """A record is known for some hours after it came first, however often it has come since."""

    def fresh(self: Any, name: str, records: Sequence[ArchiveRecord]) -> Iterator[ArchiveRecord]:
        mine = self._hours.setdefault(name.rpartition("/")[0], set())
        for old in sorted(self._hours)[: -archive.HOURS_REMEMBERED]:
            del self._hours[old]
        for each in records:
            who = each.job_id, each.run
            if not any(who in seen for seen in self._hours.values()):
                mine.add(who)
                yield each

    return patched((RecordDeduplicator, "fresh", fresh))


def unread_parts_are_empty() -> AbstractContextManager[None]:
    """A part of which the store gave no answer counts as purged."""
    real = archive.bodies

    def bodies(names: Sequence[str]) -> Flow[list[bytes | None]]:
        with suppress(Unavailable):
            return (yield from real(names))
        return [None for _ in names]

    return patched((archive, "bodies", bodies))


def unlisted_parts_are_none() -> AbstractContextManager[None]:
    """The archive ends where the store does not list it."""
    real = archive.parts

    def parts(*args: Any) -> Flow[list[str]]:
        with suppress(Unavailable):
            return (yield from real(*args))
        return []

    return patched((archive, "parts", parts))


def damaged_parts_are_empty() -> AbstractContextManager[None]:
    """A part that cannot be read tells of nothing."""

    def decode_part(data: bytes, name: str) -> list[ArchiveRecord]:
        with suppress(Damaged):
            return archive_record.decode_part(data, name)
        return []

    return patched((archive, "decode_part", decode_part))


_TOLD = "asked .* and was told"
_CANCELLED = "cancelled in a segment"
_REDRIVEN = "redriven into a segment"
_LACKS = "the archive tells of 0 records"
_TWICE = "more than once"

CONTROLS: tuple[Control, ...] = (
    Control("jobs that failed once", records_for_the_archive_count, (in_scene(_REDRIVEN, _TOLD),)),
    Control("cancelled jobs in segments", cancelled_jobs_wait, (in_scene(_CANCELLED, _TOLD),)),
    Control("youngest tables first", oldest_tables_first, (in_scene("prolonged in a younger table", _TOLD),)),
    Control("tables that are gone", gone_is_nowhere, (in_scene("merged as somebody looks", _TOLD),)),
    Control(
        "jobs that cannot be read",
        unreadable_is_nowhere,
        (in_scene("looked for where nobody can tell", _TOLD),),
    ),
    Control(
        "results that were collected",
        results_do_not_go,
        tuple(
            in_scene(f"collected as its result {what}", "was told .*Damaged")
            for what in ("is read", "answers")
        ),
    ),
    Control(
        "pages of jobs that failed once",
        pages_with_records_for_the_archive,
        (in_scene(_REDRIVEN, "a listing tells of"),),
    ),
    Control(
        "pages without cancelled jobs",
        pages_with_cancelled_jobs,
        (in_scene(_CANCELLED, "a listing tells of"),),
    ),
    Control("numbers without cancelled jobs", cancelled_jobs_count, (in_scene(_CANCELLED, "were counted"),)),
    Control(
        "snapshots without cancelled jobs",
        snapshots_with_cancelled_jobs,
        (in_scene(_CANCELLED, "a snapshot tells of"),),
    ),
    Control(
        "snapshots that are too old",
        snapshots_without_what_is_gone,
        (in_scene("collected as a snapshot is read", "a snapshot tells of"),),
    ),
    Control("records that repeat", records_come_again, (in_scene("archived by many", _TWICE),)),
    Control("records that repeat for hours", repeats_are_not_noted, (in_scene("archived by many", _TWICE),)),
    Control("parts that were not read", unread_parts_are_empty, (in_scene("parts out of reach", _LACKS),)),
    Control(
        "parts that were not listed",
        unlisted_parts_are_none,
        (in_scene("list of parts out of reach", _LACKS),),
    ),
    Control("parts that are damaged", damaged_parts_are_empty, (in_scene("damaged part", _LACKS),)),
)
