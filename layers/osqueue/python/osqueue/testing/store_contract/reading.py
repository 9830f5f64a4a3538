"""Rules on reading: what is there, which part of it, and whether it changed."""

from __future__ import annotations

import pytest

from ...stores.base import Found, Get, Missing, Put, PutIfMatch, Store, Unchanged, Written
from .opening import OpenStore, create, found, rule

LARGE_BYTES = 8_000_000  # more than any object but a staged payload


class ReadingRules:
    """What a Get answers."""

    @rule
    def test_what_was_never_written_is_missing(self, store: Store) -> None:
        """A Get of a key without an object answers Missing, whatever else it asks for.

        A queue begins with a head that is missing. An error in its place is taken for a store that is out of order.
        """
        assert store.perform(Get("a/nothing")) == Missing()
        assert store.perform(Get("a/nothing", unless="some-version")) == Missing()
        assert store.perform(Get("a/nothing", start=5, length=5)) == Missing()

    @rule
    def test_what_was_written_is_read_with_its_version(self, store: Store) -> None:
        """A Get answers the bytes that were written, as ``bytes``, with the version that the write answered.

        A commit replaces the version that it has read. Were it another one, no commit would ever succeed.
        """
        body = bytes(range(256)) * 1000
        version = create(store, "a/b/c=1/d.bin", body)
        read = found(store, "a/b/c=1/d.bin")
        assert (read.body, read.version) == (body, version)
        assert type(read.body) is bytes

    @rule
    def test_an_object_has_a_time(self, store: Store) -> None:
        """``modified_ms`` is when the object was written, in milliseconds since 1970, UTC, by the store's clock.

        Leases and delays of all clients go by the time of the store, and this is how they learn it.
        """
        create(store, "clock")
        assert 1_600_000_000_000 < found(store, "clock").modified_ms < 4_000_000_000_000

    @rule
    def test_an_empty_body_is_an_object(self, store: Store) -> None:
        """An object may have no bytes; it is there, and no part of it has any.

        The object by which writers measure the clock is empty.
        """
        version = create(store, "empty", b"")
        assert found(store, "empty").body == b""
        part = store.perform(Get("empty", start=0, length=5))
        assert isinstance(part, Found), part
        assert (part.body, part.version) == (b"", version)

    @rule
    def test_a_large_body_is_kept_whole(self, store: Store) -> None:
        """An object of several megabytes is written, replaced and read in one request each, and in parts.

        Segments, archives and payloads grow to megabytes.
        """
        body = bytes(range(250)) * (LARGE_BYTES // 250)
        version = create(store, "large", body[1:])
        reply = store.perform(PutIfMatch("large", body, version))
        assert isinstance(reply, Written), reply
        assert found(store, "large").body == body
        part = store.perform(Get("large", start=LARGE_BYTES - 300, length=200))
        assert isinstance(part, Found), part
        assert part.body == body[-300:-100]

    @rule
    def test_a_read_unless_the_version_is_current_answers_unchanged(self, store: Store) -> None:
        """``Get(unless=version)`` answers Unchanged while that is the current version, and the object afterwards.

        Whoever waits for jobs looks at the head this way: a look that misses a change misses jobs, one that always
        brings the object pays for its bytes.
        """
        version = create(store, "head", b"one")
        assert store.perform(Get("head", unless=version)) == Unchanged()
        newer = store.perform(PutIfMatch("head", b"two", version))
        assert isinstance(newer, Written), newer
        assert store.perform(Get("head", unless=newer.version)) == Unchanged()
        reply = store.perform(Get("head", unless=version))
        assert isinstance(reply, Found), reply
        assert (reply.body, reply.version) == (b"two", newer.version)

    @rule
    @pytest.mark.parametrize(
        ("start", "length", "expected"),
        [
            (0, 3, b"012"),
            (4, 2, b"45"),
            (7, None, b"789"),
            (8, 50, b"89"),
            (None, 4, b"0123"),
            (9, 1, b"9"),
            (10, 5, b""),
            (99, None, b""),
            (3, 0, b""),
        ],
    )
    def test_a_range_brings_those_bytes(
        self, store: Store, start: int | None, length: int | None, expected: bytes
    ) -> None:
        """A range brings its bytes as far as there are any, with the version of the whole; none is no error.

        Payloads lie side by side in one object, and each is read by its place in it.
        """
        version = create(store, "segment", b"0123456789")
        reply = store.perform(Get("segment", start=start, length=length))
        assert isinstance(reply, Found), reply
        assert (reply.body, reply.version) == (expected, version)

    @rule
    def test_a_read_that_waits_for_a_flush_answers_the_same(self, store: Store) -> None:
        """``Get(flushed=True)`` answers what a Get does, once a power cut would leave it; at once in most stores.

        Nobody is told of a commit before it is sure to stay.
        """
        for write in (Put("a", b"one", durable=False), Put("a", b"two")):
            written = store.perform(write)
            assert isinstance(written, Written), written
            reply = store.perform(Get("a", flushed=True))
            assert isinstance(reply, Found), reply
            assert (reply.body, reply.version) == (write.body, written.version)
            assert store.perform(Get("a", unless=written.version, flushed=True)) == Unchanged()
        assert store.perform(Get("nothing", flushed=True)) == Missing()

    @rule
    def test_every_opened_store_reads_what_any_has_written(self, store: Store, open_store: OpenStore) -> None:
        """A read that begins after a write was answered sees it, whoever wrote: nothing is kept from before.

        A worker that reads an old head gives a job away that somebody else has; a delay of seconds is as bad as one
        of hours.
        """
        other = open_store()
        try:
            assert other.perform(Get("head")) == Missing()
            version = create(store, "head", b"0")
            for number in range(1, 6):
                assert found(other, "head").body == b"%d" % (number - 1)
                writer, reader = (other, store) if number % 2 else (store, other)
                reply = writer.perform(PutIfMatch("head", b"%d" % number, version))
                assert isinstance(reply, Written), reply
                assert reader.perform(Get("head", unless=version)) != Unchanged()
                version = reply.version
                assert reader.perform(Get("head", unless=version)) == Unchanged()
        finally:
            other.close()
