"""The archive of the Spark jobs: the same every time, small, and all that a run imports beside Spark."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from infra import bundle, layers

RUN_MAX_S = 100.0

needs_spark = pytest.mark.skipif(find_spec("pyspark") is None, reason="Spark is not installed")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> layers.Built:
    """The archive as it is deployed."""
    return bundle.build(tmp_path_factory.mktemp("bundle") / "pipeline.tgz")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for this machine, unpacked as Spark does it."""
    folder = tmp_path_factory.mktemp("here")
    with tarfile.open(bundle.build(folder / "pipeline.tgz", layers.HERE).path) as archive:
        archive.extractall(folder / "environment", filter="data")
    return folder / "environment"


@pytest.fixture(scope="module")
def spark_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what EMR brings: PySpark and Py4J."""
    folder = tmp_path_factory.mktemp("spark")
    for name in ("pyspark", "py4j"):
        found = find_spec(name)
        assert found is not None
        assert found.origin is not None
        (folder / name).symlink_to(Path(found.origin).parent)
    return folder


def run(arguments: list[str], path: list[Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """In a Python without site-packages; what it starts has none either."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYSPARK_PYTHON": str(python),
        **kept,
    }
    return subprocess.run(
        [str(python), *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_MAX_S,
        check=False,
    )


def test_building_twice_makes_the_same_bytes(built: layers.Built, tmp_path: Path) -> None:
    again = bundle.build(tmp_path / "again.tgz")
    assert again.digest == built.digest
    assert again.path.read_bytes() == built.path.read_bytes()


def test_the_order_in_which_files_are_found_does_not_matter() -> None:
    files = {"b/c": b"1", "a": b"2", "b-c": b"3"}
    assert bundle.packed(files) == bundle.packed(dict(reversed(files.items())))
    assert bundle.packed(files) != bundle.packed({**files, "a": b"4"})


def test_it_holds_what_the_jobs_import_and_no_more(built: layers.Built) -> None:
    assert {name.partition(" ")[0] for name in built.packages} == {"pipeline", "osqueue", "msgspec"}
    with tarfile.open(built.path) as archive:
        names = archive.getnames()
        assert sum(each.size for each in archive.getmembers()) == built.unzipped
    assert "pipeline/jobs/run.py" in names
    assert "osqueue/core/history.py" in names
    left_out = tuple(f"osqueue/{name}" for name in layers.LEFT_OUT)
    assert [name for name in names if name.endswith(".pyc") or name.startswith(left_out)] == []


def test_what_is_compiled_is_compiled_for_emr(built: layers.Built) -> None:
    with tarfile.open(built.path) as archive:
        compiled = [each for each in archive.getmembers() if each.name.endswith(".so")]
        machines = {archive.extractfile(each).read(20)[18:20] for each in compiled}  # type: ignore[union-attr]
    assert machines == {b"\xb7\x00"}  # ELF's number for AArch64
    assert all(f"cpython-{bundle.PYTHON.replace('.', '')}" in each.name for each in compiled)


def test_files_are_readable_and_have_no_date_or_owner_of_their_own(built: layers.Built) -> None:
    with tarfile.open(built.path) as archive:
        about = {(each.mtime, each.uid, each.uname, each.mode) for each in archive.getmembers()}
    assert about == {(0, 0, "", 0o644)}


def test_an_archive_that_is_too_large_is_refused_with_its_sizes(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.tgz"
    with pytest.raises(layers.Unbuildable, match=r"(?s)\d\.\d MB unpacked, 0\.5 MB is its limit.*msgspec"):
        bundle.build(path, bytes_max=512 * 1024)
    assert not path.exists()


@needs_spark
@pytest.mark.parametrize("name", ["run", "compact", "metrics", "report"])
def test_a_job_needs_nothing_but_the_archive_and_spark(
    name: str, unpacked: Path, spark_alone: Path, tmp_path: Path
) -> None:
    code = (
        f"import sys; from pipeline.jobs import {name}; assert callable({name}.main); "
        "assert not {'obstore', 'boto3', 'click', 'pandas', 'pyarrow'} & set(sys.modules)"
    )
    ended = run(["-c", code], [unpacked, spark_alone], tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


@needs_spark
def test_a_worker_finds_the_library_in_the_archive_alone(
    unpacked: Path, spark_alone: Path, tmp_path: Path
) -> None:
    """Functions are pickled by their module's name, so that a worker's Python has to import it as well."""
    code = (
        "from pyspark.sql import functions as F; from pipeline import archive; from pipeline.session import session; "
        "spark = session(master='local[1]', settings={'spark.sql.codegen.wholeStage': 'false'}); "
        "judged = F.udf(archive._judgement)(F.lit(b'no gzip'), F.lit('hour=00/bad')); "
        "print(spark.range(1).select(judged).first()[0])"
    )
    ended = run(["-c", code], [unpacked, spark_alone], tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("bad is no archive part")


def test_the_entry_point_is_a_job_that_spark_submit_can_run() -> None:
    text = bundle.ENTRY.read_text(encoding="utf-8")
    assert text.rstrip().endswith('if __name__ == "__main__":\n    sys.exit(main())')
    assert "from ." not in text  # it is run from where it was downloaded to, as no part of a package
