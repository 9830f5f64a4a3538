"""Threads that are interrupted while they commit for several, more than once or at an awkward moment."""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import pytest

from osqueue import Queue
from osqueue.commit import group, writer
from osqueue.core import encoding
from osqueue.stores.base import PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore

PATIENCE_SECONDS = 60
SWITCHED_OFF = "with self._lock"  # where a lock is let go of, Python handles no signal


class Interrupting(MemoryStore):
    """A store that does what a test asks for before each swap of a head."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.before: Callable[[], None] = lambda: None

    def perform(self, request: StoreRequest) -> StoreReply:
        if isinstance(request, PutIfMatch):
            self.before()
        return super().perform(request)

    def once(self, act: Callable[[], None]) -> None:
        """Do it before the next swap."""

        def acted() -> None:
            self.before = lambda: None
            act()

        self.before = acted


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture
def store(machine: Any) -> Interrupting:
    return Interrupting(machine)


@pytest.fixture
def q(store: Interrupting, machine: Any) -> Queue[Any]:
    made: Queue[Any] = Queue(store, "mail", machine=machine, timeout=5)
    made.enqueue("first")
    return made


def interrupted_at(line: int, work: Callable[[], Any], function: str = "") -> bool:
    """Run ``work``, interrupted before the ``line``-th line of the module or of one function; was there one?

    Not where a lock is let go of, where Python handles no signal, and not inside the protocol: its riders are told
    that nobody knows.
    """
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != group.__file__:
            return None
        batch = frame.f_locals.get("self") if frame.f_code.co_name == "run" else None
        inside = batch is not None and batch.torn
        text = linecache.getline(group.__file__, frame.f_lineno)
        asked = function in ("", frame.f_code.co_name)
        if event == "line" and asked and not inside and SWITCHED_OFF not in text:
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            work()
    finally:
        sys.settrace(None)
    return left < 0


def interrupted_inside(line: int, work: Callable[[], Any]) -> bool:
    """The same inside the protocol, in what a writer remembers."""
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if event == "line" and frame.f_code.co_filename in (writer.__file__, encoding.__file__):
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            work()
    finally:
        sys.settrace(None)
    return left < 0


@pytest.mark.parametrize("call", ["enqueue", "claim"])
def test_an_interruption_at_any_line_leaves_the_queue_usable(machine: Any, call: str) -> None:
    """And nobody keeps a lease that nobody heard of."""
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine, timeout=1)
    q.enqueue_many([{"payload": at} for at in range(3)])
    line = 0
    work: Callable[[], Any] = partial(q.claim, 2) if call == "claim" else partial(q.enqueue, "x")
    while interrupted_at(line, work):
        line += 1
        # One call flies on with what was interrupted, another one carries what has to be given back.
        assert [q.enqueue("next").status for _ in range(2)] == ["queued"] * 2
        assert q.stats()["processing"] == 0, line
    assert line > 30


def test_an_interruption_at_any_line_leaves_nothing_half_remembered(machine: Any) -> None:
    """What a writer keeps from one commit to the next stays true, so the next head can be read."""
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine, timeout=1)
    line, there = 0, True
    while there:
        q.enqueue("x")
        (lease,) = q.claim()
        there = interrupted_inside(line, lease.complete)
        line += 1
        q.enqueue("next")
        for each in q.claim(5):
            each.complete()
        known: Queue[Any] = Queue(q.store, "mail", machine=machine)
        assert known.stats()["counters"] == q.stats()["counters"], line
    assert line > 30


def test_another_interruption_while_the_first_is_tidied_up_leaves_the_queue_usable(
    store: Interrupting, q: Queue[Any]
) -> None:
    def work() -> None:
        store.once(interrupt)
        with pytest.raises(KeyboardInterrupt):
            q.enqueue("interrupted")

    line = 0
    while interrupted_at(line, work, "_leave"):
        line += 1
        assert q.enqueue("next").status == "queued", line
    assert line > 10


def test_riders_of_an_interrupted_flight_are_flown_on_when_its_heir_leaves_too(
    store: Interrupting, q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_air, go_on = threading.Event(), threading.Event()
    fly = group.BlockingGroup._lead
    pilots: list[Any] = []

    def hold() -> None:
        in_the_air.set()
        assert go_on.wait(PATIENCE_SECONDS)
        store.once(interrupt)  # who flies next

    def flown(self: Any, leader: Any) -> None:
        pilots.append(leader)
        if len(pilots) == 3:
            raise KeyboardInterrupt  # the heir, before it has the controls
        fly(self, leader)

    monkeypatch.setattr(group.BlockingGroup, "_lead", flown)
    waiting = q._group(0)._waiting
    store.once(hold)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(q.enqueue, "a")
        assert in_the_air.wait(PATIENCE_SECONDS)
        others = [pool.submit(q.enqueue, name) for name in "bcd"]
        while len(waiting) < 3:
            threading.Event().wait(0.001)
        go_on.set()
        assert first.result(PATIENCE_SECONDS).status == "queued"
        ended = [each.exception(PATIENCE_SECONDS) for each in others]
    assert [type(each) for each in ended].count(KeyboardInterrupt) == 2
    assert ended.count(None) == 1


def test_events_of_a_commit_are_told_although_its_pilot_was_interrupted(
    q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    distribute = group.BlockingGroup._distribute
    q._observe(told.extend)

    def interrupted(*_: Any) -> None:
        monkeypatch.setattr(group.BlockingGroup, "_distribute", distribute)
        raise KeyboardInterrupt

    monkeypatch.setattr(group.BlockingGroup, "_distribute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        q.enqueue("second")
    q.enqueue("third")
    assert len(told) == 2
