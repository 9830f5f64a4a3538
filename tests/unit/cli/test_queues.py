"""Pages of jobs, what fits a narrow terminal, and empty answers that say what they hide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from osqueue import Queue
from osqueue.cli.app import app
from tests.support.commands import Run, answer, dead


@pytest.fixture
def narrow(terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


# ── Pages ────────────────────────────────────────────────────────────────────
@pytest.mark.usefixtures("terminal")
def test_jobs_are_shown_with_own_id_due_and_start_times(
    run: Run, q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "220")
    q.enqueue(1, id="order-7")
    q.claim()
    q.enqueue(2, delay=600)
    shown = run("queue", "jobs", "emails").stdout
    head = shown.splitlines()[0].split()
    assert {"id", "due", "started"} <= set(head)
    assert "order-7" in shown


def test_filters_look_further_until_the_page_is_full(
    run: Run, q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osqueue.objects.listing.PASSED_MAX", 10)
    q.enqueue_many([{"payload": n, "kind": "b" if n % 20 == 19 else "a"} for n in range(60)])
    page = answer(run("queue", "jobs", "emails", "--kind", "b", "--limit", "2"))
    assert (len(page["jobs"]), page["cursor"] is None) == (2, False)
    rest = answer(run("queue", "jobs", "emails", "--kind", "b", "--limit", "2", "--cursor", page["cursor"]))
    assert (len(rest["jobs"]), rest["cursor"]) == (1, None)


def test_filters_of_the_command(run: Run, q: Queue[Any]) -> None:
    batch = q.open_batch().batch_id
    job = q.enqueue(1, id="order-7", kind="a", batch=batch, headers={"tenant": "acme"}).job_id
    q.claim(worker="host-3-x")
    other = q.enqueue(2, group="customer-1").job_id
    assert answer(run("queue", "jobs", "emails", "--group", "customer-1"))["jobs"][0]["job_id"] == other
    for option in (
        *(("--id", "order-7"), ("--kind", "a"), ("--worker", "host-3"), ("--batch", batch)),
        *(("--header", "tenant=acme"), ("--header", "tenant")),
    ):
        (found,) = answer(run("queue", "jobs", "emails", *option))["jobs"]
        assert found["job_id"] == job
    assert answer(run("queue", "jobs", "emails", "--older-than", "1h"))["jobs"] == []


# ── 80 columns ───────────────────────────────────────────────────────────────
@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("long", ["", "x" * 60])
def test_nothing_overflows_80_columns(run: Run, q: Queue[Any], long: str) -> None:
    dead(q, f"mailbox full {long}", "disk full")
    q.enqueue(1, id=f"order-7{long}", kind=f"a{long}", delay=600)
    q.enqueue(2, kind=f"b{long}")
    q.claim(worker=f"host-3{long}")
    for command in ("queue jobs", "dlq ls", "dlq groups", "queue stats", "queue ls"):
        shown = run(*command.split(), *(() if command == "queue ls" else ("emails",)))
        assert shown.exit_code == 0
        assert max(map(len, shown.stdout.splitlines())) <= 80, command


@pytest.mark.usefixtures("narrow")
def test_what_no_table_holds_is_shown_one_below_the_other(run: Run, address: str) -> None:
    names = [f"{'q' * 60}-{n}" for n in range(2)]
    for name in names:
        Queue[Any].connect(address, name).enqueue(1)
    lines = run("queue", "ls").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert [name in "\n".join(lines) for name in names] == [True, True]


# ── Empty answers ────────────────────────────────────────────────────────────
@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    ("options", "hides"), [((), True), (("--state", "completed"), True), (("--state", "failed"), False)]
)
def test_an_empty_page_says_where_jobs_that_are_over_are(
    run: Run, q: Queue[Any], options: tuple[str, ...], hides: bool
) -> None:
    q.configure(dead_ttl=60)
    said = run("queue", "jobs", "emails", *options).stderr
    assert said.startswith("no jobs found")
    assert ("osqueue archive cat" in said) is hides


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    result = CliRunner().invoke(app, ["queue", "ls", f"file://{nowhere}"])
    assert result.stderr == f"no queues at this address: there is no folder {nowhere}\n"
    result = CliRunner().invoke(app, ["queue", "stats", f"file://{nowhere}", "emails"])
    assert f"There are none: there is no folder {nowhere}." in result.stderr
    assert not nowhere.exists()


def test_an_empty_archive_says_why(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1)
    assert "nothing was archived yet: no job is over" in run("archive", "cat", "emails").stderr
    q.claim()[0].complete()
    for command in ("cat", "ls"):
        assert "wait for 'osqueue reap'" in run("archive", command, "emails").stderr
    q.reap()
    assert run("archive", "cat", "emails").stderr == ""
    assert "nothing in the archive matches" in run("archive", "cat", "emails", "--kind", "b").stderr


# ── Settings ─────────────────────────────────────────────────────────────────
def test_settings_of_kinds(run: Run) -> None:
    asked = ("queue", "configure", "emails", "--create")
    answer(run(*asked, "--kind", "send", "--max-attempts", "7", "--run-within", "5m"))
    answer(run(*asked, "--kind", "send", "--priority", "1"))
    answer(run(*asked, "--kind", "other", "--start-within", "30s"))
    answer(run(*asked, "--max-attempts", "4"))
    kinds = answer(run("queue", "stats", "emails"))["settings"]["kinds"]
    assert kinds == {
        "send": {"max_attempts": 7, "run_within": 300.0, "priority": 1},
        "other": {"start_within": 30.0},
    }
    answer(run(*asked, "--drop-kind", "other"))
    assert list(answer(run("queue", "stats", "emails"))["settings"]["kinds"]) == ["send"]
    refused = run(*asked, "--kind", "send", "--shards", "2")
    assert refused.exit_code == 2
    assert "shards holds for the whole queue" in refused.stderr
    assert "nothing to change" in run(*asked, "--kind", "send").stderr
