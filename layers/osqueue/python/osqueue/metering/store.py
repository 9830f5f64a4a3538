"""Metrics: counted at the store while requests run; ``lines`` prints them.

A commit is a conditional PUT of a head that was written, a conflict one that was refused. What a commit took along,
and which leases had run out, tells the head itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from .. import forks
from ..clock import Machine
from ..commit.writer import HEAD, OnHead
from ..contract import metrics
from ..contract.metrics import Metric
from ..core.state import Counters, State
from ..stores.base import Get, PutIfAbsent, PutIfMatch, Refused, Store, StoreReply, StoreRequest, Written
from ..stores.counting import CountingStore, kind_of

HEAD_PARTS = 4  # in the key of a head

_GUARD = forks.lock()  # an invocation may have several threads; held for no longer than it takes to count


def _is_head(key: str) -> bool:
    """``<hash>/<queue>/<shard>/head``; a queue may have that name, too."""
    return key.endswith(f"/{HEAD}") and key.count("/") == HEAD_PARTS - 1


class MetricCounts:
    """What was counted in one invocation: of one queue, or of the deployment."""

    def __init__(self) -> None:
        self.values: dict[Metric, float] = {}
        self.series: dict[Metric, list[float]] = {}  # of which each value counts

    @property
    def names(self) -> set[Metric]:
        """Of what something was counted."""
        return {*self.values, *self.series}

    def add(self, metric: Metric, count: float) -> None:
        """Count something; nothing is told of what did not happen."""
        if count:
            with _GUARD:
                self.values[metric] = self.values.get(metric, 0) + count

    def most(self, metric: Metric, value: float) -> None:
        """It is at least that much."""
        with _GUARD:
            self.values[metric] = max(value, self.values.get(metric, 0.0))

    def measured(self, metric: Metric, *values: float) -> None:
        """One more value each."""
        if values:
            with _GUARD:
                self.series.setdefault(metric, []).extend(values)


class InvocationCounts:
    """What was counted in one invocation. Of commits that callers share, all is the invocation's that made them."""

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}  # to the store, by kind
        self.whole = MetricCounts()
        self.queues: dict[str, MetricCounts] = {}
        self.began: dict[str, float] = {}  # by head: when the commit under way last looked at it
        self.own: set[str] = set()  # versions of heads written here, and not yet heard of
        self.told: dict[str, Any] | None = None  # what the log says of its request; None: nothing

    @property
    def is_empty(self) -> bool:
        """Was nothing counted, whatever was read?"""
        return not any(each.names for each in (self.whole, *tuple(self.queues.values())))

    def of(self, queue: str) -> MetricCounts:
        """Those of a queue."""
        return self.queues.setdefault(queue, MetricCounts())


# A process may serve several requests at once, each in a context of its own; threads that work for one are given it.
_CURRENT: ContextVar[InvocationCounts | None] = ContextVar("osqueue_invocation", default=None)


def current_counts() -> InvocationCounts | None:
    """Those of the invocation that this thread works for."""
    return _CURRENT.get()


class MeteredStore(CountingStore):
    """A store that counts what the commits of this process do, for the invocation that they are made in."""

    def __init__(self, inner: Store, machine: Machine) -> None:
        super().__init__(inner)
        self._machine = machine

    @contextmanager
    def invocation(self) -> Iterator[InvocationCounts]:
        """A new invocation."""
        counts = InvocationCounts()
        before = _CURRENT.set(counts)
        try:
            yield counts
        finally:
            _CURRENT.reset(before)

    def _count(self, request: StoreRequest) -> None:
        super()._count(request)
        counts, kind = current_counts(), kind_of(request)
        if counts is not None and kind is not None:
            with _GUARD:
                counts.requests[kind] = counts.requests.get(kind, 0) + 1

    def perform(self, request: StoreRequest) -> StoreReply:
        """Carry out a request, and look at it where it is about a head."""
        counts = current_counts()
        if counts is None or not isinstance(request, Get | PutIfMatch | PutIfAbsent):
            return super().perform(request)
        if not _is_head(request.key):
            return super().perform(request)
        began: float = self._machine.monotonic()
        with _GUARD:  # another thread's commit of the same head may end at any moment
            if not isinstance(request, Get):
                began = counts.began.get(request.key, began)
            counts.began[request.key] = began
        reply = super().perform(request)
        if not isinstance(request, Get):
            self._committed(counts, request.key, began, reply)
        return reply

    def _committed(self, counts: InvocationCounts, key: str, began: float, reply: StoreReply) -> None:
        if isinstance(reply, Written):
            counts.own.add(reply.version)
            counts.began.pop(key, None)
            counts.whole.add(metrics.COMMITS, 1)
            counts.whole.measured(metrics.COMMIT_MS, (self._machine.monotonic() - began) * 1000)
        elif isinstance(reply, Refused):
            counts.whole.add(metrics.CONFLICTS, 1)

    def hearing(self, queue: str, tell: OnHead) -> OnHead:
        """Listens to the heads of one shard on their way to the log."""
        before: State | None = None

        def heard(state: State, version: str) -> None:
            nonlocal before
            counts = current_counts()
            if counts is not None and version in counts.own:
                counts.own.discard(version)
                _look(counts.whole, counts.of(queue), before, state)
            before = state
            tell(state, version)

        return heard


def _look(whole: MetricCounts, mine: MetricCounts, before: State | None, state: State) -> None:
    """Count what a commit did: how its head differs from the one it was made of."""
    whole.add(metrics.COMBINED, max(0, state.load - 1))
    if state.seq == 1:
        was, leases = Counters(), {}
    elif before is not None and (before.epoch, before.seq + 1) == (state.epoch, state.seq):
        was, leases = before.counters, before.leases
    else:
        return
    now = state.counters
    whole.add(metrics.EXPIRED, now.stalled - was.stalled)
    mine.add(metrics.ENQUEUED, now.enqueued - was.enqueued)
    mine.add(metrics.COMPLETED, now.completed - was.completed)
    mine.add(metrics.FAILED, now.failed - was.failed)
    if now.claimed > was.claimed:
        new = [each.job for key, each in state.leases.items() if key not in leases and each.job.run == 1]
        mine.measured(
            metrics.WAIT_MS, *(max(0, state.now_ms - max(job.enqueued_ms, job.scheduled_ms)) for job in new)
        )
