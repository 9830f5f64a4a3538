"""``/metrics`` in the format of Prometheus: what this server does, and how its queues stand.

What requests were answered and what they asked of the store is counted in every process, and added up by
prometheus_client where there are several. How the queues stand is read when somebody asks, a few seconds old at most.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from ..clock import Machine
from ..core.state import STATES
from ..server.app import ApiRequest, ApiResponse
from ..server.async_app import AsyncApi

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # of the environment: where processes that serve together count
STANDING_SECONDS = 10.0  # for which it is believed how the queues stand
PAGE = 1_000  # queues
SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second line for each counter that nobody asks for

Rows = Sequence[dict[str, Any]]  # statistics, as the API tells them


@contextmanager
def counted_together() -> Iterator[None]:
    """Let the processes that are started meanwhile count as one."""
    with TemporaryDirectory(prefix="osqueue-metrics-") as folder:
        os.environ[SHARED_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[SHARED_FOLDER]


class QueueStanding(Collector):
    """How the queues stand, as families of metrics."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def collect(self) -> Iterator[Metric]:
        """The families."""
        jobs = GaugeMetricFamily("osqueue_jobs", "Live jobs, by state.", labels=("queue", "state"))
        oldest = GaugeMetricFamily(
            "osqueue_oldest_waiting_seconds",
            "How long the oldest claimable job has waited; 0 where none does.",
            labels=("queue",),
        )
        paused = GaugeMetricFamily("osqueue_paused", "1 where the queue is paused.", labels=("queue",))
        head = GaugeMetricFamily("osqueue_head_bytes", "Size of the largest head.", labels=("queue",))
        fill = GaugeMetricFamily(
            "osqueue_budget_ratio",
            "The largest share of a budget of the head that is used; 1 is all.",
            labels=("queue",),
        )
        commits = CounterMetricFamily("osqueue_commits", "Commits, whoever made them.", labels=("queue",))
        moves = CounterMetricFamily(
            "osqueue_transitions", "Transitions of jobs, whoever made them.", labels=("queue", "transition")
        )
        unreadable = GaugeMetricFamily(
            "osqueue_unreadable", "1 where a queue's statistics cannot be read.", labels=("queue",)
        )
        for row in self.rows:
            name = row["queue"]
            unreadable.add_metric((name,), float("error" in row))
            if "error" in row:
                continue
            for state in STATES:
                jobs.add_metric((name, state), row[state])
            oldest.add_metric((name,), row["oldest_seconds"] or 0.0)
            paused.add_metric((name,), float(row["paused"]))
            head.add_metric((name,), row["head_bytes"])
            fill.add_metric((name,), max(row["budgets"].values(), default=0.0))
            commits.add_metric((name,), row["commits"])
            for transition, count in row["counters"].items():
                moves.add_metric((name, transition), count)
        yield from (jobs, oldest, paused, head, fill, commits, moves, unreadable)


class ServerMetrics:
    """What one process counts, and what it tells of all."""

    def __init__(self, api: AsyncApi) -> None:
        self.api = api
        self._together = SHARED_FOLDER in os.environ
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "osqueue_requests", "Requests answered.", ("operation", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "osqueue_request_seconds",
            "Time to an answer; of waits, the wait.",
            ("operation",),
            buckets=SECONDS,
            registry=self._registry,
        )
        self._open = Gauge(
            "osqueue_requests_in_progress",
            "Requests that are being answered, waits among them.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._store = Counter(
            "osqueue_store_requests", "Requests to the store.", ("kind",), registry=self._registry
        )
        self._bytes = Counter(
            "osqueue_store_bytes", "Bytes of objects.", ("direction",), registry=self._registry
        )
        self._counted: dict[str, int] = {}
        self._rows: Rows = ()
        self._stands_until = float("-inf")

    @contextmanager
    def open_request(self) -> Iterator[None]:
        """While a request is being answered."""
        self._open.inc()
        try:
            yield
        finally:
            self._open.dec()

    def request(self, response: ApiResponse, seconds: float) -> None:
        """One was answered."""
        operation = response.notes.get("operation", "none")
        self._requests.labels(operation, response.status).inc()
        self._seconds.labels(operation).observe(seconds)
        self._look_at_store()

    async def text(self) -> bytes:
        """What Prometheus reads."""
        self._look_at_store()
        now = self.api.machine.monotonic()
        if now >= self._stands_until:
            self._stands_until = now + STANDING_SECONDS
            self._rows = await standing(self.api)
        registry = CollectorRegistry()
        if self._together:
            _forget_the_dead(self.api.machine)
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
            counted: bytes = generate_latest(registry)
        else:
            counted = generate_latest(self._registry)
        stand = CollectorRegistry()
        stand.register(QueueStanding(self._rows))
        return counted + generate_latest(stand)

    def _look_at_store(self) -> None:
        store = self.api.store
        now = {**store.requests, "read": store.bytes_read, "written": store.bytes_written}
        for name, count in now.items():
            if more := count - self._counted.get(name, 0):
                (self._bytes if name in ("read", "written") else self._store).labels(name).inc(more)
        self._counted = now


async def standing(api: AsyncApi) -> list[dict[str, Any]]:
    """The statistics of all queues; none where they cannot be listed."""
    rows: list[dict[str, Any]] = []
    more: tuple[tuple[str, str], ...] = ()
    while True:
        answer = await api.answer(ApiRequest("GET", "/v1/queues", (("limit", str(PAGE)), *more)))
        if answer.status != 200:
            return rows
        page = msgspec.json.decode(answer.body)
        rows += page["queues"]
        if not page.get("cursor"):
            return rows
        more = (("cursor", page["cursor"]),)


def _forget_the_dead(machine: Machine) -> None:
    """What a process that was killed had in progress is in progress no more."""
    for path in Path(os.environ[SHARED_FOLDER]).glob("gauge_live*_*.db"):
        process = int(path.stem.rpartition("_")[2])
        if process != machine.process() and not _is_there(process):
            mark_process_dead(process)  # type: ignore[no-untyped-call]


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
