"""The plug-in, as pytest loads it where osqueue is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.patience import PATIENCE
from tests.support.places import ROOT

PROGRAM = """
from osqueue import AsyncQueue, Queue

app = AsyncQueue.connect("file://real", "emails")
worker = Queue.connect("file://real", "emails")


@worker.handler
def send(job):
    return f"to {job.payload}"
"""

TESTS = """
import asyncio
import os
import sys

import pytest

LOADED = [name for name in sys.modules if name.startswith("osqueue.")]  # before any test asks for a fixture


def test_nothing_of_a_queue_is_loaded_until_it_is_asked_for():
    assert LOADED == ["osqueue.errors", "osqueue.pytest_plugin"]


def test_manual(osqueue_manual):
    import program
    test = osqueue_manual(program.worker, program.app)
    asyncio.run(program.app.enqueue("ada"))
    assert [ran.result for ran in test.drain()] == ["to ada"]


def test_inline(osqueue_inline):
    import program
    test = osqueue_inline(program.worker, raise_errors=False)
    program.worker.enqueue("ada")
    assert [ran.result for ran in test.ran] == ["to ada"]


def test_afterwards_the_queue_is_the_real_one():
    import program
    assert program.worker.stats()["completed"] == 0
    assert not os.path.exists("real")


def test_an_address(osqueue_address):
    from osqueue import Queue
    Queue.connect(osqueue_address, "emails").enqueue(1)
    assert Queue.connect(osqueue_address, "emails").stats()["queued"] == 1


def test_of_another_test_nothing_is_there(osqueue_address):
    from osqueue import Queue
    assert Queue.connect(osqueue_address, "emails").stats()["queued"] == 0
"""


def test_its_fixtures_are_there_without_any_set_up(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "test_program.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        str(tmp_path),
    ]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "6 passed" in ended.stdout


def test_every_fixture_is_documented() -> None:
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    plugin = (ROOT / "layers/osqueue/python/osqueue/pytest_plugin.py").read_text(encoding="utf-8")
    fixtures = re.findall(r"^@pytest.fixture\ndef (\w+)", plugin, re.MULTILINE)
    assert len(fixtures) == 3
    assert [name for name in fixtures if f"| `{name}` |" not in page] == []
