"""Putting a shard's head back from a backup, when it is missing or damaged.

    choose    the newest backup that can be read, or the one that the caller names
    look      what is there: the names of all objects, what the archive and the tables say about the time since
    copy      the jobs in segments into new segments, without those that have ended
    swap      the restored head for what is there now: a copy of that is kept first, and the swap is conditional on
              it, so a living writer is never run over; ``core.restore`` says why no old one can come back

Nothing of the backup is changed, so a restore that stops half-way is simply repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from ..clock import Machine
from ..commit.effects import Flow, Sleep
from ..commit.retry import NEEDED
from ..commit.writer import HEAD
from ..core.archive_record import ArchiveRecord, past_attempts, wants_record
from ..core.audit import spans_of
from ..core.deletion_vectors import MAGIC as VECTOR_MAGIC
from ..core.encoding import FORMATS_READ, born_of, decode_head, encode_head, encode_segment
from ..core.head_content import jobs_in_memory
from ..core.restore import (
    BackupFilter,
    Evidence,
    JobEnding,
    RecordId,
    RestoreLoss,
    RestoreSeed,
    names_in_head,
    record_id,
    restore,
    seq_after,
    without_payload,
    without_result,
)
from ..core.rows import BodyRef
from ..core.state import FAILED, FinishedJob, JobRecord, Span, State, TableRef
from ..core.tables import FOLDER as TABLES
from ..core.tables import encode_table, known_until_ms
from ..errors import Conflict, Damaged, NewerFormat, NotFound, Unavailable
from ..model.keys import drawn_ms, key_of
from ..objects import archive, backups, finished_tables, inventory, segments
from ..objects.layout import register, root_of, unavailable
from ..objects.staging import StagingArea
from ..stores.base import Failed, Found, Get, Missing, PutIfAbsent, PutIfMatch, Refused, StoreReply, Written
from . import salvage, two_clocks

DRAWN_EARLY_MS_MAX = limits.DAY_MS  # by which the clock that drew a job's key may have been ahead
_REPLACED = re.compile(backups.REPLACED + r".*-([0-9a-f]{12})$")


class RestoreReport(Struct, frozen=True):
    """What a restore did."""

    queue: str
    shard: int
    backup: str  # the copy that was put back
    backup_ms: int  # head time of that copy
    kept: str  # where the replaced head lies now; empty, if it was missing
    seq: int  # the restored head's
    live: int  # jobs that wait, or are dead letters, in the restored head
    recovered: int  # finished jobs that the backup does not know and the tables do
    strays: (
        int  # segments younger than the backup, which nothing refers to: jobs enqueued since may be in them
    )
    results_gone: int  # results that are not there, and would have been given out for some time: expired now
    enqueued_since: int | None  # jobs enqueued since the backup, where the replaced head could be read
    loss: RestoreLoss


class _SinceBackup(Struct):
    """What the archive and the tables say about the time since a backup."""

    begin_ms: int  # what finished earlier is known to the backup
    floor: int  # tables that were born earlier are named by the backup, or garbage
    endings: dict[bytes, JobEnding]
    archived: set[RecordId]
    met: set[RecordId]  # finished in the backup itself, or met in another table
    rows: list[FinishedJob]  # finished since, in tables with others: the archive has to get these alone
    tables: list[TableRef]
    purged: frozenset[bytes]  # jobs of which nothing may be left
    there: set[str]  # the names of all objects
    unheard: set[bytes] = set()  # jobs whose result is gone, and would have been given out for some time
    rests: dict[str, list[FinishedJob]] = {}  # of tables to be written again: the rows, by the table's name
    recovered: int = 0  # finished since, and not in the archive
    born: int = 0  # the highest number in an archive part's name

    def note(self, key: bytes, ending: JobEnding) -> None:
        """One way a job ended; of several, the last is right."""
        known = self.endings.get(key)
        if known is None or (ending.run, ending.state != FAILED) >= (known.run, known.state != FAILED):
            self.endings[key] = ending


def hourly_backups(queue: str, shard: int) -> Flow[list[str]]:
    """The names of a shard's backups, the oldest first."""
    found = yield from inventory.keys(backups.folder_of(queue, shard))
    return [name for name in found if backups.is_hourly(name)]


