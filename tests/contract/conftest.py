"""What the contract tests of the queue share: every store and API, both kinds of queue, and a clock that tests move."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import AsyncQueue, Queue
from osqueue.client.transports.address import open_transport
from osqueue.clock import Machine
from osqueue.stores.address import is_remote, open_store
from osqueue.stores.base import (
    Found,
    Get,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Store,
    StoreReply,
    StoreRequest,
    Written,
)
from osqueue.stores.file import FileStore
from osqueue.stores.wrapped import WrappedStore
from tests.support import store_kinds
from tests.support.addresses import address_in

STORES = ("memory", "file", "split", "s3", "valkey")
REMOTE = (
    "serve",
    "lambda",
)  # an API in front of a store in memory: awaited over HTTP, blocking by direct invocation
CLOUDS = ("gs", "az")
LIGHT = ("s3-prefix", "s3-hot")  # kinds whose server is the light one: it keeps the rules of the port, too
# What a queue asks of a server is the same from a coroutine, and minutes of all tests: each has one kind of queue, but
# for the main calls.
ALONE = {"split": "Queue", "s3": "Queue", "valkey": "AsyncQueue", "serve": "AsyncQueue", "lambda": "Queue"}
BOTH = "test_queue.py"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other kind."""
    chosen, others = [], []
    for item in items:
        of = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        kind = of.get("opened")
        ours = item.path.name == BOTH or kind in (None, ALONE.get(of.get("address", ""), kind))
        (chosen if ours else others).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=others)


class Shifted(Machine):
    """The real machine's clock, moved by a test."""

    def __init__(self) -> None:
        self.shift_ms = 0
        self.written: dict[str, int] = {}  # by key of an object: the shift when it was written

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms

    def monotonic(self) -> float:
        return super().monotonic() + self.shift_ms / 1000


class Moved(WrappedStore):
    """A store of another machine, whose clock moves with the test's."""

    def __init__(self, inner: Any, clock: Shifted) -> None:
        super().__init__(inner)
        self.clock = clock

    def perform(self, request: StoreRequest) -> StoreReply:
        return self._moved(request, self.inner.perform(request))

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self._moved(request, await self.inner.perform_async(request))

    def _moved(self, request: StoreRequest, reply: StoreReply) -> StoreReply:
        if isinstance(reply, Written) and isinstance(request, Put | PutIfAbsent | PutIfMatch):
            self.clock.written[request.key] = self.clock.shift_ms
        if not isinstance(reply, Found) or not isinstance(request, Get):
            return reply
        shift_ms = self.clock.written.get(request.key, 0)
        return replace(reply, modified_ms=reply.modified_ms + shift_ms)


class Blocking:
    """An AsyncQueue, its leases and their methods, called as if they blocked."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: Any) -> None:
        self._loop = loop
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            plain = [[self._plain(item) for item in arg] if isinstance(arg, list) else arg for arg in args]
            answer = found(*plain, **options)
            if inspect.isawaitable(answer):
                answer = self._loop.run_until_complete(answer)
            if hasattr(answer, "__aenter__"):
                return BlockingContext(self._loop, answer)
            if inspect.isasyncgen(answer):
                return self._steps(answer)
            if isinstance(answer, list) and type(answer).__name__ == "ClaimedLeases":
                told = vars(answer)
                answer = type(answer)(Blocking(self._loop, each) for each in answer)
                vars(answer).update(told)
            return answer

        return call

    def _steps(self, answer: Any) -> Iterator[Any]:
        with suppress(StopAsyncIteration):
            while True:
                yield self._loop.run_until_complete(anext(answer))

    def _plain(self, item: Any) -> Any:
        return item._inner if isinstance(item, Blocking) else item


class BlockingContext(Blocking):
    """What is entered with ``async with``, with ``with``."""

    def __enter__(self) -> BlockingContext:
        self._loop.run_until_complete(self._inner.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._loop.run_until_complete(self._inner.__aexit__(*error))


@pytest.fixture
def api_url(api_server: ModuleType, tmp_path: Path, clock: Shifted) -> Iterator[str]:
    """An API in front of a store in memory, whose clock the test moves."""
    with api_server.api_server(open_store(f"memory://{tmp_path}", clock), machine=clock) as url:
        yield url


@pytest.fixture
def served_url(tmp_path: Path, clock: Shifted) -> Iterator[str]:
    """The same served by ``osqueue serve``'s application."""
    from tests.support.served import served  # Starlette and uvicorn, for those who need them

    with served(open_store(f"memory://{tmp_path}", clock), clock) as url:
        yield url


