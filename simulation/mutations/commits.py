"""The commit protocol and the state machine with one check removed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue import limits
from osqueue.commit import announcements, few_writers, protocol, publications, request_status, steps
from osqueue.commit.effects import All, Flow
from osqueue.commit.request_status import RequestStatus
from osqueue.commit.request_status import status_of_request as real_verdict
from osqueue.core import admin, reduce, spill
from osqueue.core.draft import Draft
from osqueue.core.ops import Request
from osqueue.core.reduce import Reduction
from osqueue.core.state import State
from osqueue.core.weights import session_weight
from osqueue.stores.base import Put

from .control import Control, in_interleavings, in_runs, patched

Swap = Callable[..., Flow[request_status.CommitResult | None]]


def no_etag() -> AbstractContextManager[None]:
    """The head is written whatever it has become."""
    return patched((steps, "PutIfMatch", lambda key, body, *rest: Put(key, body)))


def no_session_check() -> AbstractContextManager[None]:
    """A request is applied whether or not its writer's row says that it was."""

    def applicable(draft: Draft | State, request: Request) -> bool:
        return request.born >= draft.floor

    return patched(
        (reduce, "applicable", applicable),
        (announcements, "applicable", applicable),
        (publications, "applicable", applicable),
    )


def no_nonce_check() -> AbstractContextManager[None]:
    """A row with my number is mine, even when a clone of me wrote it."""

    def verdict(state: State, request: Request) -> RequestStatus:
        row = state.sessions.get(request.env)
        if row is not None and row.n == request.n:
            return RequestStatus.APPLIED
        return real_verdict(state, request)

    return patched((steps, "status_of_request", verdict))


def fresh_born() -> AbstractContextManager[None]:
    """A request is published, or announced, with the date of that, not of its identity."""
    real = protocol.Commit.announced
    few = few_writers.commit_among_few

    def announced(self: Any, request: Request) -> Flow[request_status.CommitResult]:
        head = yield from self.reread()
        return (yield from real(self, replace(request, born=head.state.seq)))

    def published(run: Any, request: Request) -> Flow[request_status.CommitResult | None]:
        head = yield from run.reread()
        return (yield from few(run, replace(request, born=head.state.seq)))

    return patched((protocol.Commit, "announced", announced), (protocol, "commit_among_few", published))


def no_floor() -> AbstractContextManager[None]:
    """A request older than a forgotten row is applied all the same."""

    def applicable(draft: Draft | State, request: Request) -> bool:
        row = draft.sessions.get(request.env)
        return row is None or request.n > row.n

    return patched(
        (reduce, "applicable", applicable),
        (announcements, "applicable", applicable),
        (publications, "applicable", applicable),
    )


def no_gc_floor() -> AbstractContextManager[None]:
    """A staged object is taken however old it is."""

    def ever(name: str) -> int:
        return 1 << 62

    return patched((reduce, "born_of", ever), (admin, "born_of", ever))


def no_token_check() -> AbstractContextManager[None]:
    """Any lease of the job will do."""
    return patched((reduce, "_held", lambda draft, key, token: draft.leases.get(key)))


def spill_after_swap() -> AbstractContextManager[None]:
    """What the head refers to is written when the head has been."""
    real: Swap = protocol.Commit.swap

    def swap(
        self: Any, request: Request, head: Any, reduction: Reduction, done: tuple[str, ...]
    ) -> Flow[request_status.CommitResult | None]:
        answer = yield from real(self, request, head, replace(reduction, objects=()), done)
        if answer is not None and reduction.objects:
            yield All(tuple(Put(self.writer.root + item.name, item.body) for item in reduction.objects))
        return answer

    return patched((protocol.Commit, "swap", swap))


def shelve_own() -> AbstractContextManager[None]:
    """A batch moves what it finishes itself out of the head."""
    real = spill.shelve

    def shelve(draft: Draft) -> None:
        draft.committed = len(draft.finished)
        real(draft)

    return patched((spill, "shelve", shelve))


def forget_without_floor() -> AbstractContextManager[None]:
    """A row is dropped once nothing seems to need it, and the floor stays where it is."""
    real = spill.room_for_session

    def room_for_session(draft: Draft, request: Request) -> bool:
        floor = draft.floor
        answer = real(draft, request)
        draft.floor = floor
        return answer

    return patched((spill, "room_for_session", room_for_session))


def young_rows_dropped() -> AbstractContextManager[None]:
    """A row is dropped although its writer may still ask what became of its request."""
    real = spill.room_for_session

    def room_for_session(draft: Draft, request: Request) -> bool:
        with patched((limits, "SESSION_IDLE_MS_MIN", 0)):
            return real(draft, request)

    return patched((spill, "room_for_session", room_for_session))


def remember_last_commit() -> AbstractContextManager[None]:
    """Only the outcomes of the last commit are kept."""
    real = spill.enforce_budgets

    def forget(draft: Draft) -> None:
        for env, row in list(draft.sessions.items()):
            if row.seq <= draft.state.seq and len(draft.sessions) > 1:
                draft.sessions_bytes -= session_weight(env, draft.sessions.pop(env))
        real(draft)

    return patched((spill, "enforce_budgets", forget))


CONTROLS: tuple[Control, ...] = (
    Control("etag", no_etag, (in_runs("rough", "invariant 1"),)),
    Control("session", no_session_check, (in_runs("rough", "invariant 2"),)),
    Control("nonce", no_nonce_check, (in_runs("rough", "was told", seed=2),)),
    Control(
        "frozen born",
        fresh_born,
        (
            in_runs("forgetful", "invariant 2"),
            in_interleavings("rows are dropped", "applied twice", rows=False),
        ),
    ),
    Control("floor", no_floor, (in_runs("rough", "invariant 2", seed=11),)),
    Control(
        "rows of writers that may still ask",
        young_rows_dropped,
        (in_interleavings("no room for rows", "nobody knows what became"),),
    ),
    Control("gc_floor", no_gc_floor, (in_runs("calm", "invariant 8"),)),
    Control("lease token", no_token_check, (in_runs("rough", "invariant 7"),)),
    Control("spill before swap", spill_after_swap, (in_runs("rough", "invariant 8"),)),
    Control(
        "a rest in the head",
        shelve_own,
        (in_runs("rough", "left the head in the commit that finished them"),),
    ),
    Control(
        "outcome dropped with its intent",
        forget_without_floor,
        (in_interleavings("rows are dropped", "applied twice", rows=False),),
    ),
    Control(
        "only the last commit's outcomes",
        remember_last_commit,
        (in_interleavings("two enqueue", "applied twice", rows=False),),
    ),
)
