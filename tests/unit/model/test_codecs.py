"""Serialisers: JSON, MessagePack, one's own; typed payloads; what cannot be serialised or read back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest

from osqueue import Queue, Rejected
from osqueue.model.codecs import JSON, MESSAGE_PACK, Codec, serializer_of
from osqueue.stores.memory import MemoryStore


def describe(value: object) -> str:
    """A parameter's name in the test's: its repr without the address, which differs from one process to the next."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@dataclass
class Mail:
    to: str
    copies: int = 1


class Upper:
    """A serialiser of one's own: text in capitals."""

    name = "upper"

    def dumps(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError("only text")
        return value.upper().encode()

    def loads(self, data: bytes, type: Any) -> Any:
        return data.decode()


class Forgetful:
    """A serialiser that does not answer bytes."""

    name = "forgetful"

    def dumps(self, value: Any) -> Any:
        return str(value)

    def loads(self, data: bytes, type: Any) -> Any:
        return data


def queue(machine: Any, store: MemoryStore | None = None, **options: Any) -> Queue[Any]:
    return Queue(store or MemoryStore(machine), "mail", machine=machine, **options)


PLAIN = [None, True, 0, -1, 2**63, 1.5, "", "é 漢 🙂", [], {"a": [1, {"b": None}]}, "x" * 5_000]


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
@pytest.mark.parametrize("value", PLAIN, ids=describe)
def test_plain_data_comes_back_as_it_went(machine: Any, serializer: str, value: Any) -> None:
    q = queue(machine, serializer=serializer)
    q.enqueue(value)
    assert q.claim()[0].payload == value


def test_message_pack_keeps_bytes(machine: Any) -> None:
    q = queue(machine, serializer="msgpack")
    q.enqueue({"raw": b"\x00\xff"})
    assert q.claim()[0].payload == {"raw": b"\x00\xff"}


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_a_typed_queue_converts_payloads(machine: Any, serializer: str) -> None:
    q = queue(machine, serializer=serializer, type=Mail)
    q.enqueue(Mail("ada@example.com", 2))
    q.enqueue({"to": "bob@example.com"})
    assert [lease.payload for lease in q.claim(2)] == [Mail("ada@example.com", 2), Mail("bob@example.com")]


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_rich_types_are_taken(machine: Any, serializer: str) -> None:
    q = queue(machine, serializer=serializer, type=tuple[datetime, UUID])
    value = (datetime(2027, 1, 15, 8, tzinfo=UTC), UUID(int=7))
    q.enqueue(value)
    assert q.claim()[0].payload == value


def test_a_serialiser_of_ones_own_is_used_and_its_name_is_stored(machine: Any) -> None:
    store = MemoryStore(machine)
    q = queue(machine, store, serializer=Upper())
    q.enqueue("hello")
    (lease,) = q.claim()
    assert lease.payload == "HELLO"
    with pytest.raises(Rejected, match="only text") as caught:
        q.enqueue(5)
    assert caught.value.field == "payload"


def test_one_queue_reads_what_another_wrote_with_a_known_serialiser(machine: Any) -> None:
    store = MemoryStore(machine)
    queue(machine, store, serializer="msgpack").enqueue({"a": 1})
    assert queue(machine, store).claim()[0].payload == {"a": 1}


@pytest.mark.parametrize("value", [object(), {object()}, lambda: None, "\ud800", {("a",): 1}], ids=describe)
@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_what_cannot_be_serialised_is_refused_and_nothing_is_written(
    machine: Any, serializer: str, value: Any
) -> None:
    q = queue(machine, serializer=serializer)
    if serializer == "msgpack" and isinstance(value, dict):
        pytest.skip("MessagePack takes such keys")
    with pytest.raises(Rejected, match="cannot be serialised") as caught:
        q.enqueue(value)
    assert caught.value.field == "payload"
    assert q.requests["put"] == 0


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (float("nan"), "null"),
        ({"a": [1, None, float("-inf")]}, "null"),
        (Mail("a", float("nan")), "null"),
        ({1: "a", "1": "b"}, "'1'"),
        ({"a": [{1.5: 1, "1.5": 2}]}, "'1.5'"),
        ({"-7": 1, -7: 2, "x": None}, "'-7'"),
        ([[{"a": {"7": 1}}, ({7: 1, "7": 2},)]], "'7'"),
        ({"raw": msgspec.Raw(b"null"), "x": [float("inf")]}, "null"),
    ],
    ids=describe,
)
def test_a_value_that_json_would_change_in_silence_is_refused(machine: Any, value: Any, why: str) -> None:
    q = queue(machine)
    with pytest.raises(Rejected, match=rf"payload: .*{why}") as caught:
        q.enqueue(value)
    assert caught.value.field == "payload"
    (done,) = q.enqueue_many([{"payload": value}])
    assert done.status == "rejected"
    q.enqueue("before")
    (lease,) = q.claim()
    with pytest.raises(Rejected, match=rf"result: .*{why}"):
        lease.complete(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": None, "b": [1.5, "null"], 1: {"1": 2}},
        [{1: None}, {"1": None}],
        {
            datetime(2026, 1, 1, tzinfo=UTC): None,
            UUID(int=1): {1.5, None},
            b"x".hex(): (b"1", Decimal("1.5")),
        },
        Mail("null", 1 << 63),
        {"order": msgspec.Raw(b'{"a":1}'), "note": None},
        {"order": msgspec.Raw(b'{"1":null}')},
        {"a": None, "b": b"\xcb\x7f\xff", "c": 0xCB7FF0},  # the bytes of NaN in MessagePack, but no NaN
    ],
    ids=describe,
)
def test_a_value_that_json_keeps_is_accepted(machine: Any, value: Any) -> None:
    assert queue(machine).enqueue(value).status == "queued"


