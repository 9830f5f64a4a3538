"""Payloads and results in the archive: it tells what was enqueued, and no row keeps anything for it for too long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from osqueue.commit.effects import Flow
from osqueue.core.archive_record import ArchiveRecord, wants_record
from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.state import COMPLETED, FinishedJob, State

from .ledger import Violation
from .shelves import Record, TableLeaf, record_of

if TYPE_CHECKING:
    from .clients import Client
    from .invariants import Invariants


def archive_them(client: Client, pause_seconds: float) -> Flow[None]:
    """An operator who wants payloads in the archive, and now and then does not."""
    while True:
        while (yield from client.call(ChangeSettings(archive_payloads=True))).answer is None:
            yield from client.pause(1.0)
        yield from client.pause(pause_seconds * 20)
        if client.dice.random() < 0.3:
            yield from client.call(ChangeSettings(archive_payloads=False))
            yield from client.pause(pause_seconds)


def check_rows(inv: Invariants, before: State | None, state: State, leaves: Sequence[TableLeaf]) -> None:
    """A job that ends keeps its payload if the queue archives payloads, and until the archive has it."""
    wished = {each.settings.archive_payloads for each in (before or state, state)}
    had = {record_of(row) for row in before.finished} if before else set[Record]()
    for row in state.finished:
        fresh = record_of(row) not in had and wants_record(row)
        if fresh and len(wished) == 1 and {row.payload is not None} != wished:
            raise Violation(f"{row.key.hex()} ended, and its payload is kept {row.payload is not None}")
        if row.payload is not None and not wants_record(row):
            raise Violation(f"{row.key.hex()} keeps its payload, and has no record to come")
        if fresh and row.payload is not None:
            _same_payload(inv, row)
    for leaf in leaves:
        if leaf.table.archived and any(row.payload is not None for row in leaf.rows):
            raise Violation(f"{leaf.table.name} keeps payloads that the archive has")


def _same_payload(inv: Invariants, row: FinishedJob) -> None:
    known = inv.stories.accepted.get(row.key)
    if row.payload is None or known is None or row.key in inv.purged:
        return
    if inv.stories.content(row.payload) != known.payload:
        raise Violation(f"{row.key.hex()} ended with another payload than was accepted")


def check_records(inv: Invariants, records: Iterable[tuple[Record, ArchiveRecord]]) -> None:
    """A record has the payload and the result of its job if its row kept them, and no others."""
    for at, record in records:
        row = inv.finished.get(at)
        if row is None or row.key in inv.purged or inv.ledger.lives:
            continue  # what a purge or a lost head left behind may be less
        if row.payload is None:
            if (record.payload, record.result, record.left_out) != (None, None, {}):
                raise Violation(f"the archive has a payload of {row.key.hex()}, which nobody wished")
            continue
        if record.left_out:
            raise Violation(f"the archive leaves out {record.left_out} of {row.key.hex()}")
        known = inv.stories.accepted.get(row.key)
        if record.payload is None or (known is not None and record.payload.encode() != known.payload):
            raise Violation(f"the archive has another payload of {row.key.hex()} than was accepted")
        result = inv.stories.results.get(row.key, b"") if row.state == COMPLETED else b""
        if (record.result or "").encode() != result:
            raise Violation(f"the archive has another result of {row.key.hex()} than was completed")
