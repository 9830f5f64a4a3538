"""Turns at a server: who has the turn, what becomes of those who give up, die or are many, and what is left behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue
from osqueue.stores import valkey_turns
from osqueue.stores.address import open_store
from osqueue.stores.base import Answered, PassTurn, Refused, StoreReply, TakeTurn, Turn
from osqueue.stores.valkey import ValkeyStore
from tests.support.patience import PATIENCE
from tests.support.valkey_server import ValkeyServer

SHORT = 1.0  # seconds; for those who are to give up, and long enough to see their note in the box
CALLERS, CALLS = 8, 10
COROUTINES = 48  # more than the loop's own threads


def opened(server: ValkeyServer, prefix: str | None = None) -> ValkeyStore:
    store = open_store(server.address(prefix)).inner
    assert isinstance(store, ValkeyStore)
    return store


@pytest.fixture
def store(valkey: ValkeyServer) -> Iterator[ValkeyStore]:
    made = opened(valkey)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _holders_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the machine stands still, a turn is over when its holder says so."""
    monkeypatch.setattr(valkey_turns, "HELD_MS", round(PATIENCE * 1000))


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def taken(store: ValkeyStore, note: bytes = b"mine", seconds: float = PATIENCE) -> Turn:
    turn = store.take_turn(TakeTurn("head", note, seconds))
    assert isinstance(turn, Turn), turn
    return turn


def in_box(store: ValkeyStore) -> int:
    (count,) = store._ask(("LLEN", f"{store.at.prefix}:box/head"))
    return int(count)


def waiting(
    store: ValkeyStore, threads: ThreadPoolExecutor, note: bytes, seconds: float = PATIENCE
) -> Future[Any]:
    """Somebody who waits for the turn, once the note is in the box."""
    before = in_box(store)
    caller = threads.submit(store.take_turn, TakeTurn("head", note, seconds))
    while in_box(store) == before:
        assert not caller.done()
    return caller


def test_the_holder_answers_some_and_the_others_come_again(
    store: ValkeyStore, threads: ThreadPoolExecutor
) -> None:
    turn = taken(store)
    callers = [waiting(store, threads, b"note %d" % at) for at in range(4)]
    store.pass_turn(PassTurn(turn))
    first = callers[0].result(PATIENCE)
    assert first.notes == (b"note 1", b"note 2", b"note 3")
    store.pass_turn(PassTurn(first, ((1, b"done"),)))
    assert callers[2].result(PATIENCE) == Answered(b"done")
    done, (last,) = wait((callers[1], callers[3]), PATIENCE, FIRST_COMPLETED)
    (next_one,) = done
    assert isinstance(next_one.result(), Turn)
    store.pass_turn(PassTurn(next_one.result()))
    assert isinstance(last.result(PATIENCE), Turn)
    store.pass_turn(PassTurn(last.result()))


def test_who_gives_up_takes_the_note_along_and_waits_no_second_time(
    store: ValkeyStore, threads: ThreadPoolExecutor
) -> None:
    turn = taken(store)
    assert waiting(store, threads, b"in a hurry", SHORT).result(PATIENCE) == Refused(noted=True)
    assert in_box(store) == 0
    assert store.take_turn(TakeTurn("head", b"again", PATIENCE)) == Refused()  # at once, and without a note
    store.pass_turn(PassTurn(turn))
    store.pass_turn(PassTurn(taken(store)))  # one that is free is had all the same
    assert not store._turns._stuck


def test_who_had_next_to_no_time_says_nothing_of_the_holder(store: ValkeyStore) -> None:
    turn = taken(store)
    asked: list[float] = []
    hear = store._turns._hear
    store._turns._hear = lambda name, seconds: asked.append(seconds) or hear(name, seconds)
    assert store.take_turn(TakeTurn("head", b"", 0.0004)) == Refused(noted=True)
    assert not store._turns._stuck
    assert all(each >= 0.001 for each in asked)  # the server takes 0 for endless
    store.pass_turn(PassTurn(turn))


