"""The command line as a whole: help, documentation, addresses, errors, exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import osqueue
from osqueue import errors
from osqueue.cli import output
from osqueue.cli.app import SECTIONS, app
from osqueue.cli.exits import exit_code
from osqueue.cli.output import cell
from osqueue.model.printable import as_json, safe
from tests.support.places import ROOT

DOCS = ROOT / "docs/cli.md"
HOSTILE = "a\x1b[31mred\x07\u202egnp\u200b\x9b31m\n"


def run(*args: str, stdin: str | bytes | None = None, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, args, input=stdin, env={"OSQUEUE_ADDRESS": None, **(env or {})})


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}/jobs?fsync=off"


def only(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    (line,) = result.stdout.splitlines()
    return json.loads(line)


# ── Help and documentation ───────────────────────────────────────────────────
def commands(
    command: click.Command = app, path: tuple[str, ...] = ("osqueue",)
) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by its whole name."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, (*path, name))
    else:
        yield " ".join(path), command


COMMANDS = dict(commands())
OF_ALL = {"--json", "--timeout"}


def sections() -> dict[str, str]:
    parts = re.split(r"^### (.+)$", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {
        name: re.split(r"^## ", text, flags=re.MULTILINE)[0]
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_every_command_has_its_section_in_the_documentation_and_no_other() -> None:
    assert set(sections()) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented_and_every_documented_one_exists(name: str) -> None:
    options = {
        each
        for param in COMMANDS[name].params
        if isinstance(param, click.Option)
        for each in param.opts
        if each.startswith("--")
    }
    rows = re.findall(r"^\| (`-.+?) \|", sections()[name], flags=re.MULTILINE)
    told = {each for row in rows for each in re.findall(r"`(--[a-z-]+)", row)}
    assert told - OF_ALL == options - OF_ALL
    if "ADDRESS" in sections()[name]:
        assert options >= OF_ALL


def test_what_the_documentation_says_of_all_commands_is_so() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for option in ("--json", "--timeout", "--version", "--help", "`-h`", "OSQUEUE_ADDRESS"):
        assert option in text
    for code in ("| 0 |", "| 1 |", "| 2 |", "| 3 |", "| 130 |"):
        assert code in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    result = run(*name.split()[1:], "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.stdout
    for param in COMMANDS[name].params:
        if isinstance(param, click.Option):
            assert param.help, f"{name} {param.name}"


def test_the_help_shows_the_commands_in_sections() -> None:
    text = run("--help").stdout
    for title, group in SECTIONS.items():
        assert f"\n{title}:\n" in text
        for name in group:
            assert f"\n  {name} " in text
    assert "..." not in text.partition("Examples")[0].partition("Jobs:")[2]


@pytest.mark.parametrize(("name", "told"), [each for group in SECTIONS.values() for each in group.items()])
def test_the_help_says_of_a_command_what_it_says_of_itself(name: str, told: str) -> None:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    assert (command.name, command.get_short_help_str(80)) == (name, told)


def test_the_version() -> None:
    assert run("--version").stdout == f"osqueue {osqueue.__version__}\n"


# ── Addresses ────────────────────────────────────────────────────────────────
def test_the_address_may_come_from_the_environment(address: str) -> None:
    env = {"OSQUEUE_ADDRESS": address}
    assert only(run("enqueue", "emails", "1", env=env))["status"] == "queued"
    assert only(run("enqueue", "emails", '"s3://not/an/address"', "--priority", "3", env=env))
    assert only(run("queue", "stats", "emails", env=env))["queued"] == 2
    assert only(run("queue", "ls", env=env))["queue"] == "emails"


def test_an_address_given_wins_over_the_environment(address: str, tmp_path: Path) -> None:
    env = {"OSQUEUE_ADDRESS": f"file://{tmp_path}/other"}
    only(run("enqueue", address, "emails", "1", env=env))
    assert only(run("queue", "ls", address, "--names")) == {"queue": "emails"}


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("enqueue", "ftp://x", "emails", "1"), "rejected", "use one of file:///"),
        (("enqueue", "jobs", "emails", "1"), "usage", "'jobs' is not an address"),
        (("enqueue",), "usage", "OSQUEUE_ADDRESS"),
        (("enqueue", "gcs://x", "emails", "1"), "rejected", "gs://"),
        (("enqueue", "memory://", "emails", "1"), "rejected", "gone when this command ends"),
        (("queue", "ls", "memory://named"), "rejected", "gone when this command ends"),
        (("enqueue", "file://x", "Bad Name", "1"), "rejected", "not a queue name"),
        (("nonsense",), "usage", "No such command"),
        (("--nonsense",), "usage", "No such option"),
        (("enqueue", "file://x", "emails", "-5"), "usage", "A negative number needs -- before it"),
        (("enqueue", "file://x", "emails", "-0.5"), "usage", "A negative number needs -- before it"),
        (("claim", "file://x", "emails", "--lease", "soon"), "usage", "Write seconds, or 250ms"),
        (("claim", "file://x", "emails", "--limit", "0"), "rejected", "1 to 1,000"),
        (("job", "file://x", "emails", ""), "rejected", "1 to 256 printable characters"),
        (("job", "file://x", "emails", "x" * 257), "rejected", "1 to 256 printable characters"),
        (("queue", "configure", "file://x", "emails"), "usage", "nothing to change"),
    ],
)
def test_a_wrong_command_says_in_one_line_what_is_right(args: tuple[str, ...], code: str, says: str) -> None:
    for extra in ((), ("--json",)):
        result = run(*args, *extra)
        assert result.exit_code == 2
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        if extra:
            error = json.loads(line)["error"]
            assert error["code"] == code
            assert says in error["message"]
        else:
            assert line.startswith(f"error: {code}: ")
            assert says in line


# ── Errors ───────────────────────────────────────────────────────────────────
def test_every_kind_of_error_has_its_exit_code() -> None:
    kinds = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.OsqueueError)
    ]
    codes = {
        each.code: exit_code(each("…", job_id="7") if each is errors.WaitTimeout else each("…"))
        for each in kinds
    }
    assert {name for name, code in codes.items() if code == 2} == {
        "rejected",
        "not_supported",
        "not_installed",
    }
    assert {name for name, code in codes.items() if code == 3} == {
        "unavailable",
        "unknown",
        "timeout",
        "wait_timeout",
        "throttled",
    }
    assert set(codes.values()) == {1, 2, 3}


def test_a_store_that_never_answers_ends_with_3(address: str) -> None:
    for args in (
        ("enqueue", f"{address}&error_rate=1", "emails", "1"),
        ("queue", "ls", f"{address}&error_rate=1"),
    ):
        result = run(*args, "--timeout", "0.2", "--json")
        assert result.exit_code == 3
        error = json.loads(result.stderr)["error"]
        assert error["code"] in ("unavailable", "timeout", "unknown")


def test_a_damaged_head_is_named_and_left_alone(address: str, tmp_path: Path) -> None:
    only(run("enqueue", address, "emails", "1"))
    only(run("enqueue", address, "other", "1"))
    (head,) = (tmp_path / "jobs").glob("*/emails/0/head")
    head.write_bytes(b"garbage" + head.read_bytes()[7:])
    damaged = head.read_bytes()
    for args in (
        ("enqueue", address, "emails", "2"),
        ("claim", address, "emails"),
        ("queue", "stats", address, "emails"),
        ("reap", address, "emails"),
    ):
        result = run(*args)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("error: damaged: ")
    assert head.read_bytes() == damaged
    result = run("queue", "ls", address)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["queue"] for row in rows] == ["emails", "other"]
    assert rows[0]["error"]["code"] == "damaged"
    assert rows[1]["queued"] == 1
    assert result.exit_code == 1
    assert "error: damaged: queue emails:" in result.stderr


def test_a_typing_error_makes_no_queue_and_names_the_right_one(address: str) -> None:
    only(run("enqueue", address, "emails", "1"))
    for args in (
        ("pause",),
        ("stats",),
        ("jobs",),
        ("resume",),
        ("configure", "--shards", "2"),
    ):
        result = run("queue", args[0], address, "emials", *args[1:])
        assert result.exit_code == 1
        assert "error: not_found: no queue 'emials'" in result.stderr
        assert "There are: emails." in result.stderr
    assert only(run("queue", "ls", address, "--names")) == {"queue": "emails"}


# ── Printing what strangers wrote ────────────────────────────────────────────
def test_hostile_text_is_escaped_wherever_it_is_printed() -> None:
    for text in (safe(HOSTILE), cell(HOSTILE), as_json(HOSTILE), cell({"k": HOSTILE}), as_json([HOSTILE])):
        assert text.isprintable()
    assert json.loads(as_json({"k": HOSTILE})) == {"k": HOSTILE}
    assert json.loads(as_json("\U000e0001é")) == "\U000e0001é"
    assert as_json("é") == '"é"'
    assert as_json("é", ascii_only=True) == '"\\u00e9"'
    assert safe("\udc80") == "\\udc80"
    assert json.loads(as_json("\udc80")) == "\udc80"


def test_a_hostile_payload_and_error_come_out_safe(address: str) -> None:
    only(run("enqueue", address, "emails", json.dumps({"text": HOSTILE}), "--max-attempts", "1"))
    result = run("claim", address, "emails")
    assert result.stdout.rstrip("\n").isprintable()
    lease = only(result)
    assert lease["payload"] == {"text": HOSTILE}
    only(run("complete", address, "emails", lease["job_id"], lease["token"], "--fail", HOSTILE))
    result = run("job", address, "emails", lease["job_id"])
    assert result.stdout.rstrip("\n").isprintable()
    assert only(result)["error"] == HOSTILE


def test_a_hostile_argument_comes_back_escaped() -> None:
    result = run("job", "file://x", "emails", HOSTILE)
    assert result.exit_code == 2
    assert result.stderr.rstrip("\n").isprintable()


# ── What a new user meets first ──────────────────────────────────────────────
def test_an_address_without_queues_says_so(address: str) -> None:
    result = run("queue", "ls", address)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("no queues at this address: there is no folder ")


EMPTY = {
    "dlq ls": "no dead letters found",
    "dlq groups": "no dead letters found",
    "queue jobs --state=failed": "no jobs found",
    "archive ls": "nothing was archived yet: no job is over",
    "archive ls --names": "nothing was archived yet: no job is over",
    "archive cat": "nothing was archived yet: no job is over",
    "doctor --backups": "no backups yet: a reap makes one an hour",
}


@pytest.mark.parametrize("command", EMPTY)
def test_where_there_is_nothing_a_note_says_so_instead_of_a_table_without_rows(
    address: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    osqueue.Queue.connect(address, "emails").enqueue(1)
    monkeypatch.setattr(output, "is_terminal", lambda stream: True)
    result = run(*command.split(), "emails", env={"OSQUEUE_ADDRESS": address})
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", EMPTY[command] + "\n")


def test_upkeep_of_an_address_without_queues_says_so(address: str) -> None:
    result = run("reap", address)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no queues at this address\n")


@pytest.mark.parametrize("below", ["", "/deeper"])
@pytest.mark.parametrize(
    "args",
    [
        ("enqueue", "emails", "1"),
        ("claim", "emails"),
        ("queue", "stats", "emails"),
        ("queue", "ls"),
        ("reap",),
    ],
    ids=" ".join,
)
def test_a_file_is_not_taken_for_a_folder(
    args: tuple[str, ...], below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "afile").write_text("not a folder")
    result = run(*args, "--timeout", "1m", env={"OSQUEUE_ADDRESS": f"file://afile{below}"})
    assert result.exit_code in (2, 3)
    assert "afile' is not a folder" in result.stderr


def test_a_suggestion_ends_with_its_question_mark(address: str) -> None:
    result = run("enqueue", address, "emails", "1", "--priorit", "1")
    assert "Did you mean '--priority'? See '" in result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_defaults_stand_without_brackets_of_their_own(name: str) -> None:
    text = run(*name.split()[1:], "--help").stdout
    assert "default: (" not in text


def test_a_store_that_refuses_is_not_to_be_asked_again() -> None:
    error = errors.Unavailable("no such bucket", permanent=True)
    assert (error.permanent, error.retry_after, exit_code(error)) == (True, None, 3)
    assert (errors.Unavailable("gone").permanent, errors.Unavailable("gone").retry_after) == (False, 5.0)


def test_the_package_lists_what_it_offers() -> None:
    assert set(osqueue.__all__) <= set(dir(osqueue))
    assert not {"Any", "TYPE_CHECKING"} & set(dir(osqueue))
