"""Fairness: of the groups that might start a job those of which the fewest run go first, and ties take turns.

No commit starts a job of a group

    while one waits, and might start, whose group has fewer running
    or, where as many run of both, whose group had its last turn before that, or none that the head remembers

So while a group waits of which none runs, and whose jobs may start, each other one has a turn before it at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from osqueue import limits
from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.state import PROCESSING, State

from .ledger import RecordedReduction, Violation
from .open_jobs import Choice
from .places import JobPlace


class GroupTurns:
    """Which groups of a shard had their turn, as many as a head remembers: the latest is the last one."""

    def __init__(self) -> None:
        self._served: dict[str, None] = {}

    def commit(
        self,
        before: State,
        state: State,
        batch: RecordedReduction,
        found: Mapping[bytes, JobPlace],
        choice: Choice | None,
    ) -> None:
        """A commit was made. Judged are calm ones."""
        ops = [op for each in batch.requests for op in each.ops]
        unfair = any(isinstance(op, ChangeSettings) and op.fair is False for op in ops)
        if unfair or not before.settings.fair or state.epoch != before.epoch:
            self._served = {}
        elif choice is not None:
            self._judge(Counter([lease.job.group for lease in before.leases.values()]), choice)
        else:
            for event in batch.reduction.events:
                if event.target == PROCESSING and event.key in found:
                    self._take(found[event.key].job.group)

    def _judge(self, counts: Counter[str], choice: Choice) -> None:
        waiting: dict[int, set[str]] = {}
        for key, job in choice.passed.items():
            if job.group and choice.passed_in_mixed(key):
                waiting.setdefault(job.priority, set()).add(job.group)
        for job in choice.started:
            group = job.group
            others = waiting.get(job.priority, set()) - {group} if group else set()
            # The one of which the fewest ran, whatever order a set has in this process.
            for other in sorted(others, key=lambda each: (counts[each], each)):
                told = f"{group!r}, of which {counts[group]} ran, while one of {other!r} waited"
                if counts[other] < counts[group]:
                    raise Violation(f"a job started of group {told}, of which {counts[other]} did")
                if counts[other] == counts[group] and self._comes_before(other, group):
                    raise Violation(f"invariant 5: a job started of group {told}, whose turn it was")
            counts[group] += 1
            self._take(group)

    def _comes_before(self, one: str, other: str) -> bool:
        """Had one group its last turn before another, or none that is remembered?"""
        turns = list(self._served)
        return other in turns and (one not in turns or turns.index(one) < turns.index(other))

    def _take(self, group: str) -> None:
        if group:
            self._served.pop(group, None)
            self._served[group] = None
            for oldest in list(self._served)[: -limits.GROUPS_SERVED_MAX]:
                del self._served[oldest]
