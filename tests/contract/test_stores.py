"""The store port's contract, run over every store of ``tests/support/store_kinds.py``."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from osqueue.stores.base import (
    Delete,
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    List,
    Listed,
    Missing,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Store,
    Unchanged,
    Written,
)
from osqueue.stores.file import FileStore
from osqueue.stores.memory import MemoryStore
from osqueue.stores.s3 import S3Store
from osqueue.stores.s3_boto import BotoStore
from tests.support.patience import PATIENCE
from tests.support.store_kinds import create, found, keys

RACERS = 8
INCREMENTS = 5  # by each racer

# ── Reading ──────────────────────────────────────────────────────────────────


def test_what_was_never_written_is_missing(store: Store) -> None:
    assert store.perform(Get("a/nothing")) == Missing()
    assert store.perform(Get("a/nothing", unless="some-version")) == Missing()
    assert store.perform(Get("a/nothing", start=5, length=5)) == Missing()


def test_what_was_written_is_read_with_its_version(store: Store) -> None:
    body = bytes(range(256)) * 1000
    version = create(store, "a/b/c=1/d.bin", body)
    read = found(store, "a/b/c=1/d.bin")
    assert (read.body, read.version) == (body, version)
    assert type(read.body) is bytes
    assert 1_600_000_000_000 < read.modified_ms < 4_000_000_000_000


def test_an_empty_body_is_an_object(store: Store) -> None:
    create(store, "empty", b"")
    assert found(store, "empty").body == b""


def test_a_read_unless_the_version_is_current_answers_unchanged(store: Store) -> None:
    version = create(store, "head", b"one")
    assert store.perform(Get("head", unless=version)) == Unchanged()
    newer = store.perform(PutIfMatch("head", b"two", version))
    assert isinstance(newer, Written)
    assert store.perform(Get("head", unless=newer.version)) == Unchanged()
    reply = store.perform(Get("head", unless=version))
    assert isinstance(reply, Found)
    assert reply.body == b"two"


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
    store: Store, start: int | None, length: int | None, expected: bytes
) -> None:
    version = create(store, "segment", b"0123456789")
    reply = store.perform(Get("segment", start=start, length=length))
    assert isinstance(reply, Found), reply
    assert (reply.body, reply.version) == (expected, version)


# ── Conditional writes ───────────────────────────────────────────────────────


def test_only_the_first_creation_is_written(store: Store) -> None:
    create(store, "a/key", b"first")
    assert store.perform(PutIfAbsent("a/key", b"second")) == Refused()
    assert found(store, "a/key").body == b"first"


def test_a_write_against_the_current_version_replaces(store: Store) -> None:
    version = create(store, "head", b"one")
    reply = store.perform(PutIfMatch("head", b"two", version))
    assert isinstance(reply, Written)
    assert reply.version != version
    read = found(store, "head")
    assert (read.body, read.version) == (b"two", reply.version)


def test_a_refused_write_leaves_the_content_unchanged(store: Store) -> None:
    stale = create(store, "head", b"one")
    assert isinstance(store.perform(PutIfMatch("head", b"two", stale)), Written)
    before = found(store, "head")
    assert store.perform(PutIfMatch("head", b"three", stale)) == Refused()
    assert store.perform(PutIfMatch("head", b"three", '"0123456789abcdef0123456789abcdef"')) == Refused()
    assert found(store, "head") == before


def test_a_write_against_a_missing_object_is_refused(store: Store) -> None:
    version = create(store, "other", b"one")
    assert store.perform(PutIfMatch("head", b"two", version)) == Refused()
    assert store.perform(Get("head")) == Missing()


def test_an_unconditional_write_creates_and_replaces(store: Store) -> None:
    first = store.perform(Put("a/b", b"one", durable=False))
    second = store.perform(Put("a/b", b"two"))
    third = store.perform(Put("a/b", b"three", durable=False))
    assert isinstance(first, Written)
    assert isinstance(second, Written)
    assert isinstance(third, Written)
    assert len({first.version, second.version, third.version}) == 3
    assert found(store, "a/b") == Found(b"three", third.version, found(store, "a/b").modified_ms)


# S3's version is a hash of the content: there the head makes its bodies differ by a random first field.
def test_identical_content_is_a_new_version(store: Store) -> None:
    if isinstance(store, S3Store | BotoStore):
        version = create(store, "head", b"same")
        reply = store.perform(PutIfMatch("head", b"same", version))
        assert reply == Written(version), (
            "S3 does better than we say: drop the exception and the remark in s3.py"
        )
        return
    seen = [create(store, "head", b"same")]
    for _ in range(20):
        reply = store.perform(PutIfMatch("head", b"same", seen[-1]))
        assert isinstance(reply, Written)
        seen.append(reply.version)
    assert len(set(seen)) == len(seen)


def test_a_version_never_returns_when_the_content_does(store: Store) -> None:
    """ABA, deletions included. The leading count stands for the head's random commit id."""
    distinct = isinstance(store, S3Store | BotoStore)
    seen: list[str] = []
    for turn in range(12):
        for content in (b"A", b"B", b"A"):
            body = (b"%d " % len(seen) if distinct else b"") + content
            current = store.perform(Get("head"))
            if isinstance(current, Found):
                reply = store.perform(PutIfMatch("head", body, current.version))
            else:
                reply = store.perform(PutIfAbsent("head", body))
            assert isinstance(reply, Written)
            seen.append(reply.version)
        if turn % 2:
            store.perform(Delete(("head",)))
        else:
            assert store.perform(DeleteIfMatch("head", seen[-1])) == Deleted()
    assert len(set(seen)) == len(seen)


