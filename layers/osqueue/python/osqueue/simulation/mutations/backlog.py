"""The backlog with one check removed: cancelled jobs in segments, and what takes the place of a span."""

from __future__ import annotations

from contextlib import AbstractContextManager

from msgspec.structs import replace

from ...core import backlog, deletions, settle, steer, sweep
from ...core.backlog import Blocks, Need, Rope
from ...core.deletions import NONE, Deleted
from ...core.draft import Draft
from ...core.ops import Rewrite
from ...core.state import Span, Vector
from .control import patched


class _Nothing(set[bytes]):
    """Tombstones that nobody sees when he looks for one."""

    def __contains__(self, key: object) -> bool:
        return False


def tombstones_ignored_in_lanes() -> AbstractContextManager[None]:
    """A job is taken out of its segment although it was cancelled there."""
    real = Rope.refill

    def refill(self: Rope, blocks: Blocks, dead: set[bytes]) -> Need | None:
        return real(self, blocks, set())

    return patched((Rope, "refill", refill))


def _blind(module: object, name: str) -> AbstractContextManager[None]:
    """Let a step of a reduction see no tombstones."""
    real = getattr(module, name)

    def step(draft: Draft, *rest: object) -> object:
        seen = draft.tombstones
        draft.tombstones = _Nothing(seen)
        answer = real(draft, *rest)
        draft.tombstones = set(draft.tombstones)
        return answer

    return patched((module, name, step))


def tombstones_ignored_when_due() -> AbstractContextManager[None]:
    """A delayed job becomes due although it was cancelled in its segment."""
    return _blind(sweep, "_take_from_segments")


def tombstones_ignored_in_merges() -> AbstractContextManager[None]:
    """A merged segment of delayed jobs has the cancelled ones as well, and their tombstones are gone."""
    return _blind(settle, "_merge_delayed")


def _no_vectors(module: object) -> AbstractContextManager[None]:
    def deleted_from(span: Span, blocks: Blocks) -> Deleted:
        return NONE

    return patched((module, "deleted_from", deleted_from))


def vectors_ignored_in_lanes() -> AbstractContextManager[None]:
    """A job is taken out of its segment although the vector says that it is not to come."""
    return _no_vectors(backlog)


def vectors_ignored_when_due() -> AbstractContextManager[None]:
    """The same of delayed jobs."""
    return _no_vectors(sweep)


def vectors_ignored_in_merges() -> AbstractContextManager[None]:
    """The same where segments of delayed jobs are merged."""
    return _no_vectors(settle)


def settled_after_it_was_passed() -> AbstractContextManager[None]:
    """A job is settled although the front has passed it since, and its tombstone is gone."""
    real = steer.rewrite

    def rewrite(draft: Draft, op: Rewrite) -> object:
        draft.tombstones.update(op.dropped)
        return real(draft, op)

    return patched((steer, "rewrite", rewrite))


def vector_of_another() -> AbstractContextManager[None]:
    """A vector takes the place of one that others have put there since."""
    real = steer._takes_the_place

    def takes(op: Rewrite, span: Span, left: Span | None) -> bool:
        if span.level == 0:
            return left is None or op.replacement is not None
        return real(op, span, left)

    return patched((steer, "_takes_the_place", takes))


def sums_as_they_were() -> AbstractContextManager[None]:
    """What is left of a segment counts the jobs that were taken out of it."""
    real = deletions.thinned

    def thinned(span: Span, keys: object, failing: int, vector: Vector | None) -> Span | None:
        left = real(span, keys, failing, vector)  # type: ignore[arg-type]
        return None if left is None else replace(left, keysum=span.keysum)

    return patched((steer, "thinned", thinned))


NAMES = {
    f.__name__: f
    for f in (
        tombstones_ignored_in_lanes,
        tombstones_ignored_when_due,
        tombstones_ignored_in_merges,
        vectors_ignored_in_lanes,
        vectors_ignored_when_due,
        vectors_ignored_in_merges,
        settled_after_it_was_passed,
        vector_of_another,
        sums_as_they_were,
    )
}
