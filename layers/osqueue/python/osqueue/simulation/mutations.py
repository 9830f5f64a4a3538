"""The protocol with one safety check removed. If the simulator did not catch these, its silence would mean nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from msgspec.structs import replace

from .. import archive, batches, garbage, ids, limits, orphans
from ..batches import Batch, Batches, Known
from ..commit import protocol
from ..commit.effects import All, Flow
from ..commit.verdict import Verdict
from ..commit.verdict import verdict as real_verdict
from ..core import passed, reduce, settle, steer, tables
from ..core.draft import Draft
from ..core.ops import AttachAll, Code, Merge, New, Op, Outcome, Request, Sweep, outcome
from ..core.reduce import Reduction
from ..core.state import Finished, State, session_weight
from ..reaper import Reaper
from ..reaper import Report as Reaped
from ..shards import QueueFlow
from ..staging import Stage
from ..stores.base import Delete, Put, Written

Mutation = Callable[[], AbstractContextManager[None]]
Swap = Callable[..., Flow[protocol.Answer | None]]


@contextmanager
def _patched(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    before = [(home, name, getattr(home, name)) for home, name, _ in changes]
    for home, name, value in changes:
        setattr(home, name, value)
    try:
        yield
    finally:
        for home, name, value in before:
            setattr(home, name, value)


def no_etag() -> AbstractContextManager[None]:
    """The head is written whatever it has become."""
    return _patched((protocol, "PutIfMatch", lambda key, body, version: Put(key, body)))


def no_session_check() -> AbstractContextManager[None]:
    """A request is applied whether or not its writer's row says that it was."""

    def applicable(draft: Draft | State, request: Request) -> bool:
        return request.born >= draft.floor

    return _patched((reduce, "applicable", applicable), (protocol, "applicable", applicable))


def no_nonce_check() -> AbstractContextManager[None]:
    """A row with my number is mine, even when a clone of me wrote it."""

    def verdict(state: State, request: Request) -> Verdict:
        row = state.sessions.get(request.env)
        if row is not None and row.n == request.n:
            return Verdict.APPLIED
        return real_verdict(state, request)

    return _patched((protocol, "verdict", verdict))


def fresh_born() -> AbstractContextManager[None]:
    """A request is announced with the date of the announcement, not of its identity."""
    real = protocol._Commit.announced

    def announced(self: Any, request: Request) -> Flow[protocol.Answer]:
        head = yield from self.reread()
        return (yield from real(self, replace(request, born=head.state.seq)))

    return _patched((protocol._Commit, "announced", announced))


def no_floor() -> AbstractContextManager[None]:
    """A request older than a forgotten row is applied all the same."""

    def applicable(draft: Draft | State, request: Request) -> bool:
        row = draft.sessions.get(request.env)
        return row is None or request.n > row.n

    return _patched((reduce, "applicable", applicable), (protocol, "applicable", applicable))


def no_gc_floor() -> AbstractContextManager[None]:
    """A staged object is taken however old it is."""

    def ever(name: str) -> int:
        return 1 << 62

    return _patched((reduce, "born_of", ever), (steer, "born_of", ever))


def no_token_check() -> AbstractContextManager[None]:
    """Any lease of the job will do."""
    return _patched((reduce, "_held", lambda draft, key, token: draft.leases.get(key)))


def spill_after_swap() -> AbstractContextManager[None]:
    """What the head refers to is written when the head has been."""
    real: Swap = protocol._Commit.swap

    def swap(
        self: Any, request: Request, head: Any, reduction: Reduction, done: tuple[str, ...]
    ) -> Flow[protocol.Answer | None]:
        answer = yield from real(self, request, head, replace(reduction, objects=()), done)
        if answer is not None and reduction.objects:
            yield All(tuple(Put(self.writer.root + item.name, item.body) for item in reduction.objects))
        return answer

    return _patched((protocol._Commit, "swap", swap))


def shelve_own() -> AbstractContextManager[None]:
    """A batch moves what it finishes itself out of the head."""
    real = settle.shelve

    def shelve(draft: Draft) -> None:
        draft.committed = len(draft.finished)
        real(draft)

    return _patched((settle, "shelve", shelve))


# ── The traps of forgetting ──────────────────────────────────────────────────
def forget_without_floor() -> AbstractContextManager[None]:
    """A row is dropped once nothing seems to need it, and the floor stays where it is."""
    real = settle.room_for_session

    def room_for_session(draft: Draft, request: Request) -> bool:
        floor = draft.floor
        answer = real(draft, request)
        draft.floor = floor
        return answer

    return _patched((settle, "room_for_session", room_for_session))


