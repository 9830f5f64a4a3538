"""The first call of a process on a store like S3: how many round trips it takes in series."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Queue
from osqueue.commit.driver import BlockingDriver
from osqueue.commit.effects import Sleep
from osqueue.objects.layout import root_of
from osqueue.stores.base import Found, Get, Missing, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore


class ClockByRequests(WrappedStore):
    """A store whose time is known by requests only."""

    def clock_ms(self) -> int | None:
        return None

    def perform(self, request: StoreRequest) -> StoreReply:
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return await self.inner.perform_async(request)


@pytest.fixture
def opened(machine: Any) -> Callable[[], Queue[Any]]:
    """Queue objects of processes that have just begun."""
    store = MemoryStore(machine)
    return lambda: Queue(ClockByRequests(store), "mail", machine=machine)


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is sent one after another: requests, or some at once."""
    sent: list[Any] = []
    real = BlockingDriver.perform

    def perform(self: BlockingDriver, effect: Any, *more: Any, **named: Any) -> Any:
        if not isinstance(effect, Sleep):
            sent.append(effect)
        return real(self, effect, *more, **named)

    monkeypatch.setattr(BlockingDriver, "perform", perform)
    return sent


def test_the_first_call_of_a_process_takes_few_round_trips(
    opened: Callable[[], Queue[Any]], trips: list[Any]
) -> None:
    opened().enqueue("first")
    (lease,) = opened().claim()

    def complete(q: Queue[Any]) -> None:
        lease._queue = q  # as a function does with what another one claimed
        lease.complete()

    calls: list[tuple[Callable[[Queue[Any]], Any], int]] = [
        (lambda q: q.enqueue(1), 3),
        (lambda q: q.enqueue(1, id="order"), 4),
        (lambda q: q.claim(), 4),
        (complete, 4),
    ]
    for call, most in calls:
        trips.clear()
        call(opened())
        assert len(trips) == most, trips


def test_a_first_claim_leaves_nothing_where_no_queue_is(opened: Callable[[], Queue[Any]]) -> None:
    q = opened()
    assert q.claim() == []
    assert isinstance(q.store.perform(Get(root_of("mail", 0) + "clock")), Missing)
    q.enqueue(1)
    assert isinstance(q.store.perform(Get(root_of("mail", 0) + "head")), Found)
