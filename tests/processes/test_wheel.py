"""The wheel is enough: built, installed where no checkout can be reached, it serves a queue over HTTP."""

from __future__ import annotations

import email
import json
import os
import re
import signal
import subprocess
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
import urllib3

import osqueue
from infra import release
from osqueue.pipeline.needs import missing
from tests.pipeline import quick
from tests.pipeline.past import Archive, job
from tests.support.patience import PATIENCE
from tests.support.places import ROOT

REPOSITORY = (
    "bench",
    "demo",
    "functions",
    "infra",
    "osqueue_cdk",
    "pipeline",
    "simulation",
    "tests",
)  # not for users
QUEUE = "/v1/queues/emails"

needs_spark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it would be released."""
    return release.build(tmp_path_factory.mktemp("dist") / "dist", offline=True)


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    """What the wheel says of itself, the README as its body."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return email.message_from_string(archive.read(name).decode())


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


def run(python: Path, folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **variables}
    return subprocess.Popen(
        [python, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def post(url: str, body: Any) -> Any:
    answer = urllib3.request("POST", url, json=body, timeout=PATIENCE, retries=10)
    assert answer.status == 200, answer.data
    return answer.json()


def test_it_holds_the_library_and_nothing_else_of_the_repository(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"osqueue"}
    assert {"osqueue/py.typed", "osqueue/aws_lambda/handlers.py", "osqueue/spark/__init__.py"} <= {*names}


def test_its_version_is_the_library_s(wheel: Path, metadata: email.message.Message) -> None:
    assert metadata["Version"] == osqueue.__version__
    assert wheel.name == f"osqueue-{osqueue.__version__}-py3-none-any.whl"
    said = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "version" in tomllib.loads(said)["project"]["dynamic"]  # one place says it


def test_its_readme_leads_to_the_files_of_its_release_from_anywhere(metadata: email.message.Message) -> None:
    (source,) = [
        each.partition(", ")[2] for each in metadata.get_all("Project-URL", []) if each[:6] == "Source"
    ]
    text = str(metadata.get_payload())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) == len(re.findall(r"\]\(([^)\s]+)\)", readme)) > 20
    assert [each for each in links if not re.match(r"https?://|#", each)] == []
    begin = f"{source}/blob/v{osqueue.__version__}/"
    files = [each.removeprefix(begin).partition("#")[0] for each in links if each.startswith(begin)]
    assert files
    assert [each for each in files if not (ROOT / each).exists()] == []
    (image,) = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert image == f"{source}/raw/v{osqueue.__version__}/docs/images/report.png"
    assert re.sub(r"\]\([^)\s]+\)", "", text).strip() == re.sub(r"\]\([^)\s]+\)", "", readme).strip()


def test_the_repository_is_named_in_one_place(metadata: email.message.Message) -> None:
    (source,) = [
        each.partition(", ")[2] for each in metadata.get_all("Project-URL", []) if each[:6] == "Source"
    ]
    tracked = [*ROOT.glob("*.*"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "layers").rglob("*.py")]
    naming = [path.name for path in tracked if path.is_file() and source in path.read_text(encoding="utf-8")]
    assert naming == ["pyproject.toml"]


def test_the_release_tries_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {*release.IMPORTS} == {"", *project["optional-dependencies"]}


def test_what_the_release_tries_works(installed: Path, tmp_path: Path) -> None:
    """With the packages of this environment; ``make release`` installs those of each extra alone."""
    for extra in release.IMPORTS:
        folder = tmp_path / (extra or "alone")
        folder.mkdir()
        release.try_out(installed, extra, folder)


def test_a_release_that_does_not_work_is_told(installed: Path, tmp_path: Path) -> None:
    with pytest.raises(release.Unreleasable, match="No module named 'nowhere'"):
        release.run(installed, "-c", "import nowhere", cwd=tmp_path)


def test_where_it_is_installed_the_checkout_cannot_be_reached(installed: Path, tmp_path: Path) -> None:
    code = (
        "import importlib.util, json, osqueue;"
        f"print(json.dumps([osqueue.__file__, *filter(importlib.util.find_spec, {REPOSITORY!r})]))"
    )
    out, err = run(installed, tmp_path, "-c", code).communicate(timeout=PATIENCE)
    (place,) = json.loads(out or "[]")
    assert (Path(place).is_relative_to(installed.parents[1]), err) == (True, "")


def settings(folder: Path) -> str:
    """Spark as quick as it can be, by what its sessions of this environment begin with."""
    return quick.variables(folder)["SPARK_CONF_DIR"]


@needs_spark
def test_spark_reads_a_queue_by_what_the_wheel_brings(installed: Path, tmp_path: Path) -> None:
    """On its workers as well: nothing is on their path but the packages of this Python."""
    code = f"""if True:
        import osqueue.spark
        from osqueue import Queue
        from pyspark.sql import SparkSession
        with Queue.connect("file://{tmp_path}/store", "emails") as queue:
            queue.enqueue({{"to": "ada"}})
        spark = SparkSession.builder.master("local[1]").getOrCreate()
        osqueue.spark.register(spark)
        place = {{"address": "file://{tmp_path}/store", "queue": "emails"}}
        jobs = spark.read.format("osqueue").options(**place).load()
        print(jobs.collect()[0].payload)
    """
    kept = {name: value for name, value in os.environ.items() if name == "JAVA_HOME"}
    more = {**kept, "SPARK_CONF_DIR": settings(tmp_path), "PYSPARK_PYTHON": str(installed)}
    out, err = run(installed, tmp_path, "-c", code, **more).communicate(timeout=PATIENCE)
    assert out == '{"to":"ada"}\n', err


def test_the_pipeline_runs_by_what_the_wheel_brings_without_java(installed: Path, tmp_path: Path) -> None:
    Archive(tmp_path).write(8, "part", [job(1, 8.2), job(2, 8.3)])
    places = [f"file://{tmp_path}/store", f"file://{tmp_path}/tables", "report.html"]
    no_java = {"JAVA_HOME": str(tmp_path)}
    out, err = run(installed, tmp_path, "-m", "osqueue", "pipeline", "run", *places, **no_java).communicate(
        timeout=PATIENCE
    )
    assert json.loads(out)["reported"]["jobs"] == 2, err
    assert err.startswith("engine local: the archive has about 0.0 MB")
    assert (tmp_path / "report.html").is_file()


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
            found = urllib3.request("GET", f"{queue}/jobs/{job}", timeout=PATIENCE, retries=10).json()
            assert found["state"] == "completed"
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
