"""Metrics: counted at the store while requests run, and emitted in CloudWatch's embedded format.

A commit is a conditional PUT of a head that was written, a conflict one that was refused. What a commit took along,
and which leases had run out, tells the head itself.
"""

from __future__ import annotations

from aws_lambda_powertools.metrics import EphemeralMetrics

from .. import forks
from ..clock import Machine
from ..commit.writer import HEAD, OnHead
from ..contract import metrics
from ..contract.metrics import Metric
from ..core.state import State
from ..stores.base import Get, PutIfAbsent, PutIfMatch, Refused, Store, StoreReply, StoreRequest, Written
from ..stores.counting import CountingStore

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


class MeteredStore(CountingStore):
    """A store that counts what the commits of this process do. Between ``begin`` and ``end`` lies an invocation."""

    def __init__(self, inner: Store, machine: Machine) -> None:
        super().__init__(inner)
        self._machine = machine
        self._guard = forks.lock()
        self._since: dict[str, int] = self.requests
        self._began: dict[str, float] = {}  # by head: when the commit under way first looked at it
        self._own: dict[str, str] = {}  # versions of heads written here, and not yet heard of
        self._tallies: dict[str, QueueCounts] = {}
        self.whole: dict[Metric, float] = {}  # of the deployment, whichever the queue

    def begin(self) -> None:
        """A new invocation."""
        with self._guard:
            self._since = self.requests
            self._began, self._own, self._tallies, self.whole = {}, {}, {}, {}

    def end(self) -> tuple[dict[str, QueueCounts], dict[Metric, float]]:
        """What was counted since."""
        with self._guard:
            found, self._tallies = self._tallies, {}
            return found, self.whole

    def requests_since(self) -> dict[str, int]:
        """Requests to the store in this invocation, by kind; those of which there were none left out."""
        return {kind: more for kind, count in self.requests.items() if (more := count - self._since[kind])}

    def of(self, queue: str) -> QueueCounts:
        """The tally of a queue."""
        with self._guard:
            return self._tallies.setdefault(queue, QueueCounts())

    def perform(self, request: StoreRequest) -> StoreReply:
        """Carry out a request, and look at it where it is about a head."""
        if not isinstance(request, Get | PutIfMatch | PutIfAbsent) or not _is_head(request.key):
            return super().perform(request)
        now = self._machine.monotonic()
        if isinstance(request, Get):
            self._began.setdefault(request.key, now)
            return super().perform(request)
        reply = super().perform(request)
        self._committed(request.key, self._began.setdefault(request.key, now), reply)
        return reply

    def _committed(self, key: str, began: float, reply: StoreReply) -> None:
        tally = self.of(key.split("/")[1])
        with self._guard:
            if isinstance(reply, Written):
                tally.commits += 1
                tally.commit_ms.append((self._machine.monotonic() - began) * 1000)
                self._own[reply.version] = key
                self._began.pop(key, None)
            elif isinstance(reply, Refused):
                tally.conflicts += 1

    def hearing(self, queue: str, tell: OnHead) -> OnHead:
        """Listens to the heads of one shard on their way to ``emit_metrics``."""
        before: State | None = None

        def heard(state: State, version: str) -> None:
            nonlocal before
            if self._own.pop(version, None) is not None:
                tally = self.of(queue)
                tally.combined += max(0, state.load - 1)
                if before is not None and before.epoch == state.epoch:
                    tally.expired += state.counters.stalled - before.counters.stalled
            before = state
            tell(state, version)

        return heard


# ── Emission ─────────────────────────────────────────────────────────────────
def emit_metrics(found: tuple[dict[str, QueueCounts], dict[Metric, float]]) -> None:
    """Print what was counted, one line for each queue and one for all; nothing where nothing was."""
    tallies, whole = found
    for queue, tally in tallies.items():
        if not (values := _values(tally)):  # a commit that nobody answered
            continue
        emitter = EphemeralMetrics()
        for metric, value in values:
            emitter.add_metric(metric.name, metric.unit, value)
        emitter.add_dimensions(service=emitter.service or "osqueue", queue=queue)
        emitter.flush_metrics()
    if whole:
        emitter = EphemeralMetrics()
        for metric, value in whole.items():
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
