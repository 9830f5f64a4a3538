"""Hot objects in a folder: two slots in one file, whatever is left of a write, and what each replacement costs."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from osqueue.stores import file_hot
from osqueue.stores.base import (
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Unchanged,
    Written,
)
from osqueue.stores.file import FileStore
from osqueue.stores.file_hot import LOOKS_MAX, Slots
from osqueue.stores.file_slots import HEADER_BYTES, MAGIC, PAGE, SLOT_BYTES_MIN
from simulation.slots import read_by_store
from tests.support.machines import VirtualMachine
from tests.support.replies import error_of, version_of

BLOCK = 512  # what a disk writes as a whole
KEY = "q/head"


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the disk, in order."""
    made: list[str] = []
    for name in ("pwrite", "fdatasync", "fsync", "link", "rename", "write"):
        real = getattr(os, name)

        def call(*args: Any, name: str = name, real: Any = real, **options: Any) -> Any:
            made.append(name)
            return real(*args, **options)

        monkeypatch.setattr(os, name, call)
    return made


def create(store: FileStore, body: bytes = b"first") -> str:
    return version_of(store.perform(PutIfAbsent(KEY, body, hot=True)))


def replace(store: FileStore, body: bytes, version: str) -> str:
    return version_of(store.perform(PutIfMatch(KEY, body, version, hot=True)))


def found(store: FileStore) -> Found:
    reply = store.perform(Get(KEY))
    assert isinstance(reply, Found), reply
    return reply


def path(store: FileStore) -> Path:
    return Path(store.root, KEY)


# ── What it costs ────────────────────────────────────────────────────────────


def test_a_replacement_is_one_write_and_one_flush(store: FileStore, calls: list[str]) -> None:
    version = create(store)
    calls.clear()
    for number in range(3):
        version = replace(store, b"x" * 4_000 * number, version)
    assert calls == ["pwrite", "fdatasync"] * 3


def test_without_flushes_it_is_one_write(tmp_path: Path, calls: list[str]) -> None:
    store = FileStore(tmp_path, fsync=False)
    version = create(store)
    calls.clear()
    replace(store, b"x", version)
    assert calls == ["pwrite"]


def test_processes_that_take_turns_flush_no_more_than_one(tmp_path: Path, calls: list[str]) -> None:
    """The file itself says that its writer has flushed it; a folder is flushed by each who meets it first."""
    stores = [FileStore(tmp_path), FileStore(tmp_path)]
    version = create(stores[0])
    version = replace(stores[1], b"later", version)
    calls.clear()
    for number in range(4):
        version = replace(stores[number % 2], b"later", version)
        assert isinstance(stores[1 - number % 2].perform(Get(KEY, unless="", flushed=True)), Found)
    assert calls == ["pwrite", "fdatasync"] * 4


