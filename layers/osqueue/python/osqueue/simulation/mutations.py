"""The protocol with one safety check removed. If the simulator did not catch these, its silence would mean nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from msgspec.structs import replace

from ..commit import protocol
from ..commit.effects import All, Flow
from ..commit.verdict import Verdict
from ..commit.verdict import verdict as real_verdict
from ..core import reduce, settle
from ..core.draft import Draft
from ..core.ops import Request
from ..core.reduce import Reduction
from ..core.state import State, session_weight
from ..stores.base import Put

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
    return _patched((reduce, "born_of", lambda name: 1 << 62))


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
            yield All(
                tuple(Put(protocol._place(self.writer, item.name), item.body) for item in reduction.objects)
            )
        return answer

    return _patched((protocol._Commit, "swap", swap))


def archive_own() -> AbstractContextManager[None]:
    """A batch archives what it finishes itself."""
    real = settle.archive

    def archive(draft: Draft) -> None:
        draft.archivable = len(draft.finished)
        real(draft)

    return _patched((settle, "archive", archive))


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


MUTATIONS: dict[str, Mutation] = {
    "etag": no_etag,
    "session": no_session_check,
    "nonce": no_nonce_check,
    "frozen born": fresh_born,
    "floor": no_floor,
    "gc_floor": no_gc_floor,
    "lease token": no_token_check,
    "spill before swap": spill_after_swap,
    "archive only what is committed": archive_own,
}
TRAPS: dict[str, Mutation] = {
    "outcome dropped with its intent": forget_without_floor,
    "only the last commit's outcomes": remember_last_commit,
    "announced with a fresh born": fresh_born,
}
