"""The command line over a queue in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from osqueue import Queue
from osqueue.cli import output as printed
from osqueue.cli.app import app
from osqueue.maintenance import store_measures, store_races
from tests.support.commands import Run


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}/jobs?fsync=off"


@pytest.fixture
def run(address: str) -> Run:
    def invoke(*args: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, args, input=stdin, env={"OSQUEUE_ADDRESS": address})

    return invoke


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person looks at the answers."""
    monkeypatch.setattr(printed, "is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "140")


@pytest.fixture
def q(address: str) -> Queue[Any]:
    return Queue.connect(address, "emails")  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store is looked at by no other process, and its requests are not timed for long."""
    monkeypatch.setattr(store_races, "PROCESSES", 0)
    monkeypatch.setattr(store_measures, "SAMPLES_MAX", 3)
