"""The worker and signals: all workers of a loop hear each one, handlers may finish, and a second one ends it now."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue
from osqueue.worker import Signal
from osqueue.worker.loop import Worker

PATIENCE = 60  # seconds that a test waits for what must come


def test_a_signal_stops_every_worker_of_a_loop() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def main() -> None:
        queues = [AsyncQueue.connect("memory://", name) for name in ("a", "b", "c")]
        for q in queues:
            q.handler(lambda job: None)
        runs = [asyncio.create_task(q.run()) for q in queues]
        await asyncio.sleep(0.05)
        runs[1].cancel()  # one of them goes before
        await asyncio.wait({runs[1]})
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(runs[0], runs[2]), PATIENCE)

    asyncio.run(main())
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_handler_that_the_program_gave_its_loop_stays() -> None:
    async def main() -> None:
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails")
        q.handler(lambda job: None)
        worker = Worker(q)
        run = asyncio.create_task(worker.serve())
        for _ in range(2):
            await asyncio.sleep(0.05)
            told.clear()
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(told.wait(), PATIENCE)
            worker.stop()
            await asyncio.wait_for(run, PATIENCE)

    asyncio.run(main())


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
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


def test_a_signal_wakes_those_who_wait_and_those_who_come_later() -> None:
    happened = Signal()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(happened.wait(PATIENCE)))
    thread.start()
    assert not happened

    async def main() -> None:
        waiting = asyncio.ensure_future(asyncio.wait_for(happened, PATIENCE))
        await asyncio.sleep(0)
        await asyncio.to_thread(happened.set)
        await waiting
        await happened  # and at once when it has happened

    asyncio.run(main())
    thread.join(PATIENCE)
    assert woken == [True]
    assert happened.is_set()
