"""``osqueue dev``, as a process: one line when it is ready, and an orderly end."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.support.patience import PATIENCE
from tests.support.places import ROOT
from tests.support.tiny_functions import Gate, is_alive, lay_out, wait_until


def command(tmp_path: Path, *more: str) -> list[str]:
    functions = tmp_path / "functions"
    if not functions.exists():
        lay_out(functions)
    return [sys.executable, "-m", "osqueue", "dev", "--port", "0", "--functions", str(functions), *more]


@contextmanager
def running(tmp_path: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The command's process, and what its first line says."""
    process = subprocess.Popen(
        command(tmp_path, *more),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


def get(url: str) -> Any:
    return urllib3.request("GET", url, timeout=PATIENCE, retries=False)


def warmed(url: str) -> str:
    """The URL of a function's route, once a process of it has begun: until then requests may be throttled."""

    def answers() -> bool:
        found = urllib3.request(
            "POST", url, json={"do": "answer", "value": {}}, timeout=PATIENCE, retries=False
        )
        return bool(found.status == 200)

    wait_until(answers, "no process of it begins")
    return url


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_tells_its_address_answers_and_ends_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path) as (process, told):
        assert get(told["url"] + "/healthz").status == 200
        assert told["store"] == f"file://{tmp_path}/.osqueue-dev/store"
        instances = get(told["url"] + "/_dev/instances").json()["instances"]
        pids = [each["pid"] for each in instances if each["pid"] is not None]  # one may be about to start
        assert pids
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (0, "")
        assert err in ("", "waiting up to 10 s for 1 request\n")  # the last one may still be on its way out
        assert [is_alive(pid) for pid in pids] == [False] * len(pids)
        assert "[gateway] GET '/healthz' 200" in Path(told["log"]).read_text()


def test_a_request_that_runs_is_answered_although_it_ends(tmp_path: Path) -> None:
    gate, answers = Gate(tmp_path), []
    with running(tmp_path) as (process, told):
        url = warmed(told["url"] + "/v1/queues/emails/jobs")
        call = threading.Thread(
            target=lambda: answers.append(
                urllib3.request("POST", url, json=gate.ask, timeout=PATIENCE, retries=False)
            )
        )
        call.start()
        wait_until(lambda: "holding" in Path(told["log"]).read_text(), "it does not run")
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert process.stderr.readline() == "waiting up to 10 s for 1 request\n"
        gate.open()
        call.join()
        assert process.wait(PATIENCE) == 0
        assert [each.status for each in answers] == [200]


def test_a_browser_finds_a_dashboard_that_ends_with_it(tmp_path: Path) -> None:
    with running(tmp_path, "--json") as (process, said):
        told = urllib3.request("GET", said["url"], timeout=PATIENCE, redirect=False)
        page = told.headers["location"]
        assert told.status == 307
        assert b"dashboard/app.js" in get(page).data
        assert get(page + "/dashboard/me").json()["place"] == said["url"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        with pytest.raises(urllib3.exceptions.HTTPError):
            get(page)


def test_with_logs_everything_the_functions_write_goes_to_standard_error(tmp_path: Path) -> None:
    with running(tmp_path, "--logs") as (process, told):
        url = warmed(told["url"] + "/v1/queues/emails/jobs")
        urllib3.request("POST", url, json={"do": "exit", "code": 1}, timeout=PATIENCE, retries=False)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
        assert "[enqueue] last words\n" in err
        assert told["log"] == "standard error"
        assert not (tmp_path / ".osqueue-dev/functions.log").exists()


def test_a_person_reads_one_line(tmp_path: Path) -> None:
    mine, its = pty.openpty()
    process = subprocess.Popen(command(tmp_path), cwd=tmp_path, stdin=its, stdout=its, stderr=its)
    os.close(its)
    with os.fdopen(mine, "rb") as terminal:
        line = terminal.readline().decode()
        assert line.startswith("osqueue dev: http://127.0.0.1:")
        assert "functions.log" in line
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        (("--store", "memory://x"), "rejected", "processes of their own"),
        (("--store", "jobs"), "rejected", "use file://folder or s3://bucket/prefix."),
        (("--store", "http://127.0.0.1:8787"), "rejected", "use file://folder or s3://bucket/prefix."),
        (("--functions", "nowhere"), "rejected", "nowhere has no enqueue/handler.py"),
        (("--schedule-seconds", "soon"), "usage", "neither a number of seconds nor off"),
        (("--processes", "0"), "rejected", "from 1 to 64"),
        (("--log-file", "functions/x/../enqueue"), "rejected", "cannot write"),
    ],
)
def test_what_cannot_be_is_one_line_of_error(
    tmp_path: Path, more: tuple[str, ...], code: str, text: str
) -> None:
    ended = subprocess.run(
        command(tmp_path, "--json", *more),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 2
    error = json.loads(ended.stderr)["error"]
    assert error["code"] == code
    assert text in error["message"]


def test_what_is_installed_for_it_connects_to_it_as_well() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras["dev"]) >= set(extras["http"])


def test_functions_that_do_not_start_are_told_before_it_says_it_is_ready(tmp_path: Path) -> None:
    lay_out(tmp_path / "functions", "raise RuntimeError('no good')\n")
    ended = subprocess.run(
        command(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "no good" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        ("host", "", "127.0.0.1"),
        ("host", b"\xff", "127.0.0.1"),
        ("host", "a..b", "127.0.0.1"),
        ("store", b"file:///tmp/\xff", "UTF-8"),
    ],
)
def test_what_names_nothing_opens_no_port(
    tmp_path: Path, field: str, value: str | bytes, remedy: str
) -> None:
    result = subprocess.run(
        [*command(tmp_path), f"--{field}", value],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: rejected: {field}: ")
    assert remedy in result.stderr
