"""Payloads and results in the archive, with one check removed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue.core import archive_record, erase, restore, spill, tables
from osqueue.core.archive_record import ArchivedContents
from osqueue.core.draft import Draft
from osqueue.core.rows import BodyRef
from osqueue.core.state import FinishedJob, TableRef
from osqueue.maintenance import compaction

from .control import Control, in_runs, patched
from .repairs import in_repair


def contents_nobody_refers_to() -> AbstractContextManager[None]:
    """A row refers to its result alone, so nobody spares the object that its payload lies in."""

    def bodies(self: FinishedJob) -> tuple[BodyRef, ...]:
        return (self.result,) if isinstance(self.result, BodyRef) else ()

    return patched((FinishedJob, "bodies", property(bodies)))


def lost_on_the_way_to_a_table() -> AbstractContextManager[None]:
    """What leaves the head for a table leaves its payload behind."""
    real = tables.encode_table

    def encode_table(rows: Sequence[FinishedJob], archived: bool, name: str) -> tuple[bytes, TableRef]:
        return real([replace(row, payload=None) for row in rows], archived, name)

    return patched((tables, "encode_table", encode_table))


def spilled_into_the_result() -> AbstractContextManager[None]:
    """A payload that has no room in the head is written beside it, and the row refers to its result there."""
    real = spill._spill_contents

    def spill_contents(draft: Draft) -> None:
        before = list(draft.finished)
        real(draft)
        for at, (old, new) in enumerate(zip(before, draft.finished, strict=True)):
            if isinstance(old.payload, bytes) and isinstance(new.payload, BodyRef):
                draft.finished[at] = replace(new, payload=replace(new.payload, start=0))

    return patched((spill, "_spill_contents", spill_contents))


def second_copies_spilled() -> AbstractContextManager[None]:
    """The payload of a dead letter's record is written beside the head, where no row tells of it later."""
    return patched((spill, "ARCHIVE_ONLY", -1))


def kept_once_archived() -> AbstractContextManager[None]:
    """A row keeps its payload when the archive has it."""

    def replaced(row: Any, **changes: Any) -> Any:
        return row if changes == {"payload": None} else replace(row, **changes)

    return patched((compaction, "replace", replaced))


def kept_by_rows_that_come_back() -> AbstractContextManager[None]:
    """A restored row whose record the archive has keeps its payload."""
    return patched((restore, "without_payload", lambda row: row))


def taken_for_each_other() -> AbstractContextManager[None]:
    """A record has the result of a job for its payload, and the payload for its result."""
    real = archive_record.archived_contents

    def contents(row: FinishedJob, read: Any) -> ArchivedContents:
        return real(row, iter([next(read) for _ in archive_record.contents_of(row)][::-1]))

    return patched((compaction, "archived_contents", contents))


def payloads_not_blanked() -> AbstractContextManager[None]:
    """A purge leaves the payload in a row of a job that is over."""
    real = erase.blank_row

    def blank_row(row: FinishedJob) -> FinishedJob:
        return replace(real(row), payload=row.payload)

    return patched((erase, "blank_row", blank_row))


CONTROLS: tuple[Control, ...] = (
    Control(
        "payloads are referred to until they are archived",
        contents_nobody_refers_to,
        (in_runs("payloads", "says other than what is there|leaves out|another payload", seed=15),),
    ),
    Control(
        "payloads go into tables",
        lost_on_the_way_to_a_table,
        (in_runs("payloads", "another payload"),),
    ),
    Control(
        "payloads that are spilled",
        spilled_into_the_result,
        (in_runs("payloads", "leaves out|another payload"),),
    ),
    Control(
        "one copy beside the head",
        second_copies_spilled,
        (in_repair("purged once archived", "can be read in"),),
    ),
    Control(
        "no payloads once archived",
        kept_once_archived,
        (in_runs("payloads", "keeps payloads that the archive has"),),
    ),
    Control(
        "no payloads of restored rows",
        kept_by_rows_that_come_back,
        (in_runs("payloads purged", "has no record to come|keeps payloads", seed=4),),
    ),
    Control(
        "payloads told from results",
        taken_for_each_other,
        (in_runs("payloads", "has another payload"),),
    ),
    Control(
        "payloads that a purge blanks",
        payloads_not_blanked,
        (in_repair("payload blank in a copy", "can be read in"),),
    ),
)
