"""``osqueue events``: what it prints, from where on, and what it says where there is nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from osqueue import Queue
from osqueue.cli import app as cli_app
from osqueue.cli.events import line_of


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}/jobs"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli_app.app, ["events", *arguments])


def happen(address: str, name: str = "one") -> None:
    q: Queue[Any] = Queue.connect(address, "emails")
    q.enqueue(1, id=name, kind="a")
    q.enqueue(2, kind="b", max_attempts=1)
    one, two = q.claim(2, worker="ada")
    one.complete()
    two.fail("no")


def test_the_first_call_begins_the_recording_and_says_so(address: str) -> None:
    happen(address)
    first = run(address, "emails")
    assert (first.exit_code, first.stdout) == (0, "")
    assert "recorded from now on, for a day after somebody last asked" in first.stderr
    happen(address, "two")
    rows = [json.loads(line) for line in run(address, "emails").stdout.splitlines()]
    names = ["queued", "queued", "processing", "processing", "completed", "failed"]
    assert [row["name"] for row in rows] == names
    assert rows[0]["id"] == "two"
    behind = run(address, "emails", "--since", rows[3]["cursor"])
    assert [json.loads(line)["name"] for line in behind.stdout.splitlines()] == names[4:]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--name", "completed", "--name", "failed"), ["completed", "failed"]),
        (("--kind", "b"), ["queued", "processing", "failed"]),
        (("--since", "10m", "--kind", "a", "--name", "queued"), ["queued"]),
        (("--since", "2020-01-31T00:00:00Z", "--name", "failed"), ["failed"]),
    ],
)
def test_only_what_was_asked_for(address: str, options: tuple[str, ...], names: list[str]) -> None:
    Queue[Any].connect(address, "emails").enqueue(0, delay=3600)
    run(address, "emails")
    happen(address)
    rows = [json.loads(line) for line in run(address, "emails", *options).stdout.splitlines()]
    assert [row["name"] for row in rows] == names


def test_events_that_do_not_match_are_told_from_none(address: str) -> None:
    Queue[Any].connect(address, "emails").enqueue(0, delay=3600)
    run(address, "emails")
    happen(address)
    assert "nothing that happened matches" in run(address, "emails", "--kind", "other").stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("emials",), 1, "no queue 'emials' at this address"),
        (("emails", "--since", "soon"), 2, "Write 10m, 2030-01-31T08:00:00Z, or the cursor of an event"),
        (("emails", "--since", "ev1-x"), 2, "is no cursor"),
        (("emails", "--name", "done"), 2, "'done' is not one of"),
    ],
)
def test_mistakes_are_told(address: str, arguments: tuple[str, ...], code: int, words: str) -> None:
    Queue[Any].connect(address, "emails").enqueue(0, delay=3600)
    done = run(address, *arguments)
    assert (done.exit_code, words in done.stderr) == (code, True), done.stderr


def test_a_line_says_what_when_to_whom_and_by_whom() -> None:
    q: Queue[Any] = Queue.connect("memory://lines", "emails")
    q.on()(lambda each: None)
    cursor = q.listen(wait=0)
    q.enqueue(1, id="order-7", kind="welcome")
    q.claim(worker="ada")[0].release()
    q.enqueue_many([{"payload": at} for at in range(2_000)])
    lines = [line_of(each) for each in q.events(cursor, wait=0)]
    assert "queued      " in lines[0]
    assert lines[0].endswith("  id=order-7  kind=welcome")
    assert lines[1].endswith("  id=order-7  kind=welcome  worker=ada  attempt=1")
    assert lines[2].endswith("(release)")
    assert lines[3].endswith("  2,000 jobs")
