"""How full a head is."""

from __future__ import annotations

from typing import Any

from osqueue import Queue, limits
from osqueue.core.budgets import budgets
from osqueue.core.encoding import decode_head
from osqueue.core.state import State
from osqueue.objects.layout import root_of
from osqueue.stores.base import Found, Get
from osqueue.stores.memory import MemoryStore


def state(store: MemoryStore) -> State:
    found = store.perform(Get(root_of("mail", 0) + "head"))
    assert isinstance(found, Found)
    return decode_head(found.body)


def test_each_part_is_measured_against_its_limit() -> None:
    store = MemoryStore()
    q: Queue[Any] = Queue(store, "mail")
    q.enqueue_many([{"payload": "x" * 100, "kind": kind} for kind in "abcd"])
    q.claim(2)
    q.enqueue(1, delay=60)
    seen = state(store)
    found = {each.name: each for each in budgets(seen)}
    assert (found["lanes"].used, found["lanes"].most) == (len(seen.lanes), limits.LANES_MAX)
    assert found["lanes"].share == len(seen.lanes) / limits.LANES_MAX
    assert found["leases"].used == seen.leases_bytes > 0
    assert found["delayed"].used == seen.delayed.jobs_bytes > 0
    assert {name for name, each in found.items() if each.refuses} == {
        "leases",
        "sessions",
        "lanes",
        "result_ttls",
        "schedules",
    }


def test_an_empty_head_uses_nothing() -> None:
    assert {each.share for each in budgets(State(b"", 1))} == {0.0}
