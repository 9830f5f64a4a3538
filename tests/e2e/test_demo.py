"""The demo: that it ends well with a worker killed on the way, and that its check would notice if it did not."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from demo import stack
from demo.accounting import Account, check
from demo.books import Attempt, Books, Record
from demo.crew import Crew
from demo.journal import Answer, End, Entry, Journal, Sent, Start, Wait, read_journal
from demo.measure import percentiles
from demo.plan import Caller, Plan, load
from demo.stock import recount

ROOT = Path(__file__).resolve().parents[2]
JOBS = 600
SECONDS_MAX = 100  # it takes about 9; a crowded machine may be slow, a stuck replay is not waited for


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
@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A replay that has ended: its folder and its result."""
    folder = tmp_path_factory.mktemp("demo") / "kept"
    ended = demo("--jobs", str(JOBS), "--dir", str(folder), "--json")
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return folder, json.loads(ended.stdout)


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
    ended = demo("--jobs", str(JOBS), "--embedded", "--dir", str(tmp_path / "kept"), "--json")
    assert ended.returncode == 0, ended.stderr + ended.stdout
    result = json.loads(ended.stdout)
    measures = result["measures"]
    assert result["account"]["problems"] == []
    assert measures["calls"] == {}
    assert measures["requests"]["put"] > measures["commits"] // 2
    assert measures["ids"]["cached"] > 0  # results are there at once: no function has to start first


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
    killed = json.loads((folder / "notes" / "kill.json").read_text())["worker"]
    return "worker-1" if killed != "worker-1" else "worker-2"


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
    shutil.copytree(kept[0], folder)
    falsify(folder)
    problems = recount(replace(load(folder / "plan.json"), folder=str(folder))).account.problems
    assert any(problem.startswith(complaint) for problem in problems), problems


