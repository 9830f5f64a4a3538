"""``archive=`` in an address: a store of its own for finished jobs and the copies of heads."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import pytest

from osqueue import Queue
from osqueue.objects.archive import ROOT
from osqueue.objects.backups import FOLDER
from osqueue.stores.address import anywhere, archive_of, open_store
from osqueue.stores.base import Get, List, Missing, Put, Store
from osqueue.stores.faulty import SlowStore
from osqueue.stores.split import SplitStore
from tests.support.store_kinds import open_address


def split_at(address: str) -> SplitStore:
    inner = open_address(address)
    assert isinstance(inner, SplitStore)
    return inner


def seen(store: Store) -> set[str]:
    """The folders that there are."""
    return {key.partition("/")[0] + "/" for key in store.list(List("")).keys}


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("place", ["memory", "file"])
@pytest.mark.parametrize("archive", ["memory", "file"])
def test_a_queue_keeps_its_archive_and_backups_apart(
    place: str, archive: str, encoded: bool, tmp_path: Path
) -> None:
    name = f"archive-of-{place}-{archive}-{encoded}"
    places = {"memory": f"memory://{name}", "file": f"file://{tmp_path}/jobs"}
    apart = {"memory": f"memory://{name}-b", "file": f"file://{tmp_path}/a+b"}
    value = quote(apart[archive], safe="") if encoded else apart[archive]
    with Queue.connect(f"{places[place]}?archive={value}", "emails") as q:
        q.enqueue(1)
        (lease,) = q.claim()
        lease.complete()
        assert q.reap().archived == 1
        assert [each.state for each in q.history()] == ["completed"]
    assert seen(open_address(apart[archive])) == {ROOT, FOLDER}
    assert not seen(open_address(places[place])) & {ROOT, FOLDER}


def test_options_belong_to_the_store_of_the_address_they_are_in() -> None:
    store = split_at("memory://?latency_ms=1&archive=s3%3A%2F%2Fa%2Fp%3Fregion%3Deu-west-1%26kms%3Dk")
    assert isinstance(store.first, SlowStore)
    inner = open_address("s3://a/p?region=eu-west-1")
    assert store.second.place == inner.place
    assert store.second.inner.region == "eu-west-1"  # type: ignore[attr-defined]
    store = split_at("memory://?archive=memory://b&latency_ms=1")
    assert isinstance(store.first, SlowStore)


def test_a_directory_bucket_has_its_archive_in_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    address = "s3://jobs--use1-az4--x-s3/prod?region=us-east-1&archive=s3://jobs-archive/prod"
    store = split_at(address)
    assert archive_of(address) == "s3://jobs-archive/prod"
    assert (store.first.ordered, store.second.ordered, store.ordered) == (False, True, False)
    assert store.place == store.first.place


@pytest.mark.parametrize(
    ("address", "archive"),
    [
        ("memory://", None),
        ("s3://a?region=b", None),
        ("s3://a?archive=s3://b/c", "s3://b/c"),
        ("s3://a?region=c&archive=file%3A%2F%2Fx%2By%2520z%3Ffsync%3Doff", "file://x+y%20z?fsync=off"),
        ("s3://a?archive=file://x+y", "file://x+y"),
    ],
)
def test_the_address_of_an_archive_is_read(address: str, archive: str | None) -> None:
    assert archive_of(address) == archive


def test_relative_folders_become_absolute_in_both_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    both = f"file://{tmp_path}/jobs?fsync=off&archive=file://{tmp_path}/old"
    assert anywhere("file://jobs?archive=file://old&fsync=off") == both
    assert anywhere(both) == both
    encoded = quote("file://old?fsync=off", safe="")
    assert archive_of(anywhere(f"s3://jobs?archive={encoded}")) == f"file://{tmp_path}/old?fsync=off"
    for same in ("s3://jobs/p?region=a", "valkey://host/0", "memory://", f"file://{tmp_path}/jobs?fsync=off"):
        assert anywhere(same) == same
    assert anywhere("file://jobs") == f"file://{tmp_path}/jobs"
    assert anywhere("s3://jobs?archive=s3://old") == "s3://jobs?archive=s3://old"


def test_what_is_relative_is_so_to_the_folder_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_store("file://jobs?archive=file://old").put(Put(f"{ROOT}a", b"x"))
    assert os.listdir(tmp_path) == ["old"]
    assert open_store(f"file://{tmp_path}/jobs").get(Get(f"{ROOT}a")) == Missing()
