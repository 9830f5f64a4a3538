"""Rules on callers at the same time: threads, processes, a fork's child, coroutines."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ...maintenance.store_races import count_up
from ...stores.base import (
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
    Store,
    Unchanged,
    Written,
)
from .opening import PATIENCE, OpenStore, create, found, rule

RACERS = 8
INCREMENTS = 5  # by each racer
PROCESSES = 3


class RacingRules:
    """What holds whoever else is there."""

    @rule
    def test_of_many_creators_exactly_one_wins(self, store: Store) -> None:
        """Of several PutIfAbsent at the same time one is written, and all others are refused.

        The check is part of the write. Two processes that enqueue under one id would make two jobs of it.
        """
        start = threading.Barrier(RACERS, timeout=PATIENCE)

        def run(name: int) -> bool:
            start.wait()
            return race_to_create(store, name)

        with ThreadPoolExecutor(RACERS) as pool:
            won = list(pool.map(run, range(RACERS)))
        assert sum(won) == 1, f"{sum(won)} of {RACERS} were told that they created it"
        assert found(store, "prize").body == b"%d" % won.index(True)

    @rule
    def test_no_increment_is_lost_among_threads(self, store: Store, open_store: OpenStore) -> None:
        """Of several PutIfMatch of one version one is written, and the others are refused and write nothing.

        A write that is lost among threads is a commit, and with it jobs that were acknowledged.
        """
        create(store, "counter", b"0")
        others = [open_store() for _ in range(RACERS // 2)]  # half of the threads through stores of their own
        with ThreadPoolExecutor(RACERS) as pool:
            racers = [*others, *[store] * (RACERS - len(others))]
            list(pool.map(lambda racer: count_up(racer, "counter", INCREMENTS), racers))
        for other in others:
            other.close()
        assert found(store, "counter").body == b"%d" % (RACERS * INCREMENTS)

    @rule
    def test_processes_neither_win_twice_nor_lose_an_increment(
        self, store: Store, open_store: OpenStore
    ) -> None:
        """What holds among threads holds among processes, where a store says that it is ``shared``.

        Nothing else is between the processes that use a queue.
        """
        if not store.shared:
            pytest.skip("the store lives inside one process")
        create(store, "counter", b"0")
        won = run_processes(open_store, race_then_count, [(name,) for name in range(PROCESSES)])
        assert sum(won) == 1, f"{sum(won)} of {PROCESSES} were told that they created it"
        assert found(store, "counter").body == b"%d" % (PROCESSES * INCREMENTS)

    @rule
    def test_a_forked_child_can_use_the_store(self, store: Store) -> None:
        """A store that was opened before a fork works in the child, and still in the parent: they share no connection.

        Servers that load an application and fork, such as gunicorn with ``--preload``, do so with its queues.
        """
        if not store.shared or "fork" not in multiprocessing.get_all_start_methods():
            pytest.skip("the store lives inside one process, or there are no forks here")
        version = create(store, "head", b"parent")
        context = multiprocessing.get_context("fork")
        child = context.Process(target=replace_head, args=(store, version), daemon=True)
        child.start()
        child.join(PATIENCE)
        assert child.exitcode == 0, "the child could not replace the object; see its traceback"
        read = found(store, "head")
        assert read.body == b"child"
        assert isinstance(store.perform(PutIfMatch("head", b"parent", read.version)), Written)

    # ── Coroutines ───────────────────────────────────────────────────────────
    @rule
    def test_coroutines_get_the_same_answers(self, store: Store) -> None:
        """``perform_async`` answers what ``perform`` does, also to several coroutines at once.

        An AsyncQueue runs the same commits as a Queue.
        """

        async def story() -> list[Any]:
            perform = store.perform_async
            created = await perform(PutIfAbsent("a/1", b"one"))
            assert isinstance(created, Written), created
            read = await perform(Get("a/1"))
            assert isinstance(read, Found), read
            assert read.body == b"one"
            part = await perform(Get("a/1", start=1, length=1))
            assert isinstance(part, Found), part
            assert part.body == b"n"
            beyond = await perform(Get("a/1", start=9, length=1))
            assert isinstance(beyond, Found), beyond
            assert beyond.body == b""
            replaced = await perform(PutIfMatch("a/1", b"two", created.version))
            assert isinstance(replaced, Written), replaced
            await asyncio.gather(*(perform(Put(f"b/{number}", b"x", durable=False)) for number in range(10)))
            return [
                await perform(PutIfAbsent("a/1", b"three")),
                await perform(PutIfMatch("a/1", b"three", created.version)),
                await perform(Get("a/1", unless=replaced.version)),
                await perform(Get("nothing")),
                await perform(List("b/", after="b/4", limit=3)),
                await perform(List("c/")),
                await perform(Delete(("b/0", "b/1"))),
                await perform(DeleteIfMatch("a/1", created.version)),
                await perform(DeleteIfMatch("a/1", replaced.version)),
                await perform(List("")),
            ]

        assert asyncio.run(story()) == [
            Refused(),
            Refused(),
            Unchanged(),
            Missing(),
            Listed(("b/5", "b/6", "b/7"), more=True),
            Listed((), more=False),
            Deleted(),
            Refused(),
            Deleted(),
            Listed(tuple(f"b/{number}" for number in range(2, 10)), more=False),
        ]

    @rule
    def test_of_many_coroutines_exactly_one_wins(self, store: Store) -> None:
        """Of several coroutines that replace one version, one is told that it wrote.

        The commits of one process meet as those of many do.
        """

        async def race() -> list[Any]:
            version = create(store, "head", b"0")
            puts = [PutIfMatch("head", b"by %d" % name, version) for name in range(RACERS)]
            return list(await asyncio.gather(*map(store.perform_async, puts)))

        replies = asyncio.run(race())
        winners = [name for name, reply in enumerate(replies) if isinstance(reply, Written)]
        assert len(winners) == 1, replies
        assert replies.count(Refused()) == RACERS - 1, replies
        assert found(store, "head").body == b"by %d" % winners[0]

    @rule
    def test_a_method_answers_as_perform_does(self, store: Store) -> None:
        """``perform`` maps each request to the method of its name: both give the same answers.

        Code that needs one request calls a method, the commit protocol performs requests.
        """
        written = store.put_if_absent(PutIfAbsent("a", b"one"))
        assert isinstance(written, Written)
        assert store.put_if_absent(PutIfAbsent("a", b"one")) == Refused()
        assert store.get(Get("a")) == store.perform(Get("a"))
        assert store.put_if_match(PutIfMatch("missing", b"x", written.version)) == Refused()
        assert isinstance(store.put(Put("b", b"two")), Written)
        assert store.list(List("")) == Listed(("a", "b"), more=False)
        assert store.delete_if_match(DeleteIfMatch("a", written.version)) == Deleted()
        assert store.delete(Delete(("b",))) == Deleted()
        assert store.list(List("")) == Listed((), more=False)


def race_to_create(store: Store, name: int) -> bool:
    """Whether this caller was told that it created the object that all want to create."""
    return isinstance(store.perform(PutIfAbsent("prize", b"%d" % name)), Written)


def race_then_count(store: Store, name: int) -> bool:
    """Both races, in another process."""
    won = race_to_create(store, name)
    count_up(store, "counter", INCREMENTS)
    return won


def replace_head(store: Store, version: str) -> None:
    """What a fork's child does."""
    reply = store.perform(PutIfMatch("head", b"child", version))
    assert isinstance(reply, Written), reply


def run_processes(
    open_store: OpenStore, function: Callable[..., Any], arguments: list[tuple[Any, ...]]
) -> list[Any]:
    """The answers of ``function(store, …)``, each run in a process of its own that opens the store."""
    try:
        pickle.dumps(open_store)
    except Exception as error:  # noqa: BLE001 - whatever an object of the user's raises
        pytest.fail(f"open_store cannot be sent to another process ({error}). Make it a functools.partial.")
    context = multiprocessing.get_context("spawn")
    result = context.Queue()
    processes = [
        context.Process(target=_in_process, args=(open_store, result, function, *more), daemon=True)
        for more in arguments
    ]
    for process in processes:
        process.start()
    answers = [result.get(timeout=PATIENCE) for _ in processes]
    for process in processes:
        process.join(PATIENCE)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def _in_process(open_store: OpenStore, result: Any, function: Callable[..., Any], *more: Any) -> None:
    try:
        result.put(function(open_store(), *more))
    except Exception as error:  # noqa: BLE001 - it is raised where the test is
        result.put(RuntimeError(f"in another process: {type(error).__name__}: {error}"))
