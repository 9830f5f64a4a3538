"""Signed paths, and what a server carries out for them."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import msgspec
import pytest

from osqueue.commit.driver import BlockingDriver
from osqueue.objects.layout import root_of
from osqueue.objects.staging import UPLOADS, UPLOADS_SHARD
from osqueue.stores.base import AnnouncedPut, Get, Put
from osqueue.stores.memory import MemoryStore
from osqueue.stores.relay import PATH, PLACES, Relay, RelayRefusal, RelayTicket

BODY = b"0123456789"
PUT = AnnouncedPut("8a05/mail/0/uploads/1", len(BODY), hashlib.sha256(BODY).hexdigest())
GET = Get("8a05/mail/0/bodies/1", start=2, length=3)


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.put(Put(GET.key, BODY))
    return store


@pytest.fixture
def relay(machine: Any) -> Relay:
    return Relay(machine)


def signed(relay: Relay, store: MemoryStore, machine: Any, request: Any) -> str:
    return BlockingDriver(store, machine).run(relay.presigned(request, 900)).url


def test_a_path_reads_its_range_alone(relay: Relay, store: MemoryStore, machine: Any) -> None:
    path = signed(relay, store, machine, GET)
    assert path.startswith(PATH)
    answer = relay.carry_out(store, relay.open(store, "GET", path))
    assert (answer.status, answer.body) == (200, BODY[2:5])


def test_a_path_writes_what_was_announced_and_only_once(
    relay: Relay, store: MemoryStore, machine: Any
) -> None:
    ticket = relay.open(store, "PUT", signed(relay, store, machine, PUT))
    assert relay.carry_out(store, ticket, BODY + b"x").status == 400
    assert relay.carry_out(store, ticket, b"x" * len(BODY)).status == 400
    assert relay.carry_out(store, ticket, BODY).status == 200
    assert relay.carry_out(store, ticket, BODY).status == 412
    assert store.perform(Get(PUT.key)).body == BODY  # type: ignore[union-attr]


def test_a_path_of_a_method_is_of_no_other(relay: Relay, store: MemoryStore, machine: Any) -> None:
    with pytest.raises(RelayRefusal) as caught:
        relay.open(store, "PUT", signed(relay, store, machine, GET))
    assert caught.value.answer.status == 405


@pytest.mark.parametrize("path", ["", ".", "x.y", "~.~", "é.é", "a" * 100])
def test_a_path_that_nobody_signed_is_refused(relay: Relay, store: MemoryStore, path: str) -> None:
    with pytest.raises(RelayRefusal) as caught:
        relay.open(store, "GET", PATH + path)
    assert caught.value.answer.status == 403


def test_a_path_that_was_changed_is_refused(relay: Relay, store: MemoryStore, machine: Any) -> None:
    text, _, signature = signed(relay, store, machine, GET).removeprefix(PATH).partition(".")
    told = urlsafe_b64decode(text + "=" * (-len(text) % 4)).replace(b"bodies/1", b"bodies/2")
    other = urlsafe_b64encode(told).rstrip(b"=").decode()
    with pytest.raises(RelayRefusal) as caught:
        relay.open(store, "GET", f"{PATH}{other}.{signature}")
    assert caught.value.answer.status == 403


def test_a_path_expires(relay: Relay, store: MemoryStore, machine: Any) -> None:
    path = signed(relay, store, machine, GET)
    machine.sleep(900)
    relay.open(store, "GET", path)
    machine.sleep(1)
    with pytest.raises(RelayRefusal, match="expired"):
        relay.open(store, "GET", path)


def test_another_server_of_the_store_takes_the_path_and_one_of_another_store_does_not(
    relay: Relay, store: MemoryStore, machine: Any
) -> None:
    path = signed(relay, store, machine, GET)
    assert Relay(machine).open(store, "GET", path).key == GET.key
    with pytest.raises(RelayRefusal):
        Relay(machine).open(MemoryStore(), "GET", path)


def test_what_is_gone_is_told(relay: Relay, store: MemoryStore, machine: Any) -> None:
    path = signed(relay, store, machine, Get("8a05/mail/0/bodies/9", start=0, length=1))
    assert relay.carry_out(store, relay.open(store, "GET", path)).status == 404


@pytest.mark.parametrize(
    ("method", "key"),
    [
        *(
            ("GET", key)
            for key in ("8a05/mail/0/head", "relay/signer", "ids/mail/x", PUT.key, "8a05/mail/0/bodies/a/b")
        ),
        *(
            ("PUT", key)
            for key in ("archive/uploads/x", "backup/mail/0/x", GET.key, "8a05/mail/0/uploads/../head")
        ),
        ("DELETE", PUT.key),
    ],
)
def test_a_path_that_is_signed_reaches_no_other_object_than_contents(
    relay: Relay, store: MemoryStore, machine: Any, method: str, key: str
) -> None:
    """A reader of the store has the secret, and signs what it likes."""
    signed(relay, store, machine, GET)  # which draws the secret
    ticket = RelayTicket(method, key, 0, 3, hashlib.sha256(b"abc").hexdigest(), machine.now_ms() + 1_000)
    text = urlsafe_b64encode(msgspec.json.encode(ticket)).rstrip(b"=").decode()
    secret = store.perform(Get("relay/signer")).body  # type: ignore[union-attr]
    forged = f"{PATH}{text}.{hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()}"
    with pytest.raises(RelayRefusal, match="no payload, result or upload") as caught:
        relay.open(store, method, forged)
    assert caught.value.answer.status == 403


def test_uploads_are_where_a_path_may_write() -> None:
    assert PLACES["PUT"].fullmatch(f"{root_of('mail', UPLOADS_SHARD)}{UPLOADS}/1")
