"""Rates: in no window of time more jobs start than their rate and its burst allow, by a log of every start.

A start counts the units of its job. It may take place where one more would, so of the last one in a window one counts.
"""

from __future__ import annotations

from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.rates import Bucket, buckets_of, group_bucket_of
from osqueue.core.state import PROCESSING, State

from .ledger import RecordedReduction, Violation

Limited = tuple[str, str | None]  # "queue", "kind" or "group", and its name
Start = tuple[int, int]  # when, and as how many it counts


class StartLog:
    """When jobs of one shard have started, in the head's time, for as long as their rate stays the same."""

    def __init__(self) -> None:
        self._buckets: dict[Limited, Bucket] = {}
        self._starts: dict[Limited, list[Start]] = {}
        self._now_ms = 0  # the latest time of the head

    def commit(self, before: State | None, state: State, batch: RecordedReduction) -> None:
        """A commit was made."""
        started: dict[Limited, list[Start]] = {}
        buckets = {
            (("queue" if kind is None else "kind"), kind): bucket
            for kind, bucket in buckets_of(state.settings).items()
        }
        for each in batch.reduction.events:
            if each.target == PROCESSING:
                lease = state.leases.get(each.key)  # one that has ended in the same commit is not looked for
                group, units = (lease.job.group, lease.job.units) if lease is not None else ("", 1)
                limited = [("queue", None), ("kind", each.kind), *([("group", group)] if group else [])]
                for whose in limited:
                    started.setdefault(whose, []).append((state.now_ms, units))
        groups = {name for what, name in (*started, *self._buckets) if what == "group" and name}
        for group in groups:
            bucket = group_bucket_of(state.settings, state.settings.overrides.get(group))
            if bucket is not None:
                buckets["group", group] = bucket
        changes = sum(isinstance(op, ChangeSettings) for each in batch.requests for op in each.ops)
        anew = (
            before is None
            or state.epoch != before.epoch
            or state.now_ms < self._now_ms  # the head was restored, or its clock was set
            or changes > 1  # another rate may have stood between two of them
        )
        self._now_ms = state.now_ms
        for whose in [each for each, bucket in self._buckets.items() if anew or buckets.get(each) != bucket]:
            del self._buckets[whose], self._starts[whose]
        for whose, bucket in buckets.items():
            if whose not in self._buckets:  # what started in this commit may have come before its rate
                self._buckets[whose], self._starts[whose] = bucket, []
                continue
            log = self._starts[whose]
            for start in started.get(whose, ()):
                log.append(start)
                _check(whose, bucket, log)


def _check(whose: Limited, bucket: Bucket, log: list[Start]) -> None:
    """The last start of a log was allowed: in each window that ends with it."""
    last_ms, units = log[-1][0], 1
    for at in reversed(range(len(log))):
        window_ms = last_ms - log[at][0]
        units += log[at][1] if at < len(log) - 1 else 0
        if units * bucket.interval_us > window_ms * 1000 + bucket.burst * bucket.interval_us:
            what, name = whose
            raise Violation(
                f"{len(log) - at} jobs of {what if name is None else f'{what} {name!r}'} started in {window_ms} ms,"
                f" the last of them after {units - 1} units: one in {bucket.interval_us} us may,"
                f" {bucket.burst} at once"
            )
