"""The store port's contract, run over every store of ``tests/support/store_kinds.py``; and what only ours promise."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from osqueue.maintenance.store_races import count_up
from osqueue.stores.base import (
    Delete,
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    PutIfAbsent,
    PutIfMatch,
    Store,
    Written,
)
from osqueue.stores.file import FileStore
from osqueue.stores.s3 import S3Store
from osqueue.stores.s3_boto import BotoStore
from osqueue.testing.store_contract import StoreContract
from osqueue.testing.store_contract.opening import create, found
from osqueue.testing.store_contract.racing import INCREMENTS, run_processes
from tests.support import store_kinds


class TestStores(StoreContract):
    """Every store of ours keeps every rule."""

    @pytest.fixture
    def open_store(self, opening: tuple[Callable[..., Store], tuple[Any, ...]]) -> Callable[[], Store]:
        function, arguments = opening
        return functools.partial(function, *arguments)

    @pytest.fixture(params=["file", "s3", "s3-boto", "valkey"])
    def unreachable_store(
        self, request: pytest.FixtureRequest, tmp_path: Path, aws_environment: None
    ) -> Store:
        """A folder where a file is, and servers at a port where nobody listens."""
        if request.param == "file":
            (tmp_path / "file").touch()
            return FileStore(tmp_path / "file")
        if request.param == "valkey":
            pytest.importorskip("valkey")
            return store_kinds.open_address("valkey://127.0.0.1:1")
        opener = store_kinds.open_boto if request.param == "s3-boto" else store_kinds.open_s3
        return opener("bucket", "", "http://127.0.0.1:1")


# S3's version is a hash of the content: there the head makes its bodies differ by a random first field.
def test_identical_content_is_a_new_version(store: Store) -> None:
    if isinstance(store, S3Store | BotoStore):
        version = create(store, "head", b"same")
        reply = store.perform(PutIfMatch("head", b"same", version))
        assert reply == Written(version), (
            "S3 does better than we say: drop the exception and the remark in s3.py"
        )
        return
    seen = [create(store, "head", b"same")]
    for _ in range(20):
        reply = store.perform(PutIfMatch("head", b"same", seen[-1]))
        assert isinstance(reply, Written)
        seen.append(reply.version)
    assert len(set(seen)) == len(seen)


def test_a_version_never_returns_when_the_content_does(store: Store) -> None:
    """ABA, deletions included. The leading count stands for the head's random commit id."""
    distinct = isinstance(store, S3Store | BotoStore)
    seen: list[str] = []
    for turn in range(12):
        for content in (b"A", b"B", b"A"):
            body = (b"%d " % len(seen) if distinct else b"") + content
            current = store.perform(Get("head"))
            if isinstance(current, Found):
                reply = store.perform(PutIfMatch("head", body, current.version))
            else:
                reply = store.perform(PutIfAbsent("head", body))
            assert isinstance(reply, Written)
            seen.append(reply.version)
        if turn % 2:
            store.perform(Delete(("head",)))
        else:
            assert store.perform(DeleteIfMatch("head", seen[-1])) == Deleted()
    assert len(set(seen)) == len(seen)


def test_processes_that_reach_a_folder_by_two_paths_lose_no_increment(tmp_path: Path) -> None:
    create(FileStore(tmp_path / "store"), "counter", b"0")
    (tmp_path / "link").symlink_to(tmp_path / "store")
    opener = functools.partial(FileStore, tmp_path / "store")
    run_processes(opener, count_up_in, [(tmp_path, "store"), (tmp_path, "link")] * 2)
    assert found(FileStore(tmp_path / "store"), "counter").body == b"%d" % (4 * 200 * INCREMENTS)


def count_up_in(_: Store, folder: Path, name: str) -> None:
    count_up(FileStore(folder / name, fsync=False), "counter", 200 * INCREMENTS)
