"""Rates: in no window of time more jobs start than their rate and its burst allow, by a log of every start."""

from __future__ import annotations

from osqueue.core.rates import Bucket, Whose, buckets_of
from osqueue.core.state import PROCESSING, State

from .ledger import RecordedReduction, Violation


class StartLog:
    """When jobs of one shard have started, in the head's time, for as long as their rate stays the same."""

    def __init__(self) -> None:
        self._buckets: dict[Whose, Bucket] = {}
        self._starts: dict[Whose, list[int]] = {}

    def commit(self, before: State | None, state: State, batch: RecordedReduction) -> None:
        """A commit was made."""
        buckets = buckets_of(state.settings)
        anew = before is None or state.epoch != before.epoch or state.now_ms < before.now_ms
        for whose in [each for each, bucket in self._buckets.items() if anew or buckets.get(each) != bucket]:
            del self._buckets[whose], self._starts[whose]
        for whose, bucket in buckets.items():
            if whose not in self._buckets:  # what started in this commit may have come before its rate
                self._buckets[whose], self._starts[whose] = bucket, []
                continue
            kinds = [each.kind for each in batch.reduction.events if each.target == PROCESSING]
            log = self._starts[whose]
            log += [state.now_ms for kind in kinds if whose in (None, kind)]
            self._check(whose, bucket, log)

    def _check(self, whose: Whose, bucket: Bucket, log: list[int]) -> None:
        for at, first in enumerate(log):
            count, window_ms = len(log) - at, log[-1] - first
            if count * bucket.interval_us > window_ms * 1000 + bucket.burst * bucket.interval_us:
                what = "the queue" if whose is None else f"kind {whose!r}"
                raise Violation(
                    f"{count} jobs of {what} started in {window_ms} ms: one in {bucket.interval_us} us may,"
                    f" {bucket.burst} at once"
                )
