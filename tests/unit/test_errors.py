"""Errors: what they carry survives the way to another process, and a time limit is not taken for one."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue, errors
from osqueue.errors import JobFailed, OsqueueError, Rejected, Unavailable, WaitTimeout
from osqueue.events import Undelivered
from osqueue.model.codecs import Codec
from osqueue.stores.base import Get
from osqueue.stores.file import FileStore
from osqueue.stores.memory import MemoryStore
from tests.support.patience import PATIENCE

KINDS = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, OsqueueError)]
FULL: list[OsqueueError] = [
    Rejected("no", field="kind"),
    Unavailable("no", permanent=True),
    WaitTimeout("no", job_id="01890a5d-ac96-774b-bcce-b302099a8000"),
    JobFailed("no", job_id="a", type="ValueError", error="boom", traceback="line 1"),
    Undelivered("no", 3),
]


@pytest.mark.parametrize("again", [lambda each: pickle.loads(pickle.dumps(each)), copy.copy])  # noqa: S301
@pytest.mark.parametrize(
    "error", [*FULL, *(kind("no") for kind in KINDS)], ids=lambda each: type(each).__name__
)
def test_an_error_that_goes_to_another_process_arrives_whole(error: OsqueueError, again: Any) -> None:
    arrived = again(error)
    assert type(arrived) is type(error)
    assert (str(arrived), vars(arrived)) == ("no", vars(error))


# ── Time limits ──────────────────────────────────────────────────────────────
class TimeLimit(TimeoutError):
    """What a signal handler raises: also an OSError, which stores explain."""


class Limit:
    """A signal handler as libraries have them."""

    def handle(self, number: int, frame: object) -> None:
        self.end()

    def end(self) -> None:
        raise TimeLimit


def limit(*_: object) -> None:
    raise TimeLimit


def limit_with_rest(number: int, *rest: object, more: int = 0) -> None:
    raise TimeLimit


def limit_with_option(option: str, number: int, frame: object) -> None:
    def used() -> object:
        return frame  # so it is a variable of a closure

    raise TimeLimit


class Interrupted:
    """A serialiser that is interrupted."""

    name = "own"

    def dumps(self, value: object) -> bytes:
        signal.raise_signal(signal.SIGUSR1)
        return b""

    def loads(self, data: bytes, type: object) -> object:
        signal.raise_signal(signal.SIGUSR1)
        return None


def read_interrupted(folder: Path) -> None:
    """Read from a folder whose files cannot be opened before a signal comes."""
    store = FileStore(folder, fsync=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", lambda *_, **__: signal.raise_signal(signal.SIGUSR1))
        store.perform(Get("key"))


def observe_interrupted(folder: Path) -> None:
    """Commit a job whose observer is interrupted."""
    q: Queue[object] = Queue(MemoryStore(), "mail")
    q._observe(lambda _: signal.raise_signal(signal.SIGUSR1))
    q.enqueue("job")


INTERRUPTED: dict[str, Callable[[Path], object]] = {
    "encode": lambda _: Codec(Interrupted()).encode(1, "payload"),
    "decode": lambda _: Codec(Interrupted()).decode(b"", "own"),
    "read": read_interrupted,
    "observe": observe_interrupted,
}


@pytest.mark.parametrize(
    "handler", [limit, Limit().handle, limit_with_rest, functools.partial(limit_with_option, "option")]
)
@pytest.mark.parametrize("place", INTERRUPTED)
def test_a_time_limit_of_a_signal_handler_stays_what_it_is(place: str, handler: Any, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeLimit):
            INTERRUPTED[place](tmp_path)
    finally:
        signal.signal(signal.SIGUSR1, before)


def look_at_caller(*_: object) -> None:
    frame = sys._getframe(1)
    raise TimeLimit(frame.f_lineno)


def take_frame(frame: object, number: int = 1) -> None:
    raise TimeLimit


@pytest.mark.parametrize(
    "call", [lambda: take_frame(None), look_at_caller, lambda: take_frame(sys._getframe())]
)
def test_an_exception_without_a_signal_handler_is_not_passed_on(call: Callable[[], None]) -> None:
    with pytest.raises(TimeLimit) as caught:
        call()
    errors.pass_on_interruption(caught.value)


def test_an_exception_of_another_thread_is_not_passed_on() -> None:
    def interrupt() -> None:
        try:
            limit(signal.SIGUSR1, sys._getframe())
        except TimeLimit as error:
            errors.pass_on_interruption(error)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(interrupt).result(PATIENCE)
    with pytest.raises(TimeLimit):  # the main thread takes the same call for a handler's
        interrupt()