def remember_last_commit() -> AbstractContextManager[None]:
    """Only the outcomes of the last commit are kept."""
    real = settle.settle

    def forget(draft: Draft) -> None:
        for env, row in list(draft.sessions.items()):
            if row.seq <= draft.state.seq and len(draft.sessions) > 1:
                draft.sessions_bytes -= session_weight(env, draft.sessions.pop(env))
        real(draft)

    return _patched((settle, "settle", forget))


# ── The second half of a job's life ──────────────────────────────────────────
def no_look_at_newer_pointers() -> AbstractContextManager[None]:
    """A job that passed through the head into an object written since counts as never seen."""

    def seen_before(draft: Draft, new: New) -> Code | None:
        if draft.knows(new.key):
            return Code.DUPLICATE
        return Code.RETRY if draft.forgotten > new.seen else None

    return _patched((reduce, "seen_before", seen_before))


def no_forgotten() -> AbstractContextManager[None]:
    """Nobody asks whether jobs were forgotten since a caller looked."""
    real = passed.seen_before

    def seen_before(draft: Draft, new: New) -> Code | None:
        draft.forgotten, forgotten = -1, draft.forgotten
        answer = real(draft, new)
        draft.forgotten = forgotten
        return answer

    return _patched((reduce, "seen_before", seen_before))


def ids_freed_whatever_they_stand_for() -> AbstractContextManager[None]:
    """An id's entry is deleted, even if it was taken over since it was read."""
    return _patched((ids, "DeleteIfMatch", lambda key, version: Delete((key,))))


def ids_freed_last() -> AbstractContextManager[None]:
    """Jobs are forgotten, and then their ids are freed."""
    real_free, real_exchange = Reaper._free, Reaper._exchange

    def free(self: Any, *args: Any) -> QueueFlow[tuple[int, frozenset[bytes]]]:
        self.owed = args
        yield from ()
        return 0, frozenset()

    def exchange(self: Any, *args: Any, **more: Any) -> QueueFlow[Reaped]:
        report = yield from real_exchange(self, *args, **more)
        yield from real_free(self, *self.owed)
        return report

    return _patched((Reaper, "_free", free), (Reaper, "_exchange", exchange))


def ids_freed_of_remembered_jobs() -> AbstractContextManager[None]:
    """A job's id is freed with its oldest row, although a younger one is remembered for longer."""

    def free(
        self: Any, shard: int, state: State, taken: Any, gone: Any
    ) -> QueueFlow[tuple[int, frozenset[bytes]]]:
        named = [ids.End(row.job.client_id, row.key) for row in gone if row.job.client_id is not None]
        freed, _ = yield from ids.free(self.queue, named)
        return freed, frozenset()

    return _patched((Reaper, "_free", free))


def ids_swept_at_once() -> AbstractContextManager[None]:
    """An entry without a job is removed although somebody may be about to enqueue on its word."""
    return _patched((orphans, "LOOK_AGAIN", Sweep()))


def no_check_of_taken() -> AbstractContextManager[None]:
    """Tables are exchanged for what was made of them, whether or not they are still there."""

    def merge(draft: Draft, op: Merge) -> Outcome:
        names = {table.name for table in op.taken}
        rest = [table for table in draft.tables if table.name not in names]
        draft.tables = (*op.put, *rest)
        draft.count("archived", op.archived)
        draft.forgotten = draft.state.seq + 1 if op.forgets else draft.forgotten
        draft.changed = True
        return outcome([Code.OK])

    return _dispatched(Merge, merge)


@contextmanager
def _dispatched(op: type, apply: Callable[[Draft, Any], Outcome]) -> Iterator[None]:
    before = reduce._APPLY[op]
    reduce._APPLY[op] = apply
    try:
        yield
    finally:
        reduce._APPLY[op] = before


def parts_after_the_commit() -> AbstractContextManager[None]:
    """Tables count as archived, and then their records are written."""
    real_write, real_exchange = Reaper._write, Reaper._exchange

    def write(self: Any, *args: Any) -> QueueFlow[None]:
        self.unwritten = args
        yield from ()

    def exchange(self: Any, *args: Any, **more: Any) -> QueueFlow[Reaped]:
        report = yield from real_exchange(self, *args, **more)
        if getattr(self, "unwritten", None):
            yield from real_write(self, *self.unwritten)
            self.unwritten = None
        return report

    return _patched((Reaper, "_write", write), (Reaper, "_exchange", exchange))