# ── Deleting ─────────────────────────────────────────────────────────────────


def test_deleted_objects_are_gone_and_others_stay(store: Store) -> None:
    for name in ("a/1", "a/2", "a/3", "b"):
        create(store, name)
    assert store.perform(Delete(("a/1", "a/3", "a/never-there"))) == Deleted()
    assert store.perform(Delete(())) == Deleted()
    assert keys(store, "") == ("a/2", "b")
    assert store.perform(Get("a/1")) == Missing()


def test_many_objects_are_deleted_in_one_request(store: Store) -> None:
    names = tuple(f"many/{number:04d}" for number in range(60))
    for name in names:
        store.perform(Put(name, b"x", durable=False))
    assert store.perform(Delete(names)) == Deleted()
    assert keys(store, "") == ()


def test_a_conditional_deletion_needs_the_current_version(store: Store) -> None:
    stale = create(store, "ids/1", b"one")
    current = store.perform(PutIfMatch("ids/1", b"two", stale))
    assert isinstance(current, Written)
    assert store.perform(DeleteIfMatch("ids/1", stale)) == Refused()
    assert found(store, "ids/1").body == b"two"
    assert store.perform(DeleteIfMatch("ids/1", current.version)) == Deleted()
    assert store.perform(Get("ids/1")) == Missing()
    assert store.perform(DeleteIfMatch("ids/1", current.version)) == Refused()


def test_a_deleted_key_can_be_created_again(store: Store) -> None:
    first = create(store, "ids/1", b"one")
    store.perform(Delete(("ids/1",)))
    assert store.perform(PutIfMatch("ids/1", b"two", first)) == Refused()
    create(store, "ids/1", b"three")
    assert store.perform(PutIfMatch("ids/1", b"two", first)) == Refused()


# ── Listing ──────────────────────────────────────────────────────────────────

NAMES = (
    "a",
    "b-c",
    "b.d",
    "b/c",
    "b/c-d/e",
    "b/c/d",
    "b/c0",
    "b0",
    "ba/1",
    "ba/2",
    "bb",
    "é/ü",
    "\U0001f600",
)
# A file cannot be a folder as well, and these names ask for both.
TREE = tuple(name for name in NAMES if name != "b/c")


def test_a_listing_is_in_byte_order(store: Store) -> None:
    for name in reversed(TREE):
        create(store, name)
    assert keys(store, "") == tuple(sorted(TREE, key=str.encode))


