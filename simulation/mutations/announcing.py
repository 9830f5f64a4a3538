"""What a combiner takes along, and what a writer is told, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from osqueue.commit import announcements, protocol, publications, steps
from osqueue.commit.effects import Flow
from osqueue.core.context import ReductionContext
from osqueue.core.ops import Request
from osqueue.stores.base import List

from .control import Control, in_runs, in_scene, patched


def settled_left_to_others() -> AbstractContextManager[None]:
    """What is settled is removed as far as one deletion goes, and the rest stays in the listings."""
    real = protocol.Commit.swap

    def swap(self: Any, request: Request, head: Any, reduction: Any, done: tuple[str, ...]) -> Flow[Any]:
        return (yield from real(self, request, head, reduction, done[: steps.SETTLED_PER_DELETE_MAX]))

    return patched((protocol.Commit, "swap", swap))


def first_page_only() -> AbstractContextManager[None]:
    """What is listed after the first page is the first page again."""
    return patched((announcements, "List", lambda prefix, after="": List(prefix)))


def no_patience() -> AbstractContextManager[None]:
    """A writer draws lots for as long as it takes."""
    return patched((protocol, "PATIENT_ROUNDS", 1 << 30))


def direct_commits_without_end() -> AbstractContextManager[None]:
    """A lone writer never looks for announced requests."""
    return patched((protocol.Commit, "must_look", lambda self, state, now: False))


def answers_from_the_cache() -> AbstractContextManager[None]:
    """That nothing would change is taken from a head however long ago it was read."""
    real = protocol.Commit.direct

    def direct(self: Any, request: Request, head: Any) -> Flow[Any]:
        self.cached = None
        return (yield from real(self, request, head))

    return patched((protocol.Commit, "direct", direct))


def commits_without_chance() -> AbstractContextManager[None]:
    """Writers that collide name their commits alike."""

    def context(now_ms: int, commit: bytes, *rest: Any, **named: Any) -> ReductionContext:
        return ReductionContext(now_ms, now_ms.to_bytes(16, "big"), *rest, **named)

    return patched((steps, "ReductionContext", context))


class _Latest(dict[bytes, Any]):
    """Whatever was put last, for every key."""

    def get(self, key: bytes, default: Any = None) -> Any:
        return list(self.values())[-1] if self else default


def events_of_any_try() -> AbstractContextManager[None]:
    """Who was not told of the own swap takes the transitions of its last try for those of the commit."""
    real = protocol.Commit.__init__

    def init(self: Any, *args: Any) -> None:
        real(self, *args)
        self.unsure = _Latest()

    return patched((protocol.Commit, "__init__", init))


def answers_from_the_head_it_made() -> AbstractContextManager[None]:
    """A result that needs no commit comes from the head that the writer's last commit made."""
    real = steps.Steps.apply

    def apply(self: Any, request: Request, head: Any, others: Any, *, read: bool = True) -> Flow[Any]:
        return (yield from real(self, request, head, others, read=True))

    return patched((steps.Steps, "apply", apply))


def publications_unread() -> AbstractContextManager[None]:
    """No commit takes along what others published."""
    return patched((publications.Publications, "looks", lambda self, state, env, contended: []))


CONTROLS: tuple[Control, ...] = (
    Control("reads of publications", publications_unread, (in_runs("few calm", "commits left out a call"),)),
    Control(
        "answers from a head that was read",
        answers_from_the_head_it_made,
        (in_scene("refused by the own head", "no head says so"),),
    ),
    Control("all that is settled removed", settled_left_to_others, (in_runs("caps", "invariant 9"),)),
    Control("all pages of what is announced", first_page_only, (in_runs("caps", "invariant 9"),)),
    Control(
        "looking for the announced",
        direct_commits_without_end,
        (in_scene("announced and gone", "direct commits in a row passed"),),
    ),
    Control("patience ends", no_patience, (in_scene("the crowd has gone", "stood in line"),)),
    Control(
        "answers from a fresh head", answers_from_the_cache, (in_runs("rough", "no head says so", seed=1),)
    ),
    Control("random commit ids", commits_without_chance, (in_runs("rough", "invariant 1"),)),
    Control("events of the commit that won", events_of_any_try, (in_runs("rough", "told .* events"),)),
)