def test_a_serialiser_that_answers_no_bytes_is_refused(machine: Any) -> None:
    with pytest.raises(Rejected, match="must answer bytes"):
        queue(machine, serializer=Forgetful()).enqueue(1)


class Given:
    """A serialiser that answers, or raises, what it was given."""

    def __init__(self, answer: Any, name: str = "given") -> None:
        self.answer, self.name = answer, name

    def dumps(self, value: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def loads(self, data: bytes, type: Any) -> Any:
        return self.dumps(data)


class Bytes(bytes):
    """Bytes of a type of their own, as numpy has them."""


class Mute(Exception):
    """An exception without words."""

    def __str__(self) -> str:
        raise ValueError("no words")


def test_bytes_and_a_name_of_types_of_their_own_are_taken_as_plain_ones(machine: Any) -> None:
    class Text(str):
        pass

    q = queue(machine, serializer=Given(Bytes(b"x"), Text("own")))
    q.enqueue(1)
    (lease,) = q.claim()
    lease.complete(2)
    assert q.result(lease.job_id) == b"x"


def test_a_serialiser_that_raises_what_cannot_be_printed_is_refused_all_the_same(machine: Any) -> None:
    codec = Codec(Given(Mute()))
    for call in (lambda: codec.encode(1, "payload"), lambda: codec.decode(b"1", "given")):
        with pytest.raises(Rejected, match="payload"):
            call()


class Nameless:
    def dumps(self, value: Any) -> bytes:
        return b""

    def loads(self, data: bytes, type: Any) -> Any:
        return None


@pytest.mark.parametrize(
    "wish", ["pickle", "", "JSON", Nameless(), Given(b"", "\ud800"), None, 5], ids=describe
)
def test_an_unknown_serialiser_is_refused(machine: Any, wish: Any) -> None:
    with pytest.raises(Rejected) as caught:
        queue(machine, serializer=wish)
    assert caught.value.field == "serializer"


def test_the_known_serialisers_have_names() -> None:
    assert serializer_of("json") is JSON
    assert serializer_of("msgpack") is MESSAGE_PACK


def test_a_payload_that_does_not_fit_the_type_names_the_field() -> None:
    codec = Codec(JSON, Mail)
    with pytest.raises(Rejected, match="does not decode as json") as caught:
        codec.decode(b"[1]", "json", Mail)
    assert caught.value.field == "payload"
    with pytest.raises(Rejected, match="'other'"):
        codec.decode(b"1", "other")


def test_a_payload_that_cannot_be_read_does_not_take_the_others_with_it(machine: Any) -> None:
    store = MemoryStore(machine)
    queue(machine, store).enqueue_many(
        [{"payload": {"to": "ada"}}, {"payload": [1]}, {"payload": {"to": "bob"}}]
    )
    first, second, third = queue(machine, store, type=Mail).claim(3)
    assert (first.payload, third.payload) == (Mail("ada"), Mail("bob"))
    with pytest.raises(Rejected, match="does not decode"):
        _ = second.payload
    assert second.fail("cannot be read", retry=False) == "failed"
