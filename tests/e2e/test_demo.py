"""The demo: that it ends well with a worker killed on the way, and that its check would notice if it did not."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from demo import stack
from demo.crew import ChildProcesses
from demo.history import TITLE
from demo.journal import Journal, JournalEntry, read_journal
from demo.measure import percentiles
from demo.plan import ReplayPlan, load
from demo.stock import recount
from demo.worker import ReplayWorker
from osqueue import Unavailable
from tests.pipeline import quick
from tests.support.patience import PATIENCE
from tests.support.places import ROOT

LOCKS = shutil.ignore_patterns(".osqueue")  # of a folder: a copy has no use for them

JOBS = 600
REPLAYS_MAX = 3

pytestmark = pytest.mark.timeout((REPLAYS_MAX + 1) * PATIENCE)


@pytest.fixture(scope="module", autouse=True)
def _few_rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The pipeline as it is, with Spark set for as few rows as there are here."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in quick.variables(tmp_path_factory.mktemp("spark")).items():
            patch.setenv(name, value)
        yield


def demo(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "demo", *arguments],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def replayed(
    parent: Path, met: Callable[[dict[str, Any]], bool], *arguments: str
) -> tuple[Path, dict[str, Any]]:
    """The folder and the result of a replay that met what there is to tell of. Every one has to end well.

    What it meets hangs on the clock: where the machine stands still at the beginning, all are sent at once.
    """
    for turn in range(REPLAYS_MAX):
        folder = parent / f"kept-{turn}"
        ended = demo("--jobs", str(JOBS), *arguments, "--dir", str(folder), "--json")
        assert ended.returncode == 0, ended.stderr + ended.stdout
        result = json.loads(ended.stdout)
        if met(result):
            break
    return folder, result


# ── The whole of it ──────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A replay that has ended: its folder and its result."""

    def met(result: dict[str, Any]) -> bool:
        waits, archive = result["measures"]["waits"], result["measures"]["archive"]
        # A record that is there twice can lose one of them unnoticed.
        once: bool = result["account"]["repeats"] == 0
        return (
            once
            and result["kill"] is not None
            and waits["answered"] > waits["late"] + waits["at_once"]
            and archive["parts"] > 1
            and result["measures"]["reaps"] > 1
        )

    return replayed(tmp_path_factory.mktemp("demo"), met)


def test_every_job_is_accounted_for_although_a_worker_is_killed(kept: tuple[Path, dict[str, Any]]) -> None:
    folder, result = kept
    account, measures, kill = result["account"], result["measures"], result["kill"]
    assert account["problems"] == []
    assert (account["jobs"], account["completed"]) == (JOBS, JOBS)
    assert measures["failed_attempts"] > 0
    assert kill["held"] > 0
    assert 0 <= result["came_back"] <= measures["stalled_attempts"]
    assert (
        account["executions"] <= measures["leases"]
    )  # the killed worker may not have begun all it was given
    assert measures["leases"] == JOBS + measures["failed_attempts"] + measures["stalled_attempts"]
    assert measures["requests"]["put"] > measures["commits"] // 2
    assert len(list((folder / "store" / "archive").rglob("*.jsonl.gz"))) == measures["archive"]["parts"]


def test_ids_that_are_sent_twice_run_once(kept: tuple[Path, dict[str, Any]]) -> None:
    ids, waits = kept[1]["measures"]["ids"], kept[1]["measures"]["waits"]
    # Of each pair one was accepted. Those who wait are not told whether it was theirs.
    assert ids["ids"] - waits["answered"] <= ids["duplicates"] + ids["cached"] <= ids["ids"]


def test_whoever_waits_gets_the_result_and_the_hasty_one_gets_it_later(
    kept: tuple[Path, dict[str, Any]],
) -> None:
    waits = kept[1]["measures"]["waits"]
    assert waits["answered"] > waits["late"] + waits["at_once"] > 0
    assert waits["late"] >= 1
    assert 0 <= waits["median_after_s"] <= waits["median_s"]


def test_the_archive_grows_while_the_replay_goes_on(kept: tuple[Path, dict[str, Any]]) -> None:
    archive = kept[1]["measures"]["archive"]
    assert archive["parts"] > 1
    assert archive["records"] == JOBS + kept[1]["account"]["repeats"]
    assert archive["packed_bytes"] < archive["plain_bytes"]


def test_every_call_goes_through_the_api_and_only_its_functions_ask_the_store(
    kept: tuple[Path, dict[str, Any]],
) -> None:
    measures = kept[1]["measures"]
    assert measures["calls"]["post"] > measures["calls"].get("put", 0) == 0
    assert measures["requests"]["put"] >= measures["commits"]
    assert measures["reaps"] > 1


