"""One folder by several paths, file systems with coarse times, machines whose clock was ahead."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue
from osqueue.clock import Machine
from osqueue.commit.driver import BlockingDriver
from osqueue.errors import Rejected, Timeout
from osqueue.limits import DAY_MS, HOUR_MS
from osqueue.maintenance.doctor import fix_clock
from osqueue.maintenance.store_probes import TROUBLE, StoreProbes
from osqueue.stores.base import (
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
    StoreReply,
)
from osqueue.stores.file import FileStore
from osqueue.stores.file_locks import STRIPES, LockDeadline
from tests.support.replies import error_of, version_of

KEYS = tuple(f"8a05/mail/{shard}/head" for shard in range(8))
NAMELESS = "l\udce4den"  # a folder's name in Latin-1, as Python hands it over


class Patient(Machine):
    """A machine on which no wait for a lock is too long."""

    monotonic = staticmethod(lambda: 0.0)


class Movable(Machine):
    """A machine whose clock can be wrong."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def found(store: FileStore, key: str) -> Found:
    reply = store.perform(Get(key))
    assert isinstance(reply, Found), reply
    return reply


# ── One folder, several paths ────────────────────────────────────────────────


def by_link(folder: Path) -> Path:
    link = folder.with_name("link")
    link.symlink_to(folder)
    return link


def by_move(folder: Path) -> Path:
    """What processes see that have the folder mounted elsewhere; no path leads from one name to the other."""
    return Path(shutil.move(folder, folder.with_name("elsewhere")))


@pytest.mark.parametrize("other", [by_link, by_move])
def test_an_object_has_one_lock_by_whatever_path_its_folder_is_reached(
    tmp_path: Path, other: Callable[[Path], Path]
) -> None:
    def locks_taken(folder: Path) -> list[list[str]]:
        store = FileStore(folder, fsync=False)
        taken = []
        for key in KEYS:
            for lock in (folder / ".osqueue/locks").iterdir():
                lock.unlink()
            version_of(store.perform(PutIfMatch(key, b"next", found(store, key).version)))
            taken.append(os.listdir(folder / ".osqueue/locks"))
        return taken

    folder = tmp_path / "real"
    for key in KEYS:
        version_of(FileStore(folder, fsync=False).perform(PutIfAbsent(key, b"first")))
    locks = locks_taken(folder)
    assert all(len(each) == 1 for each in locks)
    assert locks_taken(other(folder)) == locks


def test_no_increment_is_lost_between_two_paths_to_one_folder(tmp_path: Path) -> None:
    machine = Patient()
    stores = [FileStore(tmp_path / "real", fsync=False, machine=machine)]
    version_of(stores[0].perform(PutIfAbsent("q/head", b"0")))
    stores.append(FileStore(by_link(tmp_path / "real"), fsync=False, machine=machine))

    def count_up(store: FileStore) -> None:
        for _ in range(100):
            reply: StoreReply = Refused()
            while reply == Refused():
                head = found(store, "q/head")
                reply = store.perform(PutIfMatch("q/head", b"%d" % (int(head.body) + 1), head.version))
            version_of(reply)

    threads = [threading.Thread(target=count_up, args=(store,)) for store in stores * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found(stores[0], "q/head").body == b"400"


def test_a_folder_whose_name_is_not_utf_8_works(tmp_path: Path) -> None:
    store = FileStore(tmp_path / NAMELESS, fsync=False)
    version = version_of(store.perform(PutIfAbsent("q/head", b"one")))
    version = version_of(store.perform(PutIfMatch("q/head", b"two", version)))
    version = version_of(store.perform(Put("q/head", b"three")))
    assert store.perform(List("")) == Listed(("q/head",), more=False)
    assert store.perform(DeleteIfMatch("q/head", version)) == Deleted()
    assert store.perform(Delete(("q/head",))) == Deleted()

    q = Queue.connect(f"file://{tmp_path / NAMELESS}", "mail")
    q.enqueue(1)
    assert [lease.payload for lease in q.claim()] == [1]


def test_errors_about_a_folder_whose_name_is_not_utf_8_can_be_sent(tmp_path: Path) -> None:
    class Hurried(Machine):
        monotonic = staticmethod(iter(range(0, 10**6, 100)).__next__)

    store = FileStore(tmp_path / NAMELESS, machine=Hurried())
    version_of(store.perform(PutIfAbsent("a/b", b"x")))
    rejected = error_of(store.perform(PutIfAbsent("a", b"x")))
    assert isinstance(rejected, Rejected)
    with store._locked(f"{store.root}/a/b", LockDeadline(0, store._machine)):
        late = error_of(store.perform(Put("a/b", b"x")))
    assert isinstance(late, Timeout)
    for error in (rejected, late):
        assert rb"l\udce4den" in error.message.encode()


# ── Times that the file system does not keep ─────────────────────────────────


def coarse(grain_ns: int) -> Callable[[int], int]:
    return lambda time_ns: time_ns // grain_ns * grain_ns


def ends_in_2038(time_ns: int) -> int:
    return min(time_ns, (2**31 - 1) * 10**9)


SECOND = coarse(10**9)  # ext4 with inodes of 128 bytes, HFS+


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], int]], None]:
    """Lets every file system keep only what ``kept`` makes of a time."""
    utime = os.utime

    def keep(kept: Callable[[int], int]) -> None:
        def utime_kept(target: Any, ns: tuple[int, int]) -> None:
            utime(target, ns=(kept(ns[0]), kept(ns[1])))

        monkeypatch.setattr(os, "utime", utime_kept)

    return keep


