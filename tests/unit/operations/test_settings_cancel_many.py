"""What an operator hears who cancels many jobs."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue, Throttled, limits
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited


def test_too_many_calls_at_work_are_told_the_remedy(machine: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(), "emails", machine=machine)
    with limited({"DROP_RULES_MAX": 2}):
        q.configure(group_running=5)
        q.enqueue_many([{"payload": n, "kind": f"k{n % 4}", "group": f"g{n}"} for n in range(4_000)])
        for kind in ("k0", "k1"):
            assert q.cancel_many(kinds=[kind]).waiting
        with pytest.raises(Throttled, match=r"2 calls like this are still at work in shard 0\. A reap"):
            q.cancel_many(kinds=["k2"])
        q.reap()
        assert q.cancel_many(kinds=["k2"]).waiting
        q.reap()
        assert q.stats()["queued"] == 1_000
    assert limits.DROP_RULES_MAX == 16


def test_nothing_is_written_for_a_count_or_for_nothing(machine: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(), "emails", machine=machine)
    q.enqueue(1, kind="a")
    before = dict(q.requests)
    q.cancel_many(dry_run=True)
    q.cancel_many(kinds=["b"])
    assert q.requests["put"] == before["put"]
    assert q.cancel_many().cancelled == 1


def test_each_shard_is_counted(machine: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(), "emails", machine=machine)
    q.configure(shards=4)
    q.enqueue_many([{"payload": n} for n in range(12)])
    assert q.cancel_many(dry_run=True).cancelled == 12
    assert q.cancel_many().cancelled == 12
