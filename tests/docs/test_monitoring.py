"""The page on monitoring, the dashboard and the alert rules name the metrics that there are, and no others."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from osqueue import Queue
from osqueue.asgi.metrics import ServerMetrics
from osqueue.server.app import ApiRequest, ApiResponse
from osqueue.server.async_app import AsyncApi
from osqueue.worker.loop import Worker
from osqueue.worker.metrics import WorkerMetrics
from tests.support.places import ROOT

PAGE = (ROOT / "docs/monitoring.md").read_text()
GRAFANA = json.loads((ROOT / "docs/monitoring/grafana.json").read_text())
ALERTS = yaml.safe_load((ROOT / "docs/monitoring/alerts.yaml").read_text())
NAME = re.compile(r"\bosqueue_[a-z_]+\b")


async def _of_a_server() -> str:
    api = AsyncApi("memory://")
    await api.answer(ApiRequest("POST", "/v1/queues/mail/jobs", (), b'{"payload": 1}'))
    metrics = ServerMetrics(api)
    metrics.request(ApiResponse(200, notes={"operation": "enqueue"}), 0.1)
    return (await metrics.text()).decode()


def labels() -> dict[str, set[str]]:
    """The metrics there are, as Prometheus stores them, each with its labels."""
    registry = CollectorRegistry()
    queue = Queue.connect("memory://", "mail")
    queue.handler(print)
    workers = WorkerMetrics([Worker(queue)])
    workers._seconds.labels("mail", "").observe(1)
    registry.register(workers)
    text = asyncio.run(_of_a_server()) + generate_latest(registry).decode()
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


THERE = labels()


def expressions() -> dict[str, str]:
    found = {panel["title"]: target["expr"] for panel in GRAFANA["panels"] for target in panel["targets"]}
    return {**found, **{rule["alert"]: rule["expr"] for rule in rules()}}


def rules() -> list[dict[str, Any]]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def test_the_page_names_every_metric_with_its_labels_and_no_other() -> None:
    rows = re.findall(r"^\| `(osqueue_\w+)` \|([a-z, ]*)\|", PAGE, re.MULTILINE)
    told = {name: {each.strip() for each in text.split(",") if each.strip()} for name, text in rows}
    bases = {re.sub(r"_(bucket|count|sum)$", "", name): found - {"le"} for name, found in THERE.items()}
    assert told == bases


@pytest.mark.parametrize("name", expressions())
def test_what_is_drawn_and_watched_is_there(name: str) -> None:
    expression = expressions()[name]
    metrics = NAME.findall(expression)
    assert metrics
    for metric in metrics:
        assert metric in THERE
        for selector in re.findall(rf"{metric}\{{(.*?)\}}", expression):
            assert set(re.findall(r"(\w+)=", selector)) <= THERE[metric]


def test_every_alert_leads_to_a_section_of_the_runbook() -> None:
    sections = re.findall(r"^## ([\w-]+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)
    for rule in rules():
        assert rule["annotations"].get("runbook", sections[0]) in sections, rule["alert"]
        assert rule["annotations"]["summary"]
