"""Rates: in no window of time more jobs start than their rate and its burst allow, by a log of every start."""

from __future__ import annotations

from osqueue.core.rates import Bucket, buckets_of, group_bucket_of
from osqueue.core.state import PROCESSING, State

from .ledger import RecordedReduction, Violation

Limited = tuple[str, str | None]  # "queue", "kind" or "group", and its name


class StartLog:
    """When jobs of one shard have started, in the head's time, for as long as their rate stays the same."""

    def __init__(self) -> None:
        self._buckets: dict[Limited, Bucket] = {}
        self._starts: dict[Limited, list[int]] = {}

    def commit(self, before: State | None, state: State, batch: RecordedReduction) -> None:
        """A commit was made."""
        started: dict[Limited, int] = {}
        buckets = {
            (("queue" if kind is None else "kind"), kind): bucket
            for kind, bucket in buckets_of(state.settings).items()
        }
        for each in batch.reduction.events:
            if each.target == PROCESSING:
                lease = state.leases.get(each.key)  # one that has ended in the same commit is not looked for
                group = lease.job.group if lease is not None else ""
                limited = [("queue", None), ("kind", each.kind), *([("group", group)] if group else [])]
                for whose in limited:
                    started[whose] = started.get(whose, 0) + 1
        groups = {name for what, name in (*started, *self._buckets) if what == "group" and name}
        for group in groups:
            bucket = group_bucket_of(state.settings, state.settings.overrides.get(group))
            if bucket is not None:
                buckets["group", group] = bucket
        anew = before is None or state.epoch != before.epoch or state.now_ms < before.now_ms
        for whose in [each for each, bucket in self._buckets.items() if anew or buckets.get(each) != bucket]:
            del self._buckets[whose], self._starts[whose]
        for whose, bucket in buckets.items():
            if whose not in self._buckets:  # what started in this commit may have come before its rate
                self._buckets[whose], self._starts[whose] = bucket, []
                continue
            log = self._starts[whose]
            log += [state.now_ms] * started.get(whose, 0)
            _check(whose, bucket, log)


def _check(whose: Limited, bucket: Bucket, log: list[int]) -> None:
    for at, first in enumerate(log):
        count, window_ms = len(log) - at, log[-1] - first
        if count * bucket.interval_us > window_ms * 1000 + bucket.burst * bucket.interval_us:
            what, name = whose
            raise Violation(
                f"{count} jobs of {what if name is None else f'{what} {name!r}'} started in {window_ms} ms:"
                f" one in {bucket.interval_us} us may, {bucket.burst} at once"
            )
