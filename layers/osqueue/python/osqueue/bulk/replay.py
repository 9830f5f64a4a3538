"""Archived jobs, enqueued once more: which records of the archive are meant, and the jobs that come of them."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Iterator

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from ..clock import MACHINE, Machine
from ..commit.driver import BlockingDriver
from ..core.archive_record import ArchiveRecord, content_from
from ..core.encoding import cut_by_weight
from ..core.job_ops import JobSpec
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

    def finished_by(self, ms: int) -> ReplaySelection:
        """The same jobs, of those that had finished by then."""
        until = ms + 1 if self.until_ms is None else min(ms + 1, self.until_ms)
        return replace(self, until_ms=max(until, self.since_ms or 0))


class ReplayCount(Struct, frozen=True):
    """What a selection comes to."""

    jobs: int = 0
    without_payload: int = 0  # of those
    first_ms: int | None = None  # when the first one with a payload finished


def started_ms(store: Store, queue: str, into: str, machine: Machine = MACHINE) -> int:
    """When a replay starts, by the store's clock: no job has finished later.

    Without that bound a replay into the same queue might meet its own jobs again, which may end while it goes on. There
    the heads tell the time exactly; of another queue's heads a clock that shows whole seconds may be behind.
    """
    plan = BulkWriter(store, into, machine).plan()
    return plan.now_ms if into == queue else plan.latest_ms


def select(
    store: Store, wanted: ReplaySelection, machine: Machine = MACHINE
) -> Generator[ArchiveRecord, None, int]:
    """The records with a payload, in the order of the archive, each job once; answers how many jobs have none.

    A job that failed, was redriven and ended again has several records. The first one with a payload counts: the
    setting may have been turned on between.
    """
    run = BlockingDriver(store, machine).run
    since, until = (None if at is None else at / 1000 for at in (wanted.since_ms, wanted.until_ms))
    pages = archive.RecordPager(wanted.queue, since, until)
    several: dict[str, bool] = {}  # of the jobs that may have another record: has one had a payload?
    bare = 0  # other jobs without one
    while (page := run(pages.page())) is not None:
        for record in page:
            if wanted.kind not in (None, record.kind) or wanted.state not in (None, record.state):
                continue
            there = record.payload is not None
            if record.state == FAILED or record.run > 1:
                known = several.get(record.job_id, False)
                several[record.job_id] = known or there
                there = there and not known
            elif not there:
                bare += 1
            if there:
                yield record
    return bare + sum(not there for there in several.values())


def count(records: Generator[ArchiveRecord, None, int]) -> ReplayCount:
    """What a selection comes to."""
    jobs = 0
    first: int | None = None
    while True:
        try:
            record = next(records)
        except StopIteration as stop:
            return ReplayCount(jobs + stop.value, stop.value, first)
        jobs += 1
        first = record.finished_ms if first is None else min(first, record.finished_ms)


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
        units=record.units,
    )


def enqueue_again(
    store: Store, into: str, records: Iterable[ArchiveRecord], batch_id: str, machine: Machine = MACHINE
) -> BulkResult:
    """Enqueue the jobs of records, in order, under new keys, as one bulk.

    They become visible all at once. Of all runs under one ``batch_id`` the first makes them; the others finish it.
    Raises what ``BulkWriter.attach`` does.
    """
    bulks = BulkWriter(store, into, machine)
    if bulks.is_decided(batch_id):
        return bulks.resume(batch_id)
    plan = bulks.plan()
    stagers = [bulks.stager(plan, shard) for shard in range(len(plan.born))]
    first = int(machine.uniform() * len(stagers))
    for turn, group in enumerate(groups(records), first):
        stager = stagers[turn % len(stagers)]
        stager.add([job_of(record, key) for record, key in zip(group, stager.keys(len(group)), strict=True)])
    staged = [each for each in (stager.finish() for stager in stagers) if each.jobs]
    return bulks.attach(staged, batch_id) if staged else BulkResult(0)


def groups(records: Iterable[ArchiveRecord]) -> Iterator[list[ArchiveRecord]]:
    """As many as are enqueued together."""
    return cut_by_weight(
        records, lambda each: len(each.payload or ""), GROUP_BYTES, limits.ITEMS_PER_REQUEST_MAX
    )
