"""``osqueue top`` where it prints once, and what it tells of one queue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from osqueue import Queue
from osqueue.cli import top
from osqueue.cli.glance import ALARM, detail_of
from osqueue.model.worker import WorkerEntry, WorkerStatus
from osqueue.testing import Clock
from tests.support.commands import Run, answers


def test_once_prints_the_queues_in_order(run: Run, q: Queue[Any], address: str) -> None:
    q.enqueue(1)
    other = Queue.connect(address, "reports")
    other.enqueue_many([{"payload": 1}, {"payload": 2}])
    assert [row["queue"] for row in answers(run("top"))] == ["reports", "emails"]
    assert [row["queue"] for row in answers(run("top", "--sort", "queue", "--once"))] == ["emails", "reports"]


@pytest.mark.usefixtures("terminal")
def test_once_prints_a_table_on_a_terminal(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1)
    shown = run("top", "--once")
    assert shown.exit_code == 0
    assert "emails" in shown.stdout
    assert "{" not in shown.stdout


def test_an_address_without_queues_says_so(run: Run) -> None:
    assert "no queues at this address" in run("top").stderr


@pytest.mark.parametrize("every", ["0.4", "2h"])
def test_a_time_between_looks_out_of_bounds_is_refused(run: Run, every: str) -> None:
    refused = run("top", "--every", every)
    assert refused.exit_code == 2
    assert "--every" in refused.stderr


def test_details_tell_who_works_on_a_queue_and_ask_for_it_now_and_then(
    q: Queue[Any], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(top, "MACHINE", clock)
    q.enqueue_many([{"payload": 1, "kind": "a"}, {"payload": 1}])
    q.claim(2, worker="busy")
    for name, draining in (("busy", True), ("idle", False)):
        q._run(q._flows.put_worker(name, WorkerEntry(name=name, draining=draining)))
    place = top.WatchedQueues(address, 5)
    lines, requests = place.detail("emails")
    told = [text for text, _ in lines][[text for text, _ in lines].index("workers") + 1 :]
    assert [text.split(":")[0] for text in told] == ["busy", "idle"]
    assert told[0].endswith("kinds -, a, draining")
    assert told[1] == "idle: idle, of 1 at once"
    q._run(q._flows.delete_worker("idle"))
    lists = place.queue("emails").requests["list"]
    assert len(place.detail("emails")[0]) == len(lines)
    assert place.queue("emails").requests["list"] == lists
    clock.advance(top.WORKERS_S)
    assert len(place.detail("emails")[0]) == len(lines) - 1
    assert requests == place.detail("emails")[1]


def test_lost_workers_stand_out_before_all_others() -> None:
    seen = datetime(2030, 1, 31, 12, tzinfo=UTC)
    workers = [
        WorkerStatus(name="gone", state="lost", seen=seen),
        WorkerStatus(name="by hand", state="unregistered", holds=1),
    ]
    flow: dict[str, Any] = {
        "running": 0,
        "max_running": None,
        "paused": False,
        "rate": None,
        "limiter": None,
        "groups": {},
        "kinds": {},
    }
    assert detail_of("emails", flow, [], False, workers)[-1] == (
        "gone: lost, heard of last at 2030-01-31 12:00:00Z",
        ALARM,
    )
