"""Archived jobs, enqueued once more: which records of the archive are meant, and the jobs that come of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from .. import limits
from ..clock import MACHINE, Machine
from ..commit.driver import BlockingDriver
from ..core.archive_record import ArchiveRecord, content_from
from ..core.ops import JobSpec
from ..core.state import FAILED
from ..objects import archive
from ..stores.base import Store
from .writer import BulkResult, BulkWriter

GROUP_BYTES = 16 * 1024 * limits.KB  # payloads that are staged together


class ReplaySelection(Struct, frozen=True):
    """Which jobs of a queue's archive are meant."""

    queue: str
    since_ms: int | None = None  # that finished at this time or later
    until_ms: int | None = None  # and before this
    kind: str | None = None
    state: str | None = None

    def batch_id(self, keep_ids: bool) -> str:
        """An id of the bulk that they make, or those without a client's id: the same for the same selection."""
        return f"replay-{hashlib.sha256(msgspec.json.encode((self, keep_ids))).hexdigest()[:32]}"


class ReplayCount(Struct, frozen=True):
    """What a selection comes to."""

    jobs: int = 0
    without_payload: int = 0  # of those
    first_ms: int | None = None  # when the first one with a payload finished


def select(store: Store, wanted: ReplaySelection, machine: Machine = MACHINE) -> Iterator[ArchiveRecord]:
    """The records of a selection, in the order of the archive, each job once.

    A job that failed, was redriven and ended again has several records: the first counts. They have one payload.
    """
    run = BlockingDriver(store, machine).run
    since, until = (None if at is None else at / 1000 for at in (wanted.since_ms, wanted.until_ms))
    pages = archive.RecordPager(wanted.queue, since, until)
    met: set[str] = set()  # of the jobs that may have another record
    while (page := run(pages.page())) is not None:
        for record in page:
            if wanted.kind not in (None, record.kind) or wanted.state not in (None, record.state):
                continue
            if record.state == FAILED or record.run > 1:
                if record.job_id in met:
                    continue
                met.add(record.job_id)
            yield record


def count(records: Iterable[ArchiveRecord]) -> ReplayCount:
    """What records come to."""
    jobs = bare = 0
    first: int | None = None
    for record in records:
        jobs += 1
        if record.payload is None:
            bare += 1
        elif first is None or record.finished_ms < first:
            first = record.finished_ms
    return ReplayCount(jobs, bare, first)


def job_of(record: ArchiveRecord, key: bytes) -> JobSpec:
    """The job of a record once more: its payload and its options, but for its id and for when it was to start."""
    assert record.payload is not None
    return JobSpec(
        key,
        content_from(record.payload, record.codec),
        record.codec,
        record.kind,
        record.priority,
        record.max_attempts,
        record.result_ttl_ms,
        headers=tuple(record.headers.items()) or None,
        run_within_ms=record.run_within_ms,
    )


def enqueue_again(
    store: Store, into: str, records: Iterable[ArchiveRecord], batch_id: str, machine: Machine = MACHINE
) -> BulkResult:
    """Enqueue the jobs of records that have payloads, in order, under new keys, as one bulk.

    They become visible all at once. Of all runs under one ``batch_id`` the first makes them; the others finish it.
    Raises what ``BulkWriter.attach`` does.
    """
    bulks = BulkWriter(store, into, machine)
    if bulks.is_decided(batch_id):
        return bulks.resume(batch_id)
    plan = bulks.plan()
    stagers = [bulks.stager(plan, shard) for shard in range(len(plan.born))]
    first = int(machine.uniform() * len(stagers))
    for turn, group in enumerate(groups(record for record in records if record.payload is not None), first):
        stager = stagers[turn % len(stagers)]
        stager.add([job_of(record, key) for record, key in zip(group, stager.keys(len(group)), strict=True)])
    staged = [each for each in (stager.finish() for stager in stagers) if each.jobs]
    return bulks.attach(staged, batch_id) if staged else BulkResult(0)


def groups(records: Iterable[ArchiveRecord]) -> Iterator[list[ArchiveRecord]]:
    """As many as are enqueued together."""
    group: list[ArchiveRecord] = []
    size = 0
    for record in records:
        more = len(record.payload or "")
        if group and (len(group) >= limits.ITEMS_PER_REQUEST_MAX or size + more > GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(record)
        size += more
    if group:
        yield group
