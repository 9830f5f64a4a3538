"""Every command with addresses that hold a secret: nothing that it prints or logs holds it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from osqueue import Queue
from osqueue.asgi import log, server
from osqueue.cli.app import app
from osqueue.clock import Machine
from osqueue.devstack import stack
from tests.support.secret_addresses import ADDRESSES, PLAIN, QUOTED, SECRET, leaks
from tests.unit.cli.test_app import COMMANDS

UNREACHABLE = f"valkey://u:{PLAIN}@127.0.0.1:1/0/p"
GIVEN = {"queue": "mail", "ttl": "60", "payload": "{}", "shell": "bash", "targets": "mail:q"}
OPTIONS = {"--into": "copy", "--interval": "1", "--role": "read"}
QUICK = {"--timeout": "0.02", "--port": "0", "--seconds": "0.01", "--jobs": "1"}
FLAGS = ("--once", "--yes", "--no-upkeep")
ENDLESS = ("osqueue events", "osqueue worker", "osqueue dev")  # on a queue that works


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Servers return at once, sleeps take no time, and loggers are as they were before."""
    slept, monotonic = [0.0], Machine.monotonic
    monkeypatch.setattr(Machine, "monotonic", lambda _: monotonic() + sum(slept))
    monkeypatch.setattr(Machine, "sleep", lambda _, seconds: slept.append(seconds))
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    for name in ("serve", "serve_proxy"):
        monkeypatch.setattr(server, name, lambda *_: None)
    loggers = [logging.getLogger(name) for name in ("osqueue", "uvicorn")]
    before = [(each.handlers, each.propagate, each.level) for each in loggers]
    yield
    for each, (handlers, propagate, level) in zip(loggers, before, strict=True):
        each.handlers, each.propagate = handlers, propagate
        each.setLevel(level)


def arguments(name: str, address: str, swapped: bool = False) -> list[str]:
    """Return a command line with the address in its place; swapped: in the place of the queue."""
    command = COMMANDS[name]
    line = name.split()[1:]
    for each in command.params:
        if isinstance(each, click.Argument):
            text = address if each.name in ("address", "arguments") else GIVEN.get(each.name or "", "x")
            if swapped:
                text = address if each.name == "queue" else "memory://"
            line.append(text)
            continue
        option = each.opts[0]
        if option in FLAGS:
            line.append(option)
        elif option in QUICK or each.required:
            line += [option, {**QUICK, **OPTIONS}[option]]
        elif option == "--store":
            line += [option, address]
    return line


def check(line: Sequence[str], caplog: pytest.LogCaptureFixture) -> None:
    """Run a command in both of its forms of output."""
    for more in ((), ("--json",)) if "--" not in line else ((),):
        result = CliRunner().invoke(app, [*line, *more], env={"OSQUEUE_ADDRESS": None}, input="")
        assert not leaks(result.stdout), line
        assert not leaks(result.stderr), line
        assert result.exception is None or isinstance(result.exception, SystemExit), line
    assert not leaks(caplog.text), line


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_prints_the_secret_of_an_address(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack.Stack, "__enter__", lambda self: (_ for _ in ()).throw(SystemExit(0)))
    for address in (UNREACHABLE, f"memory://?token={PLAIN}"):
        check(arguments(name, address), caplog)
    check(arguments(name, UNREACHABLE, swapped=True), caplog)
    check([*name.split()[1:], "--nonsense", UNREACHABLE], caplog)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ENDLESS])
def test_no_command_on_a_working_store_prints_the_secret_of_its_archive(
    name: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with Queue.connect(f"file://{tmp_path}/s?fsync=off", "mail") as q:
        q.enqueue(1)
        q.claim()[0].complete()
        q.enqueue(2)
    check(arguments(name, f"file://{tmp_path}/s?fsync=off&archive={UNREACHABLE}"), caplog)


@pytest.mark.parametrize("address", ADDRESSES)
def test_start_lines_and_refusals_hold_no_secret_wherever_it_stands(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("queue stats", "doctor", "serve", "dashboard", "top", "pipeline compact"):
        check(arguments(f"osqueue {name}", address), caplog)


@pytest.mark.parametrize("address", QUOTED)
def test_a_usage_error_holds_no_part_of_a_secret(address: str, caplog: pytest.LogCaptureFixture) -> None:
    lines = (
        ["queue", "ls", "memory://", address],
        [address],
        ["queue", address],
        ["schedule", "add", "memory://", "q", "s", "1", "--every", address],
        ["schedule", "add", "memory://", "q", "s", "1", f"--every={address}"],
        ["queue", "stats", "memory://", "q", f"--nonsense={address}"],
    )
    for line in lines:
        check(line, caplog)


def test_the_log_of_serve_masks_what_a_foreign_error_quotes() -> None:
    try:
        raise OSError(f"proxy http://u:{SECRET}@127.0.0.1:1 refuses https://a.b/c?sig={PLAIN}")
    except OSError as error:
        info = (type(error), error, error.__traceback__)
        record = logging.LogRecord("osqueue", logging.ERROR, "", 0, "failed: %s", (error,), info)
    assert not leaks(log.JsonLines().format(record))
