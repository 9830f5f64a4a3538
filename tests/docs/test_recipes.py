"""The recipes: their applications are run, and their units, images and manifests are what would be accepted."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import urllib3
import yaml
from botocore.validate import ParamValidator

import osqueue
from osqueue import Queue
from tests.docs.test_commands import check_osqueue
from tests.docs.test_examples import blocks_of
from tests.support.patience import PATIENCE
from tests.support.places import ROOT

PAGE = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
BLOCKS = list(blocks_of(PAGE))
MODULES = {
    found[1]: block.text
    for block in BLOCKS
    if block.language == "python" and (found := re.match(r"# (\w+\.py)\n", block.text))
}
TESTS = sorted(name for name in MODULES if name.startswith("test_"))


def texts(language: str) -> list[str]:
    return [block.text for block in BLOCKS if block.language == language]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The modules of the page."""
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


# ── Applications ─────────────────────────────────────────────────────────────
def test_every_python_block_of_the_page_is_a_module() -> None:
    assert sum(block.language == "python" for block in BLOCKS) == len(MODULES)
    assert TESTS == ["test_django.py", "test_fastapi.py", "test_flask.py"]


@pytest.mark.parametrize("name", TESTS)
def test_the_tests_of_an_application_pass_and_leave_its_folder_alone(name: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", name]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not (folder / "jobs").exists()


@pytest.mark.parametrize("queue", ["tasks:emails", "flask_app:emails", "django_app:emails"])
def test_the_worker_runs_what_an_application_enqueued(queue: str, folder: Path) -> None:
    emails = Queue.connect(f"file://{folder}/jobs", "emails")
    job = emails.enqueue({"to": "ada@example.com"}, kind="send")
    command = [sys.executable, "-m", "osqueue", "worker", queue, "--until-empty"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 0, ended.stderr
    assert job.job_id is not None
    assert emails.result(job.job_id) == "sent to ada@example.com"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str, server: subprocess.Popen[str]) -> Any:
    """Post one mail; asks again while the server is still starting."""
    while True:
        try:
            return urllib3.request(
                "POST", url, json={"to": "ada@example.com"}, timeout=PATIENCE, retries=False
            )
        except urllib3.exceptions.HTTPError:
            if server.poll() is not None:
                raise AssertionError(server.stderr.read() if server.stderr else "") from None


@pytest.mark.parametrize(
    ("number", "loop"), [(signal.SIGTERM, "uvloop"), (signal.SIGTERM, "asyncio"), (signal.SIGINT, "uvloop")]
)
def test_a_signal_ends_the_server_and_the_worker_in_its_lifespan(
    number: signal.Signals, loop: str, folder: Path
) -> None:
    (folder / "drained.py").write_text(DRAINED)
    emails = Queue.connect(f"file://{folder}/jobs", "emails")
    job = emails.enqueue({"to": "ada@example.com"}, kind="slow")
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "drained:app", "--port", str(port), "--loop", loop]
    with subprocess.Popen(
        command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "running\n"
            server.send_signal(number)
            _, said = server.communicate(timeout=PATIENCE)
        finally:
            server.kill()
    assert server.returncode in (0, -number), said  # uvicorn ends by the signal that it received
    assert "Application shutdown complete" in said
    found = emails.status(job.job_id or "")
    assert found is not None
    assert (found.state, found.attempt) == ("completed", 1)


DRAINED = """
from fastapi_worker import app, emails

@emails.handler(kind="slow")
async def slow(job):
    print("running", flush=True)
    await job.stopping
"""


PIDS = """
import os
from flask_app import app

@app.after_request
def tell(answer):
    answer.headers["x-pid"] = str(os.getpid())
    return answer
"""


@pytest.mark.parametrize("program", ["gunicorn", "uwsgi"])
def test_processes_that_a_server_forks_share_the_object_that_was_made_before(
    program: str, folder: Path
) -> None:
    (line,) = [line for text in texts("sh") for line in text.splitlines() if line.startswith(f"{program} ")]
    words = shlex.split(line)
    assert ("--preload" in words) is (program == "gunicorn")
    assert "--lazy-apps" not in words
    executable = Path(sys.executable).with_name(program)
    if not executable.exists():
        pytest.skip(f"{program} is not installed beside this Python: it has no wheel for this platform")
    (folder / "told.py").write_text(PIDS)
    port = free_port()
    here = {"127.0.0.1:8000": f"127.0.0.1:{port}", "flask_app:app": "told:app"}
    command = [str(executable), *(here.get(word, word) for word in words[1:])]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server:
        try:
            jobs, pids = set(), set()
            while len(pids) < 2:  # until both have answered; several at once, so that one alone is busy
                with ThreadPoolExecutor(8) as callers:
                    asked = [
                        callers.submit(answers, f"http://127.0.0.1:{port}/mails", server) for _ in range(8)
                    ]
                for answer in (each.result() for each in asked):
                    assert answer.status == 202, answer.data
                    jobs.add(answer.json()["job"])
                    pids.add(answer.headers["x-pid"])
            assert str(server.pid) not in pids
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=PATIENCE)
        finally:
            server.kill()
    emails = Queue.connect(f"file://{folder}/jobs", "emails")
    assert emails.stats()["queued"] == len(jobs)


