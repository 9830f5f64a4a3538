"""What a worker does, in the format of Prometheus: ``osqueue worker --metrics-port``, or a registry of your own.

from prometheus_client import REGISTRY
from osqueue.worker.metrics import WorkerMetrics

worker = Worker(q)
REGISTRY.register(WorkerMetrics([worker]))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import asdict
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .job import WorkerJob
from .loop import Worker

SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0)


class WorkerMetrics(Collector):
    """What some workers of this process do."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = workers
        self._seconds = Histogram(
            "osqueue_worker_handler_seconds",
            "How long handlers ran.",
            ("queue", "kind"),
            buckets=SECONDS,
            registry=CollectorRegistry(),
        )
        for worker in workers:
            worker.on_handled(self._handled)

    def _handled(self, job: WorkerJob[Any], seconds: float) -> None:
        self._seconds.labels(job.queue, job.kind or "").observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """The families."""
        jobs = CounterMetricFamily(
            "osqueue_worker_jobs", "Jobs claimed, and what became of them.", labels=("queue", "outcome")
        )
        hand = GaugeMetricFamily(
            "osqueue_worker_jobs_in_hand", "Jobs whose leases it holds.", labels=("queue",)
        )
        most = GaugeMetricFamily(
            "osqueue_worker_concurrency", "Jobs that it works on at once, at most.", labels=("queue",)
        )
        for worker in self.workers:
            name = worker.queue.name
            for outcome, count in asdict(worker.tally).items():
                jobs.add_metric((name, outcome), count)
            hand.add_metric((name,), worker.in_hand)
            most.add_metric((name,), worker.concurrency)
        yield from (jobs, hand, most)
        yield from self._seconds.collect()
