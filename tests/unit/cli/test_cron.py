"""``osqueue cron``: what it prints, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from osqueue.cli import cron
from tests.support.commands import Run, answer, answers


@pytest.fixture
def q(address: str) -> Queue[Any]:
    made: Queue[Any] = Queue.connect(address, "mail")
    made.schedule("nightly", "0 3 * * *", {"a": 1}, tz="Europe/Berlin", kind="report")
    made.schedule("poll", every=900)
    return made


def test_add_prints_the_schedule_and_ls_lists_it(run: Run, address: str) -> None:
    made = answer(
        run(
            "cron", "add", "mail", "x", '{"a": 1}', "--cron", "@daily", "--overlap", "skip", "--priority", "2"
        )
    )
    assert (made["schedule"], made["when"]) == ("x", "At 00:00 every day, UTC")
    assert (made["overlap"], made["options"]) == ("skip", {"priority": 2})
    assert answer(run("cron", "add", "mail", "y", "--every", "15m", "--header", "a=b"))["every"] == 900
    assert [each["schedule"] for each in answers(run("cron", "ls", "mail"))] == ["x", "y"]
    assert Queue.connect(address, "mail").run_schedule("x").status == "queued"


def test_next_tells_the_coming_ten_of_one_or_of_all(run: Run, q: Queue[Any]) -> None:
    found = list(answers(run("cron", "next", "mail", "nightly")))
    assert len(found) == 10
    assert all(each["local"].endswith("03:00 Europe/Berlin") for each in found)
    assert all(each["in"].startswith("in ") for each in found)
    assert {each["schedule"] for each in answers(run("cron", "next", "mail"))} >= {"poll"}


def test_next_of_a_paused_one_says_so(run: Run, q: Queue[Any]) -> None:
    q.pause_schedule("nightly")
    told = run("cron", "next", "mail", "nightly")
    assert "is paused" in told.stderr
    assert {each["schedule"] for each in answers(run("cron", "next", "mail"))} == {"poll"}


def test_on_a_terminal_next_says_it_in_words(run: Run, q: Queue[Any], terminal: None) -> None:
    told = run("cron", "next", "mail", "nightly")
    assert "At 03:00 every day, Europe/Berlin" in told.stdout + told.stderr


def test_run_pause_resume_and_rm(run: Run, q: Queue[Any]) -> None:
    made = answer(run("cron", "run", "mail", "nightly"))
    status = q.status(made["job_id"])
    assert status is not None
    assert status.kind == "report"
    assert answer(run("cron", "pause", "mail", "nightly"))["paused"] is True
    assert answer(run("cron", "resume", "mail", "nightly"))["paused"] is False
    refused = run("cron", "rm", "mail", "nightly")
    assert (refused.exit_code, "add --yes" in refused.stderr) == (2, True)
    assert answer(run("cron", "rm", "mail", "nightly", "--yes")) == {"schedule": "nightly", "removed": True}
    assert [each.name for each in q.schedules()] == ["poll"]


def test_rm_asks_on_a_terminal(run: Run, q: Queue[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cron, "is_terminal", lambda stream: True)
    told = run("cron", "rm", "mail", "nightly", stdin="n\n")
    assert (told.exit_code, "At 03:00 every day" in told.stderr) == (1, True)
    assert len(q.schedules()) == 2
    assert run("cron", "rm", "mail", "nightly", stdin="y\n").exit_code == 0
    assert len(q.schedules()) == 1


@pytest.mark.parametrize("command", ["run", "pause", "resume", "rm", "next"])
def test_a_name_that_is_not_there_is_said_to_be_none(run: Run, q: Queue[Any], command: str) -> None:
    yes = ["--yes"] if command == "rm" else []
    failed = run("cron", command, "mail", "weekly", *yes)
    assert (failed.exit_code, "there is none of this name" in failed.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--cron", "0 3 * *"], "five fields"),
        (["--every", "30s"], "Snooze(30)"),
        (["--cron", "0 3 * * *", "--every", "5m"], "every=900"),
        (["--cron", "0 3 * * *", "--tz", "Europe/Atlantis"], "tzdata"),
    ],
)
def test_what_is_no_schedule_is_refused(run: Run, words: list[str], told: str) -> None:
    failed = run("cron", "add", "mail", "x", *words)
    assert failed.exit_code in (1, 2)
    assert told in failed.stderr


def test_a_queue_without_schedules_says_so(run: Run, address: str) -> None:
    Queue.connect(address, "mail").enqueue(1)
    assert "no schedules" in run("cron", "ls", "mail").stderr