# ── Operation ────────────────────────────────────────────────────────────────
def drain_s(command: list[str]) -> int:
    """How long a worker lets its handlers finish."""
    return int(command[command.index("--drain") + 1].removesuffix("s"))


def check_worker(command: list[str], patience_s: float) -> None:
    """It is a command line of osqueue, and whoever stops it waits for longer than it takes."""
    check_osqueue(["osqueue", *command[1:]])
    assert Path(command[0]).name == "osqueue"
    if command[1] == "worker":
        assert patience_s > drain_s(command) + 10


UNITS = {text.splitlines()[0].removeprefix("# "): text for text in texts("ini")}


def test_the_units_of_systemd_start_what_there_is_and_wait_for_its_end() -> None:
    assert sorted(UNITS) == ["osqueue-reap.service", "osqueue-worker.service"]
    for text in UNITS.values():
        unit = configparser.ConfigParser(interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(text)
        assert unit.sections() == ["Unit", "Service", "Install"]
        check_worker(shlex.split(unit["Service"]["ExecStart"]), float(unit["Service"]["TimeoutStopSec"]))
        assert unit["Service"].get("KillSignal", "SIGTERM") == "SIGTERM"
    for name in UNITS:
        assert f" {name}" in " ".join(texts("sh"))


def test_the_image_starts_the_worker_itself_and_holds_this_release() -> None:
    (text,) = texts("dockerfile")
    (command,) = re.findall(r"^CMD (.*)$", text, re.MULTILINE)
    check_worker(json.loads(command), float(*re.findall(r"`docker stop --time (\d+)`", PAGE)))
    wheels = set(re.findall(r"osqueue-[^\s\"]+?\.whl", text))
    assert wheels == {f"osqueue-{osqueue.__version__}-py3-none-any.whl"}
    assert {line.split()[0] for line in text.splitlines()} <= {
        *("FROM", "WORKDIR", "RUN", "COPY", "USER", "STOPSIGNAL", "CMD"),
    }


def test_ecs_would_take_the_task_definition() -> None:
    (text,) = texts("json")
    definition = json.loads(text)
    operation = botocore.session.Session().get_service_model("ecs").operation_model("RegisterTaskDefinition")
    report = ParamValidator().validate(definition, operation.input_shape)
    assert not report.has_errors(), report.generate_report()
    (container,) = definition["containerDefinitions"]
    check_worker(container["command"], container["stopTimeout"])
    assert container["stopTimeout"] <= 120


def containers(value: Any) -> Iterator[dict[str, Any]]:
    """The containers of a manifest, each with the grace of its pod."""
    if isinstance(value, dict):
        for each in value.get("containers", ()):
            yield {"grace": value.get("terminationGracePeriodSeconds", 30), **each}
        for each in value.values():
            yield from containers(each)


def test_the_manifests_of_kubernetes_start_what_there_is() -> None:
    manifests = [yaml.safe_load(text) for text in texts("yaml")]
    assert [(each["apiVersion"], each["kind"]) for each in manifests] == [
        ("apps/v1", "Deployment"),
        ("batch/v1", "CronJob"),
    ]
    deployment, _ = manifests
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    found = [each for manifest in manifests for each in containers(manifest)]
    assert len(found) == 2
    for each in found:
        assert all(
            isinstance(word, str) for word in each["command"]
        )  # YAML makes numbers of what looks like one
        check_worker(each["command"], each["grace"])


def test_a_command_that_there_is_not_would_be_seen() -> None:
    with pytest.raises(AssertionError, match="No such command 'reep'"):
        check_worker(["osqueue", "reep"], 90)
    with pytest.raises(AssertionError, match="assert"):
        check_worker(["osqueue", "worker", "tasks:emails", "--drain", "60s"], 60)
