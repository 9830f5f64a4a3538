"""Consumers under the real runtime client: invoked when jobs wait, killed in the middle, and never too many at once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue
from osqueue.devstack import Stack
from osqueue.errors import Rejected, Unavailable
from tests.support.tiny_functions import Lines, wait_until

HANDLER = """
import os, time
from pathlib import Path
from osqueue.aws import consumer

TRACES = Path(os.environ["TRACES"])

@consumer
def handler(job):
    began = time.monotonic()
    (TRACES / f"{job.job_id}.{job.run}").write_text(str(os.getpid()))
    if job.kind == "hold" and job.run == 1:
        open(TRACES / "gate").read()  # a pipe: until somebody opens its other end and closes it
    time.sleep(0.02)
    with open(TRACES / "times", "a") as file:
        print(began, time.monotonic(), os.getpid(), file=file)
    return job.payload

def plain(event, context):
    (TRACES / "plain").write_text(event["Records"][0]["body"])

from osqueue.aws import sqs_shaped
from_sqs = sqs_shaped(plain)
"""


@contextmanager
def consuming(
    tmp_path: Path, name: str = "handler", lines: Lines | None = None, **options: Any
) -> Iterator[Stack]:
    folder = tmp_path / "mailer"
    folder.mkdir()
    (folder / "handler.py").write_text(HANDLER)
    traces = tmp_path / "traces"
    traces.mkdir()
    with Stack(
        store=f"file://{tmp_path}/store",
        consumers=[f"emails={folder / 'handler.py'}:{name}"],
        variables={"TRACES": str(traces)},
        on_line=lines,
        **{"processes": 3, "schedule_seconds": 0.5, **options},
    ) as stack:
        yield stack


def completions(lines: Lines) -> list[dict[str, Any]]:
    """Return the reports of invocations of the consumer that completed a job.

    A consumer that starts slowly is invoked again for the same ticket, and the later invocation reports its commit.
    """
    reports = [json.loads(line) for line in lines.of("consumer-mailer") if line.startswith("{")]
    return [each for each in reports if "Completed" in each]


def result(q: Queue[Any], job_id: str) -> Any:
    """That of a job, once it is over."""
    wait_until(lambda: q.status(job_id).state in ("completed", "failed"), "the job is over")
    return q.result(job_id)


def test_jobs_run_with_nobody_who_polls_and_a_function_from_sqs_runs_as_it_is(tmp_path: Path) -> None:
    lines = Lines()
    with consuming(tmp_path, "from_sqs", lines) as stack:
        q: Queue[Any] = Queue.connect(stack.url, "emails")
        job_id = q.enqueue({"to": "ada"}).job_id or ""
        assert result(q, job_id) is None
        assert (tmp_path / "traces/plain").read_text() == '{"to":"ada"}'
        (attached,) = q.stats()["settings"]["consumers"].items()
        assert attached[0] == "mailer"
        assert attached[1]["target"] == "osqueue-dev-consumer-mailer"
        wait_until(lambda: completions(lines), "the consumer reports what it completed")
        (report,) = completions(lines)
        assert (report["service"], report["queue"], report["Completed"]) == ("osqueue-dev", "emails", [1])


def test_a_consumer_killed_in_the_middle_loses_nothing_and_no_more_run_than_may(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    with consuming(tmp_path, processes=4) as stack:
        q: Queue[Any] = Queue.connect(stack.url, "emails")
        target = q.stats()["settings"]["consumers"]["mailer"]["target"]
        wished = {"target": target, "batch": 5, "max_concurrency": 2, "lease": 2}
        q.configure(consumers={"mailer": wished}, backoff_base=0.001)
        os.mkfifo(traces / "gate")
        held = q.enqueue("held", kind="hold").job_id or ""
        wait_until((traces / f"{held}.1").exists, "the consumer has come")
        (killed,) = [each for each in stack.instances() if each.function == "consumer-mailer"]
        assert stack.crash("consumer-mailer").pid == killed.pid  # type: ignore[union-attr]
        ids = [each.job_id or "" for each in q.enqueue_many([{"payload": n} for n in range(40)])]
        assert {result(q, each) for each in ids} == set(range(40))
        assert result(q, held) == "held"
        stats = q.stats()
        assert stats["counters"]["completed"] == 41
        assert stats["processing"] == stats["queued"] == 0
        assert (traces / f"{held}.1").read_text() == str(killed.pid)
        assert (traces / f"{held}.2").read_text() != str(killed.pid)
    times = [line.split() for line in (traces / "times").read_text().splitlines()]
    for began, _, _ in times:
        running = {pid for start, end, pid in times if float(start) <= float(began) < float(end)}
        assert len(running) <= 2


def test_a_consumer_that_cannot_be_attached_says_why(tmp_path: Path) -> None:
    (tmp_path / "mailer.py").write_text("")
    with (
        pytest.raises(Unavailable, match=r"consumer mailer cannot be attached to queue e\?"),
        Stack(store=f"file://{tmp_path}/store", consumers=[f"e?={tmp_path}/mailer.py"]),
    ):
        pass
    for text in ("emails", "emails=mailer", "=x.py"):
        with pytest.raises(Rejected, match=r"QUEUE=FILE\.py"):
            Stack(store=f"file://{tmp_path}/store", consumers=[text])
    with pytest.raises(Rejected, match="there is no file"):
        Stack(store=f"file://{tmp_path}/store", consumers=[f"emails={tmp_path}/other.py"])
    with pytest.raises(Rejected, match="two are named 'mailer'"):
        Stack(store=f"file://{tmp_path}/store", consumers=[f"{q}={tmp_path}/mailer.py" for q in "ab"])
