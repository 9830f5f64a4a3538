"""Listings of a store that gives the keys of a folder in no order."""

from __future__ import annotations

import pytest

from osqueue.clock import MACHINE
from osqueue.commit.driver import BlockingDriver
from osqueue.maintenance import garbage_collection
from osqueue.objects import inventory
from osqueue.stores.base import LIST_KEYS_MAX, List, Listed, Put, Store
from osqueue.stores.counting import CountingStore
from osqueue.stores.memory import MemoryStore
from osqueue.stores.unordered import folder_of, page_of


class ReadsFoldersWhole(MemoryStore):
    """As a directory bucket does."""

    ordered = False

    def list(self, request: List) -> Listed:
        return page_of(self._keys, request)


KEYS = ("b/2", "b/10", "b-c", "b/1", "é", "\U0001f600", "b/3")


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        (List(""), ("b-c", "b/1", "b/10", "b/2", "b/3", "é", "\U0001f600")),
        (List("b/1"), ("b/1", "b/10")),
        (List("b/", after="b/10"), ("b/2", "b/3")),
    ],
)
def test_a_page_is_what_was_asked_for_in_order(request_: List, found: tuple[str, ...]) -> None:
    assert page_of(KEYS, request_) == Listed(found, more=False)


def test_a_limit_is_kept_and_says_whether_there_is_more() -> None:
    assert page_of(KEYS, List("b/", limit=3)) == Listed(("b/1", "b/10", "b/2"), more=True)
    assert page_of(KEYS, List("b/", limit=4)).more is False


def test_a_folder_is_what_a_prefix_is_in() -> None:
    assert [folder_of(each) for each in ("", "b", "b/", "b/c", "b/c/d")] == ["", "", "b/", "b/", "b/c/"]


@pytest.mark.parametrize(("kind", "listings"), [(MemoryStore, 3), (ReadsFoldersWhole, 1)])
def test_a_walk_reads_a_folder_once(kind: type[Store], listings: int) -> None:
    store = CountingStore(kind())
    keys = [f"jobs/{number:05d}" for number in range(2 * LIST_KEYS_MAX + 1)]
    for key in keys:
        store.perform(Put(key, b"x"))
    assert BlockingDriver(store, MACHINE).run(inventory.keys("jobs/")) == keys
    assert store.requests["list"] == listings


@pytest.mark.parametrize("kind", [MemoryStore, ReadsFoldersWhole])
def test_a_collector_looks_at_no_more_names_than_one_pass_may(
    kind: type[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_collection, "NAMES_MAX", 7)
    store = kind()
    names = [f"bodies/{number:012x}-1" for number in range(1, 21)]
    for name in names:
        store.perform(Put(f"root/{name}", b"x"))
    collected: set[str] = set()
    after, passes = "", 0
    while after or not passes:
        found, after = BlockingDriver(store, MACHINE).run(garbage_collection._listed("root/", after, 100))
        assert len(found) <= 7
        collected |= found
        passes += 1
    assert collected == set(names)
    assert passes == 3
