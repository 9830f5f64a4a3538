"""Threads that carry calls: started as needed, and ended with their owner."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import Future

import pytest

from osqueue.threads import DaemonThreads
from tests.support.patience import PATIENCE


def test_a_call_gives_its_result_or_its_error() -> None:
    threads = DaemonThreads("test", 2)
    assert threads.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 7, 0).result(PATIENCE)


def test_threads_are_started_as_needed_and_no_more_than_allowed() -> None:
    threads = DaemonThreads("test", 2)
    names = {threads.submit(lambda: threading.current_thread().name).result(PATIENCE) for _ in range(3)}
    assert len(names) == 1
    go_on = threading.Event()
    calls = [threads.submit(go_on.wait, PATIENCE) for _ in range(3)]
    assert len(threads._crew.threads) == 2
    go_on.set()
    assert [each.result(PATIENCE) for each in calls] == [True] * 3


def test_a_call_that_was_cancelled_before_its_turn_is_not_made() -> None:
    threads = DaemonThreads("test", 1)
    go_on, made = threading.Event(), list[int]()
    first: Future[bool] = threads.submit(go_on.wait, PATIENCE)
    second = threads.submit(made.append, 1)
    assert second.cancel()
    go_on.set()
    assert first.result(PATIENCE)
    threads.submit(made.append, 2).result(PATIENCE)
    assert made == [2]


@pytest.mark.parametrize("how", ["close", "forget"])
def test_threads_end_with_their_owner(how: str) -> None:
    threads = DaemonThreads("test", 2)
    threads.submit(len, "").result(PATIENCE)
    (thread,) = threads._crew.threads
    known = weakref.ref(threads)
    if how == "close":
        threads.close()
        assert threads.submit(len, "abc").result(PATIENCE) == 3
    del threads
    gc.collect()
    assert known() is None
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_call_is_made_though_the_threads_are_closed_before_one_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = DaemonThreads("test", 2)
    threads.submit(len, "").result(PATIENCE)
    crew = threads._crew
    (thread,) = crew.threads

    class ClosedFirst:
        """The crew's lock, before which another thread closes the crew once."""

        def __enter__(self) -> None:
            monkeypatch.undo()
            threads.close()
            thread.join(PATIENCE)
            crew.lock.acquire()

        def __exit__(self, *_: object) -> None:
            crew.lock.release()

    monkeypatch.setattr(crew, "lock", ClosedFirst())
    assert threads.submit(len, "abc").result(PATIENCE) == 3
