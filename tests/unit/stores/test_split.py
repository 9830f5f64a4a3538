"""A store in two places: which request goes where, and that both answer as one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from osqueue.core.state import TableRef
from osqueue.errors import Unavailable
from osqueue.limits import SHARDS_MAX
from osqueue.model.validation import is_queue_name
from osqueue.objects import archive, backups
from osqueue.objects.layout import root_of
from osqueue.stores.base import (
    LIST_KEYS_MAX,
    Delete,
    Deleted,
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    List,
    Listed,
    Missing,
    Passed,
    PassTurn,
    PresignedRequest,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Remark,
    Store,
    StoreReply,
    StoreRequest,
    TakeTurn,
    Told,
    Turn,
    Unchanged,
    Written,
)
from osqueue.stores.faulty import SlowStore
from osqueue.stores.file import FileStore
from osqueue.stores.memory import MemoryStore
from osqueue.stores.split import SplitStore
from osqueue.stores.unordered import page_of
from osqueue.stores.wrapped import WrappedStore
from tests.support.machines import VirtualMachine

HEAD = f"{root_of('mail', 0)}head"
PART = f"{archive.hour_of('mail', 0)}00-000000000001-ab.jsonl.gz"
COPY = backups.name_of("mail", 0, 0)


class ReadsFoldersWhole(MemoryStore):
    """As a directory bucket does."""

    ordered = False

    def list(self, request: List) -> Listed:
        return page_of(self._keys, request)


class Fails(WrappedStore):
    """Answers some requests with an error, and notes them all."""

    def __init__(self, inner: Store, kinds: tuple[type, ...] = ()) -> None:
        super().__init__(inner)
        self.kinds = kinds
        self.asked: list[StoreRequest] = []
        self.closed = 0

    def perform(self, request: StoreRequest) -> StoreReply:
        self.asked.append(request)
        if isinstance(request, self.kinds):
            return Failed(Unavailable("down"), too_soon=True)
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)

    def close(self) -> None:
        self.closed += 1


def pair() -> tuple[SplitStore, Fails, Fails]:
    first, second = Fails(MemoryStore()), Fails(MemoryStore())
    return SplitStore(first, second), first, second


@pytest.fixture(params=["blocking", "awaited"])
def perform(request: pytest.FixtureRequest) -> Callable[[Store, StoreRequest], StoreReply]:
    if request.param == "blocking":
        return lambda store, asked: store.perform(asked)
    return lambda store, asked: asyncio.run(store.perform_async(asked))


# ── One of the two ───────────────────────────────────────────────────────────
@pytest.mark.parametrize("key", [HEAD, PART, COPY, "queues/mail", "ids/mail/ab", "archived", "backups/x"])
def test_a_request_goes_where_its_key_belongs(key: str, perform: Any) -> None:
    store, first, second = pair()
    apart = key in (PART, COPY)
    here, there = (second, first) if apart else (first, second)
    written = perform(store, PutIfAbsent(key, b"1"))
    assert isinstance(written, Written)
    assert perform(store, PutIfAbsent(key, b"2")) == Refused()
    assert isinstance(again := perform(store, PutIfMatch(key, b"3", written.version)), Written)
    assert perform(store, Get(key, unless=again.version)) == Unchanged()
    assert perform(store, List(key)) == Listed((key,), more=False)
    assert isinstance(found := perform(store, Get(key)), Found)
    assert (found.body, found.apart) == (b"3", apart)
    assert perform(store, DeleteIfMatch(key, again.version)) == Deleted()
    assert isinstance(perform(store, Put(key, b"4")), Written)
    assert perform(store, Delete((key,))) == Deleted()
    assert perform(store, Get(key)) == Missing()
    assert (len(here.asked), there.asked) == (10, [])


def test_keys_in_the_second_are_short_whatever_the_queue_is_called() -> None:
    """So how long a key the first store takes says enough."""
    name = "q" * 64
    assert not is_queue_name(f"{name}q")
    tables = [TableRef("finished/ffffffffffff-0123456789abcdef-1", 0, 1, 1, b"", b"", 1, 1)]
    part = archive.part_name(name, SHARDS_MAX - 1, 1_800_000_000_000, tables, 65_535)
    purged = backups.purge_list(name, SHARDS_MAX - 1, 1_800_000_000_000, [b"k" * 16]).key
    kept = f"{backups.folder_of(name, SHARDS_MAX - 1)}{backups.REPLACED}2026-11-27T06-39-15-{1 << 47:012x}"
    assert max(map(len, (part, purged, kept))) <= 200


# ── Both ─────────────────────────────────────────────────────────────────────
def test_deleting_in_both_is_one_deletion(perform: Any) -> None:
    store, first, second = pair()
    for key in (HEAD, PART, COPY, "queues/mail"):
        store.put(Put(key, b"x"))
    assert perform(store, Delete((PART, HEAD, COPY, "queues/mail"), wait_seconds=3.0)) == Deleted()
    assert first.asked[-1] == Delete((HEAD, "queues/mail"), 3.0)
    assert second.asked[-1] == Delete((PART, COPY), 3.0)
    assert store.list(List("")).keys == ()


@pytest.mark.parametrize("which", [0, 1])
def test_a_deletion_that_fails_in_one_has_no_definite_answer_and_may_be_repeated(
    which: int, perform: Any
) -> None:
    store, *both = pair()
    store.put(Put(HEAD, b"x"))
    store.put(Put(PART, b"x"))
    both[which].kinds = (Delete,)
    reply = perform(store, Delete((HEAD, PART)))
    assert isinstance(reply, Failed)
    assert not reply.too_soon  # that would say that nothing was deleted
    left = (HEAD, PART)[which]
    assert store.list(List("")).keys == (left,)  # the other one has done its share
    both[which].kinds = ()
    assert perform(store, Delete((HEAD, PART))) == Deleted()
    assert store.list(List("")).keys == ()


def test_a_deletion_of_nothing_is_done() -> None:
    store, *_ = pair()
    assert store.perform(Delete(())) == Deleted()


@pytest.mark.parametrize("which", [0, 1])
def test_a_listing_that_fails_in_one_brings_nothing(which: int, perform: Any) -> None:
    store, *both = pair()
    store.put(Put(HEAD, b"x"))
    both[which].kinds = (List,)
    assert isinstance(perform(store, List("")), Failed)


KEYS = ("0000/a", "archive", "archive-", "archive/", "archive/a", "archive/b/c", "archive0", "b", "backup")
MORE_KEYS = ("backup/1", "backup/2", "backup/\U0001f600", "backup0", "c", "zz", "é")
KINDS = (MemoryStore, ReadsFoldersWhole)


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_a_listing_of_both_is_that_of_one_store(first: type[Store], second: type[Store]) -> None:
    """Whatever is asked, and whatever lies in a place where it is not looked for."""
    chance = random.Random(7)
    keys = [*KEYS, *MORE_KEYS]
    for _ in range(60):
        one, apart = first(), second()
        store, model = SplitStore(one, apart), MemoryStore()
        for key in chance.sample(keys, 10):
            store.put(Put(key, b"x"))
            model.put(Put(key, b"x"))
        for key in chance.sample(keys, 5):  # of another time, or of somebody else
            (one if store._at(key) is apart else apart).put(Put(key, b"x"))
        for prefix in ("", "a", "archive", "archive/", "b", "ba", "backup/", "c", "d"):
            for limit in (None, 0, 1, 2, 3, 20):
                asked = List(prefix, chance.choice(["", *keys, "archive/\uffff"]), limit)
                assert store.list(asked) == model.list(asked), asked


def test_pages_of_both_join_to_the_whole(perform: Any) -> None:
    store, first, second = pair()
    keys = sorted(
        f"{folder}{number:04d}" for folder in ("archive/", "b", "backup/") for number in range(LIST_KEYS_MAX)
    )
    for key in keys:
        store.put(Put(key, b"x"))
        first.inner.put(Put(f"archive/{key}", b"x"))  # misplaced
    found: list[str] = []
    more = True
    while more:
        page = perform(store, List("", after=found[-1] if found else ""))
        assert isinstance(page, Listed)
        assert 1 <= len(page.keys) <= LIST_KEYS_MAX
        found += page.keys
        more = page.more
    assert found == keys
    assert {type(each) for each in second.asked} == {Put, List}


def test_a_store_whose_pages_cost_a_folder_each_is_read_once() -> None:
    first = Fails(ReadsFoldersWhole())
    store = SplitStore(first, MemoryStore())
    keys = [f"b{number:04d}" for number in range(2 * LIST_KEYS_MAX)]
    for key in (*keys, PART):
        store.put(Put(key, b"x"))
    assert store.list(List("")) == Listed((PART, *keys), more=False)
    assert sum(isinstance(each, List) for each in first.asked) == 1


# ── What is offered beside requests ──────────────────────────────────────────
class Offers(MemoryStore):
    """A store that can do everything."""

    def __init__(self, name: str) -> None:
        super().__init__(VirtualMachine(now_ms=len(name) * 1_000_000))
        self.name = name
        self.heard: list[str] = []
        self.look_pace = MemoryStore.look_pace
        self.flushes = self.turns = self.shared = self.remote = name == "first"
        self.swap_gap_s = float(len(name))
        self.key_bytes_max = 500 if name == "first" else 250
        self.name_bytes_max = 200 if name == "first" else 100

    def listen(self, key: str, told: Told) -> None:
        self.heard.append(key)

    def presigned(self, request: Any, seconds: int) -> PresignedRequest | None:
        return PresignedRequest("GET", f"https://{self.name}/{request.key}")

    def remarks(self) -> tuple[Remark, ...]:
        return (Remark("memory", self.name),)

    def perform(self, request: StoreRequest) -> StoreReply:
        if isinstance(request, TakeTurn):
            return Turn((), self.name)
        return Passed() if isinstance(request, PassTurn) else super().perform(request)

    @property
    def place(self) -> object:
        return self.name


def test_what_concerns_heads_is_answered_by_the_first() -> None:
    first, second = Offers("first"), Offers("archive")
    store = SplitStore(first, second)
    assert (store.place, store.clock_ms(), store.swap_gap_s) == ("first", 5_000_000, 5.0)
    assert store.flushes
    assert store.turns
    assert store.remote  # requests to one of them wait
    assert not store.shared  # nobody else finds what is in the other
    assert (store.key_bytes_max, store.name_bytes_max) == (500, 200)
    assert store.room_below("intents/") == 200  # for announcements
    assert store.look_pace is first.look_pace
    turn = store.perform(TakeTurn(HEAD, b"", 1.0))
    assert turn == Turn((), "first")
    assert store.perform(PassTurn(turn)) == Passed()
    store.listen(HEAD, lambda _: False)
    assert (first.heard, second.heard) == ([HEAD], [])


def test_a_presigned_request_is_of_the_store_of_its_key() -> None:
    store = SplitStore(Offers("first"), Offers("archive"))
    urls = [asked.url for key in (HEAD, PART) if (asked := store.presigned(Get(key), 60))]
    assert urls == [f"https://first/{HEAD}", f"https://archive/{PART}"]


def test_remarks_are_those_of_both_and_name_what_lies_in_the_wrong_place() -> None:
    first = Offers("first")
    store = SplitStore(first, Offers("archive"))
    assert [(each.check, each.found) for each in store.remarks()] == [
        ("memory", "first"),
        ("archive: memory", "archive"),
    ]
    store.put(Put(COPY, b"x"))
    assert len(store.remarks()) == 2
    first.put(Put(COPY, b"x"))
    misplaced = store.remarks()[-1]
    assert COPY in misplaced.found
    assert "Copy them" in misplaced.remedy
    assert not misplaced.grave


def test_both_are_closed() -> None:
    store, first, second = pair()
    store.close()
    assert (first.closed, second.closed) == (1, 1)


def test_a_fork_finds_both(tmp_path: Any) -> None:
    """Either store has its own way with forks; what is around them keeps nothing."""
    store = SplitStore(FileStore(tmp_path / "jobs"), SlowStore(FileStore(tmp_path / "archive"), 0.0))
    assert not [name for name in vars(store) if name.startswith("_")]
