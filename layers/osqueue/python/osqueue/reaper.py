"""One reaper pass over a queue: what time demands, what was announced and forgotten, what has to be kept or dropped.

Each shard in turn:

    sweep     leases that ended, jobs that are due, dead letters over their TTL; announced requests nobody applied;
              finished jobs leave the head
    archive   tables whose records the archive does not have: parts are written, then the commit that says so
    merge     tables of like size become one
    forget    tables of which nothing has to be remembered: first the clients' ids are freed, then the rows go
    backup    a copy of the head, once an hour
    collect   objects that nobody refers to

Every step is a committed fact or repeats harmlessly, so passes may run at once, overlap, and die anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from . import archive, backup, finished, garbage, ids, limits
from .commit.effects import together
from .core import tables
from .core.history import encode_part, record, wants_record
from .core.ops import Code, Merge, Sweep
from .core.state import Finished, State, Table
from .core.wire import INTENTS, born_of
from .errors import NotFound, OsqueueError, Unavailable
from .shards import QueueFlow, Submit, read_state, root_of, unavailable
from .staging import Stage
from .stores.base import Found, Get, List, Listed, Missing, Put, Reply, Written

STEPS_MAX = 200  # of archiving or merging in one pass; the next pass goes on
PUT_TRIES = 3

Clock = Callable[[int, State], QueueFlow[int]]  # shard, its state → the store's time in ms
Staging = Callable[[int], QueueFlow[Stage]]
Step = QueueFlow[tuple["Report", State]]  # what it did, and the state after it


class Report(Struct, frozen=True):
    """What a pass did, over all shards."""

    expired: int = 0  # leases that had ended
    promoted: int = 0  # delayed jobs that had become due
    combined: int = 0  # announced requests whose writers were gone
    archived: int = 0  # records written to the archive
    merged: int = 0  # tables of finished jobs that became part of another
    forgotten: int = 0  # finished jobs that are not remembered any more
    freed: int = 0  # clients' ids that stand for nothing any more
    saved: int = 0  # heads copied to the backup
    collected: int = 0  # objects nobody referred to

    def __add__(self, other: Report) -> Report:
        return Report(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class Reaper:
    """Passes over one queue."""

    def __init__(self, queue: str, clock: Clock, stage: Staging) -> None:
        self.queue = queue
        self.clock = clock
        self.stage = stage

    def run(self, shards: int) -> QueueFlow[Report]:
        """One pass over every shard. One shard's trouble is raised once the others are done."""
        total = Report()
        trouble: OsqueueError | None = None
        for shard in range(shards):
            try:
                total += yield from self._shard(shard)
            except OsqueueError as error:
                trouble = error
        if trouble is not None:
            raise trouble
        return total

    def _shard(self, shard: int) -> QueueFlow[Report]:
        before = yield from read_state(self.queue, shard)
        if before is None:
            return Report()
        total = yield from self._sweep(shard, before)
        state = yield from self._state(shard)
        for step in (self._archive, self._merge, self._forget):
            done, state = yield from step(shard, state)
            total += done
        now = yield from self.clock(shard, state)
        saved = yield from backup.save(self.queue, shard, now)
        collected = yield from garbage.collect(self.queue, shard, state)
        return total + Report(saved=int(saved), collected=collected)

    def _state(self, shard: int) -> QueueFlow[State]:
        state = yield from read_state(self.queue, shard)
        if state is None:
            raise Unavailable("the queue's head is not there any more. See docs/operations.md.")
        return state

    # ── Sweep ────────────────────────────────────────────────────────────────
    def _sweep(self, shard: int, before: State) -> QueueFlow[Report]:
        announced = yield List(root_of(self.queue, shard) + INTENTS)
        if not isinstance(announced, Listed):
            raise unavailable(announced, "the list of announced requests")
        answer = yield Submit(shard, (Sweep(flush=True),), look=bool(announced.keys))
        (expired, promoted) = (count for _, count in answer.outcomes[0].runs)
        return Report(expired=expired, promoted=promoted, combined=len(announced.keys))

    # ── Tables ───────────────────────────────────────────────────────────────
    def _archive(self, shard: int, state: State) -> Step:
        """Write the records of tables that the archive does not have, oldest first, some MB at a time.

        Only of those there were when the pass came: on a busy queue there are always new ones, and few large parts
        are better than many small ones.
        """
        total = Report()
        began = state.seq
        for _ in range(STEPS_MAX):
            taken = tuple(
                takewhile(
                    lambda each: each.level or born_of(each.name) < began, tables.to_archive(state.tables)
                )
            )
            if not taken:
                break
            with suppress(NotFound):  # another pass has been here since
                much = taken[0].level and tables.bytes_below(taken[0]) > limits.TABLE_BYTES_MAX
                if not (much and (yield from self._unfold(shard, state, taken[0]))):
                    runs = yield from self._rows(shard, taken)
                    records = [record(row) for run in runs for row in run if wants_record(row)]
                    if records:
                        records.sort(key=lambda each: (each.finished_ms, each.job_id))
                        yield from self._write(shard, state, taken, encode_part(records))
                    total += yield from self._exchange(shard, state, taken, runs, archived=len(records))
            state = yield from self._state(shard)
        return total, state

    def _merge(self, shard: int, state: State) -> Step:
        total = Report()
        for _ in range(STEPS_MAX):
            taken = tables.to_merge(state.tables)
            if not taken:
                break
            with suppress(NotFound):
                runs = yield from self._rows(shard, taken)
                done = yield from self._exchange(shard, state, taken, runs)
                total += replace(done, merged=len(taken))
            state = yield from self._state(shard)
        return total, state

    def _forget(self, shard: int, state: State) -> Step:
        """Rewrite, or drop, tables with much that has not to be remembered any more."""
        total = Report()
        now = yield from self.clock(shard, state)
        old = [each for each in state.tables if each.archived and min(each.half_ms, each.until_ms) <= now]
        for table in old:
            with suppress(NotFound):
                runs = yield from self._rows(shard, [table])
                total += yield from self._exchange(shard, state, (table,), runs)
            state = yield from self._state(shard)
        return total, state

    def _rows(self, shard: int, taken: Sequence[Table]) -> QueueFlow[list[list[Finished]]]:
        """The rows of each table below these pointers, oldest first."""
        root = root_of(self.queue, shard)
        leaves = yield from finished.leaves(root, taken)
        return (yield from together([finished.rows(root, leaf) for leaf in leaves]))

    def _exchange(
        self,
        shard: int,
        state: State,
        taken: tuple[Table, ...],
        runs: Sequence[Sequence[Finished]],
        *,
        archived: int = 0,
    ) -> QueueFlow[Report]:
        """Put one table in the place of others, if they are still there; then those can go."""
        root = root_of(self.queue, shard)
        now = yield from self.clock(shard, state)
        rows: list[Finished] = []
        gone: list[Finished] = []
        for row in tables.merge(runs):
            (rows if tables.known_until_ms(row) > now else gone).append(row)
        freed = yield from self._free(shard, state, taken, gone)
        below, _ = yield from finished.objects(root, taken)
        put: tuple[Table, ...] = ()
        if rows:
            stage = yield from self._stage(shard, state)
            name = stage.name(tables.FOLDER)
            data, table = tables.encode_table(rows, True, name)
            yield from stage.write([(name, data)])
            put = (table,)
        answer = yield Submit(shard, (Merge(taken, put, archived, bool(gone)),))
        if answer.outcomes[0].code != Code.OK:
            return Report(freed=freed)  # another pass was faster: what was staged is collected one day
        yield from garbage.delete([root + name for name in below])
        return Report(archived=archived, forgotten=len(gone), freed=freed)

    def _stage(self, shard: int, state: State) -> QueueFlow[Stage]:
        """A place for tables made from those of a state.

        They are born no earlier than what they replace: by that the reducer tells what may hold a job that was
        enqueued since somebody looked for it.
        """
        stage = yield from self.stage(shard)
        stage.born = max(stage.born, state.seq)
        return stage

    def _free(
        self, shard: int, state: State, taken: Sequence[Table], gone: Sequence[Finished]
    ) -> QueueFlow[int]:
        """Free the ids of jobs that are about to be forgotten.

        An id must not stand for a job that nobody remembers: its next caller would believe it was never enqueued.
        Nor may it be freed while a younger row of its job is remembered for longer.
        """
        named = {row.key: row.job.client_id for row in gone if row.job.client_id is not None}
        if not named:
            return 0
        younger = state.tables[state.tables.index(taken[-1]) + 1 :]
        recalled = [table for table in younger if table.recalled]
        for run in (yield from self._rows(shard, recalled)):
            for row in run:
                named.pop(row.key, None)
        for row in state.finished:
            named.pop(row.key, None)
        return (yield from ids.free(self.queue, [(client_id, key) for key, client_id in named.items()]))

    def _unfold(self, shard: int, state: State, index: Table) -> QueueFlow[bool]:
        """Put copies of what is in an index in its place: all that is below it is too much for one step.

        Copies, because the reducer takes no pointer to an object that was born before ``gc_floor``. False: a single
        table is all there is.
        """
        root = root_of(self.queue, shard)
        below = yield from finished.children(root, index)
        if len(below) == 1 and not below[0].level:
            return False
        stage = yield from self._stage(shard, state)
        objects: list[tuple[str, bytes]] = []
        put: list[Table] = []
        for child in below:
            inside = (yield from finished.children(root, child)) if child.level else (child,)
            name = stage.name(tables.FOLDER)
            data, copy = tables.encode_index(inside, name)
            objects.append((name, data))
            put.append(copy)
        yield from stage.write(objects)
        answer = yield Submit(shard, (Merge((index,), tuple(put)),))
        if answer.outcomes[0].code == Code.OK:
            old = [index.name, *(child.name for child in below if child.level)]
            yield from garbage.delete([root + name for name in old])
        return True

    # ── Parts ────────────────────────────────────────────────────────────────
    def _write(self, shard: int, state: State, taken: Sequence[Table], data: bytes) -> QueueFlow[None]:
        """Write an archive part into the hour in which, by the store's clock, it was written.

        Who reads an hour that is over has then read all that any commit relies on.
        """
        now = yield from self.clock(shard, state)
        reply: Reply = Missing()
        for _ in range(PUT_TRIES):
            name = archive.part_name(self.queue, shard, now, taken)
            reply = yield Put(name, data)
            if isinstance(reply, Written):
                reply = yield Get(name, start=0, length=1)
            if isinstance(reply, Found):
                now = reply.modified_ms
                if archive.part_name(self.queue, shard, now, taken) == name:
                    return
        raise unavailable(reply, "room for an archive part")
