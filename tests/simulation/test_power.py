"""Power cuts: what a folder's store and its queue promised is there, whatever the disk is left with."""

from __future__ import annotations

import errno
import os
from functools import cache
from pathlib import Path

import pytest

from osqueue.stores.base import Delete, Deleted, Found, Get, List, Put, PutIfAbsent, PutIfMatch, Refused
from osqueue.stores.file import FileStore
from simulation.disk import Disk, File
from simulation.mutations.power import unflushed_looks
from simulation.posix import Posix, running
from simulation.power import PowerReport, power_cuts
from simulation.power_scenes import SCENES, play
from simulation.slot_scenes import left_behind
from tests.support.replies import version_of

SEEDS = 2


@cache
def power_cut(seed: int) -> PowerReport:
    """Several tests look at one run."""
    return power_cuts(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_promised_outlasts_every_power_cut(seed: int) -> None:
    report = power_cut(seed)
    assert report.violation == ""
    assert report.looks > 50
    assert report.left > 10 * report.looks
    assert report.calls["complete"] > 5


@pytest.mark.parametrize("name", SCENES)
def test_what_was_told_from_what_another_had_yet_to_flush_outlasts_power_cuts(name: str) -> None:
    assert play(SCENES[name]) == ""


def test_a_result_that_an_unflushed_head_told_is_flushed_before_it_is_answered() -> None:
    with unflushed_looks():
        assert play(SCENES["waits meanwhile"]) == ""


def test_of_what_was_replaced_nothing_stays_although_the_writer_dies() -> None:
    assert left_behind() == ""


def test_a_run_replays() -> None:
    assert power_cuts(1) == power_cut(1)


# ── The model ────────────────────────────────────────────────────────────────


def write(disk: Disk, path: str, data: bytes) -> File:
    file = disk.create(path, 1)
    file.data = data
    return file


def content(disk: Disk) -> dict[str, bytes]:
    return {path: file.data for path, file in disk.files()}


def all_left(disk: Disk) -> set[frozenset[tuple[str, bytes]]]:
    """Every content that a power cut may leave: all combinations, as a number counts."""
    found: set[frozenset[tuple[str, bytes]]] = set()
    turns: list[int] = []
    widths: list[int] = []

    def choose(slot: object, count: int) -> int:
        widths.append(count)
        if len(widths) > len(turns):
            turns.append(0)
        return turns[len(widths) - 1]

    while True:
        widths.clear()
        found.add(frozenset(content(disk.survivor(choose)).items()))
        del turns[len(widths) :]
        while turns and turns[-1] + 1 == widths[len(turns) - 1]:
            turns.pop()
        if not turns:
            return found
        turns[-1] += 1


def left(*contents: dict[str, bytes]) -> set[frozenset[tuple[str, bytes]]]:
    return {frozenset(each.items()) for each in contents}


def test_what_was_not_flushed_may_be_gone_torn_or_there() -> None:
    disk = Disk()
    write(disk, "/a", b"1234")
    torn = [{"/a": data} for data in (b"", b"12", bytes(4), b"1234")]
    assert all_left(disk) == left({}, *torn)
    disk.root.flush()
    assert all_left(disk) == left(*torn)
    disk.find("/a").flush()
    assert all_left(disk) == left({"/a": b"1234"})


def test_a_rename_is_old_or_new_at_either_end_and_a_removal_may_be_undone() -> None:
    disk = Disk()
    for path, data in (("/new", b"n"), ("/key", b"k")):
        write(disk, path, data).flush()
    disk.root.flush()
    disk.rename("/new", "/key")
    assert content(disk) == {"/key": b"n"}
    both = [{"/new": b"n", "/key": data} for data in (b"n", b"k")]
    assert all_left(disk) == left({"/key": b"n"}, {"/key": b"k"}, *both)
    disk.root.flush()
    disk.unlink("/key")
    assert all_left(disk) == left({}, {"/key": b"n"})


def test_a_folder_that_was_not_flushed_takes_what_it_holds_along() -> None:
    disk = Disk()
    disk.make_folder("/f")
    write(disk, "/f/a", b"").flush()
    disk.find("/f").flush()
    assert all_left(disk) == left({}, {"/f/a": b""})
    disk.root.flush()
    assert all_left(disk) == left({"/f/a": b""})


def test_no_two_files_that_a_power_cut_leaves_have_one_inode_number() -> None:
    """Two files with one number would share a lock."""
    disk = Disk()
    disk.make_folder("/f")
    write(disk, "/f/removed", b"")
    disk.root.flush()
    disk.find("/f").flush()
    disk.unlink("/f/removed")
    write(disk, "/new", b"")
    survivor = disk.survivor(lambda slot, count: 0 if slot[2] == "removed" else count - 1)
    numbers = {path: file.number for path, file in survivor.files()}
    assert numbers.keys() == {"/f/removed", "/new"}
    assert len({*numbers.values(), survivor.root.number, survivor.find("/f").number}) == 4


def test_inode_numbers_are_used_again_when_nobody_has_the_file_any_more() -> None:
    disk = Disk()
    first = write(disk, "/a", b"")
    disk.unlink("/a")
    assert write(disk, "/b", b"").number == first.number
    held = write(disk, "/c", b"")
    held.opened = 1
    disk.unlink("/c")
    assert write(disk, "/d", b"").number != held.number
    disk.close(held)
    assert write(disk, "/e", b"").number == held.number


def test_the_store_works_on_the_model_as_on_a_disk(tmp_path: Path) -> None:
    """The same requests, answered in the same way: the model stands for the real system calls."""
    told = []
    for root, system in ((str(tmp_path / "jobs"), None), ("/srv/jobs", Posix(Disk(), lambda: 0))):
        if system is None:
            told.append(story(FileStore(root)))
            continue
        with running(system):
            told.append(story(FileStore(root, network=True)))
    assert told[0] == told[1]


def story(store: FileStore) -> list[object]:
    first = version_of(store.perform(PutIfAbsent("q/head", b"one")))
    second = version_of(store.perform(PutIfMatch("q/head", b"two", first)))
    version_of(store.perform(Put("q/intents/1", b"x" * 5_000, durable=False)))
    found = store.perform(Get("q/head"))
    assert isinstance(found, Found)
    assert found.version == second
    part = store.perform(Get("q/intents/1", start=4_990, length=20))
    assert isinstance(part, Found)
    return [
        store.perform(PutIfAbsent("q/head", b"x")) == Refused(),
        store.perform(PutIfMatch("q/head", b"x", first)) == Refused(),
        type(store.perform(Put("q", b"x"))).__name__,
        type(store.perform(Put("q/head/x", b"x"))).__name__,
        store.perform(Get("q")),
        store.perform(Get("q/head/x")),
        found.body,
        part.body,
        store.perform(List("")),
        store.perform(Delete(("q/intents/1", "q/gone"))) == Deleted(),
        store.perform(List("")),
        os.path.basename(store.root),
    ]


def test_the_model_has_no_call_that_it_does_not_know() -> None:
    with running(Posix(Disk(), lambda: 0)):
        from osqueue.stores import file

        with pytest.raises(AttributeError, match="truncate"):
            file.os.truncate("/a", 0)
        with pytest.raises(OSError) as missing:
            file.os.stat("/a")
    assert missing.value.errno == errno.ENOENT
    assert file.os is os
