"""SIGHUP, which a closed terminal sends twice: commands that run until a signal end in order, but not under nohup."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
import urllib3

from osqueue import Queue
from tests.support.patience import PATIENCE

TASKS = """
import os, sys
from osqueue import Queue

q = Queue.connect({address!r}, "emails")

@q.handler
def slow(job):
    print("running", file=sys.stderr, flush=True)
    job.stopping.wait(60)
    print("stopping", file=sys.stderr, flush=True)
    if job.payload:
        open(job.payload).close()  # waits for the other end
"""


@contextmanager
def command(
    folder: Path, *words: str, ignored: bool = False, terminal: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start a command, with SIGHUP as ``nohup`` leaves it if it is to be ignored, and perhaps at a terminal."""

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "osqueue", *words],
            cwd=folder,
            stdin=terminal,
            start_new_session=terminal is not None,
            preexec_fn=None if terminal is None else take_terminal,  # noqa: PLW1509 - it makes one call of the system
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            restore_signals=False,
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def jobs(tmp_path: Path) -> Queue[str]:
    q: Queue[str] = Queue.connect(f"file://{tmp_path}/jobs?fsync=off", "emails")
    (tmp_path / "tasks.py").write_text(TASKS.format(address=f"file://{tmp_path}/jobs?fsync=off"))
    return q


def read_until(stream: IO[str] | None, text: str) -> str:
    assert stream is not None
    lines = []
    for line in stream:
        lines.append(line)
        if text in line:
            return "".join(lines)
    raise AssertionError("".join(lines))


@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_a_closed_terminal_drains_the_workers(
    jobs: Queue[str], tmp_path: Path, processes: tuple[str, ...]
) -> None:
    end_of_job = tmp_path / "end_of_job"
    os.mkfifo(end_of_job)
    jobs.enqueue(str(end_of_job))
    ours, its = os.openpty()
    with command(tmp_path, "worker", "tasks:q", *processes, terminal=its) as worker:
        os.close(its)
        read_until(worker.stderr, "running")
        os.close(ours)  # so the kernel sends SIGHUP
        read_until(worker.stderr, "stopping")
        worker.send_signal(signal.SIGHUP)  # as a shell does
        end_of_job.write_text("")
        worker.communicate(timeout=PATIENCE)
        assert worker.returncode == 0
    assert [(job.state, job.attempt) for job in jobs.jobs()[0]] == [("completed", 1)]


def test_a_worker_under_nohup_ignores_a_hang_up(jobs: Queue[str], tmp_path: Path) -> None:
    jobs.enqueue("")
    with command(tmp_path, "worker", "tasks:q", ignored=True) as worker:
        read_until(worker.stderr, "running")
        worker.send_signal(signal.SIGHUP)
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=PATIENCE)
        assert worker.returncode == 0
    assert "SIGTERM: waiting" in said
    assert "SIGHUP" not in said


@pytest.mark.parametrize("name", ["serve", "dashboard"])
def test_a_hang_up_ends_a_server(jobs: Queue[str], tmp_path: Path, name: str) -> None:
    with command(tmp_path, name, f"file://{tmp_path}/jobs", "--port", "0", "--json") as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        assert urllib3.request("GET", f"{url}/healthz", timeout=PATIENCE).status == 200
        server.send_signal(signal.SIGHUP)
        server.communicate(timeout=PATIENCE)
        assert server.returncode == 0


def test_a_hang_up_ends_the_reaper_after_its_pass(jobs: Queue[str], tmp_path: Path) -> None:
    jobs.enqueue("")
    jobs.claim()[0].complete()
    with command(tmp_path, "reap", f"file://{tmp_path}/jobs?fsync=off", "--every", "60") as reaper:
        read_until(reaper.stdout, "emails")
        reaper.send_signal(signal.SIGHUP)
        reaper.communicate(timeout=PATIENCE)
        assert reaper.returncode == 0
