"""Leading for as long as a block lasts: waiting for it, beating meanwhile, noticing its loss, giving it up."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Damaged, Rejected, Timeout, Unavailable
from osqueue.commit.effects import Sleep
from osqueue.election.asynchronous import AsyncElection
from osqueue.election.base import ElectionRecord, seal, unseal
from osqueue.election.blocking import Election
from osqueue.stores.base import Failed, Found, Get, Put, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from tests.support.patience import PATIENCE

KEY = "elections/reports"
QUICK = {"heartbeat": 0.002, "stale_after": 60}
FAILED = Failed(Unavailable("no answer"))


class Breakable(WrappedStore):
    """Works until it is told to break, by what it then answers to everything."""

    broken: StoreReply | None = None

    def perform(self, request: StoreRequest) -> StoreReply:
        return self.broken or self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


@pytest.fixture
def store() -> Breakable:
    return Breakable(MemoryStore())


def record(store: Breakable) -> ElectionRecord:
    found = store.inner.perform(Get(KEY))
    assert isinstance(found, Found)
    return unseal(found.body, KEY)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.001)


async def until_async(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.001)


def beating() -> bool:
    return any(thread.name == "election-reports" for thread in threading.enumerate())


def test_a_leader_beats_while_its_block_lasts_and_resigns_at_its_end(store: Breakable) -> None:
    election = Election(store, "reports", "ada", **QUICK)
    with election.lead() as fence:
        marks: set[str] = set()
        until(lambda: marks.add(record(store).mark) or len(marks) > 3)  # type: ignore[func-returns-value]
        assert (fence, election.fence, record(store).term) == (1, 1, 1)
    assert (election.is_leader, record(store).candidate) == (False, None)
    until(lambda: not beating())
    with election.lead() as fence:
        assert fence == 2
    until(lambda: not beating())


def test_a_block_that_raises_gives_the_leadership_up(store: Breakable) -> None:
    election = Election(store, "reports", "ada", **QUICK)
    with pytest.raises(ZeroDivisionError), election.lead():
        _ = 1 / 0
    assert record(store).candidate is None


def test_a_leadership_that_is_taken_away_is_noticed_and_left_to_whoever_has_it(store: Breakable) -> None:
    election = Election(store, "reports", "ada", **QUICK)
    with election.lead():
        store.perform(Put(KEY, seal(ElectionRecord(2, "bob", "his", 60_000))))
        until(lambda: not election.is_leader)
        until(lambda: not beating())
        assert election.leader == "bob"
    assert record(store) == ElectionRecord(2, "bob", "his", 60_000)


def test_a_block_ends_quietly_when_the_store_does_not_take_the_resignation(
    store: Breakable, caplog: pytest.LogCaptureFixture
) -> None:
    election = Election(store, "reports", "ada", **QUICK)
    with election.lead():
        store.broken = Failed(Unavailable("no such bucket", permanent=True))
    assert not election.is_leader
    assert "could not give up reports" in caplog.text
    assert record(store).candidate == "ada"


def test_beats_that_fail_are_repeated_sooner_until_the_leadership_has_run_out(
    store: Breakable, machine: Any
) -> None:
    election = Election(store, "reports", "ada", machine=machine)
    assert election.campaign() == "elected"
    store.broken = FAILED
    began = machine.monotonic()
    election._run(election._keep_leading(1))
    assert machine.slept == [3, *[0.75] * 8]
    assert (machine.monotonic() - began, election.is_leader) == (9, False)


def test_beats_survive_a_store_that_comes_back(store: Breakable, machine: Any) -> None:
    election = Election(store, "reports", "ada", machine=machine)
    election.campaign()
    store.broken = FAILED

    def sleep(seconds: float) -> None:
        machine.slept.append(seconds)
        machine.advance(seconds)
        if len(machine.slept) == 4:
            store.broken = None
        if len(machine.slept) == 10:
            election.resign()

    machine.sleep = sleep
    election._run(election._keep_leading(1))
    assert machine.slept == [3, 0.75, 0.75, 0.75, *[3] * 6]
    assert record(store).term == 1


def test_a_record_that_cannot_be_read_ends_a_leadership_only_with_its_time(
    store: Breakable, machine: Any
) -> None:
    election = Election(store, "reports", "ada", machine=machine)
    election.campaign()
    store.perform(Put(KEY, b"something else"))
    began = machine.monotonic()
    election._run(election._keep_leading(1))
    assert machine.monotonic() - began == 9
    assert isinstance(election.error, Damaged)


def test_a_beat_under_way_while_the_leader_resigns_does_not_elect_it_again(
    store: Breakable, machine: Any
) -> None:
    election = Election(store, "reports", "ada", machine=machine)
    election.campaign()
    beats = election._keep_leading(1)
    assert isinstance(next(beats), Sleep)
    read = beats.send(None)  # the beat has begun
    assert isinstance(read, Get)
    assert election.resign()
    effect: Any = read
    with contextlib.suppress(StopIteration):
        while True:
            effect = beats.send(None if isinstance(effect, Sleep) else store.perform(effect))
    assert (election.is_leader, record(store).candidate) == (False, None)


def test_waiting_ends_with_the_leadership_or_with_the_time_out(store: Breakable, new_machine: Any) -> None:
    machine = new_machine(seed=2)
    ada = Election(store, "reports", "ada", machine=new_machine(seed=1))
    bob = Election(store, "reports", "bob", machine=machine)
    ada.campaign()
    with pytest.raises(Timeout, match="bob was not elected for reports within 8 s"), bob.lead(timeout=8):
        pytest.fail("it does not lead")
    assert 2 <= len(machine.slept) <= 3
    assert sum(machine.slept) <= 8
    assert len(set(machine.slept)) > 1  # jittered, so that candidates do not step in time
    assert ada.is_leader

    def sleep(seconds: float) -> None:
        machine.advance(seconds)
        ada.resign()

    machine.sleep = sleep
    assert bob._run(bob._await_leadership(8)) == 2


def test_what_only_a_change_can_mend_ends_the_wait(store: Breakable) -> None:
    store.broken = Failed(Rejected("such a key is none"))
    with pytest.raises(Rejected), Election(store, "reports", "ada").lead():
        pytest.fail("it does not lead")


# ── Coroutines ───────────────────────────────────────────────────────────────
def test_a_coroutine_steps_and_resigns_like_a_thread(store: Breakable) -> None:
    async def story() -> list[Any]:
        ada, bob = (AsyncElection(store, "reports", name, stale_after=600) for name in ("ada", "bob"))
        return [
            await ada.campaign(),
            await bob.campaign(),
            await ada.campaign(),
            ada.fence,
            await ada.resign(),
            await bob.campaign(),
            bob.fence,
        ]

    expected = ["elected", "other_leader", "already_leader", 1, True, "elected", 2]
    assert asyncio.run(story()) == expected


def test_a_coroutine_leads_for_as_long_as_its_block_lasts(store: Breakable) -> None:
    async def story() -> None:
        election = AsyncElection(store, "reports", "ada", **QUICK)
        async with election.lead() as fence:
            marks: set[str] = set()
            await until_async(lambda: marks.add(record(store).mark) or len(marks) > 3)  # type: ignore[func-returns-value]
            assert (fence, election.fence) == (1, 1)
        assert not election.is_leader
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(story())
    assert record(store).candidate is None


def test_a_cancelled_coroutine_gives_the_leadership_up(store: Breakable) -> None:
    async def lead(entered: asyncio.Event) -> None:
        async with AsyncElection(store, "reports", "ada", **QUICK).lead():
            entered.set()
            await asyncio.Event().wait()

    async def story() -> None:
        entered = asyncio.Event()
        task = asyncio.create_task(lead(entered))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert record(store).candidate is None
