"""The commands on jobs and queues: what each does, through a file store."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from osqueue import Queue, Rejected, Unavailable, limits
from osqueue.cli import claim, lines
from osqueue.cli.app import app
from osqueue.model.job import Done
from osqueue.model.job_options import ITEM_FIELDS


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}/jobs?fsync=off"


@pytest.fixture
def run(address: str) -> Callable[..., Result]:
    def invoke(*args: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(app, args, input=stdin, env={"OSQUEUE_ADDRESS": address})

    return invoke


Run = Callable[..., Result]


def answers(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def answer(result: Result) -> Any:
    (found,) = answers(result)
    return found


def queued(address: str) -> int:
    return int(Queue.connect(address, "emails").stats()["queued"])


# ── Enqueue ──────────────────────────────────────────────────────────────────
def test_a_job_keeps_its_options(run: Run, address: str) -> None:
    at = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    one = answer(
        run(
            "enqueue",
            "emails",
            "[1]",
            "--kind",
            "k",
            "--priority",
            "2",
            "--max-attempts",
            "7",
            "--delay",
            "5m",
            "--units",
            "3",
        )
    )
    assert one["state"] == "scheduled"
    assert answer(run("enqueue", "emails", "[1]", "--at", at))["state"] == "scheduled"
    job = answer(run("job", "emails", one["job_id"]))
    assert (job["kind"], job["priority"], job["max_attempts"], job["units"]) == ("k", 2, 7, 3)
    due = datetime.fromisoformat(job["due_at"]) - datetime.fromisoformat(job["enqueued_at"])
    assert due.total_seconds() == 300


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("{bad",), "for PAYLOAD: it is not JSON"),
        (("1", "--items"), "--items is for lines"),
        (("1", "--priority", "10"), "0 to 9"),
        (("1", "--units", "0"), "1 to 10,000"),
        (("1", "--delay", "-5"), "no duration"),
        (("1", "--at", "tomorrow"), "2030-01-31T08:00:00Z"),
        (("1", "--at", "2030-01-31T08:00:00"), "no time zone"),
        (("1", "--delay", "5", "--at", "5"), "not both"),
        (("--file", "/nowhere/jobs.jsonl"), "No such file"),
    ],
)
def test_a_wrong_option_is_refused_and_nothing_enqueued(
    run: Run, tmp_path: Path, args: tuple[str, ...], says: str
) -> None:
    result = run("enqueue", "emails", *args)
    assert result.exit_code == 2
    assert says in result.stderr
    assert not (tmp_path / "jobs/queues").exists()


def test_lines_become_jobs_in_order_as_they_were_written(run: Run, address: str) -> None:
    text = '\ufeff{"n":  1.10}\r\n\n"zwei"\n[123456789012345678901234567890]'
    assert answer(run("enqueue", "emails", "--kind", "k", stdin=text)) == {
        "queue": "emails",
        "enqueued": 3,
        "queued": 3,
        "scheduled": 0,
        "duplicate": 0,
        "completed": 0,
        "rejected": 0,
    }
    leases = answers(run("claim", "emails", "--limit", "9"))
    assert [each["payload"] for each in leases] == [{"n": 1.1}, "zwei", [123456789012345678901234567890]]
    assert {each["kind"] for each in leases} == {"k"}


def test_items_carry_their_own_options(run: Run, address: str, tmp_path: Path) -> None:
    items = [
        {"payload": 1, "priority": 7},
        {"payload": 2, "kind": "b", "delay": 60},
        {"payload": 3, "at": "2100-01-31T08:00:00Z"},
        {"payload": None, "units": 4},
    ]
    path = tmp_path / "items.jsonl"
    path.write_text("\n".join(map(json.dumps, items)))
    result = run("enqueue", "emails", "--items", "--priority", "2", "--ids", "--file", str(path))
    told = answers(result)
    assert [each["state"] for each in told] == ["queued", "scheduled", "scheduled", "queued"]
    jobs = [answer(run("job", "emails", each["job_id"])) for each in told]
    assert [each["priority"] for each in jobs] == [7, 2, 2, 2]
    assert [each["units"] for each in jobs] == [1, 1, 1, 4]
    assert jobs[2]["due_at"] == "2100-01-31T08:00:00Z"


BAD_LINES = {
    "payload": '{"delay": 1}',
    "id": '{"payload": 1, "id": ""}',
    "kind": '{"payload": 1, "kind": 5}',
    "group": '{"payload": 1, "group": ""}',
    "priority": '{"payload": 1, "priority": 11}',
    "delay": '{"payload": 1, "delay": -1}',
    "at": '{"payload": 1, "at": "2030-01-31"}',
    "max_attempts": '{"payload": 1, "max_attempts": 0}',
    "result_ttl": '{"payload": 1, "result_ttl": 0}',
    "run_within": '{"payload": 1, "run_within": -1}',
    "start_within": '{"payload": 1, "start_within": "soon"}',
    "units": '{"payload": 1, "units": 0}',
    "headers": '{"payload": 1, "headers": {"a": 5}}',
    "unique": '{"payload": 1, "id": "a", "unique": {"while": "now"}}',
    "then": '{"payload": 1, "then": [{"kind": "a", "priority": 11}]}',
    "batch": '{"payload": 1, "batch": "march"}',
    "colour": '{"payload": 1, "colour": "red"}',
    "cron": '{"payload": 1, "cron": "* * * * *"}',
    "not a mapping": "[1]",
    "not JSON": "{oops",
}


def test_every_field_of_an_item_is_tried() -> None:
    assert set(ITEM_FIELDS) <= set(BAD_LINES)


@pytest.mark.parametrize("name", BAD_LINES)
def test_one_bad_line_keeps_all_from_being_enqueued(run: Run, tmp_path: Path, name: str) -> None:
    text = f'{{"payload": 1}}\n{BAD_LINES[name]}\n{{"payload": 2}}\n'
    result = run("enqueue", "emails", "--items", stdin=text)
    assert result.exit_code == 1
    assert "line 2: " in result.stderr
    assert name in result.stderr
    assert "1 of 3 lines are bad; nothing was enqueued" in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "jobs/queues").exists()


def test_bad_lines_are_skipped_when_asked(run: Run, address: str) -> None:
    text = b'1\n{oops\n"\xff"\n' + b"[" * 100_000 + b"\n2\n"
    result = run("enqueue", "emails", "--skip-bad", stdin=text)
    assert answer(result)["rejected"] == 3
    assert [f"line {n}:" in result.stderr for n in (1, 2, 3, 4, 5)] == [False, True, True, True, False]
    assert queued(address) == 2


def test_only_the_first_bad_lines_are_shown(run: Run) -> None:
    result = run("enqueue", "emails", stdin="bad\n" * 1000)
    assert len(result.stderr.splitlines()) == 22
    assert "and 980 more" in result.stderr
    result = run("enqueue", "emails", "--json", stdin="bad\n1\n")
    first, last = (json.loads(line)["error"] for line in result.stderr.splitlines())
    assert (first["line"], first["code"], last["code"]) == (1, "rejected", "rejected")


def test_a_line_that_is_too_long_is_bad_and_the_next_is_not(
    run: Run, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 16)
    text = f'"{"x" * 13}"\n"{"x" * 100}"\n7\n'  # 16 bytes with its end, then one far too long
    result = run("enqueue", "emails", "--skip-bad", stdin=text)
    assert answer(result)["enqueued"] == 2
    assert "line 2: longer than 16 bytes" in result.stderr


def test_lines_go_in_batches_of_bounded_number_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BATCH_JOBS", 3)
    monkeypatch.setattr(lines, "BATCH_BYTES", 100)
    sent: list[list[int]] = []
    jobs = [lines.InputLine(n, {}, size) for n, size in enumerate([1, 1, 1, 1, 99, 1, 500, 1])]
    lines.batches(iter(jobs), lambda batch: sent.append([each.number for each in batch]))
    assert sent == [[0, 1, 2], [3, 4], [5], [6], [7]]


def test_an_interrupted_bulk_says_where_to_go_on(
    run: Run, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "BATCH_JOBS", 10)
    real, calls = Queue.enqueue_many, []

    def failing(self: Any, jobs: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise Unavailable("the store is gone.")
        return real(self, jobs)

    monkeypatch.setattr(Queue, "enqueue_many", failing)
    text = "\n".join(map(str, range(45)))
    result = run("enqueue", "emails", stdin=text)
    assert result.exit_code == 3
    assert "Lines up to 20 are enqueued, those up to 30 may be. Go on with --from-line 21." in result.stderr
    assert answer(run("enqueue", "emails", "--from-line", "21", stdin=text))["enqueued"] == 25
    assert [each["payload"] for each in answers(run("claim", "emails", "--limit", "99"))] == list(range(45))


def test_lines_that_the_queue_refuses_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osqueue.core.spill.DELAYED_SPANS_MAX", 0)
    items = [{"payload": n, "kind": f"kind-{n}"} for n in range(20)]
    items.append({"payload": 20, "delay": 60})
    result = run("enqueue", "emails", "--items", stdin="\n".join(map(json.dumps, items)))
    assert result.exit_code == 1
    assert json.loads(result.stdout)["enqueued"] == 20
    assert "error: throttled: line 21: delay:" in result.stderr


# ── Claim and complete ───────────────────────────────────────────────────────
def test_an_empty_claim_is_no_error_and_says_why(run: Run, address: str) -> None:
    result = run("claim", "emails")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no queue of this name" in result.stderr
    run("enqueue", "emails", "1")
    run("queue", "pause", "emails")
    assert run("claim", "emails").stderr == "nothing to claim: paused\n"


def test_a_job_is_claimed_and_completed(run: Run) -> None:
    run("enqueue", "emails", '{"to": "ada"}', "--kind", "b")
    assert run("claim", "emails", "--kind", "a").stdout == ""
    lease = answer(run("claim", "emails", "--kind", "a", "--kind", "b", "--worker", "me", "--lease", "1h"))
    assert lease["payload"] == {"to": "ada"}
    job = answer(run("job", "emails", lease["job_id"]))
    assert (job["state"], job["worker"]) == ("processing", "me")
    done = answer(run("complete", "emails", lease["job_id"], lease["token"], "--result", "{}"))
    assert done == {"job_id": lease["job_id"], "ok": True, "code": "ok"}
    assert answer(run("job", "emails", lease["job_id"]))["timeline"][-1]["what"] == "completed"


@pytest.mark.parametrize("how", [(), ("--fail", "x"), ("--release",)])
def test_a_wrong_token_is_refused(run: Run, how: tuple[str, ...]) -> None:
    run("enqueue", "emails", "1")
    lease = answer(run("claim", "emails"))
    result = run("complete", "emails", lease["job_id"], "0000000000000000-0", *how)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: lease_lost: job {lease['job_id']}")
    assert answer(run("job", "emails", lease["job_id"]))["state"] == "processing"


def test_a_failed_attempt_and_a_release(run: Run) -> None:
    run("enqueue", "emails", "1", "--max-attempts", "2")
    lease = answer(run("claim", "emails"))
    assert answer(run("complete", "emails", lease["job_id"], lease["token"], "--release"))["ok"]
    lease = answer(run("claim", "emails"))
    assert lease["attempt"] == 1
    done = answer(
        run("complete", "emails", lease["job_id"], lease["token"], "--fail", "full", "--retry-in", "2h")
    )
    assert done["code"] == "failing"
    words = [each["what"] for each in answer(run("job", "emails", lease["job_id"]))["timeline"]]
    assert words[-1].endswith(": full")
    found = answer(run("why", "emails", lease["job_id"]))
    assert "waiting for retry until" in found["now"]
    assert found["next"].startswith("attempt 2 of 2")


@pytest.mark.parametrize(
    "args",
    [
        ("JOB",),
        ("JOB", "TOKEN", "--result", "1", "--fail", "x"),
        ("JOB", "TOKEN", "--release", "--retry-in", "5"),
        ("JOB", "TOKEN", "--delay", "5"),
        ("JOB", "TOKEN", "--result", "{"),
        ("JOB", "TOKEN"),
    ],
)
def test_a_completion_that_makes_no_sense_is_refused(run: Run, args: tuple[str, ...]) -> None:
    assert run("complete", "emails", *args).exit_code == 2


def test_many_are_completed_from_lines_and_each_fails_alone(run: Run) -> None:
    run("enqueue", "emails", stdin="1\n2\n3\n4\n")
    leases = answers(run("claim", "emails", "--limit", "4"))
    foreign = leases[0]["job_id"][:-2] + "ff"  # of a shard that cannot be
    told = [
        {**leases[0], "result": {"sent": True}},
        {"job_id": leases[1]["job_id"], "token": leases[1]["token"], "error": "full"},
        {"job_id": leases[2]["job_id"], "token": "0000000000000000-0"},
        {"job_id": leases[2]["job_id"]},
        {"job_id": "7", "token": "x"},
        {"job_id": foreign, "token": "x"},
        {"job_id": leases[2]["job_id"], "token": "x", "reslut": 1},
        {"job_id": leases[2]["job_id"], "token": "x", "result": 1, "error": "y"},
        {"job_id": leases[3]["job_id"], "token": leases[3]["token"], "release": True},
    ]
    text = "\n".join(map(json.dumps, told)) + "\nnonsense\n"
    result = run("complete", "emails", stdin=text)
    assert result.exit_code == 1
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["line"] for row in rows] == list(range(1, 11))
    assert [row["code"] for row in rows] == [
        "ok",
        "failing",
        "lease_lost",
        *["rejected"] * 5,
        "ok",
        "rejected",
    ]
    assert [row["ok"] for row in rows] == [True, True, *[False] * 6, True, False]
    assert "reslut" in rows[6]["message"]


@pytest.mark.parametrize("field", ["error", "release"])
def test_an_outcome_that_is_none_completes_no_job(run: Run, field: str) -> None:
    run("enqueue", "emails", "1")
    lease = answer(run("claim", "emails"))
    line = {"job_id": lease["job_id"], "token": lease["token"], field: 0}
    result = run("complete", "emails", stdin=json.dumps(line))
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["ok"], told["code"]) == (False, "rejected")
    assert told["message"].startswith(f"{field}: ")
    assert answer(run("job", "emails", lease["job_id"]))["state"] == "processing"


def test_a_line_that_says_what_it_is_not_is_completed(run: Run) -> None:
    run("enqueue", "emails", "1")
    line = {**answer(run("claim", "emails")), "error": None, "release": False, "result": 0}
    assert answer(run("complete", "emails", stdin=json.dumps(line)))["ok"]
    assert answer(run("job", "result", "emails", line["job_id"])) == 0


@pytest.mark.parametrize("as_lines", [True, False])
def test_why_an_item_is_refused_is_told_as_the_queue_tells_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, as_lines: bool
) -> None:
    run("enqueue", "emails", "1")
    lease = answer(run("claim", "emails"))
    too_large = Rejected("result: too large. Store it elsewhere.", field="result")

    def refuse(self: Any, items: list[dict[str, Any]]) -> list[Done]:
        return [Done(each["job_id"], False, "rejected", error=too_large) for each in items]

    monkeypatch.setattr(Queue, "complete_many", refuse)
    if as_lines:
        result = run("complete", "emails", stdin=json.dumps(lease))
        told = json.loads(result.stdout)
        assert (result.exit_code, told["code"], told["message"]) == (1, "rejected", too_large.message)
    else:
        result = run("complete", "emails", lease["job_id"], lease["token"])
        assert (result.exit_code, result.stderr) == (2, f"error: rejected: {too_large.message}\n")


@pytest.mark.parametrize("how", [(), ("--fail", "x"), ("--release",)])
def test_a_mistyped_queue_is_told_from_a_lost_lease(run: Run, how: tuple[str, ...]) -> None:
    run("enqueue", "emails", "1")
    lease = answer(run("claim", "emails"))
    line = json.dumps({"job_id": lease["job_id"], "token": lease["token"]})
    for result in (
        run("complete", "emials", lease["job_id"], lease["token"], *how),
        run("complete", "emials", *how, stdin=line),
    ):
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("error: not_found: no queue 'emials'")
        assert "There are: emails." in result.stderr


@pytest.mark.parametrize("as_lines", [True, False])
def test_a_look_whether_the_queue_exists_that_fails_hides_nothing_of_what_was_done(
    run: Run, monkeypatch: pytest.MonkeyPatch, as_lines: bool
) -> None:
    """As for a worker that may claim and complete, and nothing else."""
    run("enqueue", "emails", stdin="1\n2\n3\n")
    leases = answers(run("claim", "emails", "--limit", "3"))
    leases[1]["token"] = "0000000000000000-0"
    looks: list[str] = []

    def refused(queue: Queue[Any]) -> None:
        looks.append(queue.name)
        raise Unavailable("HTTP 403: Forbidden", permanent=True)

    monkeypatch.setattr(claim, "existing_queue", refused)
    if not as_lines:
        result = run("complete", "emails", leases[1]["job_id"], leases[1]["token"])
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("error: lease_lost: ")
        return
    monkeypatch.setattr(limits, "ITEMS_PER_REQUEST_MAX", 2)
    again = json.dumps(leases[1])
    result = run("complete", "emails", stdin="\n".join([*map(json.dumps, leases), again]))
    assert result.exit_code == 1
    codes = [json.loads(line)["code"] for line in result.stdout.splitlines()]
    assert codes == ["ok", "lease_lost", "ok", "lease_lost"]
    assert looks == ["emails"]


def test_an_option_stands_in_for_what_lines_do_not_say(run: Run) -> None:
    run("enqueue", "emails", stdin="1\n2\n")
    result = run("claim", "emails", "--limit", "2")
    rows = answers(run("complete", "emails", "--release", stdin=result.stdout))
    assert [row["ok"] for row in rows] == [True, True]
    assert len(answers(run("claim", "emails", "--limit", "2"))) == 2


# ── Jobs ─────────────────────────────────────────────────────────────────────
def test_cancelling(run: Run) -> None:
    job_id = answer(run("enqueue", "emails", "1"))["job_id"]
    assert answer(run("job", "emails", job_id, "--cancel")) == {"job_id": job_id, "cancel": "cancelled"}
    lease = answer(run("enqueue", "emails", "1")) and answer(run("claim", "emails"))
    assert answer(run("job", "emails", lease["job_id"], "--cancel"))["cancel"] == "processing"
    run("complete", "emails", lease["job_id"], lease["token"])
    result = run("job", "emails", lease["job_id"], "--cancel")
    assert result.exit_code == 1
    assert "error: conflict:" in result.stderr


def test_a_job_that_is_not_there(run: Run) -> None:
    job_id = answer(run("enqueue", "emails", "1"))["job_id"]
    other = f"{job_id[:-3]}{int(job_id[-3], 16) ^ 1:x}{job_id[-2:]}"
    for extra in ((), ("--cancel",)):
        result = run("job", "emails", other, *extra)
        assert result.exit_code == 1
        assert f"error: not_found: job {other}" in result.stderr
        assert "no queue 'mails'" in run("job", "mails", other, *extra).stderr


# ── Queues ───────────────────────────────────────────────────────────────────
def test_jobs_are_listed_page_by_page(run: Run) -> None:
    run("enqueue", "emails", stdin="\n".join("12345"))
    run("claim", "emails")
    first = answer(run("queue", "jobs", "emails", "--limit", "2"))
    assert [each["state"] for each in first["jobs"]] == ["processing", "queued"]
    second = answer(run("queue", "jobs", "emails", "--limit", "9", "--cursor", first["cursor"]))
    assert (len(second["jobs"]), second["cursor"]) == (3, None)
    assert len(answer(run("queue", "jobs", "emails", "--state", "queued"))["jobs"]) == 4
    assert run("queue", "jobs", "emails", "--state", "happy").exit_code == 2
    assert run("queue", "jobs", "emails", "--cursor", "nonsense").exit_code == 2


def test_pausing_and_resuming(run: Run) -> None:
    run("enqueue", "emails", "1")
    assert answer(run("queue", "pause", "emails"))["paused"] is True
    assert answer(run("queue", "stats", "emails"))["paused"] is True
    assert answer(run("queue", "resume", "emails"))["paused"] is False
    assert len(answers(run("claim", "emails"))) == 1


def test_settings(run: Run) -> None:
    answer(run("queue", "configure", "emails", "--create", "--backoff-base", "5s", "--backoff-cap", "2h"))
    answer(run("queue", "configure", "emails", "--dead-ttl", "7d", "--shards", "3"))
    stats = answer(run("queue", "stats", "emails"))
    wanted = {"backoff_base": 5.0, "backoff_cap": 7200.0, "dead_ttl": 604800.0}
    assert {name: stats["settings"][name] for name in wanted} == wanted
    assert stats["shards"] == 3
    result = run("queue", "configure", "emails", "--shards", "2")
    assert result.exit_code == 2
    assert "can only grow" in result.stderr


def test_redriving(run: Run) -> None:
    run("enqueue", "emails", "--max-attempts", "1", "--kind", "a", stdin="1\n2\n3\n")
    leases = answers(run("claim", "emails", "--limit", "3"))
    for lease, error in zip(leases, ("timeout at x", "full", "timeout at y"), strict=True):
        answer(run("complete", "emails", lease["job_id"], lease["token"], "--fail", error))
    asked = ("dlq", "redrive", "emails", "--error", "timeout")
    assert answer(run(*asked, "--dry-run")) == {"queue": "emails", "would_redrive": 2}
    assert answer(run(*asked, "--kind", "b"))["redriven"] == 0
    assert answer(run(*asked, "--kind", "a", "--limit", "1"))["redriven"] == 1
    assert answer(run("dlq", "redrive", "emails"))["redriven"] == 2


def test_reaping_one_queue_and_all(run: Run) -> None:
    for name in ("emails", "other"):
        run("enqueue", name, "1")
        lease = answer(run("claim", name))
        run("complete", name, lease["job_id"], lease["token"])
    assert answer(run("reap", "emails"))["archived"] == 1
    assert [(each["queue"], each["archived"]) for each in answers(run("reap"))] == [
        ("emails", 0),
        ("other", 1),
    ]
    assert run("reap", "nosuch").exit_code == 1


def test_the_bench_is_bounded_and_leaves_nothing_behind(run: Run, tmp_path: Path) -> None:
    rows = answers(run("bench", "--jobs", "20", "--group", "10", "--seconds", "1h"))
    assert [row["calls"] for row in rows] == [20, 20, 20, 20, 2, 2, 2]
    assert rows[3]["puts"] == 0
    assert not [path for path in (tmp_path / "jobs").rglob("*bench*") if path.is_file()]
    assert run("queue", "ls", "--names").stdout == ""
    assert answers(run("bench", "memory://", "--jobs", "5", "--seconds", "1"))
    assert run("bench", "--seconds", "0").exit_code == 2
