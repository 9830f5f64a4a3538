"""A worker's process and signals: handlers may finish, the rest is given back, and a second signal ends it now."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue
from tests.support.patience import PATIENCE

SCRIPT = """
import sys, threading
from osqueue import Queue
from osqueue.clock import Machine
from osqueue.stores.address import open_store

class Clock(Machine):
    passed = 0.0

    def monotonic(self):
        return self.passed

clock = Clock()
q = Queue(open_store(sys.argv[1]), "emails", machine=clock)

@q.on_event
def look(event):
    if event.name == "completed":  # the polite one: now the time for the others passes
        clock.passed = 1.0

def say(text):
    sys.stdout.write(f"{text}\\n")  # in one piece: two threads say something
    sys.stdout.flush()

@q.handler(kind="polite")
def polite(job):
    say("started")
    job.stopping.wait(30)
    say("stopping")

@q.handler(kind="stubborn")
def stubborn(job):
    say("started")
    threading.Event().wait(30)

say(q.run(concurrency=2, drain=float(sys.argv[2]), lease=3600))
"""


@contextlib.contextmanager
def process(address: str, drain: float) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SCRIPT, address, str(drain)]
    environment = os.environ | {"PYTHONWARNINGS": "error"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as worker:
        try:
            yield worker
        finally:
            worker.kill()  # to no effect on one that has ended


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_lets_handlers_finish_and_gives_the_rest_back(
    tmp_path: Path, number: signal.Signals
) -> None:
    q: Queue[Any] = Queue.connect(f"file://{tmp_path}?fsync=off", "emails")
    q.enqueue_many([{"payload": 0, "kind": kind} for kind in ("polite", "stubborn")])
    with process(f"file://{tmp_path}?fsync=off", drain=0.5) as worker:
        assert worker.stdout is not None
        assert [worker.stdout.readline() for _ in range(2)] == ["started\n"] * 2
        worker.send_signal(number)
        said, _ = worker.communicate(timeout=PATIENCE)
        assert worker.returncode == 0
    states = {(job.kind, job.state, job.attempt) for job in q.jobs()[0]}
    assert "stopping" in said
    assert states == {("polite", "completed", 1), ("stubborn", "queued", 0)}


def test_a_second_signal_ends_the_worker_now(tmp_path: Path) -> None:
    q: Queue[Any] = Queue.connect(f"file://{tmp_path}?fsync=off", "emails")
    q.enqueue_many([{"payload": 0, "kind": kind} for kind in ("polite", "stubborn")])
    with process(f"file://{tmp_path}?fsync=off", drain=600) as worker:
        assert worker.stdout is not None
        assert [worker.stdout.readline() for _ in range(2)] == ["started\n"] * 2
        worker.send_signal(signal.SIGTERM)
        assert worker.stdout.readline() == "stopping\n"
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=PATIENCE)
        assert worker.returncode == 0
    states = {job.kind: job.state for job in q.jobs()[0]}
    assert states["stubborn"] == "queued"
    assert states["polite"] in ("completed", "queued")  # it had said so; whether it had ended is a race
