"""Turns at a server: who has the turn, what becomes of those who give up, die or are many, and what is left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue
from osqueue.stores import valkey_turns
from osqueue.stores.address import open_store
from osqueue.stores.base import Answered, PassTurn, Refused, TakeTurn, Turn
from osqueue.stores.valkey import ValkeyStore
from tests.support.patience import PATIENCE
from tests.support.valkey_server import ValkeyServer

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


def waiting(store: ValkeyStore, threads: ThreadPoolExecutor, note: bytes, seconds: float) -> Future[Any]:
    """Somebody who waits for the turn, once the note is in the box."""
    before = in_box(store)
    caller = threads.submit(store.take_turn, TakeTurn("head", note, seconds))
    while in_box(store) == before:
        assert not caller.done()
    return caller


def test_the_holder_answers_some_and_the_first_of_the_others_has_the_turn_with_their_notes(
    store: ValkeyStore, threads: ThreadPoolExecutor
) -> None:
    turn = taken(store)
    callers = [waiting(store, threads, b"note %d" % at, PATIENCE) for at in range(4)]
    store.pass_turn(PassTurn(turn))
    first = callers[0].result(PATIENCE)
    assert sorted(first.notes) == [b"note 1", b"note 2", b"note 3"]
    store.pass_turn(PassTurn(first, ((first.notes.index(b"note 2"), b"done"),)))
    assert callers[2].result(PATIENCE) == Answered(b"done")
    second = callers[1].result(PATIENCE)
    assert second.notes == (b"note 3",)
    store.pass_turn(PassTurn(second, ((0, b"done as well"),)))
    assert callers[3].result(PATIENCE) == Answered(b"done as well")


def test_who_gives_up_takes_the_note_along_and_waits_no_second_time(
    store: ValkeyStore, threads: ThreadPoolExecutor
) -> None:
    turn = taken(store)
    assert waiting(store, threads, b"in a hurry", 0.05).result(PATIENCE) == Refused(noted=True)
    assert in_box(store) == 0
    assert store.take_turn(TakeTurn("head", b"again", PATIENCE)) == Refused()  # at once, and without a note
    store.pass_turn(PassTurn(turn))
    store.pass_turn(PassTurn(taken(store)))  # one that is free is had all the same


def test_a_turn_that_reaches_somebody_who_has_given_up_goes_on_to_the_next(
    store: ValkeyStore, valkey: ValkeyServer, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf_one, passed = opened(valkey, store.at.prefix), threading.Event()

    def deaf(name: str, seconds: float) -> bytes | None:
        passed.wait(PATIENCE)
        return None  # it was told, and does not hear of it in time

    monkeypatch.setattr(deaf_one._turns, "_hear", deaf)
    turn = taken(store)
    gone = waiting(deaf_one, threads, b"gone", 0.01)
    stays = waiting(store, threads, b"stays", PATIENCE)
    store.pass_turn(PassTurn(turn))
    passed.set()
    assert gone.result(PATIENCE) == Refused(noted=True)
    next_turn = stays.result(PATIENCE)
    assert isinstance(next_turn, Turn)
    assert b"gone" not in next_turn.notes
    deaf_one.close()


def test_the_turn_of_a_holder_that_never_passes_it_on_is_free_after_a_while(
    store: ValkeyStore, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valkey_turns, "HELD_MS", 300)
    dead = taken(store)
    turn = waiting(store, threads, b"patient", PATIENCE).result(PATIENCE)
    assert isinstance(turn, Turn)
    assert turn.noted
    store.pass_turn(PassTurn(dead))  # it was only stopped: the turn is somebody else's by now
    assert isinstance(waiting(store, threads, b"another", 0.05).result(PATIENCE), Refused)


def test_an_interrupted_wait_leaves_nothing(store: ValkeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = taken(store)

    def interrupted(name: str, seconds: float) -> bytes | None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store._turns, "_hear", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.take_turn(TakeTurn("head", b"mine", PATIENCE))
    assert in_box(store) == 0
    store.pass_turn(PassTurn(turn))


def test_nothing_of_turns_lasts(store: ValkeyStore, threads: ThreadPoolExecutor) -> None:
    turn = taken(store)
    waiting(store, threads, b"note", 0.05).result(PATIENCE)
    (names,) = store._ask(("KEYS", f"{store.at.prefix}:*"))
    assert names
    for name in names:
        (left,) = store._ask(("PTTL", name))
        assert 0 <= left <= max(valkey_turns.KEPT_MS, valkey_turns.HELD_MS)
    store.pass_turn(PassTurn(turn))
    assert store._ask(("KEYS", f"{store.at.prefix}:turn/*")) == [[]]


def test_a_crowd_shares_commits_and_everybody_is_answered(valkey: ValkeyServer) -> None:
    address = valkey.address()
    with ThreadPoolExecutor(CALLERS) as threads:

        def call(caller: int) -> list[str]:
            with Queue.connect(address, "mail") as q:
                return [q.enqueue(f"{caller}-{number}").job_id for number in range(CALLS)]

        ids = [each for done in threads.map(call, range(CALLERS)) for each in done]
    with Queue.connect(address, "mail") as q:
        stats = q.stats()
    assert len(set(ids)) == stats["queued"] == CALLERS * CALLS
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
