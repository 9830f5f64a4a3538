"""Notifications of replaced objects in a folder."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import pytest

from osqueue import Queue
from osqueue.operations import waiting
from osqueue.operations.head_board import NEVER, Pace
from osqueue.stores import file_news
from osqueue.stores.base import Put, PutIfAbsent, PutIfMatch, Written, never_hinted
from osqueue.stores.file import FileStore
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is of Linux")


def written(reply: Any) -> str:
    assert isinstance(reply, Written)
    return reply.version


@pytest.mark.parametrize("hot", [False, True])
def test_news_comes_of_each_way_in_which_an_object_is_replaced(tmp_path: Path, hot: bool) -> None:
    store, other = FileStore(tmp_path), FileStore(tmp_path)
    other.put(Put("q/beside", b"0"))
    heard: SimpleQueue[str] = SimpleQueue()
    hinted = store.listen("q/head", lambda version: heard.put(version) is None)
    assert hinted()
    version = written(other.perform(PutIfAbsent("q/head", b"0", hot=hot)))
    heard.get(timeout=PATIENCE)
    for body in (b"1", b"2" * 100_000):
        while not heard.empty():
            heard.get()
        version = written(other.perform(PutIfMatch("q/head", body, version, hot=hot)))
        heard.get(timeout=PATIENCE)
    store.close()
    assert not hinted()


def test_a_folder_that_is_made_later_is_watched_from_then_on_and_one_that_is_removed_is_not(
    tmp_path: Path,
) -> None:
    store, heard = FileStore(tmp_path), threading.Event()
    hinted = store.listen("q/head", lambda _: heard.set() is None)
    assert not hinted()
    store.put(Put("q/beside", b"0"))
    assert hinted()
    store.put(Put("q/head", b"0"))
    assert heard.wait(PATIENCE)
    shutil.rmtree(tmp_path / "q")
    while hinted():  # until the thread has read that
        threading.Event().wait(0.001)
    store.put(Put("q/head", b"0"))
    assert hinted()
    store.close()


def test_a_listener_that_wants_no_more_is_not_called_again(tmp_path: Path) -> None:
    store, heard = FileStore(tmp_path), SimpleQueue[str]()
    store.put(Put("q/head", b"0"))
    once: list[str] = []
    for told in (lambda version: bool(once.append(version)), lambda version: heard.put(version) is None):
        assert store.listen("q/head", told)()
    for _ in range(3):
        store.put(Put("q/head", b"1"))
        heard.get(timeout=PATIENCE)
        while not heard.empty():
            heard.get()
    assert len(once) == 1
    store.close()


def test_where_the_system_offers_no_news_nothing_is_hinted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert FileStore(tmp_path, network=True).listen("head", bool) is never_hinted
    monkeypatch.setattr(file_news.sys, "platform", "darwin")
    assert FileStore(tmp_path).listen("head", bool) is never_hinted


def news_thread(store: FileStore) -> threading.Thread:
    """Begin to listen at a store, and return the thread that notifies."""
    before = {*threading.enumerate()}
    assert store.listen("q/head", bool)()
    [thread] = [each for each in {*threading.enumerate()} - before if each.name == "osqueue-folder-news"]
    return thread


def test_a_store_that_is_closed_keeps_no_descriptor(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.put(Put("q/head", b"0"))
    thread = news_thread(store)
    news = store._news._news
    pipe = {each: os.fstat(each).st_ino for each in (news._wake, news._woken)}
    assert "inotify" in os.readlink(f"/proc/self/fd/{news._descriptor}")
    store.close()
    thread.join(PATIENCE)
    for descriptor, inode in pipe.items():
        with suppress(OSError):
            assert os.fstat(descriptor).st_ino != inode
    with suppress(FileNotFoundError):
        assert "inotify" not in os.readlink(f"/proc/self/fd/{news._descriptor}")


@pytest.mark.parametrize("fails", ["pipe", "thread"])
def test_where_no_descriptor_or_thread_is_left_nothing_is_hinted_and_nothing_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def refuse(*_: Any) -> Any:
        raise OSError(errno.EMFILE, "no descriptors") if fails == "pipe" else RuntimeError("no threads")

    closed: list[int] = []
    of_news = ModuleType("os")  # other threads of the process close descriptors, too
    vars(of_news).update(vars(os), close=lambda each: (closed.append(each), os.close(each)))
    monkeypatch.setattr(file_news, "os", of_news)
    if fails == "pipe":
        monkeypatch.setattr(of_news, "pipe", refuse)
    else:
        monkeypatch.setattr(threading.Thread, "start", refuse)
    assert FileStore(tmp_path).listen("head", bool) is never_hinted
    assert len(closed) == (1 if fails == "pipe" else 3)


def test_where_notifications_fail_later_waiters_look_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> Any:
        raise OSError(errno.EIO, "bad disk")

    store = FileStore(tmp_path)
    store.put(Put("q/head", b"0"))
    thread = news_thread(store)
    monkeypatch.setattr(file_news.os, "read", refuse)
    store.put(Put("q/head", b"1"))
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert not store.listen("q/head", bool)()
    store.close()
    assert "bad disk" in caplog.text


def test_a_store_that_is_closed_writes_to_no_descriptor_that_another_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, closed, write = FileStore(tmp_path), threading.Event(), os.write
    store.put(Put("q/head", b"0"))
    thread = news_thread(store)

    def late(descriptor: int, data: bytes) -> int:
        (tmp_path / "q" / "beside").write_text("wakes the thread as well")
        thread.join(0.05)
        if not thread.is_alive():
            closed.set()
        return write(descriptor, data)

    monkeypatch.setattr(file_news.os, "write", late)
    store.close()
    thread.join(PATIENCE)
    assert not closed.is_set()


def test_a_claim_that_waits_is_woken_by_news_of_another_store_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace = Pace(0.005, NEVER, hinted=NEVER)  # no look but those by news
    monkeypatch.setattr(waiting, "pace_of", lambda looks, poll: pace)
    with Queue.connect(f"file://{tmp_path}", "mail") as here:
        here.enqueue(0)
        here.claim()[0].complete()
        waits = threading.Event()
        listen, claimed = FileStore.listen, SimpleQueue[Any]()

        def listening(self: FileStore, *asked: Any) -> Any:
            hinted, looks = listen(self, *asked), SimpleQueue[None]()

            def seen() -> bool:
                looks.put(None)
                if looks.qsize() > 1:  # the one quick look, after which only news can bring another
                    waits.set()
                return hinted()

            return seen

        monkeypatch.setattr(FileStore, "listen", listening)
        thread = threading.Thread(target=lambda: claimed.put(here.claim(wait=PATIENCE)))
        thread.start()
        assert waits.wait(PATIENCE)
        other: Queue[Any] = Queue(FileStore(tmp_path), "mail")
        other.enqueue(1)
        [lease] = claimed.get(timeout=PATIENCE)
        lease.complete()
        thread.join()
