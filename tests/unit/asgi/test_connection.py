"""What a server takes of a caller who is slow, or does not come to an end. In virtual time."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from osqueue.asgi.admission import Admission
from osqueue.asgi.app import BODY_SECONDS, ServerApp
from osqueue.asgi.connection import GOODBYE_SECONDS, HEAD_BYTES_MAX, HEAD_SECONDS
from osqueue.asgi.server import KEEP_ALIVE_S
from osqueue.contract.functions import BODY_BYTES_MAX
from osqueue.server.async_app import AsyncApi
from tests.support.patience import PATIENCE
from tests.support.served import served
from tests.support.wire import JumpingLoop, Wire

BODY = b'{"payload": 1}'
JOBS = b"POST /v1/queues/mail/jobs HTTP/1.1\r\nhost: localhost\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


def connected(scene: Callable[[Wire], Awaitable[None]]) -> Wire:
    """A connection on which this has happened."""

    async def run() -> Wire:
        wire = Wire(ServerApp(AsyncApi("memory://"), Admission()).asgi)
        await scene(wire)
        return wire

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(run())


def told(wire: Wire) -> dict[str, Any]:
    """The error of the answer."""
    error: dict[str, Any] = json.loads(wire.said.rpartition(b"\r\n\r\n")[2])["error"]
    return error


# ── Time ─────────────────────────────────────────────────────────────────────
def test_a_head_that_trickles_in_is_waited_for_so_long_and_no_longer() -> None:
    async def scene(wire: Wire) -> None:
        for byte in JOBS[:9]:
            await wire.send(bytes([byte]))
            await wire.wait(HEAD_SECONDS / 10)
        assert not wire.closed
        await wire.wait(HEAD_SECONDS / 10)

    wire = connected(scene)
    assert wire.closed
    assert wire.status == 408
    assert b"connection: close" in wire.said
    assert told(wire)["code"] == "request_timeout"


def test_a_connection_without_a_request_is_closed_without_a_word() -> None:
    async def scene(wire: Wire) -> None:
        await wire.wait(HEAD_SECONDS - 0.5)
        assert not wire.closed
        await wire.wait(0.5)

    wire = connected(scene)
    assert (wire.closed, wire.said) == (True, b"")


def test_the_head_of_a_later_request_has_its_own_time() -> None:
    async def scene(wire: Wire) -> None:
        await wire.send(HEALTH)
        assert wire.status == 200
        await wire.wait(KEEP_ALIVE_S - 1)  # idle: that is another limit
        await wire.send(HEALTH[:9])
        await wire.wait(HEAD_SECONDS - 0.5)
        await wire.send(HEALTH[9:])
        assert wire.said.count(b"HTTP/1.1 200") == 2
        await wire.send(HEALTH[:9])
        await wire.wait(HEAD_SECONDS)

    wire = connected(scene)
    assert (wire.closed, wire.status) == (True, 408)


def test_a_body_that_trickles_in_is_waited_for_so_long_and_no_longer() -> None:
    async def scene(wire: Wire) -> None:
        await wire.send(JOBS + b"content-length: 14\r\n\r\n")
        for byte in BODY[:9]:
            await wire.send(bytes([byte]))
            await wire.wait(BODY_SECONDS / 10)
        assert not wire.closed
        await wire.wait(BODY_SECONDS / 10)

    wire = connected(scene)
    assert wire.closed
    assert wire.status == 408
    assert b"connection: close" in wire.said
    assert told(wire)["code"] == "request_timeout"


def test_a_slow_caller_who_is_in_time_is_answered() -> None:
    async def scene(wire: Wire) -> None:
        await wire.send(JOBS[:9])
        await wire.wait(HEAD_SECONDS - 0.5)
        await wire.send(JOBS[9:] + b"transfer-encoding: chunked\r\n\r\n")
        await wire.wait(BODY_SECONDS - 0.5)
        await wire.send(b"e\r\n" + BODY + b"\r\n0\r\n\r\n")

    wire = connected(scene)
    assert (wire.closed, wire.status) == (False, 200)


def test_who_goes_on_sending_a_body_that_was_refused_is_cut_off() -> None:
    async def scene(wire: Wire) -> None:
        await wire.send(JOBS + b"content-length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1))
        assert wire.status == 413
        for _ in range(9):
            await wire.send(b" ")
            await wire.wait(HEAD_SECONDS / 10)
        assert not wire.closed
        await wire.send(b" ")
        await wire.wait(HEAD_SECONDS / 10)

    wire = connected(scene)
    assert (wire.closed, wire.status) == (True, 413)


def test_the_end_of_a_server_does_not_wait_for_callers_who_are_idle() -> None:
    async def scene(wire: Wire) -> None:
        await wire.send(HEALTH)
        wire.end()
        assert (wire.closed, wire.aborted) == (True, False)
        await wire.wait(GOODBYE_SECONDS)

    assert connected(scene).aborted


def test_the_end_of_a_server_waits_for_an_answer() -> None:
    async def scene(wire: Wire) -> None:
        await wire.send(JOBS + b"content-length: 14\r\n\r\n" + BODY[:9])
        wire.end()
        await wire.wait(GOODBYE_SECONDS)
        assert (wire.closed, wire.aborted) == (False, False)
        await wire.send(BODY[9:])

    wire = connected(scene)
    assert (wire.closed, wire.aborted, wire.status) == (True, False, 200)


# ── Size ─────────────────────────────────────────────────────────────────────
def head_of(size: int) -> bytes:
    """A request without a body, of so many bytes."""
    start, end = HEALTH[:-2] + b"x-much: ", b"\r\n\r\n"
    return start + b"x" * (size - len(start) - len(end)) + end


@pytest.mark.parametrize("piece", [HEAD_BYTES_MAX * 2, 1000, HEAD_BYTES_MAX])
def test_a_head_may_be_so_large_and_no_larger(piece: int) -> None:
    async def sent(wire: Wire, data: bytes) -> None:
        while data and not wire.closed:
            await wire.send(data[:piece])
            data = data[piece:]

    async def largest(wire: Wire) -> None:
        await sent(wire, head_of(HEAD_BYTES_MAX))
        await sent(wire, head_of(HEAD_BYTES_MAX))

    async def larger(wire: Wire) -> None:
        await sent(wire, head_of(HEAD_BYTES_MAX + 1))

    wire = connected(largest)
    assert (wire.closed, wire.said.count(b"HTTP/1.1 200")) == (False, 2)
    wire = connected(larger)
    assert (wire.closed, wire.status) == (True, 431)
    assert told(wire)["code"] == "too_large"


def test_a_head_without_an_end_is_cut_off_in_the_middle_of_a_header() -> None:
    async def scene(wire: Wire) -> None:
        await wire.send(JOBS + b"x-endless: ")
        while not wire.closed:
            await wire.send(b"x" * 10_000)

    wire = connected(scene)
    assert wire.status == 431


def test_a_connection_that_is_answered_something_is_closed_without_a_word_between() -> None:
    """A claim waits while the next head grows too large: its answer would be taken for the claim's."""

    async def scene(wire: Wire) -> None:
        claim = b'{"worker": "w", "wait": 20}'
        await wire.send(JOBS.replace(b"jobs", b"claims") + b"content-length: %d\r\n\r\n" % len(claim) + claim)
        await wire.send(head_of(HEAD_BYTES_MAX + 1))

    wire = connected(scene)
    assert (wire.closed, wire.said) == (True, b"")


def test_a_large_body_behind_a_small_head_is_no_large_head() -> None:
    async def scene(wire: Wire) -> None:
        body = json.dumps({"payload": "x" * HEAD_BYTES_MAX}).encode()
        request = JOBS + b"content-length: %d\r\n\r\n" % len(body) + body
        await wire.send(request + request)  # at once

    wire = connected(scene)
    assert wire.said.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (head_of(HEAD_BYTES_MAX), 200),
        (head_of(HEAD_BYTES_MAX + 1), 431),
        (JOBS + b"content-length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1), 413),
        (JOBS + b"content-length: -1\r\n\r\n", 400),
    ],
)
def test_over_a_network_it_is_the_same(request_: bytes, status: int) -> None:
    with served("memory://") as url:
        where = urlsplit(url)
        stage = where.path.encode() + b"/"
        with socket.create_connection((where.hostname, where.port or 0), PATIENCE) as connection:
            data = request_.replace(b" /", b" " + stage, 1)
            if status in (200, 431):  # the same size with the stage in it
                data = data.replace(b"x" * len(where.path), b"", 1)
            connection.sendall(data)
            assert int(connection.recv(100)[9:12]) == status
