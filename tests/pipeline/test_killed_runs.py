"""Runs that are killed, at once, or on several cores: the tables and the page end as those of one undisturbed run.

In small, what chance may do to a pipeline. The killed executor is in ``test_source_write``, the same ``batch_id`` twice
there and in ``test_writer``; a run of other hours, which does what a killed one has not, in ``test_unfinished``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from osqueue.errors import Unavailable
from osqueue.pipeline.engines import helpers
from osqueue.pipeline.engines.local import LocalEngine
from osqueue.pipeline.jobs import run
from osqueue.pipeline.jobs.run import PipelineRun
from tests.pipeline import pieces
from tests.pipeline.past import Archive, at, done, job, lease, marks
from tests.support.patience import PATIENCE
from tests.support.places import ROOT

HOURS = (1, 4, 5, 30, 52)
DAYS = 3


def filled(folder: Path) -> Archive:
    """Two queues, jobs that fail and are run again, a record that is there twice."""
    folder.mkdir(exist_ok=True)
    archive = Archive(folder)
    for number, hour in enumerate(HOURS):
        begin = at(hour)
        again = done(
            number + 10,
            begin,
            lease(1, begin + 70_000, begin + 71_000, "failed", error="disk full", error_type="OSError"),
            lease(2, begin + 80_000, begin + 81_000),
        )
        archive.write(hour, "00-a", [job(number, hour), again])
        archive.write(hour + 1, "00-again", [again])
        archive.write(hour, "00-a", [job(number + 20, hour)], "letters")
    return archive


def started(archive: Archive, *, job: str = "run", last: int = 0) -> subprocess.Popen[str]:
    places = (archive.store, archive.tables, archive.tables.parent / "page/report.html")
    command = [sys.executable, "-m", "tests.pipeline.killed_run", job, *map(str, places), str(last)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> dict[str, int]:
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    told: dict[str, int] = json.loads(said)
    return told


def held(archive: Archive) -> dict[str, bytes]:
    """Every file of the tables and of the page's folder; neither what the store keeps for itself nor a draft."""
    folder = archive.tables.parent
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for place in (archive.tables, folder / "page")
        for path in place.rglob("*")
        if path.is_file() and ".osqueue" not in path.parts and path.suffix != ".draft"
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, int], dict[str, bytes]]:
    """How much one run writes, and what it leaves."""
    archive = filled(tmp_path_factory.mktemp("undisturbed"))
    counts = ended(started(archive))
    assert 2 * 2 * DAYS < counts["before_metrics"] < counts["all"]
    assert marks(archive) == []
    return counts, held(archive)


@pytest.mark.parametrize("step", ["compaction", "metrics", "report"])
def test_a_run_after_one_that_was_killed_leaves_what_an_undisturbed_one_does(
    undisturbed: tuple[dict[str, int], dict[str, bytes]], tmp_path: Path, step: str
) -> None:
    counts, wanted = undisturbed
    last = {
        "compaction": Random(1).randint(2, counts["before_metrics"] - 1),
        "metrics": Random(2).randint(counts["before_metrics"] + 1, counts["all"] - 1),
        "report": counts["all"],
    }[step]
    archive = filled(tmp_path)
    killed = started(archive, last=last)
    killed.communicate(timeout=PATIENCE)
    assert killed.returncode == -signal.SIGKILL
    assert held(archive) != wanted
    assert bool(marks(archive)) == (step == "compaction")
    page = archive.tables.parent / "page"
    left = [*page.glob(".report.html.*.draft")]
    assert len(left) == (step == "report")
    page.mkdir(exist_ok=True)
    foreign, young = page / ".others.html.a-1.draft", page / ".report.html.a-1.draft"
    for draft in (foreign, young):
        draft.touch()
    for draft in (foreign, *left):
        os.utime(draft, (0, 0))  # long ago
    ended(started(archive))
    assert held(archive) == wanted
    assert {*page.glob(".*.draft")} == {foreign, young}


def test_compactions_at_once_leave_what_one_does(
    undisturbed: tuple[dict[str, int], dict[str, bytes]], tmp_path: Path
) -> None:
    _, wanted = undisturbed
    archive = filled(tmp_path)
    for process in [started(archive, job="compact") for _ in range(2)]:
        ended(process)
    history = {
        path: body for path, body in wanted.items() if path.startswith(("tables/jobs/", "tables/attempts/"))
    }
    assert held(archive) == history


class EngineOfTwo(LocalEngine):
    """This process and another one, both of which are at work; what they do is changed."""

    def __init__(self, change: Callable[..., Any]) -> None:
        super().__init__(2)
        self._change = change

    def spread(self, function: Callable[[Any], Any], pieces: Sequence[Any]) -> list[Any]:
        assert len(pieces) > 1
        return super().spread(partial(self._change, function), pieces)


def on_two_cores(archive: Archive, change: Callable[..., Any]) -> None:
    places = (archive.store, archive.tables, archive.tables.parent / "page/report.html")
    with closing(EngineOfTwo(change)) as engine:
        run.run(engine, PipelineRun(*map(str, places)))


def test_a_run_on_two_cores_leaves_what_one_on_one_core_does_also_after_one_that_lost_a_process(
    undisturbed: tuple[dict[str, int], dict[str, bytes]],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, wanted = undisturbed
    archive = filled(tmp_path)
    monkeypatch.setattr(helpers, "ALONE_SECONDS", 0)
    with pytest.raises(Unavailable, match="a process that did a part of the work is lost"):
        on_two_cores(archive, partial(pieces.die, tmp_path_factory.mktemp("first"), os.getpid()))
    assert marks(archive) != []
    assert held(archive) != wanted
    met = tmp_path_factory.mktemp("second")
    on_two_cores(archive, partial(pieces.together, met))
    assert len([*met.iterdir()]) == 2
    assert held(archive) == wanted