@pytest.mark.parametrize(
    "prefix", ["b", "b/", "b/c", "b/c/", "b/c-d/", "ba/", "ba/1", "a", "é/", "nothing", "b/nothing/", "bb/"]
)
def test_a_listing_holds_what_starts_with_the_prefix(store: Store, prefix: str) -> None:
    for name in TREE:
        create(store, name)
    expected = tuple(sorted((name for name in TREE if name.startswith(prefix)), key=str.encode))
    assert keys(store, prefix) == expected


def test_a_listing_starts_behind_the_key_named(store: Store) -> None:
    for name in TREE:
        create(store, name)
    ordered = sorted(TREE, key=str.encode)
    for after in (*TREE, "b/", "b/c", "b/c/", "b/c-", "zz", "b/c/d/x"):
        expected = tuple(name for name in ordered if name > after)
        assert keys(store, "", after) == expected, after
        inside = tuple(name for name in expected if name.startswith("b/"))
        assert keys(store, "b/", after) == inside, after


def test_pages_join_to_the_whole_listing(store: Store) -> None:
    names = [f"p/{number // 7}/{number:03d}" for number in range(25)]
    for name in names:
        store.perform(Put(name, b"x", durable=False))
    store.perform(Put("p0", b"x"))
    collected: list[str] = []
    page = Listed((), more=True)
    while page.more:
        reply = store.perform(List("p/", after=collected[-1] if collected else "", limit=4))
        assert isinstance(reply, Listed)
        assert 1 <= len(reply.keys) <= 4
        collected += reply.keys
        page = reply
    assert collected == names
    assert store.perform(List("p/", limit=25)) == Listed(tuple(names), more=False)
    assert store.perform(List("p/", limit=24)) == Listed(tuple(names[:24]), more=True)


# ── Racing ───────────────────────────────────────────────────────────────────


def race_to_create(store: Store, name: int) -> bool:
    return isinstance(store.perform(PutIfAbsent("prize", b"%d" % name)), Written)


def count_up(store: Store, times: int) -> None:
    """Increment by compare-and-swap. On S3 equal counts are equal versions, but a count never comes back."""
    for _ in range(times):
        while True:
            current = found(store, "counter")
            reply = store.perform(PutIfMatch("counter", b"%d" % (int(current.body) + 1), current.version))
            if isinstance(reply, Written):
                break
            assert reply == Refused()


def in_process(function: Callable[..., Any], opener: Any, arguments: Any, result: Any, *more: Any) -> None:
    result.put(function(opener(*arguments), *more))


def test_of_many_creators_exactly_one_wins(store: Store) -> None:
    start = threading.Barrier(RACERS, timeout=PATIENCE)

    def run(name: int) -> bool:
        start.wait()
        return race_to_create(store, name)

    with ThreadPoolExecutor(RACERS) as pool:
        won = list(pool.map(run, range(RACERS)))
    assert sum(won) == 1
    assert found(store, "prize").body == b"%d" % won.index(True)


def test_no_increment_is_lost_among_threads(store: Store) -> None:
    create(store, "counter", b"0")
    with ThreadPoolExecutor(RACERS) as pool:
        list(pool.map(lambda _: count_up(store, INCREMENTS), range(RACERS)))
    assert found(store, "counter").body == b"%d" % (RACERS * INCREMENTS)


