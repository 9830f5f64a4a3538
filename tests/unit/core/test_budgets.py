"""How full a head is."""

from __future__ import annotations

from typing import Any

from osqueue import Queue, limits
from osqueue.core.budgets import budgets
from osqueue.core.encoding import decode_head, encode_segment
from osqueue.core.labels import KIND_BYTES
from osqueue.core.state import MIXED, Backlog, JobRecord, Lane, State
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
    assert (found["labels"].used, found["labels"].most) == (0, limits.LABELS_BYTES_MAX)
    assert found["leases"].used == seen.leases_bytes > 0
    assert found["delayed"].used == seen.delayed.jobs_bytes > 0
    assert {name for name, each in found.items() if each.refuses} == {
        "leases",
        "sessions",
        "result_ttls",
        "schedules",
        "group_debts",
        "group_settings",
        "batches",
    }


def test_labels_count_in_the_fullest_mixed_lane() -> None:
    spans = [
        encode_segment([job(kind) for kind in kinds], "segments/x", mixed=True)[1] for kinds in ("a", "bc")
    ]
    lanes = tuple(Lane(at, MIXED, Backlog(spans=tuple(spans[at:]))) for at in range(2))
    found = {each.name: each for each in budgets(State(b"", 1, lanes=lanes))}
    assert (found["labels"].used, found["labels"].refuses) == (3 * KIND_BYTES, False)


def job(kind: str) -> JobRecord:
    return JobRecord(kind.encode() * 16, b"1", 1, kind=kind)


def test_an_empty_head_uses_nothing() -> None:
    assert {each.share for each in budgets(State(b"", 1))} == {0.0}
