"""Metrics: counted at the store while requests run, and emitted in CloudWatch's embedded format.

A commit is a conditional PUT of a head that was written, a conflict one that was refused. What a commit took along,
and which leases had run out, tells the head itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from aws_lambda_powertools.metrics import EphemeralMetrics

from .. import forks
from ..clock import Machine
from ..commit.writer import HEAD, OnHead
from ..contract import metrics
from ..contract.metrics import Metric
from ..core.state import State
from ..stores.base import Get, PutIfAbsent, PutIfMatch, Refused, Store, StoreReply, StoreRequest, Written
from ..stores.counting import CountingStore, kind_of

HEAD_PARTS = 4  # in the key of a head


def _is_head(key: str) -> bool:
    """``<hash>/<queue>/<shard>/head``; a queue may have that name, too."""
    return key.endswith(f"/{HEAD}") and key.count("/") == HEAD_PARTS - 1


class QueueCounts:
    """What was counted of one queue in one invocation."""

    def __init__(self) -> None:
        self.commits = 0
        self.conflicts = 0
        self.combined = 0
        self.expired = 0
        self.commit_ms: list[float] = []
        self.gauges: dict[Metric, float] = {}  # of the queue as it is


class InvocationCounts:
    """What was counted in one invocation. Of commits that callers share, all is the invocation's that made them."""

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}  # to the store, by kind
        self.queues: dict[str, QueueCounts] = {}
        self.whole: dict[Metric, float] = {}  # of the deployment, whichever the queue
        self.began: dict[str, float] = {}  # by head: when the commit under way first looked at it
        self.own: set[str] = set()  # versions of heads written here, and not yet heard of

    def of(self, queue: str) -> QueueCounts:
        """Those of a queue."""
        return self.queues.setdefault(queue, QueueCounts())

    def add(self, metric: Metric, count: int) -> None:
        """Count something of the whole deployment."""
        self.whole[metric] = self.whole.get(metric, 0) + count


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
        self._guard = forks.lock()

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
            with self._guard:  # requests that are sent at once are counted by several threads
                counts.requests[kind] = counts.requests.get(kind, 0) + 1

    def perform(self, request: StoreRequest) -> StoreReply:
        """Carry out a request, and look at it where it is about a head."""
        counts = current_counts()
        if counts is None or not isinstance(request, Get | PutIfMatch | PutIfAbsent):
            return super().perform(request)
        if not _is_head(request.key):
            return super().perform(request)
        began = counts.began.setdefault(request.key, self._machine.monotonic())
        reply = super().perform(request)
        if not isinstance(request, Get):
            self._committed(counts, request.key, began, reply)
        return reply

    def _committed(self, counts: InvocationCounts, key: str, began: float, reply: StoreReply) -> None:
        queue, ms = counts.of(key.split("/")[1]), (self._machine.monotonic() - began) * 1000
        with self._guard:
            if isinstance(reply, Written):
                queue.commits += 1
                queue.commit_ms.append(ms)
                counts.own.add(reply.version)
                counts.began.pop(key, None)
            elif isinstance(reply, Refused):
                queue.conflicts += 1

    def hearing(self, queue: str, tell: OnHead) -> OnHead:
        """Listens to the heads of one shard on their way to ``emit_metrics``."""
        before: State | None = None

        def heard(state: State, version: str) -> None:
            nonlocal before
            counts = current_counts()
            if counts is not None and version in counts.own:
                counts.own.discard(version)
                mine = counts.of(queue)
                mine.combined += max(0, state.load - 1)
                if before is not None and before.epoch == state.epoch:
                    mine.expired += state.counters.stalled - before.counters.stalled
            before = state
            tell(state, version)

        return heard


# ── Emission ─────────────────────────────────────────────────────────────────
def emit_metrics(counts: InvocationCounts) -> None:
    """Print what was counted, one line for each queue and one for all; nothing where nothing was."""
    for queue, tally in tuple(
        counts.queues.items()
    ):  # a call that nobody waits for any more may go on counting
        if not (values := _values(tally)):  # a commit that nobody answered
            continue
        emitter = EphemeralMetrics()
        for metric, value in values:
            emitter.add_metric(metric.name, metric.unit, value)
        emitter.add_dimensions(service=emitter.service or "osqueue", queue=queue)
        emitter.flush_metrics()
    if counts.whole:
        emitter = EphemeralMetrics()
        for metric, value in tuple(counts.whole.items()):
            emitter.add_metric(metric.name, metric.unit, value)
        emitter.flush_metrics()


def _values(tally: QueueCounts) -> list[tuple[Metric, float]]:
    counted: list[tuple[Metric, float]] = [
        (metrics.COMMITS, tally.commits),
        (metrics.CONFLICTS, tally.conflicts),
        (metrics.COMBINED, tally.combined),
        (metrics.EXPIRED, tally.expired),
    ]
    found = [(metric, value) for metric, value in counted if value]
    found += [(metrics.COMMIT_MS, round(ms, 1)) for ms in tally.commit_ms[:100]]
    return [*found, *tally.gauges.items()]
