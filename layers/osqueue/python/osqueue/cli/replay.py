"""``osqueue archive replay``: archived jobs, enqueued once more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import Any

import click
from msgspec import Struct

from ..bulk.replay import (
    ReplayCount,
    ReplaySelection,
    count,
    enqueue_again,
    groups,
    job_of,
    select,
    started_ms,
)
from ..bulk.writer import BulkWriter, batch_id_of
from ..core.archive_record import ArchiveRecord
from ..core.state import CANCELLED, COMPLETED, FAILED
from ..errors import Rejected
from ..model.fields import moment as shown_moment
from ..model.job_options import options_of
from ..objects.archive import window
from ..queue.blocking import Queue
from .options import StoreCommand, archived_queue, as_text, is_known, moment, open_queue, store_arguments
from .output import Output, otherwise_saying

KEPT = ("kind", "priority", "max_attempts", "result_ttl_ms", "run_within_ms", "units", "headers")

EPILOG = """\b
Examples:
  osqueue archive replay s3://bucket/prefix emails --since 2030-01-31T00:00:00Z --into emails-again --dry-run
  osqueue archive replay s3://bucket/prefix emails --since 2030-01-31T00:00:00Z --state failed --into emails
"""


class _AsItIs:
    """A serialiser whose values are the bytes that another one of its name has written."""

    def __init__(self, name: str) -> None:
        self.name = name

    def dumps(self, value: bytes) -> bytes:
        return value

    def loads(self, data: bytes, type: Any) -> bytes:
        return data


class _Ids(Struct):
    """What became of jobs under their clients' ids."""

    enqueued: int = 0
    known: int = 0  # an earlier job of the id lives, or its result is kept


@click.command("replay", short_help="Enqueue archived jobs once more.", cls=StoreCommand, epilog=EPILOG)
@store_arguments()
@click.option("--into", required=True, help="The queue that gets the jobs; it may be the same one.")
@click.option("--since", type=moment, help="Only what finished at this time or later.")
@click.option("--until", type=moment, help="Only what finished before this time.")
@click.option("--state", type=click.Choice((COMPLETED, FAILED, CANCELLED)), help="Only jobs that ended so.")
@click.option("--kind", help="Only this kind.")
@click.option("--keep-ids", is_flag=True, help="Under the clients' own ids, unless these are taken.")
@click.option("--skip-missing", is_flag=True, help="Leave out jobs without a payload in the archive.")
@click.option("--batch-id", help="No two runs under one add the same jobs.  [default: made of the options]")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.pass_obj
def replay(
    output: Output,
    address: str,
    queue: str,
    into: str,
    since: datetime | float | None,
    until: datetime | float | None,
    state: str | None,
    kind: str | None,
    keep_ids: bool,
    skip_missing: bool,
    batch_id: str | None,
    dry_run: bool,
    timeout: float,
) -> None:
    """Enqueue jobs of the archive once more, with new job ids, in the order of the archive.

    The archive has payloads where the queue's setting archive_payloads was on when a job ended. A job keeps its
    kind, priority, attempts, result TTL, run-time limit and headers. All jobs appear at once. A second run
    with the same options adds nothing, and finishes what one that died has left.
    """
    since_ms, until_ms = window(since, until)
    asked = ReplaySelection(queue, since_ms, until_ms, kind, state)
    batch = batch_id_of(asked.batch_id(keep_ids) if batch_id is None else batch_id)
    with (
        open_queue(address, queue, timeout) as q,
        open_queue(address, as_text(into, "into"), timeout) as target,
    ):
        store = archived_queue(q).store
        told: dict[str, Any] = {"queue": queue, "into": into, "batch_id": batch}
        if not keep_ids and not dry_run and BulkWriter(store, into).is_decided(batch):
            done = BulkWriter(store, into).resume(batch)
            output.record({**told, "enqueued": 0, "repeated": done.jobs})
            return
        if not dry_run:
            asked = asked.finished_by(started_ms(store, queue, into))
        found = count(select(store, asked))
        told.update(jobs=found.jobs, without_payload=found.without_payload)
        missing = _missing(q, found) if found.without_payload and not skip_missing else None
        if dry_run:
            output.record({**told, "would_enqueue": found.jobs - found.without_payload})
            if missing is not None:
                output.note(missing.message)
            return
        if missing is not None:
            raise missing
        ids = _Ids()
        if keep_ids:
            named = (each for each in select(store, asked) if each.client_id is not None)
            _under_ids(target, named, ids)
        rest = (each for each in select(store, asked) if not keep_ids or each.client_id is None)
        with otherwise_saying("Run it again to learn what it came to: nothing is added twice."):
            made = enqueue_again(store, into, rest, batch)
            new, old = (0, made.jobs) if made.repeated else (made.jobs, 0)
            told.update(enqueued=ids.enqueued + new, repeated=ids.known + old)
            output.record(told)


def _missing(q: Queue[Any], found: ReplayCount) -> Rejected:
    """The error where some jobs have no payload in the archive."""
    if not is_known(q):
        setting = "the queue is gone, and its archive gets no others"
    elif q.stats()["settings"]["archive_payloads"]:
        setting = "archive_payloads is on now"
    else:
        setting = (
            f"archive_payloads is off; 'osqueue queue configure ADDRESS {q.name} --archive-payloads' turns it on"
            " for jobs that end from then on"
        )
    which = "none of them has one"
    if found.first_ms is not None:
        which = f"the first one that has one finished at {shown_moment(found.first_ms).isoformat()}"
    return Rejected(
        f"payload: {found.without_payload:,} of {found.jobs:,} jobs have no payload in the archive ({which}). It gets"
        f" them while the queue's setting archive_payloads is on: {setting}. Nothing was enqueued. Choose another"
        " --since, or pass --skip-missing to leave those jobs out.",
        field="payload",
    )


def _under_ids(target: Queue[Any], records: Iterable[ArchiveRecord], done: _Ids) -> None:
    """Enqueue jobs under their clients' ids. An id that is taken already says that its job is there."""
    for codec, group in _by_codec(records):
        q: Queue[Any] = Queue(target.store, target.name, serializer=_AsItIs(codec), timeout=target.timeout)
        for answer in q.enqueue_many([_item(each) for each in group]):
            if answer.error is not None:
                answer.error.message += " Run it again: what is there already is not added twice."
                raise answer.error
            done.known += answer.status in ("duplicate", "completed")
            done.enqueued += answer.status == "queued"


def _by_codec(records: Iterable[ArchiveRecord]) -> Iterator[tuple[str, list[ArchiveRecord]]]:
    for group in groups(records):
        for codec, same in groupby(group, key=lambda each: each.codec):
            yield codec, list(same)


def _item(record: ArchiveRecord) -> dict[str, Any]:
    job = job_of(record, b"")
    found = options_of({name: getattr(job, name) for name in KEPT})
    return {**found, "payload": job.payload, "id": record.client_id, "kind": job.kind or None}