def test_without_the_api_the_processes_ask_the_store_themselves(tmp_path: Path) -> None:
    def met(result: dict[str, Any]) -> bool:
        cached: int = result["measures"]["ids"]["cached"]
        return cached > 0

    _, result = replayed(tmp_path, met, "--embedded", "--no-pipeline")
    measures = result["measures"]
    assert result["account"]["problems"] == []
    assert measures["calls"] == {}
    assert measures["requests"]["put"] > measures["commits"] // 2
    assert measures["ids"]["cached"] > 0  # results are there at once: no function has to start first
    assert result["pipeline"] is None


def test_a_replay_does_not_begin_in_a_folder_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep me")
    ended = demo("--dir", str(tmp_path))
    assert ended.returncode == 2
    assert "is not empty" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_one_worker_alone_is_not_killed() -> None:
    ended = demo("--workers", "1")
    assert ended.returncode == 2
    assert "--no-kill" in ended.stderr


# ── The pipeline ─────────────────────────────────────────────────────────────
def test_the_replay_ends_with_a_report_that_agrees_with_the_accounts(
    kept: tuple[Path, dict[str, Any]],
) -> None:
    folder, result = kept
    history = result["pipeline"]
    assert history["problems"] == []
    assert history["told"]["states"] == {"completed": JOBS}
    assert sum(history["told"]["outcomes"].values()) == result["measures"]["leases"]
    assert history["told"]["wait"] == result["measures"]["wait"]
    assert history["report"] == str(folder / "report.html")
    assert TITLE in (folder / "report.html").read_text()


def test_the_engine_keeps_quiet(kept: tuple[Path, dict[str, Any]]) -> None:
    assert (kept[0] / "notes" / "analyst.log").read_text() == ""


