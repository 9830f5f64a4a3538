"""What only files can get wrong: leftovers of kills, flush order, locks, paths, full disks."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue
from osqueue.errors import OsqueueError, Rejected, Unavailable, Unknown
from osqueue.stores import file_flushes, file_hot, file_swap
from osqueue.stores.base import (
    KEY_BYTES_MAX,
    Delete,
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    List,
    Listed,
    Missing,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
)
from osqueue.stores.counting import CountingStore
from osqueue.stores.file import LEFTOVER_MS_MAX, FileStore
from tests.support.machines import StoppedClock
from tests.support.replies import error_of, version_of


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def temporary_files(store: FileStore) -> list[str]:
    return os.listdir(f"{store.root}/.osqueue/tmp")


@pytest.mark.parametrize("fsync", [True, False])
@pytest.mark.parametrize("removed", ["", ".osqueue", ".osqueue/tmp", ".osqueue/locks"])
def test_folders_that_were_removed_are_made_again(tmp_path: Path, removed: str, fsync: bool) -> None:
    store = FileStore(tmp_path / "store", fsync)
    version = version_of(store.perform(PutIfAbsent("a/key", b"one", hot=True)))
    version = version_of(store.perform(PutIfMatch("a/key", b"two", version, hot=True)))
    shutil.rmtree(Path(store.root, removed))
    if removed:
        version = version_of(store.perform(PutIfMatch("a/key", b"three", version, hot=True)))
    else:
        assert store.perform(PutIfMatch("a/key", b"three", version, hot=True)) == Refused()
        version = version_of(store.perform(PutIfAbsent("a/key", b"three", hot=True)))
    shutil.rmtree(Path(store.root, removed), ignore_errors=True)  # nothing may have needed it
    assert store.perform(Delete(("a/key",))) == Deleted()
    version_of(store.perform(Put("a/key", b"four")))
    assert store.perform(List("")) == Listed(("a/key",), more=False)


def test_what_was_flushed_before_a_folder_was_removed_is_flushed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path / "store")
    version_of(store.perform(Put("a/b/key", b"one")))
    shutil.rmtree(store.root)
    version_of(store.perform(Put("a/b/c/key", b"one", durable=False)))
    flushed: list[str] = []
    monkeypatch.setattr(file_flushes, "flush_folder", flushed.append)
    version_of(store.perform(Put("a/b/key", b"two")))
    assert {os.path.relpath(each, store.root) for each in flushed} >= {"a/b", "a", "."}


def test_a_queue_whose_folder_was_removed_begins_again(tmp_path: Path) -> None:
    machine = StoppedClock()
    q: Queue[int] = Queue(FileStore(tmp_path / "store"), "mail", machine=machine)
    q.enqueue_many([{"payload": number} for number in range(3)])
    shutil.rmtree(tmp_path / "store")
    with contextlib.suppress(Unknown):  # of a call that follows a commit nobody can tell what became of it
        q.enqueue(3)
    assert machine.slept < 1.0
    assert q.claim() == []
    assert q.enqueue(4).status == "queued"
    assert [lease.payload for lease in q.claim(9)] == [4]


def test_leftovers_of_the_dead_do_not_show_and_are_dropped_later(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    version_of(store.perform(PutIfAbsent("a/key", b"body")))
    young, old = (Path(store.root, ".osqueue/tmp", name) for name in ("young", "old"))
    for leftover in (young, old):
        leftover.write_bytes(b"half")
    past = time.time() - LEFTOVER_MS_MAX / 1000 - 60
    os.utime(old, (past, past))

    assert store.list(List("")) == Listed(("a/key",), more=False)
    later = FileStore(tmp_path)
    version_of(later.perform(PutIfAbsent("b", b"body")))
    assert young.exists(), "a living process may still be writing it"
    assert not old.exists()
    assert later.list(List("")) == Listed(("a/key", "b"), more=False)


# ── Flushes ──────────────────────────────────────────────────────────────────


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What the store asked of the disk, in order: the call and the inode it was about."""
    made: list[tuple[str, int]] = []
    fsync, link, rename = os.fsync, os.link, os.rename

    def record_fsync(descriptor: int) -> None:
        made.append(("fsync", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def record_link(source: str, target: str, **options: Any) -> None:
        made.append(("link", os.stat(source).st_ino))
        try:
            link(source, target, **options)
        except OSError:
            made.pop()
            raise

    def record_rename(source: str, target: str) -> None:
        made.append(("rename", os.stat(source).st_ino))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "link", record_link)
    monkeypatch.setattr(os, "rename", record_rename)
    return made


def inode(path: str) -> int:
    return os.stat(path).st_ino


def test_a_creation_flushes_the_body_then_names_it_then_flushes_the_folders(
    store: FileStore, calls: list[tuple[str, int]]
) -> None:
    version_of(store.perform(PutIfAbsent("a/b/key", b"body")))
    root = store.root
    body = inode(f"{root}/a/b/key")
    above = [("fsync", inode(str(folder))) for folder in Path(root).parents]
    assert calls[: len(above)] == above, "the store's own folder is new as well, or those above it are"
    assert calls[len(above) :] == [
        ("fsync", body),
        ("link", body),
        ("fsync", inode(f"{root}/a/b")),
        ("fsync", inode(f"{root}/a")),
        ("fsync", inode(root)),
    ]
    calls.clear()
    version_of(store.perform(PutIfAbsent("a/b/other", b"body")))
    other = inode(f"{root}/a/b/other")
    assert calls == [("fsync", other), ("link", other), ("fsync", inode(f"{root}/a/b"))]


def test_a_replacement_flushes_the_body_then_renames_then_flushes_the_folder(
    store: FileStore, calls: list[tuple[str, int]]
) -> None:
    version = version_of(store.perform(PutIfAbsent("q/head", b"one")))
    for write in (PutIfMatch("q/head", b"two", version), Put("q/head", b"three")):
        calls.clear()
        version_of(store.perform(write))
        body = inode(f"{store.root}/q/head")
        assert calls == [("fsync", body), ("rename", body), ("fsync", inode(f"{store.root}/q"))]


def test_what_need_not_be_durable_is_never_flushed(tmp_path: Path, calls: list[tuple[str, int]]) -> None:
    flushing, careless = FileStore(tmp_path / "1"), FileStore(tmp_path / "2", fsync=False)
    version_of(flushing.perform(PutIfAbsent("first", b"x")))
    calls.clear()
    for _ in range(2):
        version_of(flushing.perform(Put("q/intents/1", b"x", durable=False)))
    version = version_of(careless.perform(PutIfAbsent("q/head", b"x")))
    version = version_of(careless.perform(PutIfMatch("q/head", b"y", version)))
    version_of(careless.perform(Put("q/segment", b"y")))
    assert careless.perform(DeleteIfMatch("q/head", version)) == Deleted()
    assert [name for name, _ in calls if name == "fsync"] == []


@pytest.mark.parametrize("offered", [True, False])
def test_a_replacement_without_flushes_leaves_the_new_object_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: bool
) -> None:
    if not offered:
        monkeypatch.setattr(file_swap, "_exchange", lambda: lambda one, other: False)
    store = FileStore(tmp_path, fsync=False)
    version = version_of(store.perform(PutIfAbsent("q/head", b"one")))
    renamed: list[str] = []
    rename = os.rename
    monkeypatch.setattr(os, "rename", lambda *paths: (renamed.append(paths[1]), rename(*paths)))
    version = version_of(store.perform(PutIfMatch("q/head", b"two", version)))
    found = store.perform(Get("q/head"))
    assert isinstance(found, Found)
    assert (found.body, found.version) == (b"two", version)
    assert os.listdir(tmp_path / ".osqueue/tmp") == []
    assert offered or len(renamed) == 1