def test_where_data_cannot_be_flushed_alone_all_is(
    store: FileStore, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    version = create(store)
    monkeypatch.delattr(os, "fdatasync")
    calls.clear()
    replace(store, b"x", version)
    assert calls == ["pwrite", "fsync"]


def test_slots_are_as_large_as_twice_what_outgrew_them(store: FileStore) -> None:
    version = create(store)
    assert path(store).stat().st_size == PAGE + 2 * SLOT_BYTES_MIN
    version = replace(store, b"x" * (SLOT_BYTES_MIN - HEADER_BYTES), version)
    assert path(store).stat().st_size == PAGE + 2 * SLOT_BYTES_MIN
    version = replace(store, b"x" * (SLOT_BYTES_MIN - HEADER_BYTES + 1), version)
    assert path(store).stat().st_size == PAGE + 4 * SLOT_BYTES_MIN + 2 * PAGE
    replace(store, b"", version)
    assert path(store).stat().st_size == PAGE + 4 * SLOT_BYTES_MIN + 2 * PAGE


def test_an_event_loop_replaces_it_at_once(tmp_path: Path) -> None:
    store = FileStore(tmp_path, fsync=False)
    version = create(store)
    reply = asyncio.run(store.perform_async(PutIfMatch(KEY, b"two", version, hot=True)))
    assert isinstance(reply, Written)
    assert found(store).body == b"two"


# ── What is left of a write ──────────────────────────────────────────────────


class RecordedWrite(Struct):
    """What one call wrote into a file."""

    number: int  # of the body it belongs to; the one before is there
    before: bytes  # the file
    at: int
    data: bytes

    def begun(self, length: int) -> bytes:
        """The file once so much is written."""
        return self.before[: self.at] + self.data[:length] + self.before[self.at + length :]


class Recorded:
    """A file, and what was written into it."""

    def __init__(self, store: FileStore, bodies: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.writes: list[RecordedWrite] = []
        pwrite = os.pwrite

        def record(descriptor: int, data: Any, at: int) -> int:
            self.writes.append(RecordedWrite(number, path(store).read_bytes(), at, bytes(data)))
            return pwrite(descriptor, data, at)

        version = create(store, bodies[0])
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", record)
            for number in range(1, len(bodies)):
                version = replace(store, bodies[number], version)

    def shows(self, content: bytes) -> Found:
        """What the store reads in such a file."""
        path(self.store).write_bytes(content)
        return found(FileStore(self.store.root))


BODIES = [b"one", b"2" * 700, b"three", b"4" * 2_400, b"", b"six" * 300]


def test_every_beginning_of_a_write_leaves_the_version_before(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for write in Recorded(store, BODIES, monkeypatch).writes:
        for length in range(len(write.data)):
            assert read_by_store(write.begun(length)) == BODIES[write.number - 1], (write.number, length)


def test_whichever_blocks_of_a_write_a_power_cut_leaves_there_is_one_version_or_the_other(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Recorded(store, BODIES, monkeypatch)
    seen = []
    for number, group in itertools.groupby(recorded.writes, lambda write: write.number):
        writes = list(group)
        before, after = writes[0].before, writes[-1].begun(len(writes[-1].data))
        blocks = [
            at for at in range(0, len(after), BLOCK) if before[at : at + BLOCK] != after[at : at + BLOCK]
        ]
        for kept in itertools.product((False, True), repeat=len(blocks)):
            content = bytearray(before)
            for at, new in zip(blocks, kept, strict=True):
                if new:
                    content[at : at + BLOCK] = after[at : at + BLOCK]
            left = read_by_store(bytes(content))
            assert left in BODIES[number - 1 : number + 1], (number, kept)
            assert left == BODIES[number] or not all(kept)
            assert left == BODIES[number - 1] or any(kept)
            seen.append(left)
    assert len(seen) > 50
    assert set(seen) == set(BODIES)


def test_whoever_finds_what_is_left_goes_on_from_it(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Recorded(store, BODIES, monkeypatch)
    versions = set()
    for write in recorded.writes:
        size = len(write.data)
        for length in (0, 1, HEADER_BYTES - 1, HEADER_BYTES, size - 1, size):
            left = recorded.shows(write.begun(min(length, size)))
            other = FileStore(store.root)
            for body in (b"next", b"after that"):
                left = Found(body, replace(other, body, left.version), 0)
                assert (found(other).body, found(other).version) == (body, left.version)
            versions.add(left.version)
    assert len(versions) > len(BODIES)


def test_what_is_not_known_to_be_flushed_is_never_the_only_thing_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush fails: the slot that was flushed stays as it is, and what comes next goes to a new file."""
    store = FileStore(tmp_path)
    version = replace(store, b"flushed", create(store))

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(file_hot, "flush_data", fail)
        error = error_of(store.perform(PutIfMatch(KEY, b"perhaps", version)))
    assert not error.permanent
    perhaps = found(store)
    assert perhaps.body == b"perhaps"
    before = path(store).read_bytes(), path(store).stat().st_ino
    keep = os.open(path(store), os.O_RDONLY)  # so that its inode number is not used again
    for each in (FileStore(tmp_path), store):
        os.link(path(store), tmp_path / "kept") if not (tmp_path / "kept").exists() else None
        perhaps = Found(b"next", replace(each, b"next", perhaps.version), 0)
    assert (tmp_path / "kept").read_bytes() == before[0]
    assert path(store).stat().st_ino != before[1]
    os.close(keep)


def test_who_may_not_set_times_writes_a_new_file_each_time(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = create(store)

    def fail(self: Slots, header: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Slots, "mark", fail)
    seen = {path(store).stat().st_ino}
    for each in (FileStore(store.root), FileStore(store.root), FileStore(store.root)):
        version = replace(each, b"x", version)
        seen.add(path(store).stat().st_ino)
    assert len(seen) == 2
    assert found(store).version == version


def test_nothing_of_an_older_version_stays_behind_the_newer_ones(store: FileStore) -> None:
    """Whoever purges a job wants its payload gone."""
    version = create(store, b"." * 3_000 + b"SECRET")
    for _ in range(2):
        version = replace(store, b"short", version)
    assert b"SECRET" not in path(store).read_bytes()


def test_nothing_of_an_older_version_stays_where_its_writer_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without flushes the next writer goes on in the same file, and only knows how long the versions there are."""
    store = FileStore(tmp_path, fsync=False)
    long, short = b"." * 3_000 + b"SECRET", b"." * 700
    for write in Recorded(store, [long, b"", short], monkeypatch).writes:
        for length in range(0, len(write.data) + 1, 10):
            path(store).write_bytes(write.begun(length))
            version = found(store).version
            for _ in range(2):
                version = replace(store, b"shortest", version)
            assert b"SECRET" not in path(store).read_bytes(), length


# ── Odd files ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("damage", ["slots", "first page"])
def test_a_file_that_is_damaged_is_read_as_it_is_and_can_be_replaced(store: FileStore, damage: str) -> None:
    create(store)
    content = bytearray(path(store).read_bytes())
    content[PAGE if damage == "slots" else len(MAGIC)] ^= 1
    path(store).write_bytes(content)
    damaged = found(store)
    assert damaged.body == content
    assert store.perform(Get(KEY, unless=damaged.version)) == Unchanged()
    assert store.perform(PutIfMatch(KEY, b"x", "other", hot=True)) == Refused()
    version = replace(store, b"mended", damaged.version)
    assert found(store) == Found(b"mended", version, found(store).modified_ms)


def test_a_reader_that_writers_overtake_again_and_again_keeps_them_away(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(store)
    look, looks = Slots.look, itertools.count(1)

    def overtaken(self: Slots, known: str | None, first: bytes | None = None) -> Any:
        return None if next(looks) <= LOOKS_MAX else look(self, known, first)

    monkeypatch.setattr(Slots, "look", overtaken)
    assert found(store).body == b"first"
    assert next(looks) == LOOKS_MAX + 2


def test_the_time_is_that_of_the_write_and_never_in_the_future(tmp_path: Path) -> None:
    machine = VirtualMachine()
    store = FileStore(tmp_path, machine=machine)
    version = create(store)
    assert found(store).modified_ms == machine.now_ms()
    replace(store, b"two", version)
    assert found(store).modified_ms == machine.now_ms()
    machine.time_ms -= 3_600_000
    assert found(store).modified_ms == machine.now_ms()


def test_it_is_deleted_under_its_version(store: FileStore) -> None:
    old = create(store)
    version = replace(store, b"two", old)
    assert store.perform(DeleteIfMatch(KEY, old)) == Refused()
    assert store.perform(DeleteIfMatch(KEY, version)) == Deleted()
    assert store.perform(PutIfMatch(KEY, b"x", version, hot=True)) == Refused()
    assert create(store).partition(".")[0] != version.partition(".")[0]


def test_a_careless_write_does_not_overwrite_what_was_flushed(store: FileStore) -> None:
    version = replace(store, b"flushed", create(store))
    inode = path(store).stat().st_ino
    for number in range(3):
        version_of(store.perform(Put(KEY, b"%d" % number, durable=False)))
        if not number:
            assert b"flushed" in path(store).read_bytes()
            assert path(store).stat().st_ino == inode
    assert found(store).body == b"2"
    assert found(store).version != version


# ── Damage ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("at", [0, 8, 20, 27, 30, HEADER_BYTES, HEADER_BYTES + 5])
def test_a_flushed_version_that_was_damaged_does_not_give_way_to_the_one_before(
    store: FileStore, at: int
) -> None:
    version = create(store, b"first!")
    for body in (b"second", b"third!"):
        version = replace(store, body, version)
    data = bytearray(path(store).read_bytes())
    mtime_ns = path(store).stat().st_mtime_ns
    start = data.index(b"third!") - HEADER_BYTES
    data[start + at] ^= 0x40
    path(store).write_bytes(data)
    os.utime(path(store), ns=(mtime_ns, mtime_ns))  # a disk that errs sets no time
    fresh = FileStore(store.root)
    assert found(fresh).body == bytes(data)  # which is no head


def test_a_version_that_was_not_flushed_and_is_not_whole_gives_way_to_the_one_before(
    store: FileStore,
) -> None:
    version = create(store, b"first!")
    for body in (b"second", b"third!"):
        version = replace(store, body, version)
    data = path(store).read_bytes()
    path(store).write_bytes(data.replace(b"third!", b"thi\0\0\0"))
    assert found(FileStore(store.root)).body == b"second"


def test_the_name_of_a_version_that_is_not_whole_is_not_given_to_another(tmp_path: Path) -> None:
    """A reader may have seen it whole, before a power cut took a part of it."""
    store = FileStore(tmp_path, fsync=False)
    version = create(store, b"first!")
    for body in (b"second", b"third!"):
        version = replace(store, body, version)
    data = path(store).read_bytes()
    path(store).write_bytes(data.replace(b"third!", b"thi\0\0\0"))
    other = FileStore(tmp_path, fsync=False)
    assert replace(other, b"fourth", found(other).version) != version
    assert store.perform(PutIfMatch(KEY, b"fifth!", version, hot=True)) == Refused()


def test_a_file_that_others_own_is_replaced_in_a_folder_of_ours(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = create(store, b"first!")
    real = os.open

    def refusing(where: Any, flags: int, *mode: Any, **more: Any) -> int:
        if str(where).endswith(KEY) and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), where)
        return real(where, flags, *mode, **more)

    monkeypatch.setattr(os, "open", refusing)
    replace(store, b"second", version)
    assert found(store).body == b"second"


def test_what_a_failed_flush_left_unwritten_is_written_again_before_it_is_told_to_be_flushed(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a flush that failed the system may forget what it could not write: the next flush succeeds for nothing."""
    version = create(store, b"first!")
    version = replace(store, b"second", version)
    dirty: set[int] = set()
    failing = [True]
    write, flush = os.pwrite, os.fdatasync

    def pwrite(descriptor: int, data: Any, at: int) -> int:
        dirty.add(at)
        return write(descriptor, data, at)

    def fdatasync(descriptor: int) -> None:
        lost = set(dirty)
        dirty.clear()
        if failing[0]:
            failing[0] = False
            unwritten.update(lost)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unwritten.difference_update(lost)
        flush(descriptor)

    unwritten: set[int] = set()
    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    assert error_of(store.perform(PutIfMatch(KEY, b"third!", version, hot=True)))
    assert unwritten
    reply = store.perform(Get(KEY, flushed=True))
    assert isinstance(reply, Found)
    assert reply.body == b"third!"
    assert not unwritten


def test_objects_are_read_whole_although_each_read_brings_a_part(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    version_of(store.perform(Put("q/plain", b"plain" * 2_000)))
    version_of(store.perform(Put("q/marked", MAGIC + b"marked" * 2_000)))
    version = create(store, b"hot" * 2_000)
    pread = os.pread
    for part in (1, 15, 4_095):
        monkeypatch.setattr(
            os, "pread", lambda file, length, at, part=part: pread(file, min(length, part), at)
        )
        assert read(store, "q/plain") == b"plain" * 2_000
        assert read(store, "q/marked") == MAGIC + b"marked" * 2_000
        assert read(store, KEY) == b"hot" * 2_000
        version = replace(store, b"hot" * 2_000, version)


def read(store: FileStore, key: str) -> bytes:
    found = store.perform(Get(key))
    assert isinstance(found, Found)
    return found.body