def test_spark_draws_the_same_report_without_a_word(
    kept: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(kept[0], folder, ignore=LOCKS)
    ended = demo("--recount", str(folder), "--json", "--engine", "spark")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["pipeline"]["told"] == kept[1]["pipeline"]["told"]
    assert (folder / "report.html").read_bytes() == (kept[0] / "report.html").read_bytes()
    assert (folder / "notes" / "analyst.log").read_text() == ""


def test_without_java_the_replay_counts_and_it_is_said_what_is_missing(
    kept: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(kept[0], folder, ignore=LOCKS)
    (folder / "report.html").unlink()
    ended = demo("--recount", str(folder), "--engine", "spark", JAVA_HOME=str(tmp_path))
    assert ended.returncode == 0
    assert ended.stdout.rstrip().endswith("executions).")  # the verdict
    assert "the pipeline cannot run here. Java is missing. Remedy:" in ended.stderr
    assert not (folder / "report.html").exists()


def test_a_pipeline_that_stops_is_told_with_what_it_said_last(
    kept: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(kept[0], folder, ignore=LOCKS)
    ended = demo("--recount", str(folder), "--json", "--engine", "spark", SPARK_SUBMIT_OPTS="-Xms9z")
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["account"] == kept[1]["account"]
    assert "The pipeline stopped: the analyst ended with status 1." in ended.stderr
    assert "Invalid initial heap size: -Xms9z" in ended.stderr


def test_ctrl_c_during_the_pipeline_leaves_no_process_behind(
    kept: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(kept[0], folder, ignore=LOCKS)
    mark = f"DEMO_UNDER_TEST={folder}"
    with subprocess.Popen(
        [sys.executable, "-m", "demo", "--recount", str(folder), "--engine", "spark"],
        cwd=ROOT,
        env={**os.environ, "DEMO_UNDER_TEST": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            assert any(line == "pipeline: compaction\n" for line in running.stdout)
            assert any("java" in name for name in processes_with(mark))
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=PATIENCE)
        finally:
            running.kill()  # else it would be waited for
    assert (running.returncode, left_with(mark)) == (130, [])
    assert "Stopped; every process has ended." in said


def left_with(variable: str) -> list[str]:
    """Programs that go on running. Spark's Python daemons are a group of their own, and follow their Java."""
    until = time.monotonic() + PATIENCE
    while (found := processes_with(variable)) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def processes_with(variable: str) -> list[str]:
    """The programs that run with a variable in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().split(b"\0")[0].decode())
    return found


# ── Falsified ────────────────────────────────────────────────────────────────
def change_archive(folder: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Rewrite the archive part with the most records."""
    part = max((folder / "store" / "archive").rglob("*.jsonl.gz"), key=lambda path: path.stat().st_size)
    records = [json.loads(line) for line in gzip.decompress(part.read_bytes()).splitlines()]
    change(records)
    part.write_bytes(gzip.compress(b"".join(json.dumps(each).encode() + b"\n" for each in records)))


def change_journal(folder: Path, name: str, part: str, change: Callable[[list[Any]], Any]) -> None:
    """Change one list in the first line of a journal that has it."""
    path = folder / "notes" / f"{name}.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    change(next(entry[part] for entry in entries if entry.get(part)))
    path.write_text("".join(json.dumps(each) + "\n" for each in entries))


def living(folder: Path) -> str:
    """The worker with the longest journal, of those that were not killed."""
    killed = json.loads((folder / "notes" / "kill.json").read_text())["worker"]
    journals = [path for path in (folder / "notes").glob("worker-*.jsonl") if path.stem != killed]
    return max(journals, key=lambda path: path.stat().st_size).stem


FALSIFIED: list[tuple[Callable[[Path], None], str]] = [
    (lambda at: change_archive(at, list.pop), "1 lost: enqueued, but not in the archive"),
    (lambda at: change_archive(at, lambda all: all[0].update(state="failed")), "1 failed instead of"),
    (lambda at: change_archive(at, lambda all: all.append(all[0] | {"run": 99})), "1 completed more than"),
    (lambda at: change_archive(at, lambda all: all[0].update(attempt=7)), "1 archived with a timeline"),
    (
        lambda at: change_archive(at, lambda all: all[0]["attempts"][-1].update(worker="worker-9")),
        "1 leased by the archive to a worker that did not begin it",
    ),
    (
        lambda at: change_archive(at, lambda all: all[0]["attempts"][-1].update(started_ms=1)),
        "1 held for another time by the archive",
    ),
    (lambda at: change_archive(at, lambda all: all[0].update(id="mine")), "1 archived under an id that"),
    (lambda at: change_journal(at, living(at), "started", list.pop), "1 leased by the archive to a worker"),
    (lambda at: change_journal(at, living(at), "completed", list.pop), "1 ended by the archive, but by no"),
    (
        lambda at: change_journal(at, living(at), "completed", lambda all: all.append(all[0])),
        "1 acknowledged to have ended more than once",
    ),
    (
        lambda at: change_journal(at, "producer", "sent", lambda all: all.append(all[0])),
        "1 sent by more or fewer callers",
    ),
    (lambda at: change_journal(at, "producer", "waited", list.pop), "1 waited for, but by nobody"),
    (
        lambda at: change_journal(at, "producer", "waited", lambda all: all[0]["result"].update(n=0)),
        "1 waited for, but with another result",
    ),
    (lambda at: change_journal(at, "rival", "sent", list.pop), "1 sent by more or fewer callers"),
]


@pytest.mark.parametrize(("falsify", "complaint"), FALSIFIED, ids=[each for _, each in FALSIFIED])
def test_a_falsified_replay_is_noticed(
    kept: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    falsify: Callable[[Path], None],
    complaint: str,
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(kept[0], folder, ignore=LOCKS)
    falsify(folder)
    problems = recount(replace(load(folder / "plan.json"), folder=str(folder))).account.problems
    assert any(problem.startswith(complaint) for problem in problems), problems


def test_a_kept_replay_can_be_counted_again(kept: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(kept[0], folder, ignore=LOCKS)
    sound = demo("--recount", str(folder), "--json", "--no-pipeline")
    assert (sound.returncode, json.loads(sound.stdout)["account"]) == (0, kept[1]["account"])
    change_archive(folder, list.pop)
    spoilt = demo("--recount", str(folder), "--no-pipeline")
    assert spoilt.returncode == 1
    assert "1 lost: enqueued, but not in the archive" in spoilt.stdout
    elsewhere = demo("--recount", str(tmp_path))
    assert elsewhere.returncode == 2
    assert "is not the folder of a replay" in elsewhere.stderr


# ── Its parts ────────────────────────────────────────────────────────────────
def test_a_worker_goes_on_when_a_claim_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a gateway whose function takes too long to start."""
    with Journal(tmp_path / "worker-1.jsonl") as journal:
        worker = ReplayWorker(ReplayPlan(str(tmp_path), jobs=1, workers=1), "worker-1", journal)

        def unanswered(**_: Any) -> None:
            raise Unavailable("503")

        monkeypatch.setattr(worker.queue, "claim", unanswered)
        assert not worker.claim()
        assert worker.look_again > 0


def test_a_journal_whose_last_line_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "worker-1.jsonl"
    with Journal(path) as journal:
        journal.write(JournalEntry(lost=["a"]))
        journal.write(JournalEntry(lost=["b"]))
    path.write_bytes(path.read_bytes()[:-4])
    assert list(read_journal(path)) == [JournalEntry(lost=["a"])]


def test_percentiles_are_times_that_occurred() -> None:
    found = percentiles([*range(1, 101)])
    assert (found.p50_s, found.p95_s, found.p99_s) == (0.050, 0.095, 0.099)
    assert percentiles([]).p99_s == 0.0


def test_what_a_child_is_told_by_its_environment_is_told_to_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OSQUEUE_LOG_LEVEL", raising=False)
    plan = ReplayPlan(str(tmp_path), jobs=1, workers=1)
    plan.notes.mkdir()
    with ChildProcesses(plan, tmp_path / "plan.json") as crew:
        stack.start(crew, plan)
        told = Path(f"/proc/{crew.pid(stack.NAME)}/environ").read_bytes().split(b"\0")
    assert b"OSQUEUE_LOG_LEVEL=DEBUG" in told
    assert "OSQUEUE_LOG_LEVEL" not in os.environ
