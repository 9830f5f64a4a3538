"""Kept connections that may be dead: which are dropped, and which requests are repeated on a fresh one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from osqueue import Timeout
from osqueue.stores import faults, obstore_clients
from osqueue.stores.base import (
    Delete,
    Deleted,
    Failed,
    Found,
    Get,
    List,
    Listed,
    Put,
    PutIfAbsent,
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
OBJECT = Put("a", b"body")


class SlowS3(LightS3):
    """Carries out each request at once, and replies when ``opened`` returns True."""

    def __init__(self) -> None:
        super().__init__()
        self.late = ""  # method whose replies wait
        self.arrived = threading.Semaphore(0)
        self.until = threading.Event()

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


def opened(endpoint: str) -> S3Store:
    return S3Store(BUCKET, endpoint=endpoint, options=S3Options(timeouts=Timeouts(0.5, PATIENCE)))


def carried_out(store: S3Store, request: StoreRequest, form: str) -> Any:
    return asyncio.run(store.perform_async(request)) if form == "async" else store.perform(request)


def test_a_connection_that_was_idle_for_too_long_is_not_used_again(
    relay: SilentRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore_clients, "STORE_IDLE_MS_MAX", 1)
    store = opened(relay.endpoint)
    for _ in range(3):
        assert isinstance(store.perform(OBJECT), Written)
        time.sleep(0.02)  # obstore has a clock of its own
    assert [each.connection for each in relay.requests] == [0, 1, 2]


def test_a_freeze_that_stopped_the_monotonic_clock_drops_the_connections(
    relay: SilentRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = VirtualMachine()
    monkeypatch.setattr(obstore_clients, "MACHINE", machine)
    store = opened(relay.endpoint)
    for seconds in (0.0, 30.0, 0.0):
        machine.time_ms += round(seconds * 1000)
        assert isinstance(store.perform(OBJECT), Written)
    assert [each.connection for each in relay.requests] == [0, 1, 1]


@pytest.mark.parametrize(
    ("request_", "expected", "form"),
    [
        (Get("a"), Found, "blocking"),
        (Put("b", b""), Written, "blocking"),
        (List(""), Listed, "blocking"),
        (Delete(("a",)), Deleted, "blocking"),
        (PutIfAbsent("b", b""), Written, "async"),
    ],
    ids=str,
)
def test_a_request_on_a_silent_connection_is_repeated_once_on_a_fresh_one(
    relay: SilentRelay, request_: StoreRequest, expected: type, form: str
) -> None:
    store = opened(relay.endpoint)
    store.perform(OBJECT)
    relay.fall_silent()
    assert isinstance(carried_out(store, request_, form), expected)
    assert isinstance(store.perform(Get("c" if expected is Deleted else "a")), Found) is (
        expected is not Deleted
    )
    assert len(relay.unanswered) == 1


def test_a_slow_store_is_waited_for_after_the_repeat(server: SlowS3) -> None:
    server.late = "GET"
    store = opened(server.endpoint)
    store.perform(OBJECT)

    def reply_to_the_second() -> None:
        for _ in range(2):
            server.arrived.acquire(timeout=PATIENCE)
        server.until.set()

    threading.Thread(target=reply_to_the_second, daemon=True).start()
    assert isinstance(store.perform(Get("a")), Found)
    assert len([line for line in server.asked if line.startswith("GET")]) == 2


@pytest.mark.parametrize("conditional", [True, False])
def test_a_repeated_write_is_not_refused_by_its_own_success(server: SlowS3, conditional: bool) -> None:
    store = opened(server.endpoint)
    first = store.perform(OBJECT)
    assert isinstance(first, Written)
    server.late = "PUT"
    threading.Timer(2 * FIRST_BYTE_S, server.until.set).start()
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
    store = opened(relay.endpoint)
    store.perform(OBJECT)
    assert isinstance(store.perform(Put("b", bytes(obstore_clients.PROMPT_BYTES_MAX + 1))), Written)
    store.perform(OBJECT)
    assert [each.connection for each in relay.requests] == [0, 1, 0]


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
