"""What a worker tells Prometheus."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from osqueue import Fail, Queue, WorkerJob
from osqueue.worker.loop import Worker
from osqueue.worker.metrics import WorkerMetrics


def test_it_tells_what_became_of_jobs_and_how_long_handlers_ran() -> None:
    q: Queue[Any] = Queue.connect("memory://", "emails")
    held: list[float] = []

    @q.handler
    def send(job: WorkerJob[Any]) -> Any:
        held.append(figures()["osqueue_worker_jobs_in_hand", "emails"])
        return Fail("no") if job.payload == "bad" else "sent"

    def figures() -> dict[tuple[str, ...], float]:
        return {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(generate_latest(registry).decode())
            for sample in family.samples
        }

    for payload in ("good", "good", "bad"):
        q.enqueue(payload, kind="mail")
    worker = Worker(q, concurrency=2, until_empty=True)
    registry = CollectorRegistry()
    registry.register(WorkerMetrics([worker]))
    assert figures()["osqueue_worker_jobs_total", "claimed", "emails"] == 0
    worker.run()

    found = figures()
    outcomes = {name: found["osqueue_worker_jobs_total", "emails", name] for name in ("failed", "lost")}
    assert outcomes == {"failed": 1, "lost": 0}
    assert found["osqueue_worker_jobs_total", "claimed", "emails"] == 3
    assert found["osqueue_worker_jobs_total", "completed", "emails"] == 2
    assert found["osqueue_worker_jobs_in_hand", "emails"] == 0
    assert found["osqueue_worker_concurrency", "emails"] == 2
    assert found["osqueue_worker_handler_seconds_count", "emails", "mail"] == 3
    assert max(held) >= 1
