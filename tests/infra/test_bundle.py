"""The archive of the Spark jobs: the same every time, as large as it says, and all that a run imports beside Spark."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tarfile
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

import pytest

from infra import bundle, layers
from tests.pipeline.quick import QUICK
from tests.support.places import ROOT

RUN_MAX_S = 300.0
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


def test_the_sizes_in_the_docs_are_those_that_are_built(built: layers.Built) -> None:
    text = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"^\| all of it; packed [\d.]+ \| ([\d.]+) \|$", text, re.MULTILINE)
    assert float(said) == pytest.approx(built.unzipped / layers.MB, rel=0.01)
    assert f"for Python {bundle.PYTHON} on Linux arm64" in text


def run(
    arguments: list[str], path: list[Path], folder: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    """In a Python without site-packages, with more in its environment; what it starts has none either."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYSPARK_PYTHON": str(python),
        **kept,
        **more,
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
    packages = {name.partition(" ")[0] for name in built.packages}
    assert packages > {"osqueue", "msgspec", "pyarrow", "obstore", "boto3", "botocore"}
    assert packages.isdisjoint({"pyspark", "py4j", "pandas", "numpy", "click", "rich"})
    with tarfile.open(built.path) as archive:
        names = archive.getnames()
        assert sum(each.size for each in archive.getmembers()) == built.unzipped
    assert {"osqueue/pipeline/jobs/run.py", "osqueue/core/archive_record.py"} <= {*names}
    left_out = tuple(f"osqueue/{name}" if "." in name else f"osqueue/{name}/" for name in layers.TOOLS)
    assert [name for name in names if name.endswith(".pyc") or name.startswith(left_out)] == []


def test_nothing_is_left_out_that_is_not_there() -> None:
    """A pattern that fits nothing more, after an update, would let the archive grow in silence."""
    files, _ = layers.gathered(bundle.EMR, "emr", layers.TOOLS)
    idle = [each for each in bundle.LEFT_OUT if not any(fnmatchcase(name, each) for name in files)]
    idle += [each for each in bundle.SERVICES if not any(name.startswith(each) for name in files)]
    assert idle == []


def test_what_is_compiled_is_compiled_for_emr(built: layers.Built) -> None:
    with tarfile.open(built.path) as archive:
        headers = {each.name: archive.extractfile(each).read(20) for each in archive}  # type: ignore[union-attr]
    compiled = {name: header for name, header in headers.items() if header.startswith(b"\x7fELF")}
    assert {header[18:20] for header in compiled.values()} == {b"\xb7\x00"}  # ELF's number for AArch64
    pythons = set(re.findall(r"\.cpython-(\d+)", " ".join(compiled)))
    assert pythons == {bundle.PYTHON.replace(".", "")}


def test_files_are_readable_and_have_no_date_or_owner_of_their_own(built: layers.Built) -> None:
    with tarfile.open(built.path) as archive:
        about = {(each.mtime, each.uid, each.uname, each.mode) for each in archive.getmembers()}
    assert about == {(0, 0, "", 0o644)}


def test_an_archive_that_is_too_large_is_refused_with_its_sizes(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.tgz"
    with pytest.raises(layers.Unbuildable, match=r"(?s)\d\.\d MB unpacked, 100 MB is its limit.*pyarrow"):
        bundle.build(path, bytes_max=100 * layers.MB)
    assert not path.exists()


@needs_spark
@pytest.mark.parametrize("name", ["run", "compact", "metrics", "report"])
def test_a_job_needs_nothing_but_the_archive_and_spark(
    name: str, unpacked: Path, spark_alone: Path, tmp_path: Path
) -> None:
    code = f"from osqueue.pipeline.jobs import {name}; assert callable({name}.main)"
    ended = run(["-c", code], [unpacked, spark_alone], tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


@needs_spark
def test_a_whole_run_needs_nothing_but_the_archive_and_spark(
    unpacked: Path, spark_alone: Path, tmp_path: Path
) -> None:
    """Its workers as well: functions are pickled by their module's name."""
    from tests.pipeline.past import Archive, job

    archive = Archive(tmp_path)
    archive.write(8, "part", [job(1, 8.2), job(2, 8.3)])
    code = (
        "from osqueue.pipeline.session import session; from osqueue.pipeline.jobs import run; "
        "from osqueue.pipeline.engines.spark import SparkEngine; "
        f"spark = session(master='local[1]', settings={QUICK}); "
        f"config = run.PipelineRun({str(archive.store)!r}, {str(archive.tables)!r}, 'report.html'); "
        "run.run(SparkEngine(spark), config); "
        f"print(spark.read.parquet({str(archive.tables)!r} + '/jobs').count())"
    )
    ended = run(["-c", code], [unpacked, spark_alone], tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "2\n"), ended.stderr
    assert (tmp_path / "report.html").is_file()


def test_it_speaks_with_s3_as_the_role_of_a_profile(
    unpacked: Path, s3_endpoint: str, s3_bucket: str, tmp_path: Path
) -> None:
    """With all that a task does there: what is left out of botocore and pyarrow is not missed."""
    profile = tmp_path / "credentials"
    profile.write_text("[default]\naws_access_key_id = testing\naws_secret_access_key = testing\n", "utf-8")
    code = """if True:
        import io, boto3, pyarrow, pyarrow.compute, pyarrow.parquet
        from osqueue.stores.address import open_store
        from osqueue.stores.base import Delete, Deleted, DeleteIfMatch, Get, List, PutIfAbsent, PutIfMatch, Refused
        file = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table({"n": [2, 1]}).sort_by("n"), file, compression="zstd")
        store = open_store("s3://BUCKET/tables")
        written = store.perform(PutIfAbsent("a/rows.parquet", b"nothing"))
        assert isinstance(store.perform(PutIfAbsent("a/rows.parquet", b"")), Refused)
        written = store.perform(PutIfMatch("a/rows.parquet", file.getvalue(), written.version))
        assert store.perform(List("a/")).keys == ("a/rows.parquet",)
        read = pyarrow.parquet.read_table(io.BytesIO(store.perform(Get("a/rows.parquet")).body))
        assert read["n"].to_pylist() == [1, 2]
        assert isinstance(store.perform(DeleteIfMatch("a/rows.parquet", written.version)), Deleted)
        assert isinstance(store.perform(Delete(("a/rows.parquet",))), Deleted)
        for name in ("sso", "sso-oidc", "sts"):  # by which boto3 makes a role or a profile credentials
            boto3.client(name, region_name="eu-west-1")
    """
    ended = run(
        ["-c", code.replace("BUCKET", s3_bucket)],
        [unpacked],
        tmp_path,
        AWS_ENDPOINT_URL_S3=s3_endpoint,
        AWS_DEFAULT_REGION="us-east-1",
        AWS_SHARED_CREDENTIALS_FILE=str(profile),
        AWS_EC2_METADATA_DISABLED="true",
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_entry_point_is_a_job_that_spark_submit_can_run() -> None:
    text = bundle.ENTRY.read_text(encoding="utf-8")
    assert text.rstrip().endswith('if __name__ == "__main__":\n    sys.exit(command.script(run.main))')
    assert "from ." not in text  # it is run from where it was downloaded to, as no part of a package
