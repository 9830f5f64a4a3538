"""Whether what a queue in a folder answers outlasts a power cut: also what others have written and not yet flushed."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue, Unavailable, WaitTimeout
from osqueue.bulk.receipts import BulkReceipts
from osqueue.clock import MACHINE
from osqueue.commit.writer import ShardWriter
from osqueue.objects.layout import root_of
from osqueue.stores import file_flushes, file_hot, file_swap
from osqueue.stores.base import Failed, Get, Put, PutIfAbsent, Unchanged, Written
from osqueue.stores.file import FileStore
from tests.support.machines import StoppedClock
from tests.support.replies import error_of, version_of


class Disk:
    """Flushes of folders and of what changes in place, noted, and failing around the queue's head while it is bad."""

    def __init__(self, root: Path) -> None:
        self.head = str(root / root_of("mail", 0)).rstrip("/")
        self.flushed: list[str] = []
        self.bad = False

    def flush(self, folder: str) -> None:
        if self.bad and folder == self.head:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.flushed.append(folder)

    def flush_data(self, descriptor: int) -> None:
        if self.bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.flushed.append("in place")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk(tmp_path)
    monkeypatch.setattr(file_flushes, "flush_folder", made.flush)
    monkeypatch.setattr(file_hot, "flush_data", made.flush_data)
    return made


def test_an_operation_whose_flush_failed_is_not_acknowledged(tmp_path: Path, disk: Disk) -> None:
    q: Queue[Any] = Queue(FileStore(tmp_path), "mail", timeout=1, machine=StoppedClock())
    q.enqueue(1)
    disk.bad = True
    with pytest.raises(Unavailable, match=r"may still be applied.*cannot flush"):
        q.enqueue(2)
    disk.bad = False
    assert q.enqueue(3).status == "queued"


@pytest.mark.parametrize(("fsync", "flushes"), [(True, 1), (False, 0)])
def test_who_answers_from_anothers_head_flushes_it_once(
    tmp_path: Path, disk: Disk, fsync: bool, flushes: int
) -> None:
    Queue[Any](FileStore(tmp_path, fsync), "mail").enqueue(1, delay=60)
    disk.flushed.clear()
    idle: Queue[Any] = Queue(FileStore(tmp_path, fsync), "mail")
    for _ in range(3):
        assert not idle.claim()
    assert disk.flushed.count(disk.head) == flushes


@pytest.mark.parametrize(
    "ask",
    [
        lambda q, job_id: q.status(job_id),
        lambda q, job_id: q.stats(),
        lambda q, job_id: q.enqueue_and_wait(1, timeout=0, id="a"),
        lambda q, job_id: q.enqueue(1, id="a"),
    ],
    ids=["status", "stats", "wait", "duplicate"],
)
def test_who_tells_of_a_job_flushes_what_another_wrote(
    tmp_path: Path, disk: Disk, ask: Callable[[Queue[Any], str], Any]
) -> None:
    job_id = Queue[Any](FileStore(tmp_path), "mail").enqueue(1, id="a").job_id
    disk.flushed.clear()
    with contextlib.suppress(WaitTimeout):
        ask(Queue(FileStore(tmp_path), "mail"), job_id)
    assert disk.head in disk.flushed


def test_what_is_known_to_be_flushed_is_read_without_a_flush(tmp_path: Path, disk: Disk) -> None:
    q, other = (Queue[Any](FileStore(tmp_path), "mail") for _ in range(2))
    job_id = q.enqueue(1).job_id
    assert job_id is not None
    disk.flushed.clear()
    assert q.status(job_id)
    assert disk.flushed == [], "it has flushed that itself"
    for _ in range(3):
        assert other.status(job_id)
    assert disk.flushed.count(disk.head) == 1
    q.enqueue(2)
    disk.flushed.clear()
    assert other.status(job_id)
    assert disk.flushed == [], "the file says that it is"


def test_what_changed_in_place_and_was_not_flushed_is_flushed_by_who_tells_of_it(
    tmp_path: Path, disk: Disk
) -> None:
    q, other = (Queue[Any](FileStore(tmp_path), "mail") for _ in range(2))
    job_id = q.enqueue(1).job_id
    assert job_id is not None
    assert other.status(job_id)
    usual, q.timeout, other.timeout = q.timeout, 0.5, 0.5  # seconds that a refused flush is tried again
    disk.bad = True
    with pytest.raises(Unavailable, match="cannot flush"):
        q.enqueue(2)
    with pytest.raises(Unavailable, match="cannot flush"):
        other.status(job_id)
    disk.bad = False
    other.timeout = usual
    disk.flushed.clear()
    for _ in range(2):
        assert other.status(job_id)
    assert disk.flushed == ["in place"]


def test_who_enqueues_for_the_sake_of_an_ids_entry_flushes_that(tmp_path: Path, disk: Disk) -> None:
    Queue[Any](FileStore(tmp_path), "mail").enqueue(1, id="a")
    disk.flushed.clear()
    assert Queue[Any](FileStore(tmp_path), "mail").enqueue(1, id="a").status == "duplicate"
    assert str(tmp_path / "ids/mail") in disk.flushed


def test_a_batch_is_known_from_what_outlasts_a_power_cut() -> None:
    asked = next(BulkReceipts("mail", MACHINE, ShardWriter).read("b"))  # type: ignore[arg-type]
    assert isinstance(asked, Get)
    assert asked.flushed


def test_two_that_start_in_a_new_folder_both_flush_those_above_it(tmp_path: Path, disk: Disk) -> None:
    """The one that comes second finds them, and answers before the first has flushed them."""
    root = tmp_path / "new" / "jobs"
    for each in (FileStore(root), FileStore(root)):
        disk.flushed.clear()
        version_of(each.perform(Put("key", b"x")))
        assert {str(tmp_path), str(tmp_path / "new"), str(root)} <= set(disk.flushed)


@pytest.mark.parametrize(
    ("number", "fails"), [(errno.EACCES, False), (errno.EINVAL, False), (errno.EIO, True)]
)
def test_folders_above_that_are_not_ours_to_flush_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fails: bool
) -> None:
    def flush(folder: str) -> None:
        if folder == "/":
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(file_flushes, "flush_folder", flush)
    assert isinstance(FileStore(tmp_path).perform(Put("key", b"x")), Failed if fails else Written)


def test_a_read_that_is_to_be_flushed_fails_with_its_flush(tmp_path: Path, disk: Disk) -> None:
    store = FileStore(tmp_path)
    written = version_of(FileStore(tmp_path).put_if_absent(PutIfAbsent(root_of("mail", 0) + "head", b"x")))
    disk.bad = True
    for unless in (None, written):
        error = error_of(store.perform(Get(root_of("mail", 0) + "head", unless=unless, flushed=True)))
        assert not error.permanent
    assert isinstance(store.perform(Get(root_of("mail", 0) + "head", unless=written)), Unchanged)


@pytest.mark.parametrize("fsync", [True, False])
def test_a_temporary_file_that_stays_does_not_undo_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    """As in a folder where only its owner may remove a file: the write has taken place all the same."""
    q: Queue[Any] = Queue(FileStore(tmp_path, fsync), "mail")
    q.enqueue(1)

    def refused(path: str) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

    with monkeypatch.context() as patch:
        patch.setattr(file_swap.os, "unlink", refused)
        assert q.enqueue(2).status == "queued"
    assert q.stats()["queued"] == 2
