"""``osqueue queue workers``: who works on a queue, as a table and as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from osqueue.model.worker import WorkerEntry
from tests.support.commands import Run, answers


def say(q: Queue[Any], worker_id: str, **entry: Any) -> None:
    assert q._run(q._flows.put_worker(worker_id, WorkerEntry(**{"name": "mailer", **entry})))


def test_each_worker_is_a_line(run: Run, q: Queue[Any]) -> None:
    q.enqueue_many([{"payload": n} for n in range(3)])
    q.claim(2, worker="by hand")
    say(q, "w-1", host="node-7", version="1.2.3", kinds=["a"], pid=4711)
    rows = {row["name"]: row for row in answers(run("queue", "workers", "emails"))}
    assert (rows["by hand"]["state"], rows["by hand"]["holds"]) == ("unregistered", 2)
    assert (rows["mailer"]["state"], rows["mailer"]["host"], rows["mailer"]["pid"]) == (
        "running",
        "node-7",
        4711,
    )


@pytest.mark.usefixtures("terminal")
def test_people_get_a_table_in_which_nothing_is_acted_upon(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1)
    assert "nobody works on queue emails" in run("queue", "workers", "emails").stderr
    say(q, "w-1", name="[red]mailer", kinds=[f"kind-{at}" for at in range(100)])
    told = run("queue", "workers", "emails").stdout
    assert "[red]mailer" in told
    assert "running" in told
    assert "kind-99" not in told  # it is cut


def test_a_queue_that_is_not_there_is_no_queue_without_workers(run: Run) -> None:
    assert "no queue 'emails'" in run("queue", "workers", "emails").stderr