def test_an_exchange_that_fails_replaces_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"new")
    with pytest.raises(FileNotFoundError):
        file_swap.replace_unflushed(str(tmp_path / "new"), str(tmp_path / "missing"))
    assert os.listdir(tmp_path) == ["new"]


def test_a_refused_write_costs_no_flush(store: FileStore, calls: list[tuple[str, int]]) -> None:
    version_of(store.perform(PutIfAbsent("q/head", b"one")))
    calls.clear()
    assert store.perform(PutIfAbsent("q/head", b"two")) == Refused()
    assert store.perform(PutIfMatch("q/head", b"two", "stale")) == Refused()
    assert calls == []


# ── Versions and locks ───────────────────────────────────────────────────────


def test_versions_never_repeat_though_the_clock_stands_and_inodes_return(tmp_path: Path) -> None:
    machine = StoppedClock()
    store = FileStore(tmp_path, fsync=False, machine=machine)
    version_of(store.perform(PutIfAbsent("ids/0", b"x")))
    store.perform(Delete(("ids/0",)))
    for lock in Path(tmp_path, ".osqueue/locks").iterdir():
        os.utime(lock, (0, 0))  # lock files are born with the real time; this test's time is another
    seen = []
    for _ in range(50):
        first = version_of(store.perform(PutIfAbsent("ids/1", b"same")))
        second = version_of(store.perform(PutIfMatch("ids/1", b"same", first)))
        third = version_of(store.perform(Put("ids/1", b"same", durable=False)))
        seen += [first, second, third]
        store.perform(Delete(("ids/1",)))
    assert len(set(seen)) == len(seen)
    inodes = {version.partition("-")[2] for version in seen}
    times = {version.partition("-")[0] for version in seen}
    assert len(times) > 1
    if len(inodes) == len(seen):
        pytest.skip("this file system gave every file a new inode number: nothing was shown")


