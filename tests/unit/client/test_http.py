"""Transports: addresses, paths, and what each way a call over HTTP can go wrong is told as. Loopback only."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from osqueue import AsyncQueue, NotSupported, Queue, Rejected, Timeout, Unavailable
from osqueue.client.transports import http as http_module
from osqueue.client.transports.address import open_transport
from osqueue.client.transports.aws_lambda import LambdaTransport
from osqueue.client.transports.base import (
    ApiAnswer,
    ApiCall,
    CallOutcome,
    LostCall,
    Transport,
    call,
    path_of,
    unreached,
)
from osqueue.client.transports.credentials import (
    AnonymousCredentials,
    BearerCredentials,
    SigV4Credentials,
    region_in,
)
from osqueue.client.transports.faulty import FaultyTransport, SlowTransport
from osqueue.client.transports.http import ANSWER_BYTES_MAX, PROMPT_BYTES_MAX, HttpTransport, is_prompt
from osqueue.clock import Machine
from osqueue.limits import HTTP_IDLE_MS_MAX
from osqueue.stores.address import is_remote, open_store
from osqueue.stores.faulty import FaultInjector
from tests.support.machines import VirtualMachine
from tests.support.silent_relay import SilentRelay, relaying_to
from tests.support.speaking import HANG_UP, Speaker, response, speaking

GATEWAY = "abc.execute-api.eu-west-1.amazonaws.com"
STATS = call("stats", path={"queue": "mail"}, timeout=20.0)
OK = response(200, b"{}")


def posting(body: bytes = b'{"jobs":[]}', **more: Any) -> ApiCall:
    return call("enqueue", path={"queue": "mail"}, body=body, timeout=20.0, **more)


def lost(reply: CallOutcome) -> LostCall:
    assert isinstance(reply, LostCall)
    return reply


# ── Addresses ────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("address", "url", "credentials"),
    [
        (f"https://{GATEWAY}", f"https://{GATEWAY}", SigV4Credentials),
        (f"https://{GATEWAY}/", f"https://{GATEWAY}", SigV4Credentials),
        (f"https://{GATEWAY}/prod/?region=eu-west-1", f"https://{GATEWAY}/prod", SigV4Credentials),
        (f"HTTPS://{GATEWAY}/$default?auth=bearer", f"https://{GATEWAY}/$default", BearerCredentials),
        (
            "https://jobs.example.com:8443/a/b?auth=none",
            "https://jobs.example.com:8443/a/b",
            AnonymousCredentials,
        ),
        ("http://127.0.0.1:8787", "http://127.0.0.1:8787", AnonymousCredentials),
        ("http://localhost:8787?auth=iam&region=eu-west-1", "http://localhost:8787", SigV4Credentials),
        ("http://[::1]:8787?auth=bearer", "http://[::1]:8787", BearerCredentials),
    ],
)
def test_an_address_names_host_stage_and_who_calls(address: str, url: str, credentials: type) -> None:
    assert is_remote(address)
    transport = open_transport(address)
    assert isinstance(transport, HttpTransport)
    assert transport.url == transport.place == url
    assert isinstance(transport._credentials, credentials)


def test_a_lambda_address_names_prefix_region_and_endpoint() -> None:
    transport = open_transport("lambda://osqueue-dev?region=eu-west-1&endpoint=http://127.0.0.1:9001")
    assert isinstance(transport, LambdaTransport)
    assert (transport.prefix, transport.region) == ("osqueue-dev", "eu-west-1")
    assert transport.endpoint == "http://127.0.0.1:9001"
    assert transport.place != open_transport("lambda://osqueue-prod?region=eu-west-1").place


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (GATEWAY, "eu-west-1"),
        ("abc.execute-api.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("jobs.example.com", None),
    ],
)
def test_the_gateways_own_name_tells_the_region(host: str, region: str | None) -> None:
    assert region_in(host) == region


@pytest.mark.parametrize(
    ("address", "field", "remedy"),
    [
        ("https://", "address", "names a host"),
        ("https://a b", "address", "names a host"),
        ("https://host:99999", "address", "names a host"),
        ("https://host/a?b=c", "b", "auth, region"),
        ("https://host/<stage>", "address", "names a host"),
        ("https://host#x", "address", "no credentials"),
        ("http://[::::]", "address", "names a host"),
        ("http://[::::]?auth=bearer", "address", "names a host"),
        ("https://host?auth=basic", "auth", "iam, bearer, none"),
        ("https://host?region=EU!", "region", "eu-west-1"),
        ("https://host?endpoint=http://x", "endpoint", "auth, region"),
        ("http://host?auth=bearer", "auth", "https://"),
        ("https://host?latency_ms=slow", "latency_ms", "number"),
        ("lambda://", "address", "lambda://osqueue-dev"),
        ("lambda://osqueue-dev/enqueue", "address", "no more"),
        ("lambda://osqueue-dev?endpoint=host:80", "endpoint", "http://"),
        ("lambda://osqueue-dev?auth=none", "auth", "region, endpoint"),
    ],
)
def test_a_wrong_address_is_rejected_with_field_and_remedy(address: str, field: str, remedy: str) -> None:
    with pytest.raises(Rejected) as caught:
        Queue.connect(address, "mail")
    assert caught.value.field == field
    assert remedy in caught.value.message


@pytest.mark.parametrize(
    "address",
    [
        "https://AKIAEXAMPLE:hunter2@host/prod",
        "https://host/prod@hunter2",
        "https://hunter2:AKIAEXAMPLE",
        "https://host?auth=hunter2",
        "https://host?token=hunter2",
        "lambda://AKIAEXAMPLE:hunter2@osqueue-dev",
        "lambda://osqueue-dev?endpoint=http://AKIAEXAMPLE:hunter2@host",
    ],
)
def test_credentials_in_an_address_never_reach_the_message(address: str) -> None:
    with pytest.raises(Rejected) as caught:
        Queue.connect(address, "mail")
    assert not re.search("hunter2|AKIAEXAMPLE", str(caught.value))
    assert caught.value.__cause__ is None


def test_an_api_is_no_store_and_the_error_says_what_to_give() -> None:
    for address in ("https://host", "http://host", "lambda://x"):
        with pytest.raises(NotSupported, match="s3://bucket/prefix"):
            open_store(address)


def test_faults_go_around_the_transport() -> None:
    transport = open_transport("http://127.0.0.1:1?latency_ms=1&error_rate=0.5&lost_reply_rate=0.1&seed=7")
    assert isinstance(transport, SlowTransport)
    assert isinstance(transport.inner, FaultyTransport)
    assert isinstance(transport.inner.inner, HttpTransport)
    assert transport.place == "http://127.0.0.1:1"


# ── Paths and queries ────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("text", "segment"),
    [
        ("01890a5d-ac96-774b-bcce-b302099a8001", "01890a5d-ac96-774b-bcce-b302099a8001"),
        ("Order_7.x", "Order_7.x"),
        ("a/b", "~YS9i"),
        ("~YS9i", "~fllTOWk"),
        ("..", "~Li4"),
        (".", "~Lg"),
        ("100 %", "~MTAwICU"),
        ("grüße", "~Z3LDvMOfZQ"),
        ("?a=b&c#d", "~P2E9YiZjI2Q"),
    ],
)
def test_an_id_travels_in_a_path_as_what_needs_no_quoting(text: str, segment: str) -> None:
    path = path_of(call("status", path={"queue": "mail", "id": text}))
    assert path == f"/v1/queues/mail/jobs/{segment}"
    assert quote(path, safe="/~") == path


def test_every_id_comes_back_from_its_path(api_server: Any) -> None:
    with api_server.api_server("memory://") as url, Queue.connect(url, "mail") as q:
        for name in ("a/b", "..", "~x", "100 %", "?a=b&c#d", "grüße \N{SNOWMAN}", "x" * 256, "é" * 256):
            job_id = q.enqueue(name, id=name).job_id
            assert q.status(name).job_id == job_id
            assert q.cancel(name) == "cancelled"


def test_a_query_is_quoted() -> None:
    with speaking(OK) as speaker:
        transport = HttpTransport(f"http://127.0.0.1:{speaker.port}", AnonymousCredentials())
        query = (("error", "a b&c=d/ü"), ("kind", "x"), ("kind", ""))
        transport.perform(call("dead_letters", path={"queue": "mail"}, query=query, timeout=20.0))
    assert speaker.heard[0].target == "/v1/queues/mail/dead?error=a%20b%26c%3Dd%2F%C3%BC&kind=x&kind="


# ── HTTP ─────────────────────────────────────────────────────────────────────
class Forked(Machine):
    """Claims to be another process when a test says so."""

    pid = 1

    def process(self) -> int:
        return self.pid


def http(speaker: Speaker, **options: Any) -> HttpTransport:
    return HttpTransport(f"http://127.0.0.1:{speaker.port}", AnonymousCredentials(), **options)


def test_a_call_and_its_answer() -> None:
    with speaking(response(201, b'{"a": 1}')) as speaker:
        transport = http(speaker)
        assert transport.perform(posting(b'{"x":1}')) == ApiAnswer(201, b'{"a": 1}')
        assert asyncio.run(transport.perform_async(STATS)) == ApiAnswer(201, b'{"a": 1}')
        transport.close()
    first, second = speaker.heard
    assert (first.method, first.target, first.body) == ("POST", "/v1/queues/mail/jobs", b'{"x":1}')
    assert first.headers["content-type"] == "application/json"
    assert (second.method, second.target, second.body) == ("GET", "/v1/queues/mail", b"")
    assert transport.requests == {"get": 1, "post": 1, "put": 0, "patch": 0, "delete": 0}


def test_a_connection_is_kept_and_a_forks_child_opens_its_own() -> None:
    machine = Forked()
    with speaking(OK) as speaker:
        transport = http(speaker, machine=machine)
        for _ in range(3):
            transport.perform(STATS)
        machine.pid = 2
        transport.perform(STATS)
        transport.close()
        transport.perform(STATS)
    assert [heard.connection for heard in speaker.heard] == [0, 0, 0, 1, 2]


def test_a_connection_that_was_idle_for_too_long_by_either_clock_is_not_used_again() -> None:
    machine = VirtualMachine()
    with speaking(OK) as speaker:
        transport = http(speaker, machine=machine)
        for idle_ms, wall_ms in (
            (0, 0),
            (HTTP_IDLE_MS_MAX - 1, 0),
            (0, HTTP_IDLE_MS_MAX),
            (HTTP_IDLE_MS_MAX, 0),
        ):
            machine.seconds += idle_ms / 1000
            machine.time_ms += wall_ms
            assert transport.perform(STATS) == ApiAnswer(200, b"{}")
        transport.close()
    assert [heard.connection for heard in speaker.heard] == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("asked", "prompt"),
    [
        (STATS, True),
        (posting(), True),
        (posting(bytes(PROMPT_BYTES_MAX + 1)), False),
        (posting(query=(("wait", "20"),)), False),
        (call("claim", path={"queue": "mail"}, body=b"{}"), False),
    ],
    ids=["a look", "an enqueue", "a long body", "a wait", "a claim"],
)
def test_only_a_call_that_may_be_repeated_and_is_soon_answered_has_little_time(
    asked: ApiCall, prompt: bool
) -> None:
    assert is_prompt(asked) is prompt


def test_a_call_on_a_kept_connection_without_a_first_byte_is_repeated_on_a_fresh_one(
    api_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "FIRST_BYTE_SECONDS", 1.0)

    async def main(relay: SilentRelay) -> None:
        async with AsyncQueue.connect(relay.endpoint, "mail") as q:
            while relay.connections < 2:
                await asyncio.gather(*[q.stats() for _ in range(8)])
            relay.fall_silent()
            await q.enqueue("job")
            looks = await asyncio.gather(*[q.stats() for _ in range(8)])
            assert [look["queued"] for look in looks] == [1] * 8

    with api_server.api_server("memory://") as url, relaying_to(url) as relay:
        asyncio.run(main(relay))
        assert len(relay.unanswered) == 1


def test_a_call_on_a_fresh_connection_has_all_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "FIRST_BYTE_SECONDS", 0.0)
    with speaking(OK) as speaker:
        assert http(speaker).perform(STATS) == ApiAnswer(200, b"{}")


@pytest.mark.parametrize(
    "say",
    [
        HANG_UP,
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{",
        b"220 smtp.example.com ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nnope",
    ],
    ids=["nothing", "cut short", "not http", "not what it says"],
)
def test_an_answer_that_breaks_off_is_lost_and_the_call_is_made_once(say: bytes) -> None:
    with speaking(say, HANG_UP) as speaker:
        speaker.hangs_up = True
        reply = lost(http(speaker).perform(STATS))
    assert isinstance(reply.error, Unavailable)
    assert "broke" in reply.error.message
    assert reply.sent
    assert len(speaker.heard) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with speaking(response(200)) as other:
        target = f"http://127.0.0.1:{other.port}/"
        with speaking(response(status, location=target)) as speaker:
            assert http(speaker).perform(STATS) == ApiAnswer(status)
        assert other.heard == []


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_refusal_is_passed_on_and_the_client_below_repeats_nothing(status: int) -> None:
    with speaking(response(status, b"busy", retry_after="0")) as speaker:
        assert http(speaker).perform(STATS) == ApiAnswer(status, b"busy")
    assert len(speaker.heard) == 1


def test_silence_ends_with_the_calls_timeout() -> None:
    with speaking(None) as speaker:
        reply = lost(http(speaker).perform(call("stats", path={"queue": "mail"}, timeout=0.05)))
    assert isinstance(reply.error, Timeout)
    assert reply.sent


def test_where_nobody_listens_nothing_was_sent() -> None:
    with socket.socket() as taken:  # nobody else can listen there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        reply = lost(HttpTransport(f"http://127.0.0.1:{port}/stage", AnonymousCredentials()).perform(STATS))
    assert isinstance(reply.error, Unavailable)
    assert reply.error.message == (
        f"http://127.0.0.1:{port} cannot be reached: no connection. Does an API run there? 'osqueue dev' starts one."
    )
    assert (reply.sent, reply.error.permanent, reply.seconds) == (False, False, 1.0)


@pytest.mark.parametrize(
    ("url", "refused", "named", "seconds"),
    [
        ("http://localhost", True, "http://localhost:80", 1.0),
        ("http://[::1]:8787/prod", True, "http://[::1]:8787", 1.0),
        ("http://127.0.0.1:8787", False, "http://127.0.0.1:8787", None),
        ("https://key:hunter2@jobs.example.com/prod", True, "https://jobs.example.com:443", None),
    ],
)
def test_a_host_without_connection_is_named_and_only_this_machines_refusal_is_final_soon(
    url: str, refused: bool, named: str, seconds: float | None
) -> None:
    error = OSError()
    error.__cause__ = ConnectionRefusedError() if refused else TimeoutError()
    reply = unreached(url, error)
    assert reply.error.message.startswith(f"{named} cannot be reached: no connection. Does an API run there?")
    assert "hunter2" not in reply.error.message
    assert ("osqueue dev" in reply.error.message) is ("example" not in url)
    assert (reply.seconds, reply.sent) == (seconds, False)


def test_a_host_that_speaks_no_tls_is_told_as_such() -> None:
    with speaking(OK) as speaker:
        speaker.greeting = b"no tls"
        reply = lost(
            HttpTransport(f"https://127.0.0.1:{speaker.port}", AnonymousCredentials()).perform(STATS)
        )
    assert (reply.error.permanent, reply.sent) == (True, False)
    assert "certificate" in reply.error.message


def test_an_answer_without_end_is_given_up() -> None:
    with speaking(response(200, b"x" * (ANSWER_BYTES_MAX + 1))) as speaker:
        reply = lost(http(speaker).perform(STATS))
    assert reply.error.permanent


# ── Faults on purpose ────────────────────────────────────────────────────────
class Heeding(Transport):
    """Answers everything, and counts."""

    sent = 0

    @property
    def place(self) -> object:
        return self

    def send(self, call: ApiCall) -> CallOutcome:
        self.sent += 1
        return ApiAnswer(204)


def both(transport: Transport) -> list[CallOutcome]:
    return [transport.perform(STATS), asyncio.run(transport.perform_async(STATS))]


def test_an_injected_error_has_no_effect_and_an_injected_loss_has_one() -> None:
    inner = Heeding()
    replies = both(FaultyTransport(inner, FaultInjector(1.0, 0.0)))
    assert [(lost(each).sent, type(lost(each).error)) for each in replies] == [(True, Unavailable)] * 2
    assert inner.sent == 0
    replies = both(FaultyTransport(inner, FaultInjector(0.0, 1.0)))
    assert [(lost(each).sent, type(lost(each).error)) for each in replies] == [(True, Timeout)] * 2
    assert inner.sent == 2


def test_what_one_caller_adds_to_an_injected_error_the_next_does_not_get() -> None:
    for luck in (FaultInjector(1.0, 0.0), FaultInjector(0.0, 1.0)):
        transport = FaultyTransport(Heeding(), luck)
        assert lost(transport.perform(STATS)).error is not lost(transport.perform(STATS)).error


def test_with_a_seed_the_same_calls_meet_the_same_fate() -> None:
    def fates(seed: int) -> list[bool]:
        transport = FaultyTransport(Heeding(), FaultInjector(0.5, 0.2, seed))
        return [isinstance(transport.perform(STATS), LostCall) for _ in range(50)]

    assert fates(7) == fates(7) != fates(8)


def test_latency_is_added_half_before_and_half_after(machine: Any) -> None:
    transport = SlowTransport(Heeding(), 30, machine)
    assert transport.perform(STATS) == ApiAnswer(204)
    assert machine.slept == [0.015, 0.015]
    assert asyncio.run(transport.perform_async(STATS)) == ApiAnswer(204)


def test_closing_closes_what_is_inside() -> None:
    inner = Heeding()
    closed: list[int] = []
    inner.close: Callable[[], None] = lambda: closed.append(1)  # type: ignore[misc,method-assign]
    SlowTransport(FaultyTransport(inner, FaultInjector(0, 0)), 1).close()
    assert closed == [1]
