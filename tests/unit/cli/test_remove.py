"""``queue rm``: what it shows, whom it asks, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from osqueue import Queue
from osqueue.cli import remove
from osqueue.cli.app import app
from osqueue.clock import MACHINE
from osqueue.core.encoding import removal_mark
from osqueue.objects.layout import root_of
from osqueue.stores.base import Put
from tests.support.commands import Run, answer, answers, dead

NOT_SHOWN = ("head_bytes", "objects")


@pytest.fixture
def finished(q: Queue[Any]) -> Queue[Any]:
    """Two dead letters, and one job whose record is in the archive."""
    dead(q, "no", "never")
    q.enqueue(1, id="a")
    q.claim()[0].complete()
    q.reap()
    return q


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person is there to answer."""
    monkeypatch.setattr(remove, "is_terminal", lambda stream: True)


def test_it_shows_what_there_is(run: Run, finished: Queue[Any]) -> None:
    shown = answer(run("queue", "rm", "emails", "--dry-run"))
    assert {name: shown[name] for name in shown if name not in NOT_SHOWN} == {
        "queue": "emails",
        "shards": 1,
        "archive_parts": 1,
        "archive": "kept",
        **dict.fromkeys(("queued", "scheduled", "processing", "failing", "completed", "cancelled"), 0),
        "failed": 2,
    }
    assert shown["head_bytes"] > 100
    assert (shown["objects"]["ids"], shown["objects"]["backups"]) == (1, 1)
    assert answer(run("queue", "rm", "emails", "--dry-run", "--archive"))["archive"] == "deleted"
    assert finished.stats()["failed"] == 2


def test_it_asks_for_the_name(run: Run, finished: Queue[Any], asked: None) -> None:
    for typed in ("email\n", "\n"):
        done = run("queue", "rm", "emails", stdin=typed)
        assert (done.exit_code, "Nothing was deleted" in done.stderr) == (2, True)
    assert finished.stats()["failed"] == 2
    done = run("queue", "rm", "emails", stdin="emails\n")
    assert done.exit_code == 0, done.stderr
    assert "Type its name" in done.stderr
    shown, told = map(json.loads, done.stdout.splitlines())
    assert (shown["failed"], told["queue"], told["archive"], told["archive_parts"]) == (
        2,
        "emails",
        "kept",
        1,
    )
    assert told["deleted"] == sum(shown["objects"].values()) + 2  # the head, and the name in the register
    assert not answers(run("queue", "ls"))


def test_in_a_pipe_it_needs_yes(run: Run, finished: Queue[Any]) -> None:
    done = run("queue", "rm", "emails")
    assert (done.exit_code, "add --yes" in done.stderr) == (2, True)
    assert finished.stats()["failed"] == 2


@pytest.mark.usefixtures("terminal")
def test_a_person_sees_tables(run: Run, finished: Queue[Any]) -> None:
    lines = [line.split() for line in run("queue", "rm", "emails", "--dry-run").stdout.splitlines()]
    assert ["failed", "2"] in lines
    assert ["backups", "1"] in lines


def test_the_archive_stays_until_it_is_named(run: Run, finished: Queue[Any]) -> None:
    answer(run("queue", "rm", "emails", "--yes"))
    assert len(answers(run("archive", "cat", "emails"))) == 3
    assert "no queue 'emails'" in run("queue", "rm", "emails", "--yes").stderr
    assert answer(run("queue", "rm", "emails", "--yes", "--archive"))["archive_parts"] == 1
    for command in (("queue", "rm", "emails", "--yes", "--archive"), ("archive", "cat", "emails")):
        assert "no queue 'emails'" in run(*command).stderr


def test_jobs_that_wait_keep_it_unless_forced(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1)
    done = run("queue", "rm", "emails", "--yes")
    assert done.exit_code == 1
    for word in ("1 queued", "queue pause", "queue cancel --all", "--force"):
        assert word in done.stderr
    assert q.claim(1)
    assert answer(run("queue", "rm", "emails", "--yes", "--force"))["queue"] == "emails"
    assert not answers(run("queue", "ls"))


def test_a_removal_that_was_interrupted_says_so(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1)
    q.store.perform(Put(root_of("emails", 0) + "head", removal_mark(MACHINE.bits(128).to_bytes(16, "big"))))
    for command in (("queue", "stats", "emails"), ("enqueue", "emails", "1"), ("reap", "emails")):
        assert "run it again" in run(*command).stderr, command
    checked = run("doctor", "emails")
    assert (checked.exit_code, "being removed" in checked.stdout) == (1, True)
    assert answer(run("queue", "rm", "emails", "--dry-run"))["interrupted"] is True
    answer(run("queue", "rm", "emails", "--yes"))
    assert not answers(run("queue", "ls"))


def test_over_an_api_it_says_where(run: Run) -> None:
    for address in ("http://localhost:1", "https://example.com", "lambda://osqueue-dev"):
        done = CliRunner().invoke(app, ["queue", "rm", address, "emails", "--yes"])
        assert done.exit_code != 0
        assert "removed at its store, not over an API" in done.stderr


def test_a_name_that_nobody_used_is_told_with_those_there_are(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1)
    done = run("queue", "rm", "email", "--yes", "--force")
    assert (done.exit_code, "There are: emails" in done.stderr) == (1, True)
    assert "not a queue name" in run("queue", "rm", "../emails", "--yes").stderr
    assert q.stats()["queued"] == 1
