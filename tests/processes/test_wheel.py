"""The wheel is enough: built, installed where no checkout can be reached, it serves a queue over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
import urllib3

from infra import layers

REPOSITORY = ("bench", "demo", "functions", "infra", "pipeline", "simulation", "tests")  # not for users
QUEUE = "/v1/queues/emails"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it would be released."""
    folder = tmp_path_factory.mktemp("dist")
    layers._run([layers._uv(), "build", "--quiet", "--offline", "--wheel", "--out-dir", str(folder)])
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel, and the packages of ours without our library.

    A ``.pth`` file adds a folder, and does not read the ``.pth`` files in it: one of them leads to this checkout.
    """
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin/python"


def run(python: Path, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return subprocess.Popen(
        [python, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def post(url: str, body: Any) -> Any:
    answer = urllib3.request("POST", url, json=body, timeout=60, retries=10)
    assert answer.status == 200, answer.data
    return answer.json()


def test_it_holds_the_library_and_nothing_else_of_the_repository(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"osqueue"}
    folders = {folder for name in names for folder in name.split("/")[:-1]}
    assert folders.isdisjoint(REPOSITORY)
    assert {"osqueue/py.typed", "osqueue/aws_lambda/handlers.py"} <= {*names}


def test_where_it_is_installed_the_checkout_cannot_be_reached(installed: Path, tmp_path: Path) -> None:
    code = (
        "import importlib.util, json, osqueue;"
        f"print(json.dumps([osqueue.__file__, *filter(importlib.util.find_spec, {REPOSITORY!r})]))"
    )
    out, err = run(installed, tmp_path, "-c", code).communicate(timeout=60)
    (place,) = json.loads(out or "[]")
    assert (Path(place).is_relative_to(installed.parents[1]), err) == (True, "")


def test_alone_it_serves_a_job_s_life_over_http(installed: Path, tmp_path: Path) -> None:
    with run(installed, tmp_path, "-m", "osqueue", "dev", "--port", "0") as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            told = json.loads(line)
            assert told["functions"] is None
            queue = told["url"] + QUEUE
            job = post(f"{queue}/jobs", {"payload": {"to": "ada"}})["job_id"]
            (lease,) = post(f"{queue}/claims", {"wait": 20})["jobs"]
            assert (lease["job_id"], lease["payload"]) == (job, {"to": "ada"})
            ended = {"job_id": job, "token": lease["token"], "result": "sent"}
            (done,) = post(f"{queue}/completions", {"completions": [ended]})["completions"]
            assert done["ok"]
            found = urllib3.request("GET", f"{queue}/jobs/{job}", timeout=60, retries=10).json()
            assert found["state"] == "completed"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