@pytest.mark.parametrize("grain_ns", [2 * 10**9, 10**9, 10**6, 10**3, 100])
def test_a_file_system_without_nanoseconds_is_refused_at_every_write(
    tmp_path: Path, keeping: Any, grain_ns: int
) -> None:
    # GIVEN objects from before this was checked, and a clock that shows a whole second.
    machine = Movable()
    machine.ahead_ms = -(machine.now_ms() % 1000)
    store = FileStore(tmp_path, fsync=False, machine=machine)
    version = version_of(store.perform(PutIfAbsent("q/head", b"one")))
    keeping(coarse(grain_ns))

    for writer in (store, FileStore(tmp_path)):
        for request in (
            *(Put("q/head", b"two"), Put("q/new", b"x"), PutIfAbsent("q/new", b"x")),
            PutIfMatch("q/head", b"two", version),
        ):
            error = error_of(writer.perform(request))
            assert isinstance(error, Rejected)
            assert error.field == "address"
            assert "256" in error.message, "the remedy"
        assert (found(writer, "q/head").body, found(writer, "q/head").version) == (b"one", version)
        assert writer.perform(Get("q/new")) == Missing()
        assert os.listdir(tmp_path / ".osqueue/tmp") == []


def test_a_clock_beyond_what_the_file_system_can_keep_is_refused_until_it_is_right(
    tmp_path: Path, keeping: Any
) -> None:
    machine = Movable()
    store = FileStore(tmp_path, fsync=False, machine=machine)
    version = version_of(store.perform(PutIfAbsent("q/head", b"one")))
    keeping(ends_in_2038)
    machine.ahead_ms = 100 * 365 * DAY_MS
    error = error_of(store.perform(PutIfMatch("q/head", b"two", version)))
    assert isinstance(error, Rejected)
    assert "clock" in error.message
    machine.ahead_ms = 0
    version_of(store.perform(PutIfMatch("q/head", b"two", version)))


def test_a_queue_on_a_file_system_without_nanoseconds_says_so_and_so_does_the_doctor(
    tmp_path: Path, keeping: Any
) -> None:
    keeping(SECOND)
    with pytest.raises(Rejected, match="nanosecond"):
        Queue.connect(f"file://{tmp_path}", "mail").enqueue(1)
    machine = Machine()
    store = FileStore(tmp_path, machine=machine)
    findings = BlockingDriver(store, machine).run(StoreProbes(machine, store.clock_ms()).run())
    (trouble,) = [each for each in findings if each.level == TROUBLE]
    assert "nanosecond" in trouble.found
    assert "s3:" not in trouble.remedy


# ── A clock that was ahead for a while ───────────────────────────────────────


def test_after_the_clock_was_ahead_no_object_is_from_the_future_and_no_version_returns(
    tmp_path: Path,
) -> None:
    machine = Movable()
    store = FileStore(tmp_path, fsync=False, machine=machine)
    seen = [version_of(store.perform(PutIfAbsent("q/head", b"x")))]
    for ahead_ms in (0, 100 * DAY_MS, 0):
        machine.ahead_ms = ahead_ms
        for _ in range(10):
            seen.append(version_of(store.perform(PutIfMatch("q/head", b"x", seen[-1]))))
            seen.append(version_of(store.perform(Put("q/head", b"x"))))
            before = machine.now_ms()
            head = found(store, "q/head")
            assert head.version == seen[-1]
            assert before - 60_000 < head.modified_ms <= store.clock_ms()
            store.perform(Delete(("q/head",)))
            seen.append(version_of(store.perform(PutIfAbsent("q/head", b"x"))))
    times = [int(version.partition("-")[0], 16) for version in seen]
    assert times == sorted(set(times)), "each version of a key is later than all before it"


def test_after_the_clock_was_ahead_reaps_work_and_history_tells_each_job_once(tmp_path: Path) -> None:
    machine = Movable()
    store = FileStore(tmp_path, fsync=False, machine=machine)

    def run_some(count: int) -> list[str]:
        q: Queue[Any] = Queue(store, "mail", machine=machine)
        jobs = [str(q.enqueue(at).job_id) for at in range(count)]
        q.complete_many(q.claim(count))
        q.reap()
        return jobs

    run_some(5)
    machine.ahead_ms = 100 * DAY_MS
    run_some(5)
    names = tuple(
        f"some/{number}" for number in range(600)
    )  # objects of every stripe, which end while it is ahead
    for name in names:
        store.perform(Put(name, b"x"))
    store.perform(Delete(names))
    assert len(os.listdir(tmp_path / ".osqueue/locks")) == STRIPES
    machine.ahead_ms = 0
    BlockingDriver(store, machine).run(fix_clock("mail", 0, machine, machine.now_ms))

    since: list[str] = []
    for hour in range(24):
        machine.ahead_ms = hour * HOUR_MS
        since += run_some(1)
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    told = Counter(job.job_id for job in q.history())
    assert [told[job_id] for job_id in since] == [1] * len(since)


def test_a_head_that_is_ahead_of_the_clock_is_warned_of_now_and_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Later(Movable):
        later = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.later

    machine = Later()
    q: Queue[int] = Queue(FileStore(tmp_path, machine=machine), "mail", machine=machine)
    machine.ahead_ms = HOUR_MS
    q.enqueue(1)
    assert caplog.messages == []
    machine.ahead_ms = 0
    for late, warnings in ((0.0, 1), (0.0, 1), (599.0, 1), (600.5, 2)):
        machine.later = late
        q.enqueue(2)
        assert len(caplog.messages) == warnings
    assert "3599 s ahead" in caplog.messages[0] or "3600 s ahead" in caplog.messages[0]
    assert "--fix-clock" in caplog.messages[0]
    Queue(FileStore(tmp_path), "mail").reap()
    assert len(caplog.messages) == 3
