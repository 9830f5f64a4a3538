"""What shells complete, and what is meant by commands that there are not."""

from __future__ import annotations

from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from osqueue import Queue
from osqueue.cli.app import app
from osqueue.cli.completion import PROGRAM, SHELLS, VARIABLE
from tests.support.commands import Run


def completed(line: str, incomplete: str = "") -> list[str]:
    found = ShellComplete(app, {}, PROGRAM, VARIABLE).get_completions(line.split(), incomplete)
    return [each.value for each in found]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script(shell: str) -> None:
    result = CliRunner().invoke(app, ["completion", shell])
    assert result.exit_code == 0
    assert VARIABLE in result.stdout
    assert f"{shell}_complete" in result.stdout


def test_commands_and_options_are_completed() -> None:
    assert {"queue", "dlq", "worker"} <= set(completed("")) | set(completed("", "q")) | set(
        completed("", "w")
    )
    assert set(completed("queue", "s")) == {"stats"}
    assert "--older-than" in completed("queue jobs", "--o")


def test_so_are_names_of_queues_after_an_address(address: str, q: Queue[Any]) -> None:
    q.enqueue(1)
    Queue[Any].connect(address, "texts").enqueue(1)
    assert completed(f"queue stats {address}") == ["emails", "texts"]
    assert completed(f"queue stats {address}", "t") == ["texts"]
    assert completed(f"doctor {address}", "e") == ["emails"]


def test_and_at_the_address_of_the_environment(
    address: str, q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    q.enqueue(1)
    monkeypatch.setenv("OSQUEUE_ADDRESS", address)
    assert completed("dlq ls", "e") == ["emails"]
    assert completed("dlq ls --limit 3") == ["emails"]


def test_where_nothing_answers_nothing_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OSQUEUE_ADDRESS", raising=False)
    assert completed("queue stats http://127.0.0.1:9") == []
    assert completed("queue stats nonsense") == []
    assert "file://" in completed("queue stats", "f")


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("ls", "'osqueue queue ls', 'osqueue group ls' or 'osqueue dlq ls'"),
        ("redrive", "'osqueue dlq redrive'"),
        ("retry", "'osqueue job retry'"),
        ("stats", "'osqueue queue stats'"),
        ("enqeue", "'osqueue enqueue'"),
        ("queue list", "'osqueue queue ls'"),
        ("queue stat", "'osqueue queue stats'"),
        ("dlq rederive", "'osqueue dlq redrive'"),
        ("push", "'osqueue enqueue'"),
    ],
)
def test_a_command_that_there_is_not_is_answered_with_those_meant(run: Run, command: str, meant: str) -> None:
    result = run(*command.split(), "emails")
    assert result.exit_code == 2
    assert f"No such command '{command.rsplit(maxsplit=1)[-1]}'. Did you mean {meant}?" in result.stderr


def test_what_is_like_nothing_is_answered_with_the_help(run: Run) -> None:
    result = run("xyzzy")
    assert result.stderr.startswith("error: usage: No such command 'xyzzy'. See '")