def test_a_turn_that_reaches_somebody_who_has_given_up_goes_on_to_the_next(
    store: ValkeyStore, valkey: ValkeyServer, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf_one, passed = opened(valkey, store.at.prefix), threading.Event()

    def deaf(name: str, seconds: float) -> bytes | None:
        passed.wait(PATIENCE)
        return None  # it was told, and does not hear of it in time

    monkeypatch.setattr(deaf_one._turns, "_hear", deaf)
    turn = taken(store)
    gone = waiting(deaf_one, threads, b"gone", SHORT)
    stays = waiting(store, threads, b"stays")
    monkeypatch.setattr(valkey_turns, "HANDED_MS", round(PATIENCE * 1000))
    store.pass_turn(PassTurn(turn))
    passed.set()
    assert gone.result(PATIENCE) == Refused(noted=True)
    next_turn = stays.result(PATIENCE)
    assert isinstance(next_turn, Turn)
    assert b"gone" not in next_turn.notes
    deaf_one.close()


def test_somebody_who_was_killed_while_waiting_stops_nobody(
    store: ValkeyStore, threads: ThreadPoolExecutor
) -> None:
    """Each holder has so much time that this would never end if the turn were kept for the dead one as long."""
    turn = taken(store)
    store._ask(("RPUSH", f"{store.at.prefix}:box/head", b"0" * valkey_turns.WAITER_CHARS + b"of the dead"))
    waiter = waiting(store, threads, b"alive")
    store.pass_turn(PassTurn(turn))
    next_turn = waiter.result(PATIENCE)
    assert isinstance(next_turn, Turn)
    assert next_turn.notes == (b"of the dead",)
    store.pass_turn(PassTurn(next_turn))
    assert taken(store).notes == ()  # and it is told once


def test_the_turn_of_a_holder_that_never_passes_it_on_is_free_after_a_while(
    store: ValkeyStore, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(valkey_turns, "HELD_MS", 300)
        dead = taken(store)
    taken(store)
    store.pass_turn(PassTurn(dead))  # it was only stopped: the turn is somebody else's by now
    assert isinstance(waiting(store, threads, b"another", SHORT).result(PATIENCE), Refused)


def test_an_interrupted_wait_leaves_nothing(store: ValkeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = taken(store)

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store._turns, "_hear", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.take_turn(TakeTurn("head", b"mine", PATIENCE))
    assert in_box(store) == 0
    store.pass_turn(PassTurn(turn))
    with monkeypatch.context() as patch:  # once the turn is had, and before anybody knows
        patch.setattr(store._turns, "_turn", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.take_turn(TakeTurn("head", b"mine", PATIENCE))
    taken(store)


def test_who_waits_while_the_store_is_closed_has_the_turn_all_the_same(
    store: ValkeyStore, valkey: ValkeyServer, threads: ThreadPoolExecutor
) -> None:
    other = opened(valkey, store.at.prefix)
    turn = taken(store)
    waiter = waiting(other, threads, b"note")
    other.close()
    store.pass_turn(PassTurn(turn))
    assert isinstance(waiter.result(PATIENCE), Turn)
    other.close()


def test_a_turn_that_a_cancelled_coroutine_waited_for_goes_on(store: ValkeyStore) -> None:
    turn = taken(store)

    async def run() -> StoreReply:
        waiter = asyncio.create_task(store.perform_async(TakeTurn("head", b"cancelled", PATIENCE)))
        while not in_box(store):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.001)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        store.pass_turn(PassTurn(turn))
        return await store.perform_async(TakeTurn("head", b"next", PATIENCE))

    assert isinstance(asyncio.run(asyncio.wait_for(run(), PATIENCE)), Turn)


FORKS = """
import asyncio, os, sys
from osqueue import AsyncQueue

async def enqueue(queues):
    await asyncio.gather(*(each.enqueue(1) for each in queues))

async def crowd(queues):
    for _ in range(3):
        await enqueue(queues)

queues = [AsyncQueue.connect(sys.argv[1], "mail", timeout=20) for _ in range(4)]
asyncio.run(crowd(queues))
child = os.fork()
if child == 0:
    asyncio.run(crowd(queues))
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_coroutines_of_a_forked_child_take_turns_as_well(valkey: ValkeyServer) -> None:
    """Threads of a pool are not in a child, and the pool does not know it."""
    address = valkey.address()
    subprocess.run([sys.executable, "-c", FORKS, address], timeout=PATIENCE, check=True)
    with Queue.connect(address, "mail") as q:
        assert q.stats()["queued"] == 24


def test_nothing_of_turns_lasts(store: ValkeyStore, threads: ThreadPoolExecutor) -> None:
    turn = taken(store)
    waiting(store, threads, b"note", SHORT).result(PATIENCE)
    (names,) = store._ask(("KEYS", f"{store.at.prefix}:*"))
    assert names
    for name in names:
        (left,) = store._ask(("PTTL", name))
        assert 0 <= left <= max(valkey_turns.KEPT_MS, valkey_turns.HELD_MS)
    store.pass_turn(PassTurn(turn))
    assert store._ask(("KEYS", f"{store.at.prefix}:turn/*")) == [[]]


def test_a_crowd_shares_commits_and_everybody_is_answered(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, replies = valkey.address(), []
    take = valkey_turns.ServerTurns.take

    def noted(turns: Any, request: Any) -> Any:
        replies.append(take(turns, request))
        return replies[-1]

    monkeypatch.setattr(valkey_turns.ServerTurns, "take", noted)
    with ThreadPoolExecutor(CALLERS) as threads:

        def call(caller: int) -> list[str]:
            with Queue.connect(address, "mail") as q:
                return [q.enqueue(f"{caller}-{number}").job_id for number in range(CALLS)]

        ids = [each for done in threads.map(call, range(CALLERS)) for each in done]
    with Queue.connect(address, "mail") as q:
        stats = q.stats()
    assert len(set(ids)) == stats["queued"] == CALLERS * CALLS
    answered = sum(isinstance(each, Answered) for each in replies)
    assert answered > 0
    assert stats["commits"] < CALLERS * CALLS


def test_many_coroutines_wait_while_one_of_them_commits(valkey: ValkeyServer) -> None:
    """Who waits keeps no thread that the holder's own requests need."""
    address = valkey.address()

    async def run() -> None:
        queues = [AsyncQueue.connect(address, "mail", timeout=PATIENCE) for _ in range(COROUTINES)]
        for _ in range(2):
            await asyncio.gather(*(each.enqueue(1) for each in queues))
        assert (await queues[0].stats())["queued"] == 2 * COROUTINES
        for each in queues:
            await each.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