def parts_of_a_past_hour() -> AbstractContextManager[None]:
    """A part stays where it was meant to be, whenever it is written."""

    def write(self: Any, shard: int, state: State, taken: Any, data: bytes) -> QueueFlow[None]:
        now = yield from self.clock(shard, state)
        name = archive.part_name(self.queue, shard, now, taken)
        while not isinstance((yield Put(name, data)), Written):
            pass

    return _patched((Reaper, "_write", write))


def kept_ignored() -> AbstractContextManager[None]:
    """A row whose time to live was shortened is forgotten before older ones of its job."""

    def known_until_ms(row: Finished) -> int:
        return row.expires_ms + limits.EXPIRED_KNOWN_MS

    return _patched((tables, "known_until_ms", known_until_ms))


def tables_born_too_early() -> AbstractContextManager[None]:
    """A merged table passes for older than what it was made of."""

    def stage(self: Any, shard: int, state: State) -> QueueFlow[Stage]:
        born: Stage = yield from self.stage(shard)
        return born

    return _patched((Reaper, "_stage", stage))


# ── Bulks of many processes ──────────────────────────────────────────────────
def receipt_ignored() -> AbstractContextManager[None]:
    """Every run of a batch decides anew what it is."""

    def read(self: Any, batch_id: str) -> Flow[Known | None]:
        yield from ()
        return None

    def decide(self: Any, batch: Batch) -> Flow[Known]:
        yield from ()
        return Known(batch, "")

    return _patched((Batches, "read", read), (Batches, "decide", decide))


def identity_of_each_run() -> AbstractContextManager[None]:
    """Who sends the requests of a batch speaks with a voice of their own."""

    def identify(self: Any, ops: tuple[Op, ...], state: State) -> Request:
        request = batches.identified(self.machine, state, ops)
        self.env = request.env
        return request

    return _patched((batches._FixedWriter, "identify", identify))


def refusals_unspent() -> AbstractContextManager[None]:
    """A bulk that is refused is so by the head as it is, and nothing is written."""
    real = reduce._APPLY[AttachAll]

    def attach_all(draft: Draft, op: AttachAll) -> Outcome:
        before = draft.changed
        answer = real(draft, op)
        if answer.code != Code.QUEUED:
            draft.changed = before
        return answer

    return _dispatched(AttachAll, attach_all)


def half_a_bulk() -> AbstractContextManager[None]:
    """The parts of a bulk join one after the other, until one is refused."""

    def attach_all(draft: Draft, op: AttachAll) -> Outcome:
        for part in op.parts:
            answer = reduce._attach(draft, part)
            if answer.code not in (Code.QUEUED, Code.SCHEDULED):
                return answer
        return outcome([Code.QUEUED])

    return _dispatched(AttachAll, attach_all)


def staged_collected_at_once() -> AbstractContextManager[None]:
    """What nobody refers to is collected however young it is."""
    return _patched((garbage, "born_of", lambda name: 0))


MUTATIONS: dict[str, Mutation] = {
    "etag": no_etag,
    "session": no_session_check,
    "nonce": no_nonce_check,
    "frozen born": fresh_born,
    "floor": no_floor,
    "gc_floor": no_gc_floor,
    "lease token": no_token_check,
    "spill before swap": spill_after_swap,
    "a rest in the head": shelve_own,
}
LATER: dict[str, Mutation] = {
    "newer pointers": no_look_at_newer_pointers,
    "forgotten": no_forgotten,
    "ids freed conditionally": ids_freed_whatever_they_stand_for,
    "ids freed first": ids_freed_last,
    "ids of remembered jobs": ids_freed_of_remembered_jobs,
    "ids swept once all look again": ids_swept_at_once,
    "tables that are still there": no_check_of_taken,
    "parts before the commit": parts_after_the_commit,
    "parts in their hour": parts_of_a_past_hour,
    "kept_ms": kept_ignored,
    "birth of merged tables": tables_born_too_early,
}
BULKS: dict[str, Mutation] = {
    "receipt": receipt_ignored,
    "identity of a batch": identity_of_each_run,
    "collected by age": staged_collected_at_once,
    "spent refusals": refusals_unspent,
    "all or nothing": half_a_bulk,
}
TRAPS: dict[str, Mutation] = {
    "outcome dropped with its intent": forget_without_floor,
    "only the last commit's outcomes": remember_last_commit,
    "announced with a fresh born": fresh_born,
}