class Restorer:
    """Restores one shard. ``now_ms`` is the store's clock."""

    def __init__(self, queue: str, shard: int, machine: Machine, now_ms: int) -> None:
        self.queue = queue
        self.shard = shard
        self.root = root_of(queue, shard)
        self.machine = machine
        self.now_ms = now_ms

    def run(self, wished: str = "", *, force: bool = False) -> Flow[RestoreReport]:
        """Restore from the newest backup that can be read, or from the one that is ``wished``.

        ``wished`` may be "head": then what is there is put back without the objects that are gone. ``force``
        replaces even a head that can be read. Raises Conflict (it can be read; or somebody wrote it meanwhile),
        NotFound (no such backup), Damaged (the wished one), NewerFormat, Unavailable.
        """
        there = yield Get(self.root + HEAD)
        replaced = self._readable(there)
        if replaced is not None and not force:
            raise Conflict(
                f"the head of {self.queue}/{self.shard} can be read, so there is nothing to restore. What was done"
                " since the backup would be lost; --yes does it all the same."
            )
        if wished == HEAD and replaced is not None:
            name, old, made_ms = HEAD, replaced, replaced.now_ms
        else:
            name, old, copy = yield from self._choose(wished)
            made_ms = yield from two_clocks.made_ms(self.queue, self.shard, copy, self.now_ms)
        names = yield from inventory.names(self.root)
        intents = yield from inventory.announcements(self.root)
        purged = yield from self._purged()
        since = yield from self._since(old, made_ms, replaced, set(names), purged)
        marks = yield from self._marks()
        seen = [old.seq, replaced.seq if replaced else 0, since.born]
        seen += map(inventory.born_in, (*names, *intents))
        seq = seq_after([*seen, *marks])  # a restore that came to nothing has left its mark as well
        life = RestoreSeed(
            seq=seq,
            born=max(seen),
            epoch=self.machine.bits(64),
            commit=self.machine.bits(128).to_bytes(16, "big"),
            chance=self.machine.bits(64),
            now_ms=self.now_ms,
            format=replaced.format if replaced else FORMATS_READ[-1],
        )
        old = replace(old, finished=tuple(self._intact(old.finished, since)))
        gone = yield from self._gone(old, since.there)
        stage = StagingArea(self.root, life.born, self.machine)
        evidence = Evidence(
            endings=since.endings,
            archived=frozenset(since.archived),
            gone=gone,
            purged=purged,
            rows=tuple(since.rows),
            tables=(yield from self._rewritten(since, stage)),
        )
        sieve = BackupFilter(evidence, seq, old)
        spans = yield from self._copy(old, replaced, sieve, stage)
        made = restore(old, life, evidence, sieve, spans)
        yield from stage.write([(item.name, item.body) for item in made.objects])
        kept = yield from self._keep(there, seq)
        yield from self._swap(there, made.state)
        yield register(self.queue)  # should it be gone as well; it is of no harm where it is not
        return RestoreReport(
            queue=self.queue,
            shard=self.shard,
            backup=name,
            backup_ms=old.now_ms,
            kept=kept,
            seq=seq,
            live=live_count(made.state),
            recovered=since.recovered,
            strays=(yield from self._strays(names, old.seq)),
            results_gone=len(since.unheard),
            enqueued_since=None if replaced is None else replaced.counters.enqueued - old.counters.enqueued,
            loss=made.loss,
        )

    # ── Choosing ─────────────────────────────────────────────────────────────
    def _readable(self, there: StoreReply) -> State | None:
        if isinstance(there, Missing):
            return None
        if not isinstance(there, Found):
            raise unavailable(there, "the queue's head")
        try:
            return decode_head(there.body)
        except Damaged:
            return None

    def _choose(self, wished: str) -> Flow[tuple[str, State, Found]]:
        """A copy's name, what it says, and the object."""
        found = yield from inventory.keys(backups.folder_of(self.queue, self.shard))
        if wished:
            name = backups.folder_of(self.queue, self.shard) + wished.rpartition("/")[2]
            if name not in found:
                raise NotFound(
                    f"{self.queue}/{self.shard} has no backup {wished!r}. 'osqueue doctor ADDRESS QUEUE --backups'"
                    " lists those there are."
                )
            return name, *(yield from self._backup(name))
        for name in reversed([name for name in found if backups.is_hourly(name)]):
            try:
                return name, *(yield from self._backup(name))
            except Damaged:
                continue
        raise NotFound(
            f"{self.queue}/{self.shard} has no backup that can be read. 'osqueue reap' makes one each hour. Restore"
            f" {self.root}{HEAD} from the versions of the bucket, if it keeps them."
        )

    def _backup(self, name: str) -> Flow[tuple[State, Found]]:
        reply = yield Get(name)
        if not isinstance(reply, Found):
            raise unavailable(reply, name)
        return decode_head(reply.body), reply

    # ── Looking ──────────────────────────────────────────────────────────────
    def _purged(self) -> Flow[frozenset[bytes]]:
        names = yield from inventory.keys(backups.folder_of(self.queue, self.shard) + backups.PURGED)
        return (yield from backups.purged_keys(names))

    def _since(
        self, old: State, made_ms: int, replaced: State | None, names: set[str], purged: frozenset[bytes]
    ) -> Flow[_SinceBackup]:
        # Its own time is too late where its clock was ahead: others may have set it back since.
        begin_ms = min(old.now_ms, made_ms, self.now_ms)
        unread: list[TableRef] = []
        known = yield from self._tables_below(old.tables, unread)
        for index in unread:
            if not index.archived:  # the archive may have some of its tables, and nobody knows which
                begin_ms = min(begin_ms, max(0, drawn_ms(index.first) - DRAWN_EARLY_MS_MAX))
        floor = 0 if unread else old.gc_floor  # what is older is garbage, or lay below such an index
        since = _SinceBackup(
            begin_ms, floor, {}, set(), set(map(record_id, old.finished)), [], [], purged, names
        )
        yield from self._read_archive(since)
        yield from self._read_tables({table.name: table for table in known}, since)
        if replaced is not None:
            left = self._intact([row for row in replaced.finished if row.key not in purged], since)
            fresh = [row for row in left if self._fresh(row, since)]
            since.rows += fresh
            since.recovered += len(fresh)
        return since

    def _read_archive(self, since: _SinceBackup) -> Flow[None]:
        """A part stands in the hour it was written in, by the store's clock: an hour's doubt is left to the clocks."""
        begin = since.begin_ms - limits.HOUR_MS
        after = ""
        while page := (yield from archive.parts(self.queue, begin, after)):
            after = page[-1]
            mine = [name for name in page if (inventory.part_of(name) or (-1, 0))[0] == self.shard]
            since.born = max([since.born, *((inventory.part_of(name) or (0, 0))[1] for name in mine)])
            for name in mine:
                try:
                    (records,) = yield from archive.read([name])
                except Damaged:
                    continue  # it cannot be read; the doctor names it
                for each in records:
                    key = key_of(each.job_id)
                    since.archived.add((key, each.run, each.state))
                    since.note(key, _ending_of(each))

    def _read_tables(self, known: Mapping[str, TableRef], since: _SinceBackup) -> Flow[None]:
        """Read all tables that exist: each holds only what was committed, also where no head names it any more."""
        for name in sorted(
            each for each in since.there if each.startswith(f"{TABLES}/") and born_of(each) >= 0
        ):
            pointer = known.get(name)
            if pointer is None and born_of(name) < since.floor:
                continue  # garbage: what is still right in it stands in a younger table
            if pointer is not None and pointer.archived and not _concerned(pointer, since.purged):
                since.tables.append(pointer)
                continue
            reply = yield Get(self.root + name)
            if isinstance(reply, Failed):
                raise unavailable(reply, name)
            if not isinstance(reply, Found):
                continue
            try:
                found = inventory.rows_of(reply.body, name)
            except Damaged:
                if pointer is not None:
                    since.tables.append(pointer)  # the doctor reports it
                continue  # an index, whose tables are all here, or an unreadable object
            rows = self._intact([row for row in found if row.key not in since.purged], since)
            if not rows:
                continue
            known_there = pointer is not None
            if pointer is None:
                pointer = inventory.pointer_to(found, reply.body, name)
                owed = [row for row in rows if self._fresh(row, since)]
                since.recovered += len(owed)
            else:
                owed = [] if pointer.archived else [row for row in rows if self._owed(row, since)]
            # Where the archive has none of it, the reaper will see to the table. Else to these rows alone.
            whole = len(owed) > 0 and len(owed) == sum(map(wants_record, rows))
            rows = rows if whole else list(map(without_payload, rows))
            if rows != found or not known_there:
                since.rests[name] = rows
            since.rows += () if whole else owed
            since.tables.append(replace(pointer, archived=not whole))
        yield from self._read_doomed(known, since)
        # A row that came back is right wherever its job has another one. By birth alone it need not be the younger: a
        # table that was written again is born then.
        order = {name: at for at, name in enumerate(known)}
        since.tables.sort(key=lambda table: (table.updated_rows > 0, order.get(table.name, len(order))))

    def _read_doomed(self, known: Mapping[str, TableRef], since: _SinceBackup) -> Flow[None]:
        """Read the tables that a reaper may be about to delete by the head before the restore: they are written again.

        Where it has merged one since the backup, the other one overlaps it and is unknown to the backup. Where it has
        dropped one, nothing in it had to be remembered. One that is itself unknown to the backup is written anew in any
        case: it may have been merged before the backup was made.
        """
        fresh = [table for table in since.tables if table.name not in known]
        kept: list[TableRef] = []
        for table in since.tables:
            merged = any(
                each.name != table.name and each.first <= table.last and table.first <= each.last
                for each in fresh
            )
            if table.name not in since.rests and (merged or table.until_ms <= self.now_ms):
                reply = yield Get(self.root + table.name)
                if isinstance(reply, Failed):
                    raise unavailable(reply, table.name)
                if not isinstance(reply, Found):
                    continue  # gone by now
                with suppress(Damaged):
                    since.rests[table.name] = inventory.rows_of(reply.body, table.name)
            kept.append(table)
        since.tables[:] = kept

    def _rewritten(self, since: _SinceBackup, stage: StagingArea) -> Flow[tuple[TableRef, ...]]:
        """The tables. Those that hold purged jobs, or may be deleted, are written again."""
        tables: list[TableRef] = []
        for table in since.tables:
            if table.name in since.rests:
                name = stage.name(TABLES)
                data, table = encode_table(since.rests[table.name], table.archived, name)
                yield from stage.write([(name, data)])
            tables.append(table)
        return tuple(tables)

    def _tables_below(self, pointers: Iterable[TableRef], unread: list[TableRef]) -> Flow[list[TableRef]]:
        """Every table below these pointers; the indexes that led to others are noted as ``unread``."""
        found: list[TableRef] = []
        for table in pointers:
            if table.level == 0:
                found.append(table)
                continue
            try:
                below = yield from finished_tables.children(self.root, table)
            except (Damaged, NotFound):
                unread.append(table)
                continue
            found.extend((yield from self._tables_below(below, unread)))
        return found

    def _fresh(self, row: FinishedJob, since: _SinceBackup) -> bool:
        """Take in what became of a job that finished after the backup; True: the archive does not have it yet."""
        if row.finished_ms < since.begin_ms:
            return False
        job = row.job
        since.note(row.key, JobEnding(row.state, job.run, job.attempt, job.history))
        return self._owed(row, since)

    def _owed(self, row: FinishedJob, since: _SinceBackup) -> bool:
        """Is this row's record still missing in the archive, and in every other row?"""
        if not wants_record(row) or record_id(row) in since.archived or record_id(row) in since.met:
            return False
        since.met.add(record_id(row))
        return True

    def _intact(self, rows: Iterable[FinishedJob], since: _SinceBackup) -> list[FinishedJob]:
        """Finished jobs without results that are gone, or that a reaper may collect, as it has forgotten those jobs."""
        found: list[FinishedJob] = []
        for row in rows:
            lost = isinstance(row.result, BodyRef) and row.result.name not in since.there
            forgotten = known_until_ms(row) <= self.now_ms
            if lost and row.expires_ms > self.now_ms:
                since.unheard.add(row.key)
            if isinstance(row.payload, BodyRef) and row.payload.name not in since.there:
                row = without_payload(row)
            found.append(without_result(row, self.now_ms) if lost or forgotten else row)
        return found

    def _gone(self, old: State, names: set[str]) -> Flow[frozenset[str]]:
        """Objects that the backup names itself and that are not there. (Those below an index show when it is read.)"""
        named = names_in_head(old)
        for span in spans_of(old):
            for leaf in (yield from salvage.leaves(self.root, span)):
                if leaf.bodies and leaf.name in names:
                    try:
                        named.update((yield from segments.footer(self.root, leaf)).bodies)
                    except (Damaged, NotFound):
                        continue
        return frozenset(named - names)

    # ── Copying ──────────────────────────────────────────────────────────────
    def _copy(
        self, old: State, replaced: State | None, sieve: BackupFilter, stage: StagingArea
    ) -> Flow[dict[str, tuple[Span, ...]]]:
        """New segments with the jobs that still have to run, for each pointer of the backup."""
        copies: dict[str, list[Span]] = {}
        doubtful: list[
            tuple[list[Span], int, Sequence[JobRecord], bool]
        ] = []  # where they belong, and if dead
        sieve.placed.update(job.key for _, job in jobs_in_memory(old))
        for span in spans_of(old):
            fresh = copies[span.name] = []
            dead = span in old.dead.spans
            for leaf in (yield from salvage.leaves(self.root, span, sieve)):
                jobs = yield from salvage.jobs(self.root, leaf, sieve, old, replaced)
                if leaf.name in sieve.doubtful:
                    doubtful.append((fresh, len(fresh), jobs, dead))
                else:
                    fresh += yield from _copied(sieve.keep(jobs, tombstones=old.tombstones, dead=dead), stage)
        for fresh, at, jobs, dead in reversed(doubtful):  # once it is known what stands elsewhere
            here = [job for job in jobs if job.key not in sieve.placed]
            fresh[at:at] = yield from _copied(sieve.keep(here, tombstones=old.tombstones, dead=dead), stage)
        return {name: tuple(fresh) for name, fresh in copies.items()}

    def _strays(self, names: Iterable[str], seq: int) -> Flow[int]:
        """How many segments were born after this commit. Deletion vectors lie among them and hold no jobs."""
        count = 0
        for name in names:
            if name.startswith("segments/") and inventory.born_in(name) > seq:
                reply = yield Get(self.root + name, start=0, length=len(VECTOR_MAGIC))
                count += not isinstance(reply, Found) or reply.body != VECTOR_MAGIC
        return count

    # ── Swapping ─────────────────────────────────────────────────────────────
    def _marks(self) -> Flow[list[int]]:
        """What former restores began with, by the heads they replaced; and the newest backup that can be read."""
        names = yield from inventory.keys(backups.folder_of(self.queue, self.shard))
        seen = [int(found[1], 16) for name in names if (found := _REPLACED.search(name))]
        for name in reversed([name for name in names if backups.is_hourly(name)]):
            try:
                return [*seen, (yield from self._backup(name))[0].seq]
            except (Damaged, NewerFormat):
                continue
        return seen

    def _keep(self, there: StoreReply, seq: int) -> Flow[str]:
        """Copy what is to be replaced beside the backups: nothing at all, where the head is missing.

        Its name contains the number with which the restored head begins, so the next restore never uses the same.
        """
        at = datetime.fromtimestamp(self.now_ms / 1000, UTC).strftime("%Y-%m-%dT%H-%M-%S")
        name = f"{backups.folder_of(self.queue, self.shard)}{backups.REPLACED}{at}-{seq:012x}"
        reply = yield PutIfAbsent(name, there.body if isinstance(there, Found) else b"")
        if isinstance(reply, Refused):
            raise Conflict(f"{self.queue}/{self.shard} is being restored by somebody else. Look at it again.")
        if not isinstance(reply, Written):
            raise unavailable(reply, "room for a copy of the damaged head")
        return name

    def _swap(self, there: StoreReply, state: State) -> Flow[None]:
        """Put the head in the place of what was read, if that is still there."""
        key, body = self.root + HEAD, encode_head(state)
        put = PutIfMatch(key, body, there.version) if isinstance(there, Found) else PutIfAbsent(key, body)
        for tried in range(1, NEEDED.tries + 1):
            reply = yield put
            if isinstance(reply, Written):
                return
            now = yield Get(key)
            if isinstance(now, Found) and now.body == body:
                return  # it was ours; only the answer was lost
            if isinstance(reply, Refused):
                raise Conflict(
                    f"somebody else wrote the head of {self.queue}/{self.shard} meanwhile, so it was left as it is."
                    " Look at it with 'osqueue doctor' before you repeat the restore."
                )
            if tried == NEEDED.tries:
                raise Unavailable(
                    f"the store did not say whether the head was restored. Run 'osqueue doctor' to see. {_why(reply)}"
                )
            yield Sleep(NEEDED.pause_after(tried))


def _copied(jobs: list[JobRecord], stage: StagingArea) -> Flow[list[Span]]:
    """A new segment of jobs; none for no jobs."""
    if not jobs:
        return []
    name = stage.name("segments")
    data, pointer = encode_segment(jobs, name)
    yield from stage.write([(name, data)])
    return [pointer]


def _concerned(table: TableRef, keys: Iterable[bytes]) -> bool:
    """May it hold one of these jobs, or a result that is not there?"""
    return table.bodies or any(table.first <= key <= table.last for key in keys)


def _why(reply: StoreReply) -> str:
    return reply.error.message if isinstance(reply, Failed) else ""


def _ending_of(record: ArchiveRecord) -> JobEnding:
    return JobEnding(record.state, record.run, record.attempt, past_attempts(record))


def live_count(state: State) -> int:
    """How many jobs a shard has that are not finished, dead letters included."""
    spans = sum(span.count for span in spans_of(state))
    return spans - len(state.tombstones) + sum(1 for _ in jobs_in_memory(state))
