"""Runs that are killed, and runs at once: the tables and the page end as those of one undisturbed run.

In small, what chance may do to a pipeline. The killed executor is in ``test_source_write``, the same ``batch_id`` twice
there and in ``test_writer``; a run of other hours, which does what a killed one has not, in ``test_unfinished``.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

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
    ended(started(archive))
    assert held(archive) == wanted


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
