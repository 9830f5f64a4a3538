"""A head that a wrong clock has put ahead of the time: each process that meets it logs a warning."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue
from osqueue.cli.reap import passes
from osqueue.clock import Machine
from osqueue.election.upkeep import one_pass
from osqueue.limits import CLOCK_AHEAD_MS_MAX, HOUR_MS
from osqueue.stores.file import FileStore
from tests.support.patience import PATIENCE


class Shifted(Machine):
    """A machine whose clock is ahead."""

    def __init__(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class Warned(logging.Handler):
    """The texts of warnings, and an event at the first."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.first = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self.first.set()


@pytest.fixture
def warned() -> Any:
    handler, logger = Warned(), logging.getLogger("osqueue.clock")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def opened(folder: Path, ahead_ms: int = 0) -> Queue[Any]:
    machine = Shifted(ahead_ms)
    return Queue(FileStore(folder, fsync=False, machine=machine), "mail", machine=machine)


ENTRIES: dict[str, Callable[[Queue[Any]], Any]] = {
    "a claim of nothing": lambda q: q.claim(),
    "one pass of reap": lambda q: q.reap(),
    "the passes of osqueue reap": lambda q: list(passes(q.store, None, 5)),
    "the upkeep of a server": lambda q: list(one_pass(["mail"], lambda _: q)),
    "why": lambda q: q.why("named"),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("ahead_ms", [HOUR_MS, CLOCK_AHEAD_MS_MAX // 2])
def test_a_head_ahead_of_the_clock_is_warned_of(
    tmp_path: Path, warned: Warned, entry: str, ahead_ms: int
) -> None:
    opened(tmp_path, ahead_ms).enqueue(1, delay=60, id="named")
    warned.texts.clear()
    ENTRIES[entry](opened(tmp_path))
    assert bool(warned.texts) == (ahead_ms > CLOCK_AHEAD_MS_MAX)


def test_a_worker_that_only_looks_warns_of_a_head_ahead_of_the_clock(tmp_path: Path, warned: Warned) -> None:
    q = opened(tmp_path)
    q.enqueue(1, delay=2 * HOUR_MS / 1000)
    with ThreadPoolExecutor(1) as pool:
        idle = pool.submit(q.claim, wait=PATIENCE)
        while not q._group(0).writer.n:
            threading.Event().wait(0.001)
        opened(tmp_path, HOUR_MS).enqueue(2, delay=600)
        assert warned.first.wait(PATIENCE)
        assert not idle.done()
        q.enqueue(3)
        assert [lease.payload for lease in idle.result(PATIENCE)] == [3]


def test_a_story_names_the_head_ahead_of_the_clock(tmp_path: Path) -> None:
    job = opened(tmp_path, HOUR_MS).enqueue(1, delay=60).job_id
    assert "time stands still" in opened(tmp_path).story(str(job)).now
    assert "--fix-clock" in opened(tmp_path).story(str(job)).now
    assert "stands still" not in opened(tmp_path, HOUR_MS).story(str(job)).now