def run_processes(opening: Any, function: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
    context = multiprocessing.get_context("spawn")
    result = context.Queue()
    processes = [
        context.Process(target=in_process, args=(function, *opening, result, *more), daemon=True)
        for more in arguments
    ]
    for process in processes:
        process.start()
    answers = [result.get(timeout=PATIENCE) for _ in processes]
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0
    return answers


def test_processes_neither_win_twice_nor_lose_an_increment(opening: Any, store: Store) -> None:
    if isinstance(store, MemoryStore):
        pytest.skip("another process has another memory")
    create(store, "counter", b"0")
    won = run_processes(opening, race_then_count, [(0,), (1,), (2,)])
    assert sum(won) == 1
    assert found(store, "counter").body == b"%d" % (3 * INCREMENTS)


def race_then_count(store: Store, name: int) -> bool:
    won = race_to_create(store, name)
    count_up(store, INCREMENTS)
    return won


def test_processes_that_reach_a_folder_by_two_paths_lose_no_increment(tmp_path: Path) -> None:
    create(FileStore(tmp_path / "store"), "counter", b"0")
    (tmp_path / "link").symlink_to(tmp_path / "store")
    run_processes((Path, (tmp_path,)), count_up_in, [("store",), ("link",)] * 2)
    assert found(FileStore(tmp_path / "store"), "counter").body == b"%d" % (4 * 200 * INCREMENTS)


def count_up_in(folder: Path, name: str) -> None:
    count_up(FileStore(folder / name, fsync=False), 200 * INCREMENTS)


def test_a_forked_child_can_use_the_store(store: Store) -> None:
    if isinstance(store, MemoryStore):
        pytest.skip("another process has another memory")
    version = create(store, "head", b"parent")
    context = multiprocessing.get_context("fork")
    child = context.Process(target=replace_head, args=(store, version), daemon=True)
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == 0
    assert found(store, "head").body == b"child"


def replace_head(store: Store, version: str) -> None:
    assert isinstance(store.perform(PutIfMatch("head", b"child", version)), Written)


# ── Coroutines ───────────────────────────────────────────────────────────────


def test_coroutines_get_the_same_answers(store: Store) -> None:
    async def story() -> list[Any]:
        perform = store.perform_async
        created = await perform(PutIfAbsent("a/1", b"one"))
        assert isinstance(created, Written)
        read = await perform(Get("a/1"))
        assert isinstance(read, Found)
        assert read.body == b"one"
        part = await perform(Get("a/1", start=1, length=1))
        assert isinstance(part, Found)
        assert part.body == b"n"
        beyond = await perform(Get("a/1", start=9, length=1))
        assert isinstance(beyond, Found)
        assert beyond.body == b""
        replaced = await perform(PutIfMatch("a/1", b"two", created.version))
        assert isinstance(replaced, Written)
        await asyncio.gather(*(perform(Put(f"b/{number}", b"x", durable=False)) for number in range(10)))
        return [
            await perform(PutIfAbsent("a/1", b"three")),
            await perform(PutIfMatch("a/1", b"three", created.version)),
            await perform(Get("a/1", unless=replaced.version)),
            await perform(Get("nothing")),
            await perform(List("b/", after="b/4", limit=3)),
            await perform(List("c/")),
            await perform(Delete(("b/0", "b/1"))),
            await perform(DeleteIfMatch("a/1", created.version)),
            await perform(DeleteIfMatch("a/1", replaced.version)),
            await perform(List("")),
        ]

    assert asyncio.run(story()) == [
        Refused(),
        Refused(),
        Unchanged(),
        Missing(),
        Listed(("b/5", "b/6", "b/7"), more=True),
        Listed((), more=False),
        Deleted(),
        Refused(),
        Deleted(),
        Listed(tuple(f"b/{number}" for number in range(2, 10)), more=False),
    ]


def test_a_method_answers_as_perform_does(store: Store) -> None:
    written = store.put_if_absent(PutIfAbsent("a", b"one"))
    assert isinstance(written, Written)
    assert store.put_if_absent(PutIfAbsent("a", b"one")) == Refused()
    assert store.get(Get("a")) == store.perform(Get("a"))
    assert store.put_if_match(PutIfMatch("missing", b"x", written.version)) == Refused()
    assert isinstance(store.put(Put("b", b"two")), Written)
    assert store.list(List("")) == Listed(("a", "b"), more=False)
    assert store.delete_if_match(DeleteIfMatch("a", written.version)) == Deleted()
    assert store.delete(Delete(("b",))) == Deleted()
    assert store.list(List("")) == Listed((), more=False)


def test_the_store_works_again_after_close(store: Store) -> None:
    create(store, "a", b"one")
    store.close()
    assert found(store, "a").body == b"one"
