"""``/metrics``: what was answered and asked of the store, how the queues stand, and who may know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from osqueue.asgi.admission import Admission
from osqueue.asgi.app import ServerApp
from osqueue.asgi.tokens import TokenFile, digest_of
from osqueue.server.async_app import AsyncApi

JOBS = "/v1/queues/mail/jobs"


def figures(text: str) -> dict[tuple[str, ...], float]:
    """By name and labels."""
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def client_over(store: str, tokens: TokenFile | None = None) -> TestClient:
    return TestClient(ServerApp(AsyncApi(store), Admission(tokens)).asgi)


@pytest.fixture
def client() -> Iterator[TestClient]:
    with client_over("memory://") as found:
        yield found


def test_it_counts_requests_and_tells_how_the_queues_stand(client: TestClient) -> None:
    for number in range(3):
        client.post(JOBS, json={"payload": number})
    client.post("/v1/queues/mail/claims", json={"worker": "w"})
    client.get("/nope")
    found = figures(client.get("/metrics").text)
    assert found["osqueue_requests_total", "200", "enqueue"] == 3
    assert found["osqueue_requests_total", "404", "none"] == 1
    assert found["osqueue_request_seconds_count", "claim"] == 1
    assert found["osqueue_requests_in_progress",] == 0
    assert found["osqueue_store_requests_total", "put"] >= 4
    assert found["osqueue_store_bytes_total", "written"] > 0
    assert found["osqueue_jobs", "mail", "queued"] == 2
    assert found["osqueue_jobs", "mail", "processing"] == 1
    assert found["osqueue_transitions_total", "enqueued", "mail"] == 3
    assert found["osqueue_paused", "mail"] == 0
    assert found["osqueue_unreadable", "mail"] == 0
    assert 0 < found["osqueue_budget_ratio", "mail"] < 1


def test_a_look_at_the_queues_is_believed_for_a_while(client: TestClient) -> None:
    """However many ask: what they read of the store is read once."""
    client.post(JOBS, json={"payload": 1})
    first = figures(client.get("/metrics").text)
    for _ in range(5):
        last = figures(client.get("/metrics").text)
    assert last["osqueue_store_requests_total", "get"] - first["osqueue_store_requests_total", "get"] <= 2


def test_who_may_not_look_at_all_queues_is_told_nothing(tmp_path: Path) -> None:
    rows = [("reader", "read", ["*"]), ("producer", "enqueue", ["*"]), ("other", "read", ["mail"])]
    path = tmp_path / "tokens.toml"
    path.write_text(
        "".join(
            f'[[token]]\nname = "{name}"\nsha256 = "{digest_of(name)}"\n'
            f'roles = ["{role}"]\nqueues = {json.dumps(queues)}\n'
            for name, role, queues in rows
        )
    )
    statuses = {}
    with client_over("memory://", TokenFile(path)) as client:
        for name in ("reader", "producer", "other", "stranger"):
            told = client.get("/metrics", headers={"authorization": f"Bearer {name}"})
            statuses[name] = told.status_code
            assert ("osqueue_requests_total" in told.text) == (told.status_code == 200)
    assert statuses == {"reader": 200, "producer": 403, "other": 403, "stranger": 401}
