"""Commits in turn, with one check removed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from osqueue.commit import in_turn, protocol, steps
from osqueue.commit.effects import Flow
from osqueue.commit.request_status import CommitResult
from osqueue.commit.writer import Head
from osqueue.core.ops import Request
from osqueue.stores.base import PutIfMatch

from .control import Control, in_runs, in_scene, patched


def idle_answers_unwritten() -> AbstractContextManager[None]:
    """What changes nothing is not written, though a note of it may be read again."""
    real = protocol.Commit.apply

    def apply(
        self: Any, request: Request, head: Head, others: Sequence[Request]
    ) -> Flow[CommitResult | None]:
        reduction = yield from self.reduce(head, [*others, request], load=True)
        own = None if reduction is None else reduction.outcomes.get(request.identity)
        if reduction is None or own is None or reduction.changed:
            return (yield from real(self, request, head, others))
        self.applied = reduction.outcomes
        return CommitResult(own, head.state.now_ms)

    return patched((protocol.Commit, "apply", apply))


def begun_again_without_a_turn() -> AbstractContextManager[None]:
    """Who gets no turn begins again, as if nobody could have read the note."""
    real = in_turn.commit_in_turn

    def commit(steps: Any, request: Request) -> Flow[CommitResult | None]:
        answer = yield from real(steps, request)
        if answer is None:
            answer = yield from steps.direct(request, (yield from steps.reread()))
        return answer

    return patched((protocol, "commit_in_turn", commit))


def anothers_believed() -> AbstractContextManager[None]:
    """An answer counts, whichever request it belongs to."""

    def handed_over(data: bytes, request: Request) -> CommitResult | None:
        handed = in_turn._decode_answer(data)
        return CommitResult(handed.outcomes, handed.now_ms)

    return patched((in_turn, "_handed_over", handed_over))


def swaps_that_do_not_yield() -> AbstractContextManager[None]:
    """A writer that met no other for a while replaces the head whether or not another has the turn."""
    return patched((steps, "PutIfMatch", lambda *arguments: PutIfMatch(*arguments[:5])))


def swaps_that_always_yield() -> AbstractContextManager[None]:
    """A call's swap yields again after the call has waited for the turn."""
    real = steps.Steps.yields
    return patched((steps.Steps, "yields", lambda self, head, sent: real(self, head, False)))


CONTROLS: tuple[Control, ...] = (
    Control(
        "an answer belongs to its request",
        anothers_believed,
        (in_scene("an answer to another's note", "invariant 5"),),
    ),
    Control(
        "answers to notes are written",
        idle_answers_unwritten,
        tuple(
            in_scene(scene, "without a commit")
            for scene in ("a note read once its writer is answered", "a note read by two")
        ),
    ),
    Control(
        "a note was left",
        begun_again_without_a_turn,
        (in_scene("a note carried out too late", "invariant 2|outside|granted"),),
    ),
    Control(
        "a swap without a turn yields",
        swaps_that_do_not_yield,
        (in_scene("a writer joins a busy one", "a writer without the turn replaced the head"),),
    ),
    Control(
        "a swap yields once in a call",
        swaps_that_always_yield,
        (in_runs("turns lost", "refuses If-Match", seed=1946541590, seeds=1),),
    ),
)
