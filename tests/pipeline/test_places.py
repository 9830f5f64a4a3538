"""Addresses of folders of tables: what Spark takes, and what nobody would honour."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from osqueue import NotSupported, Rejected
from osqueue.pipeline.places import place, store_at


@pytest.mark.parametrize("address", ["s3://bucket/tables?region=eu-west-1", "s3://bucket/tables?"])
def test_a_bucket_of_tables_has_no_options_because_spark_would_not_know_of_them(address: str) -> None:
    with pytest.raises(Rejected, match=r"^tables: .*Leave out all from the \? on.* AWS_REGION") as told:
        place(address, "tables")
    assert told.value.field == "tables"


def test_the_options_of_a_folder_are_checked_and_left_out() -> None:
    assert place("file:///var/tables?fsync=off", "tables") == "file:///var/tables"
    with pytest.raises(Rejected, match=r"^tables: .* no option 'fsnc'; it takes fsync"):
        place("file:///var/tables?fsnc=off", "tables")


def test_an_endpoint_has_a_remedy_of_its_own() -> None:
    with pytest.raises(NotSupported, match=r"^tables: .* Use a folder, and copy it there"):
        place("s3://b/p?endpoint=http://127.0.0.1:9000", "tables")


def test_a_store_keeps_its_options() -> None:
    assert store_at("file:///var/jobs?fsync=off", "store") == "file:///var/jobs?fsync=off"
    assert store_at("s3://bucket/p?region=eu-west-1", "store") == "s3://bucket/p?region=eu-west-1"
    with pytest.raises(Rejected, match=r"^store: .* no option 'fsnc'; it takes fsync"):
        store_at("file:///var/jobs?fsnc=off", "store")


def test_a_place_is_the_path_that_spark_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place("s3://bucket/prefix/", "tables") == "s3://bucket/prefix"
    for address in ("file://tables", "tables"):
        assert place(address, "tables") == f"file://{tmp_path}/tables"
