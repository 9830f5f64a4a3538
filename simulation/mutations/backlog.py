"""The backlog with one check removed: cancelled jobs in segments, and what takes the place of a span."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue.commit.effects import Flow
from osqueue.core import admin, backlog, deletion_vectors, drop_rules, timers
from osqueue.core import spill as settle
from osqueue.core.backlog import BacklogDraft, Blocks, NeededRange
from osqueue.core.context import StagedObject
from osqueue.core.deletion_vectors import EMPTY_VECTOR, DeletionVector
from osqueue.core.draft import Draft
from osqueue.core.encoding import staged_name
from osqueue.core.ops import Op, Outcome
from osqueue.core.queue_ops import MergeSpans, ReplaceSpan
from osqueue.core.state import Span, State, VectorRef
from osqueue.maintenance import garbage_collection
from osqueue.objects import segment_rewrite
from osqueue.objects.staging import StagingArea

from .control import Control, dispatched, in_runs, in_scene, patched


class _Nothing(set[bytes]):
    """Tombstones that nobody sees when he looks for one."""

    def __contains__(self, key: object) -> bool:
        return False


def tombstones_ignored_in_lanes() -> AbstractContextManager[None]:
    """A job is taken out of its segment although it was cancelled there."""
    real = BacklogDraft.refill

    def refill(self: BacklogDraft, blocks: Blocks, dead: set[bytes]) -> NeededRange | None:
        return real(self, blocks, set())

    return patched((BacklogDraft, "refill", refill))


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
    return _blind(timers, "_take_from_segments")


def tombstones_ignored_in_merges() -> AbstractContextManager[None]:
    """A merged segment of delayed jobs has the cancelled ones as well, and their tombstones are gone."""
    return _blind(settle, "_merge_delayed")


def _no_vectors(module: object) -> AbstractContextManager[None]:
    def deleted_from(span: Span, blocks: Blocks) -> DeletionVector:
        return EMPTY_VECTOR

    return patched((module, "deleted_from", deleted_from))


def vectors_ignored_in_lanes() -> AbstractContextManager[None]:
    """A job is taken out of its segment although the vector says that it is not to come."""
    return _no_vectors(backlog)


def vectors_ignored_when_due() -> AbstractContextManager[None]:
    """The same of delayed jobs."""
    return _no_vectors(timers)


def vectors_ignored_in_merges() -> AbstractContextManager[None]:
    """The same where segments of delayed jobs are merged."""
    return _no_vectors(settle)


def settled_after_it_was_passed() -> AbstractContextManager[None]:
    """A job is settled although the front has passed it since, and its tombstone is gone."""
    real = admin.replace_span

    def rewrite(draft: Draft, op: ReplaceSpan) -> Outcome:
        draft.tombstones.update(op.dropped)
        return real(draft, op)

    return dispatched(ReplaceSpan, rewrite)


def vector_of_another() -> AbstractContextManager[None]:
    """A vector takes the place of one that others have put there since."""

    def rewrite(draft: Draft, op: ReplaceSpan) -> Outcome:
        found = admin._find(draft, op.span.name)
        vector = op.span.vector if found is None else found[0].vector
        return admin.replace_span(draft, replace(op, span=replace(op.span, vector=vector)))

    return dispatched(ReplaceSpan, rewrite)


def settled_wherever_it_is() -> AbstractContextManager[None]:
    """A tombstone is gone once somebody has settled its job, even if the span was no more where it had been."""

    def rewrite(draft: Draft, op: ReplaceSpan) -> Outcome:
        answer = admin.replace_span(draft, op)
        if admin._find(draft, op.span.name) is None:
            draft.tombstones.difference_update(op.dropped)
        return answer

    return dispatched(ReplaceSpan, rewrite)


def vectors_begin_again() -> AbstractContextManager[None]:
    """A new vector tells of the jobs that are settled now, and of none that were before."""

    def deleted_from(root: str, span: Span) -> Flow[DeletionVector]:
        yield from ()
        return EMPTY_VECTOR

    return patched((segment_rewrite, "deleted_from", deleted_from))


def indexes_born_too_early() -> AbstractContextManager[None]:
    """An index that is written anew passes for older than what it tells of."""
    real = segment_rewrite.settle_tombstones

    def settle(root: str, state: State, stage: StagingArea) -> Flow[tuple[Op, ...]]:
        return real(root, replace(state, seq=stage.born), stage)

    return patched((segment_rewrite, "settle_tombstones", settle))


def vectors_collected() -> AbstractContextManager[None]:
    """The collector does not look for vectors beside segments."""
    return patched((garbage_collection, "referenced_objects", lambda pointer: set()))


def spills_named_by_their_base() -> AbstractContextManager[None]:
    """All who try one commit name what they spill alike, whatever it is."""

    def spill(self: Draft, folder: str, encode: Any) -> Any:
        name = staged_name(folder, self.state.seq, 0, len(self.spills))
        body, pointer = encode(name)
        self.spills.append(StagedObject(name, body))
        return pointer

    return patched((Draft, "spill", spill))


def sums_as_they_were() -> AbstractContextManager[None]:
    """What is left of a segment counts the jobs that were taken out of it."""
    real = deletion_vectors.without_jobs

    def thinned(span: Span, keys: object, failing: int, vector: VectorRef | None) -> Span | None:
        left = real(span, keys, failing, vector)  # type: ignore[arg-type]
        return None if left is None else replace(left, keysum=span.keysum)

    return patched((admin, "without_jobs", thinned))


def retries_that_are_over() -> AbstractContextManager[None]:
    """What is left of a segment counts the retries that were cancelled in it."""

    def thinned(span: Span, keys: Collection[bytes], failing: int, vector: VectorRef | None) -> Span | None:
        return deletion_vectors.without_jobs(span, keys, 0, vector)

    return patched((admin, "without_jobs", thinned))


def merged_whatever_has_changed() -> AbstractContextManager[None]:
    """A merge takes the place of segments by their names, as they are now."""

    def merge(draft: Draft, op: MergeSpans) -> Outcome:
        now = {span.name: span for span in draft.delayed_spans}
        return admin.merge_spans(draft, replace(op, taken=tuple([now.get(s.name, s) for s in op.taken])))

    return dispatched(MergeSpans, merge)


def merged_across_rules() -> AbstractContextManager[None]:
    """A merge joins segments that a mass cancel covers and others."""

    def merge(draft: Draft, op: MergeSpans) -> Outcome:
        with patched((drop_rules.Drops, "side", lambda self, span: 0)):
            return admin.merge_spans(draft, op)

    return dispatched(MergeSpans, merge)


CONTROLS: tuple[Control, ...] = (
    Control(
        "merged segments that have changed",
        merged_whatever_has_changed,
        (in_runs("merges", "in two places|do not balance|or others"),),
    ),
    Control(
        "merged segments of one age",
        merged_across_rules,
        (in_scene("segments merged across a rule", "a job started that was cancelled"),),
    ),
    Control(
        "tombstones in lanes", tombstones_ignored_in_lanes, (in_runs("cancels", "tombstones name jobs"),)
    ),
    Control(
        "tombstones of due jobs",
        tombstones_ignored_when_due,
        (in_scene("due with cancelled ones", "in two places: queued and finished:cancelled"),),
    ),
    Control(
        "tombstones in merges",
        tombstones_ignored_in_merges,
        (in_scene("merged with cancelled ones", "in two places: scheduled and finished:cancelled"),),
    ),
    Control("vectors in lanes", vectors_ignored_in_lanes, (in_runs("cancels", "do not balance|or others"),)),
    Control(
        "vectors of due jobs",
        vectors_ignored_when_due,
        (in_scene("due with cancelled ones", "or others|in two places|do not balance"),),
    ),
    Control(
        "vectors in merges",
        vectors_ignored_in_merges,
        (in_scene("merged with cancelled ones", "do not balance|in two places"),),
    ),
    Control(
        "tombstones that are still there",
        settled_after_it_was_passed,
        (in_scene("settled once passed", "or others"),),
    ),
    Control("one's own vector", vector_of_another, (in_scene("settled by two", "or others"),)),
    Control(
        "spans that were folded", settled_wherever_it_is, (in_scene("settled once folded", "in two places"),)
    ),
    Control("older deletions", vectors_begin_again, (in_scene("settled by two", "or others"),)),
    Control(
        "birth of rewritten indexes",
        indexes_born_too_early,
        (in_scene("settled by a slow one", "in two places: queued and queued"),),
    ),
    Control("vectors the head names", vectors_collected, (in_runs("cancels", "invariant 8", seed=2),)),
    Control(
        "spills named by what they hold",
        spills_named_by_their_base,
        (in_runs("cancels", "or others|fails its checksum", seed=3),),
    ),
    Control(
        "retries of what is left",
        retries_that_are_over,
        (in_scene("settled before a retry", "jobs wait for a retry; "),),
    ),
    Control("sums of what is left", sums_as_they_were, (in_runs("cancels", "or others"),)),
)
