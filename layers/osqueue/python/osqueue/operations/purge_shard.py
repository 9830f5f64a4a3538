"""The purge of some jobs of one shard, step by step: see ``purge`` for the order and its reasons."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from .. import limits
from ..commit.effects import Flow, QueueFlow, Submit
from ..commit.retry import ENTRY, ask
from ..core import erase, event_log
from ..core.encoding import decode_head, encode_head, encode_segment
from ..core.job_ops import SpanSwap
from ..core.ops import Code, Op
from ..core.queue_ops import EraseJobs, MergeTables
from ..core.rows import BodyRef
from ..core.scheduling import is_shared
from ..core.state import CANCELLED, COMPLETED, FinishedJob, JobRecord, Span, State, TableRef, Transition
from ..core.tables import FOLDER as TABLES
from ..core.tables import encode_table, encode_table_index
from ..errors import Conflict, Damaged, NewerFormat, NotFound, OsqueueError, Throttled
from ..model.keys import drawn_ms, job_id
from ..model.reports import Purged
from ..objects import archive, backups, event_objects, finished_tables, id_index, segments
from ..objects.layout import read_state, root_of, unavailable
from ..objects.segment_rewrite import Leaf, span_without
from ..objects.staging import StagingArea
from ..stores.base import (
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    Missing,
    Put,
    PutIfMatch,
    Refused,
    StoreReply,
    StoreRequest,
    Written,
)
from .results import ResultFlows

TRIES = 20  # of a step that others' commits or writes come in between
CLOCK_SLACK_MS = limits.DAY_MS  # by how much the clock that drew a key may have been ahead

_decode_jobs = msgspec.msgpack.Decoder(tuple[JobRecord, ...]).decode
_decode_rows = msgspec.msgpack.Decoder(tuple[FinishedJob, ...]).decode


class Target(Struct, frozen=True):
    """A job to purge."""

    key: bytes
    client_id: str | None  # that the caller gave; freed last: a repeat finds the job by it


class ShardPurge:
    """The purge of some jobs of one shard."""

    def __init__(self, flows: ResultFlows, shard: int, targets: Sequence[Target]) -> None:
        self.flows = flows
        self.queue = flows.queue
        self.shard = shard
        self.root = root_of(flows.queue, shard)
        self.targets = targets
        self.keys = frozenset(target.key for target in targets)
        self.ids_last = frozenset(target.client_id for target in targets)
        self.done = Purged(())
        self.wiped: set[BodyRef] = set()
        self.looked: set[str] = set()  # objects that were looked into, and copies of heads
        self.since = max(0, min(map(drawn_ms, self.keys)) - CLOCK_SLACK_MS)

    def count(self, **more: Any) -> None:
        self.done += Purged((), **more)

    def run(self, state: State | None) -> QueueFlow[Purged]:
        """Set out from this state of the shard."""
        machine = self.flows.machine
        now = machine.now_ms() if state is None else (yield from self.flows.moment(self.shard, state))
        note = backups.purge_list(self.queue, self.shard, now, self.keys)
        yield from _ask(note, note.key)
        if state is not None:
            yield from self._rows(erase.rows_in(state, self.keys))
            yield from self._objects(state)
        yield from self._backups()
        if state is not None:
            try:
                yield from self._forget()
            except (Conflict, Throttled):
                with suppress(OsqueueError):
                    yield from self._spare(note)
                raise
            yield from self._backups()  # a reaper may have made another one meanwhile, of the head before
        yield from self._events()
        yield from self._archive()
        asked = [
            id_index.FinishedId(each.client_id, each.key)
            for each in self.targets
            if each.client_id is not None
        ]
        yield from self._free(asked)
        return self.done

    def _spare(self, note: Put) -> QueueFlow[None]:
        """Take jobs that were redriven meanwhile out of the list: they live on, also after a restore.

        The list is written first all the same, and not right before the jobs are forgotten: a restore in between would
        not know of them. A purge that dies leaves jobs in it that somebody did want erased.
        """
        state = yield from read_state(self.queue, self.shard)
        if state is not None:
            alive = erase.alive_in(state, self.keys)
            if alive:
                yield from _ask(backups.shorten_purge_list(note, self.keys - alive), note.key)

    # ── Contents ─────────────────────────────────────────────────────────────
    def _rows(
        self, rows: Iterator[JobRecord | FinishedJob] | Sequence[JobRecord | FinishedJob]
    ) -> QueueFlow[None]:
        """Erase what rows refer to, before the rows themselves go."""
        for row in list(rows):
            job = row.job if isinstance(row, FinishedJob) else row
            self.since = min(self.since, job.enqueued_ms)
            contents = [*job.contents, *((*row.bodies, row.spent) if isinstance(row, FinishedJob) else ())]
            for content in contents:
                if isinstance(content, BodyRef) and content not in self.wiped:
                    self.wiped.add(content)
                    if is_shared(content):  # a schedule's, whose other jobs need it
                        continue
                    self.count(contents=(yield from self._wipe(content)))
            if job.client_id is not None and job.client_id not in self.ids_last:
                finished_ms = row.finished_ms if isinstance(row, FinishedJob) else 0
                heir = row.successor if isinstance(row, FinishedJob) else None
                yield from self._free(
                    [id_index.FinishedId(job.client_id, job.key, finished_ms, heir, job.replaced)]
                )

    def _free(self, ends: Sequence[id_index.FinishedId]) -> QueueFlow[None]:
        freed, _ = yield from id_index.free(self.queue, ends)  # a damaged entry says nothing about the job
        self.count(ids=freed)

    def _wipe(self, body: BodyRef) -> QueueFlow[int]:
        """Overwrite part of a body object with zeros; delete the object when that is all of it."""
        name = self.root + body.name
        for _ in range(TRIES):
            alone = not body.start and body.length >= limits.BODY_BYTES_MAX  # larger ones share with nobody
            found = yield from _ask(Get(name, start=0, length=1) if alone else Get(name), body.name)
            if not isinstance(found, Found):
                return 0
            end = body.start + body.length
            if alone or (not body.start and end == len(found.body)):
                reply = yield from _ask(DeleteIfMatch(name, found.version), body.name)
            elif not any(found.body[body.start : end]):
                return 0
            else:
                data = found.body[: body.start] + bytes(body.length) + found.body[end:]
                reply = yield from _ask(PutIfMatch(name, data, found.version), body.name)
            if not isinstance(reply, Refused):
                return 1
        raise changes_too_fast()

    # ── Segments, tables, copies of heads ────────────────────────────────────
    def _covers(self, pointer: Span | TableRef) -> bool:
        return pointer.name not in self.looked and any(pointer.first <= k <= pointer.last for k in self.keys)

    def _objects(self, state: State) -> QueueFlow[None]:
        """Blank the jobs in every segment and table that a head leads to."""
        lanes = [span for lane in state.lanes for span in lane.backlog.spans]
        yield from self._spans([*lanes, *state.delayed.spans, *state.dead.spans])
        yield from self._tables(state.tables)

    def _spans(self, spans: Sequence[Span]) -> QueueFlow[None]:
        for span in filter(self._covers, spans):
            self.looked.add(span.name)
            if span.level:
                try:
                    below = yield from segments.children(self.root, span)
                except NotFound:
                    continue  # named by an old copy of the head, and gone
                yield from self._spans(below)
            else:
                yield from self._blank(b"OSQB", span.name, _decode_jobs, erase.blank_job, lambda job: job.key)

    def _tables(self, tables: Sequence[TableRef]) -> QueueFlow[None]:
        for table in filter(self._covers, tables):
            self.looked.add(table.name)
            if table.level:
                try:
                    below = yield from finished_tables.children(self.root, table)
                except NotFound:
                    continue
                yield from self._tables(below)
            else:
                yield from self._blank(
                    b"OSQT", table.name, _decode_rows, erase.blank_row, lambda row: row.key
                )

    def _blank(
        self,
        magic: bytes,
        name: str,
        decode: Callable[[bytes], tuple[Any, ...]],
        blank: Callable[[Any], Any],
        key_of_row: Callable[[Any], bytes],
    ) -> QueueFlow[None]:
        found = yield from _ask(Get(self.root + name), name)
        if not isinstance(found, Found):
            return
        mine: list[Any] = []

        def change(row: Any) -> Any:
            if key_of_row(row) not in self.keys:
                return row
            mine.append(row)
            return blank(row)

        data = erase.blank_object(magic, found.body, name, decode, change)
        yield from self._rows([row for row in mine if not isinstance(row, Transition)])
        if data is None:
            self.count(left=(self.root + name,))
        elif data != found.body:
            reply = yield from _ask(PutIfMatch(self.root + name, data, found.version), name)
            if isinstance(reply, Refused):  # collected, or blanked by another purge with others in mind
                yield from self._blank(magic, name, decode, blank, key_of_row)
            else:
                self.count(objects=1)

    def _backups(self) -> QueueFlow[None]:
        for name in (yield from backups.saved(self.queue, self.shard)):
            if backups.is_purge(name) or name in self.looked:
                continue
            self.looked.add(name)
            for _ in range(TRIES):
                if (yield from self._backup(name)):
                    break
            else:
                raise changes_too_fast()

    def _backup(self, name: str) -> QueueFlow[bool]:
        """Blank the jobs in one copy of the head, and in what it leads to; False: it changed meanwhile."""
        found = yield from _ask(Get(name), name)
        if not isinstance(found, Found):
            return True
        try:
            state = decode_head(found.body)
        except (Damaged, NewerFormat):
            self.count(left=(name,))
            return True
        yield from self._rows(erase.rows_in(state, self.keys))
        yield from self._objects(state)
        blank = erase.blank_state(state, self.keys)
        if blank is state:
            return True
        reply = yield from _ask(PutIfMatch(name, encode_head(blank), found.version), name)
        self.count(backups=int(isinstance(reply, Written)))
        return isinstance(reply, Written)

    # ── The state ────────────────────────────────────────────────────────────
    def _forget(self) -> QueueFlow[None]:
        """Take the jobs out of the head, the dead letters and the tables; in one commit, unless others come between."""
        for _ in range(TRIES):
            state = yield from read_state(self.queue, self.shard)
            if state is None:
                return
            if not self.keys.isdisjoint(state.leases):
                raise Conflict(
                    "a job was redriven while it was purged, and is being worked on. Purge it once it is over."
                )
            stage = yield from self._stage(state)
            try:
                yield from self._rows(erase.rows_in(state, self.keys))  # some may have been moved meanwhile
                swaps = yield from self._swaps(state, stage)
                merges, rows = yield from self._merges(state, stage)
            except NotFound:
                continue  # the head has moved on
            ops: list[Op] = [*merges]
            recorded = erase.blank_log(state.log, self.keys) is not state.log
            if swaps or recorded or any(True for _ in erase.rows_in(state, self.keys)):
                ops.append(EraseJobs(tuple(sorted(self.keys)), tuple(swaps), wiped=tuple(self.wiped)))
            if not ops:
                return
            # Settled announcements go with it, and all publications.
            answer = yield Submit(self.shard, tuple(ops), look=True)
            if merges and all(each.code == Code.OK for each in answer.outcomes[: len(merges)]):
                self.count(tables=rows)
            last = answer.outcomes[-1]
            if len(ops) > len(merges) and last.code == Code.OK:
                self.count(state=last.count)
            # Once more: it may have left the head for a table meanwhile.
        raise changes_too_fast()

    def _stage(self, state: State) -> QueueFlow[StagingArea]:
        """For objects born no earlier than what they replace: the reducer sees by that what may hold a younger row."""
        stage = yield from self.flows.stage(self.shard)
        stage.born = max(stage.born, state.seq)
        return stage

    def _swaps(self, state: State, stage: StagingArea) -> QueueFlow[list[SpanSwap]]:
        """Dead letters in segments: the spans that hold them, and those to take their places."""
        swaps = []
        for span in state.dead.spans:
            fresh, dropped = yield from span_without(
                self.root, span, self.keys, stage, self._rewriting(stage)
            )
            if dropped:
                swaps.append(SpanSwap(span, fresh))
        return swaps

    def _rewriting(self, stage: StagingArea) -> Leaf:
        """Writes a segment again without the purged jobs: such a segment is a small one."""

        def leaf(span: Span, keys: Collection[bytes]) -> Flow[tuple[Span | None, Collection[bytes]]]:
            jobs = yield from segments.segment_jobs(self.root, span)
            gone = {job.key for job in jobs if job.key in keys}
            rest = [job for job in jobs if job.key not in gone]
            if not gone or not rest:
                return (None if gone else span), gone
            name = stage.name("segments")
            data, fresh = encode_segment(rest, name)
            yield from stage.write([(name, data)])
            return fresh, gone

        return leaf

    def _merges(self, state: State, stage: StagingArea) -> QueueFlow[tuple[list[MergeTables], int]]:
        """Tables that hold the jobs, each to be exchanged for one without them; and how many rows those were."""
        merges: list[MergeTables] = []
        rows = 0
        for table in state.tables:
            fresh = yield from self._without(table, stage)
            if fresh != table:
                merges.append(MergeTables((table,), () if fresh is None else (fresh,), forgets=True))
                rows += table.count - (0 if fresh is None else fresh.count)
        return merges, rows

    def _without(self, table: TableRef, stage: StagingArea) -> QueueFlow[TableRef | None]:
        """A table without the jobs: the same one when it holds none of them, None when nothing is left."""
        if not any(table.first <= key <= table.last for key in self.keys):
            return table
        if table.level:
            before = yield from finished_tables.children(self.root, table)
            after = []
            for child in before:
                kept = yield from self._without(child, stage)
                if kept is not None:
                    after.append(kept)
            if tuple(after) == before:
                return table
            if not after:
                return None
            name = stage.name(TABLES)
            data, fresh = encode_table_index(after, name)
        else:
            found = yield from finished_tables.rows(self.root, table)
            rest = [row for row in found if row.key not in self.keys]
            if len(rest) == len(found):
                return table
            yield from self._rows([row for row in found if row.key in self.keys])
            if not rest:
                return None
            name = stage.name(TABLES)
            data, fresh = encode_table(rest, table.archived, name)
        yield from stage.write([(name, data)])
        return fresh

    def _events(self) -> QueueFlow[None]:
        """Blank the transitions of the jobs in the objects that listeners read. Those in the head are blank by now."""
        for found in (yield from event_objects.objects_since(self.root, max(0, self.since))):
            yield from self._blank(
                event_log.MAGIC, found.name, event_log.decode_events, erase.blank_event, lambda row: row.key
            )

    # ── The archive ──────────────────────────────────────────────────────────
    def _archive(self) -> QueueFlow[None]:
        """Take the records out of the parts: from when the jobs were enqueued until their last repeats."""
        names = {job_id(key) for key in self.keys}
        over: set[str] = set()  # jobs whose last record has been met
        hours: set[str] = set()  # since the last record of any of them
        after = ""
        while page := (yield from archive.parts(self.queue, max(0, self.since), after)):
            after = page[-1]
            for name in page:
                folder, _, part = name.rpartition("/")
                hours.add(folder)
                if over == names and len(hours) > archive.HOURS_REMEMBERED:
                    return
                if not part.startswith(f"{self.shard:02d}-"):
                    continue
                found = yield from self._strip(name, names)
                if found:
                    hours = {folder}
                    self.count(archive=len(found))
                    over |= {who for who, state in found if state in (COMPLETED, CANCELLED)}

    def _strip(self, name: str, names: set[str]) -> QueueFlow[list[tuple[str, str]]]:
        for _ in range(TRIES):
            part = yield from _ask(Get(name), name)
            if not isinstance(part, Found):
                return []
            data, found = erase.strip_part(part.body, name, names)
            if not found:
                return []
            version = part.version
            wish = PutIfMatch(name, data, version) if data else DeleteIfMatch(name, version)
            if not isinstance((yield from _ask(wish, name)), Refused):
                return found
        raise changes_too_fast()


def _ask(request: StoreRequest, name: str) -> QueueFlow[StoreReply]:
    """Repeat a request until there is a definite answer. A repeated write may be answered ``Refused``."""
    reply = yield from ask(request, ENTRY)
    if not isinstance(reply, Found | Missing | Written | Deleted | Refused):
        raise unavailable(reply, name)
    return reply


def changes_too_fast() -> Throttled:
    """The error where other writers win every swap."""
    return Throttled("what was to be purged changes too fast. Repeat the purge: it goes on where it stopped.")
