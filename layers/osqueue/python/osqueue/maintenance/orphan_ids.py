"""Entries of ids that stand for nothing, or that nobody can read: found, removed, repaired.

A caller who was refused, or died, between its two writes leaves an entry whose key no job has. It is not safe to remove
the entry at once. Another caller may just have read it, and may be about to enqueue its job under that key. With the
entry gone, the next caller would enqueue a second job. So it takes four steps:

    close     the entry is marked by compare-and-swap: from then on no caller enqueues under it
    forget    a commit makes everybody who looked before it look again (``State.forgotten``)
    look      if the key is still nowhere, no job can come under it any more
    remove    if the entry is as it was closed; if there is a job, the entry stays, and callers find the job by it;
              if its job was to restart one that is still there, it stands for that one again

A caller who reads a closed entry whose key is nowhere does the second and third step itself and takes the entry over
(``operations.deduplication``). The creator of the entry, if it comes back after a day, has to look again like everybody
else. It finds the id free, and creates a new entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from msgspec import Struct

from .. import limits
from ..commit.effects import Flow, QueueFlow, Submit, together
from ..commit.retry import ENTRY, ask_all
from ..core.head_content import jobs_in_memory
from ..core.queue_ops import LOOK_AGAIN
from ..core.state import ARCHIVE_ONLY, FAILED, Span, State
from ..core.turns import SLICES, turn_of
from ..errors import Damaged, NewerFormat, NotFound
from ..model.keys import shard_of
from ..objects import backups, finished_tables, id_index, inventory, segments
from ..objects.id_index import IdEntry
from ..objects.layout import read_state, root_of, unavailable
from ..objects.lookup import JobLocation, find_in_state
from ..stores.base import (
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    List,
    Listed,
    Missing,
    PutIfMatch,
    Refused,
    Written,
)
from .store_probes import OK, TROUBLE, WARNING, Finding

SWEEP_MAX = 1_000  # entries of a slice that are looked at
READ_MAX = 1_000  # entries that the doctor reads, without ``deep``
IDS_SHOWN_MAX = 5
DIGEST_CHARS = 64

FIX = "osqueue doctor ADDRESS {queue} --fix-ids"


class FoundEntry(Struct, frozen=True):
    """An entry as it was found."""

    place: str
    version: str
    modified_ms: int
    entry: IdEntry | None  # None: it is damaged
    why: str = ""


# ── Looking ──────────────────────────────────────────────────────────────────
def _read(places: Sequence[str]) -> Flow[list[FoundEntry]]:
    """The entries at some places. Those that are gone, or of a newer release, are left out. Raises Unavailable."""
    found: list[FoundEntry] = []
    for place, reply in zip(places, (yield from ask_all([Get(each) for each in places], ENTRY)), strict=True):
        if isinstance(reply, Missing):
            continue
        if not isinstance(reply, Found):
            raise unavailable(reply, "what an id stands for")
        try:
            found.append(FoundEntry(place, reply.version, reply.modified_ms, id_index.entry_of(reply, place)))
        except Damaged as error:
            found.append(FoundEntry(place, reply.version, reply.modified_ms, None, error.message))
        except NewerFormat:
            continue
    return found


def _nowhere(queue: str, found: Iterable[FoundEntry]) -> Flow[list[FoundEntry]]:
    """Those whose key is nowhere. Where an object on the way cannot be read, nobody knows."""
    shards: dict[int, list[FoundEntry]] = {}
    for each in found:
        if each.entry is not None:
            shards.setdefault(shard_of(each.entry.key), []).append(each)
    lost: list[FoundEntry] = []
    for shard, group in shards.items():
        state = yield from read_state(queue, shard)
        if state is not None:  # else nothing was ever enqueued there: a caller is about to be the first
            root = root_of(queue, shard)
            seen = yield from together([_known(root, state, each) for each in group])
            lost += [each for each, known in zip(group, seen, strict=True) if not known]
    return lost


def _known(root: str, state: State, each: FoundEntry) -> Flow[bool]:
    return (yield from _is_there(root, state, _key(each)))


def _is_there(root: str, state: State, key: bytes) -> Flow[bool]:
    try:
        location: JobLocation | None = yield from find_in_state(root, state, key)
    except (NotFound, Damaged, NewerFormat):
        return True
    return location is not None


def _without(queue: str, gone: Sequence[FoundEntry]) -> Flow[list[DeleteIfMatch | PutIfMatch]]:
    """What becomes of entries whose keys are nowhere."""
    changes: list[DeleteIfMatch | PutIfMatch] = []
    for each in gone:
        old = each.entry.restarts if each.entry is not None else b""
        state = (yield from read_state(queue, shard_of(old))) if old else None
        if state is not None and (yield from _is_there(root_of(queue, shard_of(old)), state, old)):
            changes.append(PutIfMatch(each.place, id_index.encode(old), each.version))
        else:
            changes.append(DeleteIfMatch(each.place, each.version))
    return changes


# ── Removing ─────────────────────────────────────────────────────────────────
def sweep(queue: str, now_ms: int) -> QueueFlow[int]:
    """Remove entries that stand for nothing, a day after they were written; answers how many.

    Of all entries it looks at those whose turn it is in this hour, and of them at no more than ``SWEEP_MAX``: other
    ones each day.
    """
    folder = f"{id_index.FOLDER}{queue}/"
    first, last = _slice(turn_of(now_ms))
    places = yield from _page(folder, first, last)
    if len(places) == SWEEP_MAX:
        day = hashlib.sha256(str(now_ms // limits.DAY_MS).encode()).digest()
        inside = int(first, 16) + ((int(last, 16) - int(first, 16)) * int.from_bytes(day) >> 8 * len(day))
        places = yield from _page(folder, f"{inside:0{DIGEST_CHARS}x}", last)
    found = yield from _read(places)
    old = [each for each in found if each.modified_ms <= now_ms - limits.EXPIRED_KNOWN_MS]
    freed = yield from _retire(queue, (yield from _nowhere(queue, old)))
    damaged = [each for each in found if each.entry is None]
    if damaged:
        raise Damaged(f"{damaged[0].why} Repair it with '{FIX.format(queue=queue)}'.")
    return freed


def _slice(turn: int) -> tuple[str, str]:
    """The first and the last digest of a part of all."""
    bounds = [(at << 4 * DIGEST_CHARS) // SLICES for at in (turn, turn + 1)]
    return f"{bounds[0]:0{DIGEST_CHARS}x}", f"{bounds[1] - 1:0{DIGEST_CHARS}x}"


def _page(folder: str, first: str, last: str) -> Flow[list[str]]:
    after = folder + first[:-1]  # sorts just before it
    listed = yield List(folder, after=after, limit=SWEEP_MAX)
    if not isinstance(listed, Listed):
        raise unavailable(listed, "the list of ids")
    return [key for key in listed.keys if key <= folder + last]


def _retire(queue: str, lost: Sequence[FoundEntry]) -> QueueFlow[int]:
    closed: dict[int, list[FoundEntry]] = {}
    marks = [PutIfMatch(each.place, id_index.closed(each.entry), each.version) for each in lost if each.entry]
    for each, reply in zip(lost, (yield from ask_all(marks, ENTRY)), strict=True):
        if isinstance(reply, Written):  # else somebody was faster, or nobody knows: left for another day
            marked = FoundEntry(each.place, reply.version, each.modified_ms, each.entry)
            closed.setdefault(shard_of(_key(each)), []).append(marked)
    freed = 0
    for shard, group in closed.items():
        yield Submit(shard, (LOOK_AGAIN,))
        gone = yield from _nowhere(queue, group)
        replies = yield from ask_all((yield from _without(queue, gone)), ENTRY)
        freed += sum(isinstance(reply, Deleted) for reply in replies)
        for reply in replies:
            if not isinstance(reply, Deleted | Written | Refused):
                raise unavailable(reply, "leave to remove an id")
    return freed


def _key(each: FoundEntry) -> bytes:
    assert each.entry is not None
    return each.entry.key


# ── For the doctor ───────────────────────────────────────────────────────────
def examine(queue: str, now_ms: int, deep: bool) -> Flow[list[Finding]]:
    """Can every entry be read, and does each stand for a job?"""
    places = yield from inventory.keys(f"{id_index.FOLDER}{queue}/", None if deep else READ_MAX)
    found = yield from _read(places if deep else places[:READ_MAX])
    old = [each for each in found if each.modified_ms <= now_ms - 2 * limits.EXPIRED_KNOWN_MS]
    lost = yield from _nowhere(queue, old)
    damaged = [each for each in found if each.entry is None]
    findings = [
        Finding(TROUBLE, "ids", each.why, FIX.format(queue=queue), queue) for each in damaged[:IDS_SHOWN_MAX]
    ]
    if len(damaged) > IDS_SHOWN_MAX:
        more = f"{len(damaged) - IDS_SHOWN_MAX:,} more entries cannot be read"
        findings.append(Finding(TROUBLE, "ids", more, FIX.format(queue=queue), queue))
    if lost:
        text = f"{len(lost):,} of {len(found):,} entries stand for no job, {lost[0].place} for one"
        findings.append(
            Finding(WARNING, "ids", text, "Reaps remove them. Nobody has to wait for that.", queue)
        )
    if not findings:
        some = "" if deep or len(places) < READ_MAX else f"the first {len(found):,} of "
        findings.append(Finding(OK, "ids", f"{some}{len(places):,} entries, readable", "", queue))
    return findings


class FixReport(Struct, frozen=True):
    """What became of the entries that nobody could read."""

    restored: int = 0  # they stand for their jobs again
    freed: int = 0  # no job has their id
    left: tuple[
        str, ...
    ] = ()  # no telling, because something else cannot be read; or written by others meanwhile


def fix(queue: str, shards: Sequence[int]) -> QueueFlow[FixReport]:
    """Write damaged entries again, from the jobs that have their ids; remove entries without a job.

    Reads every job there is. Each entry is written or removed only if it is still as it was read. A caller who
    read or wrote an entry before it was damaged may be about to enqueue under it. So all callers have to look again
    first: what they have enqueued by then is found, and nothing comes after it.
    """
    read = yield from _read((yield from inventory.keys(f"{id_index.FOLDER}{queue}/")))
    damaged = [each for each in read if each.entry is None]
    if not damaged:
        return FixReport()
    jobs = _NamedJobs(queue)
    for shard in shards:
        yield from jobs.add(shard)
    restored = freed = 0
    left: list[str] = []
    for each in damaged:
        key = jobs.live.get(each.place)
        if key is None and jobs.whole:
            key = jobs.over[each.place][1] if each.place in jobs.over else b""
        if key is None:
            left.append(each.place)
            continue
        change = (
            PutIfMatch(each.place, id_index.encode(key), each.version)
            if key
            else DeleteIfMatch(each.place, each.version)
        )
        (reply,) = yield from ask_all([change], ENTRY)
        if isinstance(reply, Refused):
            left.append(each.place)
        elif not isinstance(reply, Written | Deleted):
            raise unavailable(reply, "leave to repair an id")
        restored += isinstance(reply, Written)
        freed += isinstance(reply, Deleted)
    return FixReport(restored, freed, tuple(left))


class _NamedJobs:
    """The jobs that have ids, by the places of their entries."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.live: dict[str, bytes] = {}
        self.over: dict[str, tuple[int, bytes]] = {}  # when the latest of them finished, and its key
        self.whole = True  # every object could be read

    def add(self, shard: int) -> QueueFlow[None]:
        """Read all of one shard, once everybody who is about to enqueue there under an id has to look again."""
        root = root_of(self.queue, shard)
        if (yield from read_state(self.queue, shard)) is None:
            copies = yield from backups.saved(self.queue, shard)
            self.whole &= all(map(backups.is_purge, copies))  # else its head is lost, and may be restored
            return
        yield Submit(shard, (LOOK_AGAIN,))
        state = yield from read_state(self.queue, shard)
        if state is None:
            self.whole = False
            return
        for where, job in jobs_in_memory(state):
            if where == FAILED:
                self._over(job.client_id, job.key, job.history[-1].ended_ms if job.history else 0)
            else:
                self._live(job.client_id, job.key)
        for lane in state.lanes:
            yield from self._spans(root, lane.backlog.spans, state.tombstones, live=True)
        yield from self._spans(root, state.delayed.spans, state.tombstones, live=True)
        yield from self._spans(root, state.dead.spans, (), live=False)
        for row in state.finished:
            if row.mark != ARCHIVE_ONLY:
                self._over(row.job.client_id, row.key, row.finished_ms)
        for table in state.tables:
            try:
                for leaf in (yield from finished_tables.leaves(root, [table])):
                    for row in (yield from finished_tables.rows(root, leaf)) if leaf.named else ():
                        if row.mark != ARCHIVE_ONLY:
                            self._over(row.job.client_id, row.key, row.finished_ms)
            except (Damaged, NewerFormat, NotFound):
                self.whole = False

    def _spans(self, root: str, spans: Sequence[Span], gone: Sequence[bytes], *, live: bool) -> Flow[None]:
        for span in spans:
            try:
                for leaf in (yield from segments.segments_of(root, [span])):
                    for job in (yield from segments.segment_jobs(root, leaf)):
                        if live and job.key not in gone:
                            self._live(job.client_id, job.key)
                        elif not live:
                            self._over(job.client_id, job.key, job.history[-1].ended_ms if job.history else 0)
            except (Damaged, NewerFormat, NotFound):
                self.whole = False

    def _live(self, client_id: str | None, key: bytes) -> None:
        if client_id is not None:
            self.live[id_index.entry_key(self.queue, client_id)] = key

    def _over(self, client_id: str | None, key: bytes, ended_ms: int) -> None:
        if client_id is not None:
            place = id_index.entry_key(self.queue, client_id)
            self.over[place] = max(self.over.get(place, (0, b"")), (ended_ms, key))