def test_locks_neither_show_nor_pile_up(store: FileStore) -> None:
    for number in range(300):
        version_of(store.perform(Put(f"q/intents/{number:03d}", b"x", durable=False)))
    store.perform(Delete(tuple(f"q/intents/{number:03d}" for number in range(300))))
    assert store.list(List("")) == Listed((), more=False)
    assert len(os.listdir(f"{store.root}/.osqueue/locks")) <= 64
    assert temporary_files(store) == []


# ── Paths ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "key",
    [
        *("", "/", "/etc/passwd", "a//b", "a/", "..", "../x", "a/../../x", "a/..", ".", "a/./b"),
        *(".osqueue/locks/00", ".hidden", "a/.hidden", "a\\b", "a\0b"),
    ],
)
def test_keys_that_are_path_tricks_are_rejected(store: FileStore, key: str, tmp_path: Path) -> None:
    for request in (
        *(Get(key), Put(key, b"x"), PutIfAbsent(key, b"x"), PutIfMatch(key, b"x", "v")),
        *(Delete((key,)), DeleteIfMatch(key, "v")),
    ):
        assert isinstance(error_of(store.perform(request)), Rejected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("prefix", ["../", "/a/", "a/../", ".osqueue/", ".osqueue/tmp/"])
def test_listings_stay_inside_the_store(store: FileStore, prefix: str) -> None:
    version_of(store.perform(Put("a/key", b"x")))
    assert isinstance(error_of(store.perform(List(prefix))), Rejected)


def test_a_key_and_a_folder_of_one_name_are_rejected_with_the_reason(store: FileStore) -> None:
    version_of(store.perform(Put("a/b", b"x")))
    for request in (Put("a", b"x"), PutIfAbsent("a", b"x"), Put("a/b/c", b"x"), PutIfAbsent("a/b/c", b"x")):
        error = error_of(store.perform(request))
        assert isinstance(error, Rejected)
        assert "folder" in error.message
    assert store.perform(Get("a")) == Missing()
    assert store.perform(Get("a/b/c")) == Missing()
    assert store.perform(PutIfMatch("a", b"x", "v")) == Refused()
    assert store.perform(Delete(("a", "a/b/c"))) == Deleted()
    assert store.list(List("")) == Listed(("a/b",), more=False)


def test_the_longest_name_promised_fits_in_one_component(store: FileStore) -> None:
    room = store.room_below("folder/")
    assert room == 255
    key = "folder/" + "k" * room
    version_of(store.perform(PutIfAbsent(key, b"x")))
    assert store.list(List("")).keys == (key,)
    assert isinstance(error_of(store.perform(PutIfAbsent(key + "k", b"x"))), Rejected)


def test_the_longest_key_is_one_of_s3(store: FileStore) -> None:
    folders = "/".join(["f" * 200] * 4) + "/"
    key = folders + "k" * store.room_below(folders)
    assert len(key) == KEY_BYTES_MAX
    version_of(store.perform(PutIfAbsent(key, b"x")))
    assert store.list(List("")).keys == (key,)


def test_files_hold_the_bodies_exactly(store: FileStore) -> None:
    body = b'{"job": 1}\n' * 100
    version_of(store.perform(PutIfAbsent("archive/queue=a/date=2026-01-01/hour=00/1.jsonl", body)))
    assert Path(store.root, "archive/queue=a/date=2026-01-01/hour=00/1.jsonl").read_bytes() == body


def test_a_relative_root_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = FileStore("jobs")
    monkeypatch.chdir("/")
    version_of(store.perform(Put("key", b"x")))
    assert (tmp_path / "jobs/key").read_bytes() == b"x"


# ── Disks that fail, files that vanish ───────────────────────────────────────


@pytest.mark.parametrize(
    ("call", "number", "remedy", "permanent"),
    [
        ("write", errno.ENOSPC, "free space", False),
        ("fsync", errno.EIO, "disk", False),
        ("utime", errno.EPERM, "sticky bit", True),
        ("link", errno.EACCES, "chmod", True),
        ("open", errno.EROFS, "for writing", True),
    ],
)
def test_a_failing_disk_is_an_error_with_a_remedy_and_leaves_nothing(
    store: FileStore,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
    remedy: str,
    permanent: bool,
) -> None:
    version_of(store.perform(PutIfAbsent("first", b"x")))

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        error = error_of(store.perform(PutIfAbsent("second", b"x")))
    assert isinstance(error, Unavailable)
    assert remedy in error.message
    assert error.permanent == permanent
    assert temporary_files(store) == []
    assert store.perform(Get("second")) == Missing()


@pytest.mark.parametrize("hot", [False, True])
def test_what_fails_after_the_change_may_be_there_and_is_not_told_as_refused(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, hot: bool
) -> None:
    written = version_of(store.perform(PutIfAbsent("key", b"old", hot)))

    def fail(_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(file_flushes, "flush_folder", fail)
        patch.setattr(file_hot, "flush_data", fail)
        error = error_of(store.perform(PutIfMatch("key", b"new", written)))
    assert not error.permanent
    assert isinstance(reply := store.perform(Get("key")), Found)
    assert reply.body == b"new"


def test_a_queue_in_a_folder_that_may_not_be_written_says_so_at_once(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    q: Queue[int] = Queue(store, "mail")
    q.enqueue(1)

    def fail(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    requests = CountingStore(store)
    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "_write_temporary", fail)
        patch.setattr(FileStore, "_swap", fail)
        for again in (q, Queue(requests, "mail")):
            with pytest.raises(Unavailable, match="share its folder with a group") as refused:
                again.enqueue(2)
            assert "may still be applied" not in refused.value.message
    assert sum(requests.requests.values()) < 6
    assert q.stats()["queued"] == 1


def test_a_folder_nobody_may_write_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"not a folder")
    error = error_of(FileStore(tmp_path / "file").perform(Put("key", b"x")))
    assert isinstance(error, OsqueueError)
    assert str(tmp_path) in error.message


def test_a_folder_that_vanishes_during_the_walk_is_left_out(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("a/1", "b/1", "c/1"):
        version_of(store.perform(Put(key, b"x", durable=False)))
    scandir = os.scandir

    def vanish(path: str) -> Any:
        if path.endswith("/b"):
            raise FileNotFoundError(errno.ENOENT, "gone", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", vanish)
    assert store.list(List("")) == Listed(("a/1", "c/1"), more=False)


def test_listing_and_reading_work_while_others_write_and_delete(store: FileStore) -> None:
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            names = [f"q/intents/{number}" for number in range(20)]
            for name in names:
                store.perform(Put(name, name.encode(), durable=False))
            store.perform(Delete(tuple(names)))

    version_of(store.perform(Put("q/intents/always", b"q/intents/always")))
    writer = threading.Thread(target=churn)
    writer.start()
    try:
        for _ in range(100):
            listed = store.perform(List("q/"))
            assert isinstance(listed, Listed)
            assert "q/intents/always" in listed.keys
            for key in listed.keys[:3]:
                reply = store.perform(Get(key))
                assert reply == Missing() or (isinstance(reply, Found) and reply.body == key.encode())
    finally:
        done.set()
        writer.join()
