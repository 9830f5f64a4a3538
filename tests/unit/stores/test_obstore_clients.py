"""Kept connections that may be dead: which are dropped, and which requests are repeated on a fresh one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pytest

from osqueue import AsyncQueue, Queue, Timeout, Unavailable
from osqueue.stores import faults, obstore_clients
from osqueue.stores.base import (
    Delete,
    Deleted,
    Failed,
    Found,
    Get,
    List,
    Listed,
    Missing,
    Put,
    PutIfMatch,
    Refused,
    StoreRequest,
    Written,
)
from osqueue.stores.faults import Timeouts
from osqueue.stores.s3 import S3Store
from osqueue.stores.s3_place import S3Options
from tests.support.gcs_server import GcsAnswer, gcs_server
from tests.support.light_s3 import LightS3
from tests.support.machines import VirtualMachine
from tests.support.patience import PATIENCE
from tests.support.s3_server import ENVIRONMENT
from tests.support.silent_relay import SilentRelay, relaying_to

BUCKET = "some-bucket"
FIRST_BYTE_S = 1.0
TRIES_MAX = 100
R = TypeVar("R")
OBJECT = Put("a", b"body")


class SlowS3(LightS3):
    """Carries out each request at once, and replies to those of one method when ``until`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.late = ""  # method whose replies wait
        self.arrived = threading.Semaphore(0)
        self.until = threading.Event()

    def reply_after(self, requests: int) -> None:
        """Hold the replies back until ``requests`` requests have taken effect."""

        def release() -> None:
            for _ in range(requests):
                self.arrived.acquire(timeout=PATIENCE)
            self.until.set()

        threading.Thread(target=release, daemon=True).start()

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> GcsAnswer:
        answer = super().answer(method, target, headers, body)
        if method == self.late:
            self.arrived.release()
            self.until.wait(PATIENCE)
        return answer


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(faults, "FIRST_BYTE_TIMEOUT_S", FIRST_BYTE_S)


@pytest.fixture
def server() -> Iterator[SlowS3]:
    with gcs_server(SlowS3) as server:
        assert isinstance(server, SlowS3)
        server.buckets[BUCKET] = {}
        yield server
        server.until.set()


@pytest.fixture
def relay(server: SlowS3) -> Iterator[SilentRelay]:
    with relaying_to(server.endpoint) as relay:
        yield relay


def opened(endpoint: str, connect_s: float = 0.9) -> S3Store:
    return S3Store(BUCKET, endpoint=endpoint, options=S3Options(timeouts=Timeouts(connect_s, PATIENCE)))


def without_limit(endpoint: str) -> S3Store:
    """Open a store that repeats nothing, however busy the machine is."""
    return opened(endpoint, PATIENCE)


def carried_out(store: S3Store, request: StoreRequest, form: str) -> Any:
    return asyncio.run(store.perform_async(request)) if form == "async" else store.perform(request)


def on_a_silent_connection(relay: SilentRelay, act: Callable[[], R]) -> R:
    """Act until a request used a connection that had fallen silent.

    obstore takes a connection back a moment after its reply, so a request that comes at once may open another.
    """
    for _ in range(TRIES_MAX):
        relay.fall_silent()
        result = act()
        if relay.unanswered:
            return result
    pytest.fail(f"{TRIES_MAX} requests used no kept connection")


def test_a_connection_that_was_idle_for_too_long_is_not_used_again(
    relay: SilentRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore_clients, "STORE_IDLE_MS_MAX", 1)
    store = without_limit(relay.endpoint)
    for _ in range(3):
        assert isinstance(store.perform(OBJECT), Written)
        time.sleep(0.02)  # obstore has a clock of its own
    assert [each.connection for each in relay.requests] == [0, 1, 2]


def test_a_freeze_that_stopped_the_monotonic_clock_drops_the_connections(
    relay: SilentRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = VirtualMachine()
    monkeypatch.setattr(obstore_clients, "MACHINE", machine)
    store = without_limit(relay.endpoint)
    assert isinstance(store.perform(OBJECT), Written)
    time.sleep(0.1)  # obstore takes the connection back
    machine.time_ms += 30_000
    assert isinstance(store.perform(OBJECT), Written)
    assert [each.connection for each in relay.requests] == [0, 1]


@pytest.mark.parametrize(
    ("request_", "expected", "form"),
    [
        (Get("a"), Found, "blocking"),
        (Put("b", b""), Written, "blocking"),
        (List(""), Listed, "blocking"),
        (Delete(("a",)), Deleted, "blocking"),
        (Put("b", b""), Written, "async"),
    ],
    ids=str,
)
def test_a_request_on_a_silent_connection_is_repeated_once_on_a_fresh_one(
    relay: SilentRelay, request_: StoreRequest, expected: type, form: str
) -> None:
    store = opened(relay.endpoint)
    store.perform(OBJECT)
    assert isinstance(on_a_silent_connection(relay, lambda: carried_out(store, request_, form)), expected)
    assert isinstance(store.perform(Get("a")), Missing if expected is Deleted else Found)
    assert len(relay.unanswered) == 1


def test_a_slow_store_is_waited_for_after_the_repeat(server: SlowS3) -> None:
    server.late = "GET"
    store = opened(server.endpoint)
    store.perform(OBJECT)

    server.reply_after(2)
    assert isinstance(store.perform(Get("a")), Found)
    assert len([line for line in server.asked if line.startswith("GET")]) == 2


@pytest.mark.parametrize("conditional", [True, False])
def test_a_repeated_write_is_not_refused_by_its_own_success(server: SlowS3, conditional: bool) -> None:
    store = opened(server.endpoint)
    first = store.perform(OBJECT)
    assert isinstance(first, Written)
    server.late = "PUT"
    server.reply_after(2)
    request = PutIfMatch("a", b"new", first.version) if conditional else Put("a", b"new")
    reply = store.perform(request)
    if conditional:
        assert isinstance(reply, Failed)
        assert isinstance(reply.error, Timeout)
        assert isinstance(store.perform(request), Refused)
    else:
        assert isinstance(reply, Written)
    assert server.buckets[BUCKET]["a"].body == b"new"


def test_a_large_write_is_sent_once_on_a_connection_of_its_own(relay: SilentRelay) -> None:
    store = without_limit(relay.endpoint)
    store.perform(OBJECT)
    assert isinstance(store.perform(Put("b", bytes(obstore_clients.PROMPT_BYTES_MAX + 1))), Written)
    store.perform(OBJECT)
    small, large, other = [each.connection for each in relay.requests]
    assert large not in (small, other)


def test_a_time_out_shorter_than_the_first_bytes_limit_leaves_no_time_for_a_repeat(
    relay: SilentRelay,
) -> None:
    store = opened(relay.endpoint)
    store.timeouts = Timeouts(0.5, FIRST_BYTE_S / 2)
    assert store.timeouts.first_byte_s is None
    relay.fall_silent(future=True)
    reply = store.perform(Get("a"))
    assert isinstance(reply, Failed)
    assert isinstance(reply.error, Timeout)
    assert len(relay.unanswered) == 1


def test_a_call_of_a_queue_waits_for_one_silent_connection_only(relay: SilentRelay) -> None:
    store = opened(relay.endpoint)

    async def open_connections() -> None:
        await asyncio.gather(*[store.perform_async(Get(f"b{number}")) for number in range(4)])

    q = Queue(store, "mail")
    q.enqueue("first")
    asyncio.run(open_connections())
    assert on_a_silent_connection(relay, lambda: q.enqueue("another")).status == "queued"
    assert q.stats()["queued"] == len(q.claim(limit=100)) >= 2
    assert len(relay.unanswered) == 1


@pytest.mark.parametrize("form", ["blocking", "async"])
def test_a_call_ends_with_its_timeout_while_its_store_is_silent(relay: SilentRelay, form: str) -> None:
    store = opened(relay.endpoint)
    Queue(store, "mail").enqueue("first")
    relay.fall_silent(future=True)
    began = time.monotonic()

    async def enqueue() -> None:
        async with AsyncQueue(store, "mail", timeout=0.5) as q:
            await q.enqueue("second")

    with pytest.raises((Timeout, Unavailable)):
        asyncio.run(enqueue()) if form == "async" else Queue(store, "mail", timeout=0.5).enqueue("second")
    assert time.monotonic() - began < PATIENCE / 2  # the store's own time-out is PATIENCE
    assert relay.unanswered
