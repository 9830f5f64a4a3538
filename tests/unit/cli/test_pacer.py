"""``osqueue pacer``: what it prints, whom it asks, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from osqueue import Pacer, Queue
from osqueue.cli import pacer
from osqueue.cli.app import app
from tests.support.commands import Run, answer, answers
from tests.support.served import served


@pytest.fixture
def stripe(address: str) -> Pacer:
    made = Pacer.connect(address, "stripe", max_ahead=86_400)
    made.create(60)
    return made


def test_create_prints_the_settings_that_hold(run: Run) -> None:
    made = answer(run("pacer", "create", "stripe", "--interval", "250ms", "--burst", "3"))
    assert made == {
        "pacer": "stripe",
        "interval": 0.25,
        "burst": 3,
        "next_in": 0.0,
        "ahead": 0,
        "number": 0,
        "paused_at": None,
    }
    assert answer(run("pacer", "create", "stripe", "--interval", "9s"))["interval"] == 0.25
    failed = run("pacer", "create", "stripe", "--interval", "9s", "--if-exists", "fail")
    assert (failed.exit_code, "it exists" in failed.stderr) == (1, True)


def test_show_tells_the_next_slot_what_is_reserved_and_a_pause(
    run: Run, stripe: Pacer, terminal: None
) -> None:
    for _ in range(4):
        stripe.reserve()
    told = run("pacer", "show", "stripe").stdout
    assert "3 reserved until then" in told
    assert "paused since" not in told
    run("pacer", "pause", "stripe")
    assert "paused since 20" in run("pacer", "show", "stripe").stdout


def test_pause_and_resume(run: Run, stripe: Pacer) -> None:
    assert answer(run("pacer", "pause", "stripe"))["paused_at"] is not None
    assert stripe.status().paused
    assert answer(run("pacer", "resume", "stripe"))["paused_at"] is None
    assert not stripe.status().paused


def test_reset_keeps_what_is_not_said(run: Run, stripe: Pacer) -> None:
    stripe.reserve()
    stripe.reserve()
    told = answer(run("pacer", "reset", "stripe", "--burst", "2"))
    assert (told["interval"], told["burst"], told["ahead"], told["number"]) == (60, 2, 0, 2)
    assert answer(run("pacer", "reset", "stripe", "--interval", "1s"))["burst"] == 2


def test_ls_lists_those_that_there_are(run: Run, stripe: Pacer, address: str) -> None:
    Pacer.connect(address, "mail").create(1)
    assert [row["pacer"] for row in answers(run("pacer", "ls"))] == ["mail", "stripe"]
    assert answer(run("pacer", "rm", "mail", "--yes")) == {"pacer": "mail", "removed": True}
    assert [row["pacer"] for row in answers(run("pacer", "ls"))] == ["stripe"]
    assert answers(run("queue", "ls")) == []


def test_the_doctor_and_the_reaper_pass_it_by(run: Run, stripe: Pacer, q: Queue[Any]) -> None:
    q.enqueue(1)
    stripe.reserve()
    before = stripe.status().number
    for command in (("reap",), ("doctor", "--deep")):
        done = run(*command)
        assert (done.exit_code, "stripe" in done.output, "_limits" in done.output) == (0, False, False), (
            done.output
        )
    assert stripe.reserve().number == before + 1


def test_rm_asks_first(run: Run, stripe: Pacer, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = run("pacer", "rm", "stripe")
    assert (refused.exit_code, "add --yes" in refused.stderr) == (2, True)
    monkeypatch.setattr(pacer, "is_terminal", lambda stream: True)
    assert run("pacer", "rm", "stripe", stdin="n\n").exit_code == 1
    assert stripe.status().number == 0
    assert run("pacer", "rm", "stripe", stdin="y\n").exit_code == 0
    assert run("pacer", "show", "stripe").exit_code == 1


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("show", "nobody"), 1, "pacer.create(interval=1)"),
        (("create", "stripe", "--interval", "0.1ms"), 2, "interval: "),
        (("create", "UPPER", "--interval", "1s"), 2, "not the name of a pacer"),
        (("create", "stripe", "--interval", "1s", "--burst", "0"), 2, "burst: "),
    ],
)
def test_what_is_wrong_is_named(run: Run, args: tuple[str, ...], code: int, words: str) -> None:
    done = run("pacer", *args)
    assert done.exit_code == code
    assert words in done.stderr


def test_every_command_works_over_an_api(address: str) -> None:
    def run(command: str, *args: str) -> Any:
        done = CliRunner().invoke(app, ("pacer", command, url, *args))
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    with served(address) as url:
        assert run("create", "stripe", "--interval", "1m")["interval"] == 60
        assert run("pause", "stripe")["paused_at"] is not None
        assert run("show", "stripe")["paused_at"] is not None
        assert run("resume", "stripe")["paused_at"] is None
        assert run("reset", "stripe", "--burst", "2")["burst"] == 2
        assert run("ls")["pacer"] == "stripe"
        assert run("rm", "stripe", "--yes") == {"pacer": "stripe", "removed": True}
