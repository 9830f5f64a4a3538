"""The demo: that it ends well with a worker killed on the way, and that its check would notice if it did not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from demo.accounting import Account, Attempt, Record, check
from demo.journal import Entry, Journal, Start, read_journal
from demo.measure import percentiles

ROOT = Path(__file__).resolve().parents[2]
JOBS = 600
SECONDS_MAX = 60  # it takes about 8; a crowded machine may be slow, a stuck replay is not waited for


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "demo", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


# ── The whole of it ──────────────────────────────────────────────────────────
def test_every_job_is_accounted_for_although_a_worker_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    ended = demo("--jobs", str(JOBS), "--dir", str(folder), "--json")
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
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
    assert list((folder / "store" / "archive").rglob("*.jsonl.gz"))


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


# ── The check ────────────────────────────────────────────────────────────────
class Books:
    """Four accounts of three jobs that agree: a failed one, a stalled one and a plain one."""

    def __init__(self) -> None:
        self.numbers = [7, 8, 11]
        self.enqueued = [(7, "a"), (8, "b"), (11, "c")]
        self.archive = [record("a", "completed"), record("b", "failed", "completed")]
        self.archive.append(record("c", "stalled", "completed"))
        self.live: list[tuple[str, str]] = []
        self.entries = [
            Entry(started=[Start("a", 7, 1), Start("b", 8, 1)], completed=["a"]),
            Entry(started=[Start("c", 11, 1)]),  # and then it was killed
            Entry(started=[Start("b", 8, 2), Start("c", 11, 2)], completed=["b", "c"]),
        ]

    def check(self) -> Account:
        return check(self.numbers, self.enqueued, self.archive, self.live, self.entries)


def record(job_id: str, *outcomes: str, state: str = "completed") -> Record:
    attempts = tuple(
        Attempt(run, "worker-1", run * 1000, run * 1000 + 10, outcome)
        for run, outcome in enumerate(outcomes, 1)
    )
    return Record(job_id, len(attempts), state, 500, attempts[-1].ended_ms, attempts)


def test_accounts_that_agree_are_found_in_order() -> None:
    assert Books().check() == Account(jobs=3, completed=3, executions=5, repeats=0, problems=[])


def test_an_archive_line_that_is_repeated_word_for_word_counts_once() -> None:
    books = Books()
    books.archive.append(books.archive[0])
    assert books.check() == Account(jobs=3, completed=3, executions=5, repeats=1, problems=[])


def test_a_finished_job_that_is_not_archived_yet_counts() -> None:
    books = Books()
    del books.archive[0]
    books.live.append(("a", "completed"))
    assert books.check().problems == []


def lose_a_completion(books: Books) -> None:
    del books.archive[0]


def double_a_completion(books: Books) -> None:
    books.archive.append(replace(books.archive[0], finished_ms=9_999))


def complete_in_archive_and_head(books: Books) -> None:
    books.live.append(("a", "completed"))


def leave_one_queued(books: Books) -> None:
    del books.archive[0]
    books.live.append(("a", "queued"))


def give_one_up(books: Books) -> None:
    books.archive[1] = record("b", "failed", "failed", state="failed")


def forget_to_enqueue(books: Books) -> None:
    del books.enqueued[2]
    del books.archive[2]
    books.entries = [Entry(started=[Start("a", 7, 1), Start("b", 8, 1)], completed=["a", "b"])]


def enqueue_twice(books: Books) -> None:
    books.enqueued.append((11, "d"))
    books.archive.append(record("d", "completed"))
    books.entries.append(Entry(started=[Start("d", 11, 1)], completed=["d"]))


def invent_a_job(books: Books) -> None:
    books.archive.append(record("z", "completed"))


def swap_payloads(books: Books) -> None:
    books.entries[1] = Entry(started=[Start("c", 8, 1)])


def complete_without_running(books: Books) -> None:
    books.entries[0] = Entry(started=[Start("b", 8, 1)])


def acknowledge_twice(books: Books) -> None:
    books.entries.append(Entry(completed=["c"]))


def finish_twice_in_one_timeline(books: Books) -> None:
    books.archive[0] = record("a", "completed", "completed")


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lose_a_completion, "1 lost: enqueued, but nowhere in the record: 7"),
        (lose_a_completion, "1 acknowledged as completed, but not in the record: 7"),
        (double_a_completion, "1 completed more than once: 7"),
        (complete_in_archive_and_head, "1 completed more than once: 7"),
        (leave_one_queued, "1 queued instead of completed: 7"),
        (give_one_up, "1 failed instead of completed: 8"),
        (forget_to_enqueue, "1 never enqueued: 11"),
        (enqueue_twice, "1 enqueued more than once: 11"),
        (invent_a_job, "1 in the record, but never enqueued: z"),
        (swap_payloads, "1 handed out with the payload of another job: 8"),
        (complete_without_running, "1 completed, but run by no worker: 7"),
        (acknowledge_twice, "1 acknowledged as completed to more than one worker: 11"),
        (
            finish_twice_in_one_timeline,
            "1 recorded with a timeline that does not end in its one completion: 7",
        ),
    ],
)
def test_the_check_notices(spoil: Callable[[Books], None], complaint: str) -> None:
    books = Books()
    spoil(books)
    assert complaint in books.check().problems


# ── Its parts ────────────────────────────────────────────────────────────────
def test_a_journal_whose_last_line_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "worker-1.jsonl"
    with Journal(path) as journal:
        journal.write(Entry(completed=["a"]))
        journal.write(Entry(completed=["b"]))
    path.write_bytes(path.read_bytes()[:-4])
    assert list(read_journal(path)) == [Entry(completed=["a"])]


def test_percentiles_are_times_that_occurred() -> None:
    found = percentiles([*range(1, 101)])
    assert (found.p50_s, found.p95_s, found.p99_s) == (0.050, 0.095, 0.099)
    assert percentiles([]).p99_s == 0.0