@pytest.fixture(params=[*STORES, *REMOTE])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param in REMOTE:
        if request.node.get_closest_marker("embedded"):
            pytest.skip("it reaches into the store")
        if request.param == "serve":
            served_url: str = request.getfixturevalue("served_url")
            return served_url
        url: str = request.getfixturevalue("api_url")
        request.getfixturevalue("aws_environment")
        return f"lambda://{request.getfixturevalue('api_server').PREFIX}?endpoint={url}"
    return address_in(request.param, request, tmp_path)


@pytest.fixture
def clock() -> Shifted:
    return Shifted()


@pytest.fixture
def behind(address: str, tmp_path: Path, clock: Shifted) -> Any:
    """The store itself, whatever the queue goes through."""
    return open_store(f"memory://{tmp_path}" if is_remote(address) else address, clock)


@pytest.fixture
def new_store(address: str, clock: Shifted) -> Callable[[], Any]:
    """Opens the store, or the API, again, as another process would."""

    def open_again() -> Any:
        if is_remote(address):
            return open_transport(address, clock)
        store = open_store(address, clock)
        return Moved(store, clock) if store.clock_ms() is None else store

    return open_again


@pytest.fixture(params=["Queue", "AsyncQueue"])
def opened(
    request: pytest.FixtureRequest, new_store: Callable[[], Any], clock: Shifted
) -> Iterator[Callable[..., Any]]:
    """Opens queue objects on one store."""
    loop = asyncio.new_event_loop()
    made: list[Any] = []

    def open_queue(name: str = "mail", **options: Any) -> Any:
        if request.param == "Queue":
            made.append(Queue(new_store(), name, machine=clock, **options))
        else:
            made.append(Blocking(loop, AsyncQueue(new_store(), name, machine=clock, **options)))
        return made[-1]

    yield open_queue
    for q in made:
        q.close()
    loop.close()


@pytest.fixture
def at_work(new_store: Callable[[], Any], clock: Shifted) -> Callable[..., Any]:
    """While the block lasts, somebody else claims jobs and ends each as told."""

    @contextmanager
    def work(end: Callable[[Any], Any], **options: Any) -> Iterator[list[Any]]:
        over = threading.Event()
        payloads: list[Any] = []

        def run() -> None:
            with Queue(new_store(), "mail", machine=clock, **options) as q:
                while not over.is_set():
                    for lease in q.claim(10, wait=0.05):
                        payloads.append(lease.payload)
                        end(lease)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield payloads
        finally:
            over.set()
            thread.join()

    return work


@pytest.fixture
def q(opened: Any) -> Any:
    return opened()


@pytest.fixture(params=store_kinds.STORES)
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Callable[..., Store], tuple[Any, ...]]:
    """A function and its arguments, fit to be sent to another process: each call opens the same place."""
    kind: str = request.param
    hot = kind.endswith("-hot")
    if kind.startswith("split"):
        if kind == "split-valkey":
            server = request.getfixturevalue("valkey")
            return store_kinds.open_split, (server.address(), server.address())
        memories = tuple(f"memory://{request.node.nodeid}{at}" for at in range(2))
        folders = tuple(f"file://{tmp_path}/{at}" for at in range(2))
        pairs = {"split": memories, "split-file": folders, "split-mixed": (memories[0], folders[1])}
        return store_kinds.open_split, pairs[kind]
    if kind.startswith("memory"):
        return store_kinds.open_hot_memory if hot else store_kinds.open_memory, (request.node.nodeid,)
    if kind.startswith("file"):
        return store_kinds.HotFileStore if hot else FileStore, (
            str(tmp_path / "store"),
            "nofsync" not in kind,
        )
    if kind.startswith("valkey"):
        return store_kinds.open_address, (request.getfixturevalue("valkey").address(),)
    if kind in CLOUDS:
        return store_kinds.open_address, (address_in(kind, request, tmp_path),)
    if kind in LIGHT:
        endpoint, bucket = (
            request.getfixturevalue("light_s3").endpoint,
            request.getfixturevalue("light_bucket"),
        )
    else:
        endpoint, bucket = request.getfixturevalue("s3_endpoint"), request.getfixturevalue("s3_bucket")
    prefix = "some/prefix" if kind.endswith("prefix") else ""
    if hot:
        return store_kinds.open_hot_s3, (bucket, prefix, endpoint)
    return (store_kinds.open_boto if "boto" in kind else store_kinds.open_s3), (bucket, prefix, endpoint)


@pytest.fixture
def store(opening: tuple[Callable[..., Store], tuple[Any, ...]]) -> Store:
    function, arguments = opening
    return function(*arguments)
