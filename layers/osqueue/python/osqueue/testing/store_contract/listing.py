"""Rules on keys and listings: which keys there are, in which order, and page by page."""

from __future__ import annotations

import pytest

from ...stores.base import Delete, Deleted, DeleteIfMatch, List, Listed, Put, PutIfMatch, Store, Written
from .opening import create, found, keys, rule

# A file cannot be a folder as well, so no name here is another one and a slash.
NAMES = (
    *("a", "b-c", "b.d", "b/c-d/e", "b/c/d", "b/c0", "b0", "ba/1", "ba/2", "bb"),
    *("é/ü", "\U0001f600"),
)
ODD = (
    *("a b", "a+b", "a=b", "a&b", "a%2Fb", "a%b", "a,b;c", "a:b", "a@b", "a~b", "a(b)", "a'b", "a!b"),
    *("-a", "a.", "_a", "a..b", "$a", "ünï", "日本"),
)


class ListingRules:
    """What a List answers, and what a key may look like."""

    @rule
    def test_a_listing_is_in_byte_order(self, store: Store) -> None:
        """A listing is in the order of the keys' UTF-8 bytes, whatever the order of writing, and holds them all.

        Announced requests are carried out by their order, and an archive is read hour by hour: both are listings.
        """
        for name in reversed(NAMES):
            create(store, name)
        assert keys(store, "") == tuple(sorted(NAMES, key=str.encode))

    @rule
    @pytest.mark.parametrize(
        "prefix",
        ["b", "b/", "b/c", "b/c/", "b/c-d/", "ba/", "ba/1", "a", "é/", "nothing", "b/nothing/", "bb/"],
    )
    def test_a_listing_holds_what_starts_with_the_prefix(self, store: Store, prefix: str) -> None:
        """A prefix is the beginning of a text, and not a folder: "b/c" is the prefix of "b/c-d/e" as well.

        Clients look for a queue by the beginning of its objects' names.
        """
        for name in NAMES:
            create(store, name)
        expected = tuple(sorted((name for name in NAMES if name.startswith(prefix)), key=str.encode))
        assert keys(store, prefix) == expected

    @rule
    def test_a_listing_starts_behind_the_key_named(self, store: Store) -> None:
        """``List(after=…)`` begins with the first key behind that one, whether there is such a key or not.

        By it a listing goes on where a page ended; what lay there may have been deleted since.
        """
        for name in NAMES:
            create(store, name)
        ordered = sorted(NAMES, key=str.encode)
        for after in (*NAMES, "b/", "b/c", "b/c/", "b/c-", "zz", "b/c/d/x"):
            expected = tuple(name for name in ordered if name > after)
            assert keys(store, "", after) == expected, after
            inside = tuple(name for name in expected if name.startswith("b/"))
            assert keys(store, "b/", after) == inside, after

    @rule
    def test_pages_join_to_the_whole_listing(self, store: Store) -> None:
        """A page has ``limit`` keys at most, and ``more`` says truly whether others follow.

        A listing that says too early that it is over hides jobs; one that never does is read for ever.
        """
        names = [f"p/{number // 7}/{number:03d}" for number in range(25)]
        for name in names:
            store.perform(Put(name, b"x", durable=False))
        store.perform(Put("p0", b"x"))
        collected: list[str] = []
        page = Listed((), more=True)
        while page.more:
            reply = store.perform(List("p/", after=collected[-1] if collected else "", limit=4))
            assert isinstance(reply, Listed), reply
            assert 1 <= len(reply.keys) <= 4
            collected += reply.keys
            page = reply
        assert collected == names
        assert store.perform(List("p/", limit=25)) == Listed(tuple(names), more=False)
        assert store.perform(List("p/", limit=24)) == Listed(tuple(names[:24]), more=True)

    @rule
    def test_a_listing_sees_every_write_and_deletion_before_it(self, store: Store) -> None:
        """A listing holds a key from the answer to its creation to that of its deletion, and each key once.

        Requests are announced by a key. One that is listed late waits for ever; one that is listed after its deletion
        is carried out twice.
        """
        for number in range(5):
            version = create(store, f"intents/{number}")
            assert keys(store, "intents/") == (f"intents/{number}",)
            reply = store.perform(PutIfMatch(f"intents/{number}", b"other", version))
            assert isinstance(reply, Written), reply
            assert keys(store, "intents/") == (f"intents/{number}",)
            if number % 2:
                assert store.perform(Delete((f"intents/{number}",))) == Deleted()
            else:
                assert store.perform(DeleteIfMatch(f"intents/{number}", reply.version)) == Deleted()
            assert keys(store, "intents/") == ()

    # ── What a key may be ────────────────────────────────────────────────────
    @rule
    def test_keys_with_odd_signs_are_told_apart(self, store: Store) -> None:
        """A key is taken as it is: nothing in it is decoded, folded, or cut off.

        Parts of keys are made of names and moments. Two that fall together overwrite one another.
        """
        names = tuple(f"odd/{name}/{name}" for name in ODD)
        for name in names:
            create(store, name, name.encode())
        assert keys(store, "odd/") == tuple(sorted(names, key=str.encode))
        for name in names:
            assert found(store, name).body == name.encode(), name
            assert keys(store, name) == (name,)
        assert store.perform(Delete(names)) == Deleted()
        assert keys(store, "") == ()

    @rule
    def test_the_longest_key_is_kept(self, store: Store) -> None:
        """``key_bytes_max`` and ``name_bytes_max`` say how long a key, and a part of one between slashes, may be.

        Announced requests stand in their keys as far as there is room: by these two the queue knows it.
        """
        for name in (longest_key(store), "é" * (min(store.name_bytes_max, store.key_bytes_max) // 2)):
            create(store, name, b"long")
            assert found(store, name).body == b"long"
            assert keys(store, name[:5]) == (name,)
            assert keys(store, "", after=name[:-1])[:1] == (name,)


def longest_key(store: Store) -> str:
    """As many bytes as a key may have, in parts as long as a part may be."""
    parts, left = [], store.key_bytes_max
    while left > 0:
        length = min(left, store.name_bytes_max)
        length -= left - length == 1  # a slash has something behind it
        parts.append("k" * length)
        left -= length + 1
    return "/".join(parts)
