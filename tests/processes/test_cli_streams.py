"""The command line where standard input or output is closed, full, or of few characters."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue
from osqueue.pipeline.needs import missing
from tests.support.patience import PATIENCE

COMMAND = f"{shlex.quote(sys.executable)} -m osqueue.cli"
BYTE = r"$'\xff'"  # in a shell's words

needs_a_full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}/jobs?fsync=off"


@pytest.fixture
def q(address: str) -> Queue[Any]:
    return Queue.connect(address, "emails")  # type: ignore[no-any-return]


def shell(address: str, line: str) -> subprocess.CompletedProcess[str]:
    """What a line of shell does; in it ``osqueue`` is this command."""
    return subprocess.run(
        ["bash", "-c", f'osqueue() {{ {COMMAND} "$@"; }}; {line}'],
        env={**os.environ, "OSQUEUE_ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def only_error(result: subprocess.CompletedProcess[str]) -> str:
    """The one line that tells of the error."""
    (line,) = result.stderr.splitlines()
    return line


# ── Input ────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("command", ["enqueue emails", "enqueue emails -", "complete emails"])
def test_a_closed_input_is_no_job(address: str, command: str) -> None:
    result = shell(address, f"osqueue {command} <&-")
    assert (result.returncode, result.stdout) == (2, "")
    assert only_error(result).startswith("error: usage: no job: ")


# ── Output ───────────────────────────────────────────────────────────────────
@needs_a_full_disk
@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("osqueue claim emails", "The jobs are leased: "),
        ("osqueue enqueue emails 1", "The job is "),
        ("seq 3 | osqueue enqueue emails", "Of all lines 3 are enqueued, 0 are rejected."),
        ("seq 3 | osqueue enqueue emails --ids", "Lines up to 3 are enqueued. Go on with --from-line 4."),
        ("osqueue queue stats emails", ""),
    ],
)
def test_an_answer_that_does_not_fit_on_the_disk_is_an_error_of_its_own(
    address: str, q: Queue[Any], command: str, says: str
) -> None:
    q.enqueue(1)
    result = shell(address, f"{command} >/dev/full")
    assert result.returncode == 4
    line = only_error(result)
    assert line.startswith("error: output: standard output takes no answer: No space left on device.")
    assert says in line


@needs_a_full_disk
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--help", "--version", "enqueue --help", "pipeline sql -- --help"])
def test_help_that_does_not_fit_on_the_disk_is_that_error_too(
    address: str, command: str, unbuffered: str
) -> None:
    if command.startswith("pipeline") and missing() is not None:
        pytest.skip("Spark is not installed")
    result = shell(address, f"PYTHONUNBUFFERED={unbuffered} osqueue {command} >/dev/full")
    assert result.returncode == 4
    assert only_error(result).startswith("error: output: standard output takes no answer: No space left")


@needs_a_full_disk
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_error_of_another_file_is_not_one_of_the_output(address: str, unbuffered: str) -> None:
    code = (
        "import osqueue.cli.job as job; job.existing_queue = lambda q: open('/nowhere');"
        " from osqueue.cli import main; main()"
    )
    line = f'PYTHONUNBUFFERED={unbuffered} {shlex.quote(sys.executable)} -c "{code}" job purge emails 1 --yes'
    assert "FileNotFoundError" in shell(address, f"{line} >/dev/full").stderr


@needs_a_full_disk
def test_what_cannot_be_told_on_the_side_changes_no_answer(address: str, q: Queue[Any]) -> None:
    q.pause()
    assert shell(address, "osqueue claim emails 2>/dev/full").returncode == 0
    assert shell(address, "osqueue queue stats emials 2>/dev/full").returncode == 1


@needs_a_full_disk
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_loop_of_upkeep_outlives_a_full_disk_until_it_is_ended(
    address: str, q: Queue[Any], tmp_path: Path, number: signal.Signals
) -> None:
    with open("/dev/full", "w") as full, open(tmp_path / "errors", "w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "osqueue.cli", "reap", address, "--every", "1s"],
            stdout=full,
            stderr=errors,
        )
    try:
        for at in range(2):
            q.enqueue(at)
            q.claim()[0].complete()
            until = time.monotonic() + PATIENCE
            while sum(1 for _ in q.history()) == at and time.monotonic() < until:
                time.sleep(0.05)
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
    told = (tmp_path / "errors").read_text()
    assert told.startswith("error: output: ")
    assert "Traceback" not in told
    assert sum(1 for _ in q.history()) == 2


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_of_few_characters_shows_the_others_as_escapes(
    address: str, q: Queue[Any], encoding: str
) -> None:
    job_id = str(q.enqueue({"to": "ж"}, kind="ж").job_id)
    for command in (
        ["why", "emails", job_id],
        ["job", "emails", job_id],
        ["queue", "jobs", "emails"],
        ["doctor"],
    ):
        mine, its = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "osqueue.cli", *command],
            stdout=its,
            stderr=subprocess.PIPE,
            env={**os.environ, "OSQUEUE_ADDRESS": address, "PYTHONIOENCODING": encoding, "COLUMNS": "140"},
            text=True,
        )
        os.close(its)
        seen = b""
        try:
            while data := os.read(mine, 65536):
                seen += data
        except OSError:  # the terminal is closed
            pass
        os.close(mine)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
        assert seen


# ── Arguments ────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "command",
    ["enqueue {} emails 1", "queue ls {}", "reap {}", "doctor {}", "bench {}", "claim --json {} emails"],
)
def test_an_address_that_is_no_text_is_refused(address: str, command: str) -> None:
    result = shell(address, f"osqueue {command.format('file:///tmp/' + BYTE)}")
    assert (result.returncode, result.stdout) == (2, "")
    line = only_error(result)
    told = json.loads(line)["error"] if "--json" in command else {"field": "address", "message": line}
    assert told["field"] == "address"
    assert "address: it is not UTF-8" in told["message"]
