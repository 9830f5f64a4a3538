"""Objects that are replaced again and again: whether a store keeps them in another way can be seen nowhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from osqueue.stores.base import Found, Get, Put, PutIfMatch, Refused, Store, Unchanged, Written
from osqueue.stores.file_slots import MAGIC, PLAIN, SLOT_BYTES_MIN, SlotLayout, new_file
from osqueue.stores.s3 import S3Store
from osqueue.stores.s3_boto import BotoStore
from tests.support.store_kinds import create, found, keys

LOOKALIKES = (MAGIC, MAGIC[:-1], PLAIN, PLAIN + MAGIC, new_file(SlotLayout(7, SLOT_BYTES_MIN), b"old", 1))


@pytest.mark.parametrize("body", LOOKALIKES, ids=["slots", "nearly", "plain", "both", "all of it"])
def test_no_body_is_taken_for_the_stores_own(store: Store, body: bytes) -> None:
    version = create(store, "a", body)
    assert found(store, "a") == Found(body, version, found(store, "a").modified_ms)
    for start, length in ((0, 4), (3, 5), (8, None), (len(body) - 1, 9), (len(body), None)):
        part = store.perform(Get("a", start=start, length=length))
        assert isinstance(part, Found)
        assert part.body == body[start : len(body) if length is None else start + length]
    assert store.perform(PutIfMatch("a", body + b"!", "other")) == Refused()
    for write in (PutIfMatch("a", body + b"!", version), Put("a", body + b"?")):
        assert isinstance(store.perform(write), Written)
        assert found(store, "a").body == write.body


def test_an_object_turns_hot_and_stays_what_it_is(store: Store) -> None:
    seen = [create(store, "head", b"0")]
    writes: list[Callable[[bytes, str], Any]] = [
        lambda body, version: PutIfMatch("head", body, version, hot=True),
        lambda body, version: PutIfMatch("head", body, version),
        lambda body, version: Put("head", body),
        lambda body, version: Put("head", body, durable=False),
    ]
    for number in range(1, 17):
        body = b"%d" % number
        assert store.perform(Get("head", unless=seen[-1])) == Unchanged()
        reply = store.perform(writes[number % len(writes)](body, seen[-1]))
        assert isinstance(reply, Written)
        assert store.perform(PutIfMatch("head", b"late", seen[-1], hot=True)) == Refused()
        seen.append(reply.version)
        read = found(store, "head")
        assert (read.body, read.version) == (body, seen[-1])
        assert keys(store, "") == ("head",)
    assert len(set(seen)) == len(seen)


def test_a_hot_object_grows_and_shrinks(store: Store) -> None:
    version = create(store, "head", b"")
    for size in (10, 5_000, 40_000, 3, 70_000, 0, 300_000, 1):
        body = bytes(range(251)) * (size // 251 + 1)
        reply = store.perform(PutIfMatch("head", body[:size], version, hot=True))
        assert isinstance(reply, Written)
        version = reply.version
        read = found(store, "head")
        assert (read.body, read.version) == (body[:size], version)
        part = store.perform(Get("head", start=size // 2, length=7))
        assert isinstance(part, Found)
        assert part.body == body[size // 2 : min(size // 2 + 7, size)]


def test_readers_of_a_hot_object_see_whole_versions_in_their_order(store: Store) -> None:
    """Each body says its number throughout; whoever reads twice never sees an older one the second time."""
    rounds = 10 if isinstance(store, S3Store | BotoStore) else 150
    version = create(store, "head", b"%08d" % 0)
    done = threading.Event()
    troubles: list[str] = []

    def read() -> None:
        latest, known = 0, ""
        while not done.is_set():
            reply = store.perform(Get("head", unless=known))
            if reply == Unchanged():
                continue
            if not isinstance(reply, Found):
                return troubles.append(repr(reply))
            number, known = int(reply.body[:8]), reply.version
            if reply.body != reply.body[:8] * (1 + number % 1_500) or number < latest:
                return troubles.append(f"{number} after {latest}, {len(reply.body)} bytes")
            latest = number

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, rounds):
        body = (b"%08d" % number) * (1 + number % 1_500)
        reply = store.perform(PutIfMatch("head", body, version, hot=True))
        assert isinstance(reply, Written)
        version = reply.version
    done.set()
    for reader in readers:
        reader.join()
    assert troubles == []