def test_a_kept_replay_can_be_counted_again(kept: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(kept[0], folder)
    sound = demo("--recount", str(folder), "--json")
    assert (sound.returncode, json.loads(sound.stdout)["account"]) == (0, kept[1]["account"])
    change_archive(folder, list.pop)
    spoilt = demo("--recount", str(folder))
    assert spoilt.returncode == 1
    assert "1 lost: enqueued, but not in the archive" in spoilt.stdout
    elsewhere = demo("--recount", str(tmp_path))
    assert elsewhere.returncode == 2
    assert "is not the folder of a replay" in elsewhere.stderr


# ── The check ────────────────────────────────────────────────────────────────
def books() -> Books:
    """Accounts of four jobs that agree: a plain one, a failed one, a stalled one, and one that somebody waits for.

    Jobs 8 and 12 carry ids, so the rival has sent them, too.
    """
    archive = [
        record("a", "completed"),
        record("b", "failed", "completed", client_id="id-8"),
        record("c", "stalled", "completed"),
        record("d", "completed", client_id="id-12"),
    ]
    ends = {each.job_id: End(each.job_id, each.run, 8, 12) for each in archive}
    return Books(
        log={7: 100, 8: 200, 11: 300, 12: 400},
        callers={8: Caller("id-8", 0.0), 12: Caller("id-12", 0.1, 30.0)},
        sent=[
            Sent(7, "a", "queued", "queued"),
            Sent(8, "b", "queued", "queued", "id-8"),
            Sent(11, "c", "queued", "queued"),
            Sent(8, "b", "completed", "completed", "id-8", Answer(8, 2)),
            Sent(12, "d", "duplicate", "processing", "id-12"),
        ],
        waits=[Wait(12, "id-12", 1.0, 2_000, result=Answer(12, 1))],
        archive=archive,
        lines=[*archive],
        live=[],
        workers={
            "worker-1": [
                Entry(started=[Start("a", 7, 1, 100), Start("b", 8, 1, 200)], completed=[ends["a"]]),
                Entry(failed=[End("b", 1, 8, 12)]),
                Entry(
                    started=[Start("b", 8, 2, 200), Start("c", 11, 2, 300), Start("d", 12, 1, 400)],
                    completed=[ends["b"], ends["c"], ends["d"]],
                ),
            ],
            "worker-2": [Entry(started=[Start("c", 11, 1, 300)])],  # and then it was killed
        },
        killed="worker-2",
    )


def record(job_id: str, *outcomes: str, state: str = "completed", client_id: str | None = None) -> Record:
    attempts = tuple(
        Attempt(
            run,
            "worker-2" if outcome == "stalled" else "worker-1",
            run * 1000,
            run * 1000 + 10,
            outcome,
        )
        for run, outcome in enumerate(outcomes, 1)
    )
    used = len(attempts)
    return Record(job_id, used, state, 500, attempts[-1].ended_ms, used, attempts, client_id)


def test_accounts_that_agree_are_found_in_order() -> None:
    expected = Account(jobs=4, completed=4, executions=6, repeats=0, log_s=1_000, held_s=0.04, problems=[])
    assert check(books()) == expected


def test_an_archive_line_that_is_repeated_word_for_word_counts_once() -> None:
    found = books()
    found.lines.append(found.lines[0])
    account = check(found)
    assert (account.completed, account.repeats, account.problems) == (4, 1, [])


def in_archive(found: Books, at: int, changed: Record | None) -> None:
    """Change or remove what both the history and the files tell."""
    new = [] if changed is None else [changed]
    found.archive[at : at + 1] = new
    found.lines[at : at + 1] = new


def lose_a_completion(found: Books) -> None:
    in_archive(found, 0, None)


def double_a_completion(found: Books) -> None:
    twin = replace(found.archive[0], finished_ms=9_999)
    found.archive.append(twin)
    found.lines.append(twin)


def complete_and_stay_queued(found: Books) -> None:
    found.live.append(("a", "queued"))


def give_one_up(found: Books) -> None:
    in_archive(found, 1, record("b", "failed", "failed", state="failed", client_id="id-8"))


def forget_to_enqueue(found: Books) -> None:
    del found.sent[0]


def enqueue_twice(found: Books) -> None:
    found.sent.append(Sent(11, "e", "queued", "queued"))


def invent_a_job(found: Books) -> None:
    found.archive.append(record("z", "completed"))


def hide_a_record(found: Books) -> None:
    del found.archive[0]


def swap_payloads(found: Books) -> None:
    found.workers["worker-2"] = [Entry(started=[Start("c", 8, 1, 300)])]


def run_for_another_time(found: Books) -> None:
    found.log[7] = 101


def complete_without_running(found: Books) -> None:
    found.workers["worker-1"][0] = Entry(started=[Start("b", 8, 1, 200)])


def run_without_a_lease(found: Books) -> None:
    found.workers["worker-2"].append(Entry(started=[Start("a", 7, 2, 100)]))


def acknowledge_twice(found: Books) -> None:
    found.workers["worker-1"].append(Entry(completed=[End("c", 2, 8, 12)]))


def acknowledge_as_failed(found: Books) -> None:
    found.workers["worker-1"][0] = replace(
        found.workers["worker-1"][0], completed=[], failed=[End("a", 1, 8, 12)]
    )


def hold_for_too_long(found: Books) -> None:
    first, *others = found.archive[0].attempts
    in_archive(found, 0, replace(found.archive[0], attempts=(replace(first, started_ms=10), *others)))


def finish_twice_in_one_timeline(found: Books) -> None:
    in_archive(found, 0, record("a", "completed", "completed"))


def run_an_id_twice(found: Books) -> None:
    found.sent[3] = Sent(8, "e", "queued", "queued", "id-8")


def lose_an_id(found: Books) -> None:
    in_archive(found, 1, replace(found.archive[1], id=None))


def answer_with_another_job(found: Books) -> None:
    found.sent[4] = Sent(12, "a", "duplicate", "processing", "id-12")


def answer_with_another_result(found: Books) -> None:
    found.sent[3] = replace(found.sent[3], result=Answer(8, 1))


def answer_with_no_result(found: Books) -> None:
    found.sent[3] = replace(found.sent[3], result=None)


def wait_in_vain(found: Books) -> None:
    found.waits[0] = replace(found.waits[0], result=None, error="WaitTimeout: too late")


def wait_for_another_result(found: Books) -> None:
    found.waits[0] = replace(found.waits[0], result=Answer(11, 1))


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lose_a_completion, "1 lost: enqueued, but not in the archive: 7"),
        (lose_a_completion, "1 begun by a worker, but without that lease in the archive: 7"),
        (lose_a_completion, "the completed runs were for 900 s of the log's time; the log has 1,000 s"),
        (double_a_completion, "1 completed more than once: 7"),
        (complete_and_stay_queued, "1 queued instead of completed: 7"),
        (give_one_up, "1 failed instead of completed: 8"),
        (forget_to_enqueue, "1 never enqueued: 7"),
        (enqueue_twice, "1 enqueued more than once: 11"),
        (invent_a_job, "1 in the archive, but never enqueued: z"),
        (invent_a_job, "1 told by the history, but in no file of the archive: z"),
        (hide_a_record, "1 in a file of the archive, but not told by the history: 7"),
        (swap_payloads, "1 handed out with the payload of another job: 8"),
        (run_for_another_time, "the completed runs were for 1,000 s of the log's time; the log has 1,001 s"),
        (complete_without_running, "1 leased by the archive to a worker that did not begin it: 7"),
        (complete_without_running, "1 ended by the archive, but by no worker's report: 7"),
        (run_without_a_lease, "1 begun by a worker, but without that lease in the archive: 7"),
        (acknowledge_twice, "1 acknowledged to have ended more than once: 11"),
        (acknowledge_as_failed, "1 acknowledged with another end than the archive tells: 7"),
        (hold_for_too_long, "1 held for another time by the archive than by the worker's clock: 7"),
        (hold_for_too_long, "the archive's runs took 1.0 s in all; by the workers' clocks 0.0 to 0.0 s"),
        (
            finish_twice_in_one_timeline,
            "1 archived with a timeline that does not end in its one completion: 7",
        ),
        (run_an_id_twice, "1 enqueued more than once: 8"),
        (run_an_id_twice, "1 one id, but two jobs: 8"),
        (lose_an_id, "1 sent under an id that the archive does not tell: 8"),
        (answer_with_another_job, "1 answered as known, with a job that is not that of the id: 12"),
        (answer_with_another_result, "1 answered from the cache with another result than that of the job: 8"),
        (answer_with_no_result, "1 answered from the cache with another result than that of the job: 8"),
        (wait_in_vain, "job 12: its caller got WaitTimeout: too late"),
        (wait_for_another_result, "1 waited for, but with another result than that of the job: 12"),
    ],
)
def test_the_check_notices(spoil: Callable[[Books], None], complaint: str) -> None:
    found = books()
    spoil(found)
    problems = check(found).problems
    assert complaint in problems, problems


# ── Its parts ────────────────────────────────────────────────────────────────
def test_a_journal_whose_last_line_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "worker-1.jsonl"
    with Journal(path) as journal:
        journal.write(Entry(lost=["a"]))
        journal.write(Entry(lost=["b"]))
    path.write_bytes(path.read_bytes()[:-4])
    assert list(read_journal(path)) == [Entry(lost=["a"])]


def test_percentiles_are_times_that_occurred() -> None:
    found = percentiles([*range(1, 101)])
    assert (found.p50_s, found.p95_s, found.p99_s) == (0.050, 0.095, 0.099)
    assert percentiles([]).p99_s == 0.0


def test_what_a_child_is_told_by_its_environment_is_told_to_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POWERTOOLS_LOG_LEVEL", raising=False)
    plan = Plan(str(tmp_path), jobs=1, workers=1)
    plan.notes.mkdir()
    with Crew(plan, tmp_path / "plan.json") as crew:
        stack.start(crew, plan)
        told = Path(f"/proc/{crew.pid(stack.NAME)}/environ").read_bytes().split(b"\0")
    assert b"POWERTOOLS_LOG_LEVEL=DEBUG" in told
    assert "POWERTOOLS_LOG_LEVEL" not in os.environ
