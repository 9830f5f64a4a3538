"""An archive in a store of its own: the pipeline reads it there, and asks nothing of the store with the heads."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from osqueue.errors import NotSupported, Rejected
from osqueue.pipeline import catalog
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.jobs import run
from osqueue.pipeline.jobs.run import PipelineRun
from osqueue.pipeline.places import store_at
from osqueue.pipeline.tables import JOBS
from osqueue.spark.options import _reachable
from tests.pipeline.past import Archive, job, key, read
from tests.pipeline.test_source_stream import Site, flat

ENCODED = "s3%3A%2F%2Farchive%2Fprod%3Fregion%3Deu-west-1"


@pytest.mark.both_engines
@pytest.mark.parametrize("options", ["", "?fsync=off"])
def test_a_run_reads_the_archive_of_an_address(
    engine: Engine, archive: Archive, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative folders, too, wherever Spark's workers have theirs."""
    folder = archive.store.parent
    (folder / "jobs").touch()  # nobody can read a store there
    archive.write(1, "part", [job(number, 1) for number in range(3)])
    monkeypatch.chdir(folder)
    address = f"file://jobs?archive={quote(f'file://store{options}', safe='')}"
    told = run.run(engine, PipelineRun(address, str(archive.tables), str(folder / "report.html")))
    assert (told.compacted.parts, told.reported.jobs) == (1, 3)
    assert {row.job_id for row in read(archive.tables, JOBS)} == {key(number) for number in range(3)}


def test_a_stream_follows_the_archive_of_an_address(tmp_path: Path) -> None:
    (tmp_path / "jobs").touch()
    site = Site(f"file://{tmp_path}/jobs?archive=file://{tmp_path}/old")
    reader = site.reader()
    first = reader.initialOffset()
    site.archive(2)
    latest = reader.latestOffset()
    (partition,) = reader.partitions(first, latest)
    assert sum(batch.num_rows for batch in reader.read(partition)) == 2
    assert flat([partition.names]) == site.parts()
    assert [path.name for path in (tmp_path / "old").iterdir() if path.name != ".osqueue"] == ["archive"]


def test_an_archive_in_memory_is_refused(tmp_path: Path) -> None:
    address = f"file://{tmp_path}?archive=memory://old"
    with pytest.raises(NotSupported, match="store: memory://"):
        store_at(address, "store")
    with pytest.raises(Rejected, match="memory://"):
        _reachable(address)


def test_a_wrong_archive_is_told_with_the_field(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="store: archive: the address has an unknown scheme") as caught:
        store_at(f"file://{tmp_path}?archive=ftp://old", "store")
    assert caught.value.field == "store"


def test_relative_folders_are_absolute_for_sparks_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    both = f"file://{tmp_path}/jobs?archive=file://{tmp_path}/old"
    assert _reachable("file://jobs?archive=file://old") == both
    assert store_at("file://jobs?archive=file://old", "store") == both


def test_athena_reads_the_archive_where_it_is() -> None:
    address = "s3://jobs--use1-az4--x-s3/prod?region=us-east-1&archive=s3://archive/prod"
    (table,) = (each for each in catalog.catalogue("s3://tables", address) if each.name == "archive")
    assert table.location == "s3://archive/prod/archive/"
    assert table.properties["storage.location.template"].startswith("s3://archive/prod/archive/queue=")
    with pytest.raises(Rejected, match="bucket and prefix alone"):
        list(catalog.catalogue("s3://tables", f"s3://jobs?archive={ENCODED}"))
