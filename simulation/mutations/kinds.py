"""Mixed lanes, with one check removed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager

from osqueue.core import encoding, mixed
from osqueue.core.backlog import BacklogDraft, Blocks
from osqueue.core.claim_search import ClaimSearch
from osqueue.core.draft import Draft
from osqueue.core.labels import labels_of
from osqueue.core.mixed import MixedDraft, Wanted
from osqueue.core.state import JobRecord, Labels

from .control import Control, in_runs, patched


def unmarked() -> AbstractContextManager[None]:
    """What is taken out of the middle of a segment is not marked there."""

    def mark_taken(self: MixedDraft, spill: object, blocks: Blocks) -> None:
        self._taken = {}

    return patched((MixedDraft, "mark_taken", mark_taken))


def taken_without_count() -> AbstractContextManager[None]:
    """A span does not notice what is taken out of it."""
    return patched((mixed, "without_jobs", lambda span, keys, failing, vector: span))


def older_ones_elsewhere() -> AbstractContextManager[None]:
    """Kinds are taken from the mixed lane although older jobs wait in their own."""

    def closed(self: ClaimSearch, priority: int) -> frozenset[str]:
        return frozenset() if self._gate is None else self._gate.closed_kinds()

    return patched((ClaimSearch, "_closed", closed))


def own_lanes_first() -> AbstractContextManager[None]:
    """New jobs go to the lane of their kind while older ones wait in the mixed one."""
    real = Draft.lane

    def lane(self: Draft, priority: int, kind: str) -> BacklogDraft:
        own = self.lanes.get((priority, kind))
        return real(self, priority, kind) if own is None else own

    return patched((Draft, "lane", lane))


def labels_that_forget() -> AbstractContextManager[None]:
    """A segment does not tell of all kinds in it."""

    def forgetful(jobs: Iterable[JobRecord]) -> Labels:
        kinds = sorted({job.kind for job in jobs})[:-1] or [""]
        return labels_of(job for job in jobs if job.kind in kinds)

    return patched((encoding, "labels_of", forgetful))


def tail_before_spans() -> AbstractContextManager[None]:
    """The newest jobs are looked at before those in segments."""

    def nothing(self: MixedDraft, wanted: Wanted, blocks: Blocks, gone: set[bytes]) -> JobRecord | None:
        return None

    return patched((MixedDraft, "_in_spans", nothing))


CONTROLS: tuple[Control, ...] = (
    Control(
        "what is taken is marked", unmarked, (in_runs("kinds", "says .* jobs and holds|two places|second"),)
    ),
    Control("spans count what is taken", taken_without_count, (in_runs("kinds", "says .* jobs and holds"),)),
    Control(
        "older jobs elsewhere come first",
        older_ones_elsewhere,
        (in_runs("kinds", "before an older one", seed=15, seeds=30),),
    ),
    Control(
        "nobody overtakes the mixed lane",
        own_lanes_first,
        (in_runs("kinds", "order of lane|in front of", seed=4),),
    ),
    Control(
        "labels tell of all kinds",
        labels_that_forget,
        (in_runs("kinds", "before an older one|no head says so"),),
    ),
    Control(
        "segments come before the tail",
        tail_before_spans,
        (in_runs("kinds", "before an older|no head|drained"),),
    ),
)
