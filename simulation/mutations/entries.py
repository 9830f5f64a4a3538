"""Entries of clients' ids with one check removed: what is swept, freed, or enqueued where somebody cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from msgspec.structs import replace

from osqueue.commit.effects import Flow, QueueFlow
from osqueue.commit.retry import RetryPolicy, ask_all
from osqueue.core import dedup, reduce
from osqueue.core.draft import Draft
from osqueue.core.job_ops import JobSpec
from osqueue.core.ops import Code
from osqueue.core.state import State, TableRef
from osqueue.errors import Damaged, NewerFormat, NotFound
from osqueue.maintenance import orphan_ids
from osqueue.maintenance.compaction import TakenTables
from osqueue.maintenance.orphan_ids import FoundEntry
from osqueue.maintenance.reaper import Reaper
from osqueue.model.reports import ReapReport
from osqueue.objects import id_index, lookup
from osqueue.objects.layout import read_state
from osqueue.stores.base import (
    Delete,
    Failed,
    Get,
    Missing,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    StoreReply,
    StoreRequest,
    Written,
)

from .control import Control, in_scene, patched


# ── Sweeping ─────────────────────────────────────────────────────────────────
def unreadable_counts_as_nowhere() -> AbstractContextManager[None]:
    """A job is nowhere if nobody can read where it may lie."""

    def look(*args: Any) -> Flow[Any]:
        try:
            return (yield from lookup.find_in_state(*args))
        except (NotFound, Damaged, NewerFormat):
            return None

    return patched((orphan_ids, "find_in_state", look))


def swept_after_one_look() -> AbstractContextManager[None]:
    """An entry that was closed is removed, whatever has come meanwhile."""
    real = orphan_ids._nowhere
    looked: set[str] = set()

    def nowhere(queue: str, found: Iterable[FoundEntry]) -> Flow[list[FoundEntry]]:
        again = [each for each in found if each.place in looked]
        lost: list[FoundEntry] = again or (yield from real(queue, found))
        looked.update(each.place for each in lost)
        return lost

    return patched((orphan_ids, "_nowhere", nowhere))


def swept_whatever_it_stands_for() -> AbstractContextManager[None]:
    """A closed entry is removed, even if it was taken over since."""
    return patched((orphan_ids, "DeleteIfMatch", lambda key, version: Delete((key,))))


def closed_perhaps() -> AbstractContextManager[None]:
    """An entry counts as closed, whether or not that was written."""

    def insist(requests: Sequence[StoreRequest], policy: RetryPolicy) -> Flow[list[StoreReply]]:
        replies = yield from ask_all(requests, policy)
        return [
            Written(request.version) if isinstance(request, PutIfMatch) else reply
            for request, reply in zip(requests, replies, strict=True)
        ]

    return patched((orphan_ids, "ask_all", insist))


def swept_where_there_is_no_head() -> AbstractContextManager[None]:
    """A job is nowhere if its shard has no head."""
    real = orphan_ids._nowhere

    def nowhere(queue: str, found: Iterable[FoundEntry]) -> Flow[list[FoundEntry]]:
        every = [each for each in found if each.entry is not None]
        state = yield from read_state(queue, 0)
        return every if state is None else (yield from real(queue, every))

    return patched((orphan_ids, "_nowhere", nowhere))


# ── Freeing ──────────────────────────────────────────────────────────────────
def damaged_entries_freed_at_any_age() -> AbstractContextManager[None]:
    """An entry that nobody can read is removed with the job that had its id."""
    real = id_index.free

    def free(queue: str, jobs: Sequence[id_index.FinishedId]) -> Flow[tuple[int, list[Damaged]]]:
        late = 1 << 62
        return (
            yield from real(queue, [id_index.FinishedId(each.client_id, each.key, late) for each in jobs])
        )

    return patched((id_index, "free", free))


def ids_kept_of_jobs_that_died_out() -> AbstractContextManager[None]:
    """A table of which nothing has to be remembered goes unread, whoever had an id."""
    real = Reaper._forget_some

    def forget_some(self: Any, shard: int, state: State, table: TableRef, now: int) -> QueueFlow[ReapReport]:
        if table.until_ms > now:
            return (yield from real(self, shard, state, table, now))
        names = yield from self._names(shard, table)
        report: ReapReport = yield from self._exchange(
            shard, state, TakenTables((table,), names, ()), unread=table.count
        )
        return report

    return patched((Reaper, "_forget_some", forget_some))


def freed_by_an_older_head() -> AbstractContextManager[None]:
    """Ids are freed by the head that a step began with, whenever it is told the time."""
    real, real_exchange = Reaper._free, Reaper._exchange

    def exchange(self: Any, shard: int, state: State, *args: Any, **more: Any) -> QueueFlow[ReapReport]:
        self.known = state
        return (yield from real_exchange(self, shard, state, *args, **more))

    def free(self: Any, *args: Any) -> QueueFlow[Any]:
        def state_of(shard: int) -> QueueFlow[State]:
            yield from ()
            return self.known  # type: ignore[no-any-return]

        self.state_of = state_of
        answer = yield from real(self, *args)
        del self.state_of
        return answer

    return patched((Reaper, "_free", free), (Reaper, "_exchange", exchange))


def freed_of_rows_that_are_back() -> AbstractContextManager[None]:
    """Ids are freed of jobs of which the head itself has a younger row."""
    real = Reaper._free

    def free(self: Any, *args: Any) -> QueueFlow[Any]:
        def state_of(shard: int) -> QueueFlow[State]:
            state: State = yield from type(self).state_of(self, shard)
            return replace(state, finished=())

        self.state_of = state_of
        answer = yield from real(self, *args)
        del self.state_of
        return answer

    return patched((Reaper, "_free", free))


def freed_whomever_they_stand_for() -> AbstractContextManager[None]:
    """An id is freed with each of its jobs, also if it stands for another one."""
    real = id_index.free

    def free(queue: str, jobs: Sequence[id_index.FinishedId]) -> Flow[tuple[int, list[Damaged]]]:
        found = yield from id_index.look_up(queue, [each.client_id for each in jobs])
        ends = [
            replace(each, key=entry.key) if isinstance(entry, id_index.IdEntry) else each
            for each, entry in zip(jobs, found, strict=True)
        ]
        return (yield from real(queue, ends))

    return patched((id_index, "free", free))


def untold_counts_as_free() -> AbstractContextManager[None]:
    """An id stands for nothing if the store does not say what it stands for."""
    return _heard(Get, Failed, lambda request: Missing())


# ── Taking ───────────────────────────────────────────────────────────────────
def taken_whatever_was_answered(
    op: type[StoreRequest], reply: type[StoreReply]
) -> AbstractContextManager[None]:
    """An id counts as taken when the store gave this answer."""
    return _heard(op, reply, lambda request: Written("somebody's"))


def _heard(
    op: type[StoreRequest], reply: type[StoreReply], instead: Callable[[StoreRequest], StoreReply]
) -> AbstractContextManager[None]:
    def ask(requests: Sequence[StoreRequest], policy: RetryPolicy) -> Flow[list[StoreReply]]:
        replies = yield from ask_all(requests, policy)
        return [
            instead(request) if isinstance(request, op) and isinstance(each, reply) else each
            for request, each in zip(requests, replies, strict=True)
        ]

    return patched((id_index, "ask_all", ask))


# ── Enqueueing ───────────────────────────────────────────────────────────────
def unreadable_counts_as_unknown() -> AbstractContextManager[None]:
    """Nobody has enqueued a job if nobody can read where it may lie."""
    real = dedup.seen_before

    def seen_before(draft: Draft, new: JobSpec) -> Code | None:
        told = {place: frozenset[bytes]() for place in draft.context.unreadable if place[1] == dedup.WHOLE}
        draft.blocks = {**draft.blocks, **told}
        return real(draft, new)

    return patched((reduce, "seen_before", seen_before))


_SECOND = "a second job was accepted"

CONTROLS: tuple[Control, ...] = (
    Control(
        "unreadable objects when ids are swept",
        unreadable_counts_as_nowhere,
        (in_scene("swept where nobody can tell", "an id was freed while its job"),),
    ),
    Control(
        "unreadable objects when jobs come",
        unreadable_counts_as_unknown,
        (in_scene("accepted where nobody can tell", "in two places"),),
    ),
    Control(
        "closed entries, looked up again",
        swept_after_one_look,
        (in_scene("helped before it is closed", "an id was freed while its job"),),
    ),
    Control(
        "closed entries removed conditionally",
        swept_whatever_it_stands_for,
        (in_scene("helped before it is removed", "an id was freed while its job"),),
    ),
    Control("entries that were closed", closed_perhaps, (in_scene("not closed", "was never enqueued"),)),
    Control(
        "heads that are lost when ids are swept",
        swept_where_there_is_no_head,
        (in_scene("swept without a head", "an id was freed while its job"),),
    ),
    Control(
        "ids of the jobs that are forgotten",
        freed_whomever_they_stand_for,
        (in_scene("used again before it is forgotten", "an id was freed while its job"),),
    ),
    Control(
        "ids of which the store does not tell",
        untold_counts_as_free,
        (in_scene("not told as it is forgotten", "accepted a second time"),),
    ),
    *(
        Control(name, partial(taken_whatever_was_answered, op, reply), (in_scene(scene, _SECOND),))
        for name, op, reply, scene in (
            ("ids refused to be taken", PutIfAbsent, Refused, "taken by two"),
            ("ids perhaps taken", PutIfAbsent, Failed, "perhaps taken"),
            ("ids refused to be taken over", PutIfMatch, Refused, "taken over by two"),
            ("ids perhaps taken over", PutIfMatch, Failed, "perhaps taken over"),
        )
    ),
    Control(
        "age of damaged entries",
        damaged_entries_freed_at_any_age,
        (in_scene("freed where nobody can tell", "an id was freed while its job"),),
    ),
    Control(
        "ids freed by a head that is read then",
        freed_by_an_older_head,
        (in_scene("prolonged as it is forgotten, in a table", "an id was freed while the result"),),
    ),
    Control(
        "ids of rows that are back",
        freed_of_rows_that_are_back,
        (in_scene("prolonged as it is forgotten, in the head", "an id was freed while the result"),),
    ),
    Control(
        "ids of jobs that died out",
        ids_kept_of_jobs_that_died_out,
        (in_scene("died out unread", "accepted a second time"),),
    ),
)
