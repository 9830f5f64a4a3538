"""Rules on objects that are replaced again and again, as a head is: a store may keep them in a way of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...stores.base import Found, Get, Put, PutIfMatch, Refused, Store, StoreRequest, Unchanged, Written
from .opening import create, found, keys, rule

ROUNDS, ROUNDS_REMOTE = 150, 10


class ReplacingRules:
    """What ``hot=True`` must not change."""

    @rule
    def test_an_object_turns_hot_and_stays_what_it_is(self, store: Store) -> None:
        """A write with ``hot=True`` does what one without does, and both follow one another.

        Not every writer of a head knows that it is one: a restore writes it as any object.
        """
        seen = [create(store, "head", b"0")]
        writes: list[Callable[[bytes, str], StoreRequest]] = [
            lambda body, version: PutIfMatch("head", body, version, hot=True),
            lambda body, version: PutIfMatch("head", body, version),
            lambda body, version: Put("head", body),
            lambda body, version: Put("head", body, durable=False),
        ]
        for number in range(1, 17):
            body = b"%d" % number
            assert store.perform(Get("head", unless=seen[-1])) == Unchanged()
            reply = store.perform(writes[number % len(writes)](body, seen[-1]))
            assert isinstance(reply, Written), reply
            assert store.perform(PutIfMatch("head", b"late", seen[-1], hot=True)) == Refused()
            seen.append(reply.version)
            read = found(store, "head")
            assert (read.body, read.version) == (body, seen[-1])
            assert keys(store, "") == ("head",)
        assert len(set(seen)) == len(seen)

    @rule
    def test_a_hot_object_grows_and_shrinks(self, store: Store) -> None:
        """An object is as long as the last body, and nothing of a longer one before it is left.

        A head grows with what waits in it, and shrinks when that has moved out.
        """
        version = create(store, "head", b"")
        for size in (10, 5_000, 40_000, 3, 70_000, 0, 300_000, 1):
            body = bytes(range(251)) * (size // 251 + 1)
            reply = store.perform(PutIfMatch("head", body[:size], version, hot=True))
            assert isinstance(reply, Written), reply
            version = reply.version
            read = found(store, "head")
            assert (read.body, read.version) == (body[:size], version)
            part = store.perform(Get("head", start=size // 2, length=7))
            assert isinstance(part, Found), part
            assert part.body == body[size // 2 : min(size // 2 + 7, size)]

    @rule
    def test_readers_see_whole_versions_in_their_order(self, store: Store) -> None:
        """A reader finds one version or the next, never a part of each, and whoever reads twice finds no older one.

        A reader that went back in time would see jobs again that are done. (Each body here repeats its number.)
        """
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
        try:
            for number in range(1, ROUNDS_REMOTE if store.remote else ROUNDS):
                body = (b"%08d" % number) * (1 + number % 1_500)
                reply = store.perform(PutIfMatch("head", body, version, hot=True))
                assert isinstance(reply, Written), reply
                version = reply.version
        finally:
            done.set()
            for reader in readers:
                reader.join()
        assert troubles == []
