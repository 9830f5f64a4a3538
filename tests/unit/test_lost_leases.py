"""Completing many jobs whose leases are lost: which of them were completed before, and what it costs to know."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue, limits
from osqueue.core.ops import Sweep
from osqueue.shards import Submit, read_state, root_of
from osqueue.stores.base import Delete, Get, List
from osqueue.stores.memory import MemoryStore
from tests.unit.stepping import Call

MANY = 300


@pytest.fixture
def q(machine: Any) -> Queue[Any]:
    return Queue(MemoryStore(machine), "mail", machine=machine)


def claimed(q: Queue[Any], count: int = MANY) -> list[Any]:
    q.enqueue_many([{"payload": at} for at in range(count)])
    return q.claim(limit=count)


def flush(q: Queue[Any]) -> None:
    """Let finished jobs leave the heads for tables."""

    def flow() -> Any:
        for shard in range(q.stats()["shards"]):
            yield Submit(shard, (Sweep(flush=True),))

    q._run(flow())


def gets(q: Queue[Any]) -> int:
    return q.requests["get"]


def codes(done: list[Any]) -> list[str]:
    return [each.code for each in done]


def test_leases_that_others_hold_now_are_looked_up_at_once(q: Queue[Any], machine: Any) -> None:
    leases = claimed(q)
    machine.advance(limits.LEASE_MS_DEFAULT / 1000 + 1)
    q.claim(limit=MANY)
    before = gets(q)
    assert codes(q.complete_many(leases)) == ["lease_lost"] * MANY
    assert gets(q) - before <= 2


def test_completing_again_what_has_left_the_head_succeeds_and_reads_each_table_once(q: Queue[Any]) -> None:
    leases = claimed(q)
    q.complete_many(leases)
    flush(q)
    before = gets(q)
    assert codes(q.complete_many(leases)) == ["ok"] * MANY
    assert gets(q) - before < 20


def test_each_is_told_by_its_own_token(q: Queue[Any], machine: Any) -> None:
    leases = claimed(q, 40)
    q.complete_many(leases[:10])
    flush(q)
    q.complete_many(leases[10:20])
    machine.advance(limits.LEASE_MS_DEFAULT / 1000 + 1)
    again = q.claim(limit=20)
    q.complete_many(again[:10])
    stale = [{"job_id": each.job_id, "token": "another"} for each in leases[:3]]
    unknown = [{"job_id": "01890a5d-ac96-774b-bcce-b302099a8000", "token": "x"}]
    assert codes(q.complete_many([*leases, *stale, *unknown])) == [
        *["ok"] * 20,
        *["lease_lost"] * 24,
    ]


def test_every_shard_is_looked_at_once(q: Queue[Any]) -> None:
    q.configure(shards=4)
    for at in range(4):
        q.enqueue_many([{"payload": at}] * 20)
    leases: list[Any] = []
    while found := q.claim(limit=100):
        leases += found
    q.complete_many(leases)
    flush(q)
    before = gets(q)
    assert codes(q.complete_many(leases)) == ["ok"] * 80
    assert gets(q) - before < 20


def test_rows_are_found_below_an_index_and_in_the_youngest_table_that_knows_them(q: Queue[Any]) -> None:
    done = []
    for _ in range(40):  # so many tables that the oldest lie below an index
        leases = claimed(q, 5)
        q.complete_many(leases)
        flush(q)
        done += leases
    before = gets(q)
    assert codes(q.complete_many(done)) == ["ok"] * 200
    assert gets(q) - before < 100


def test_a_table_that_is_merged_away_meanwhile_is_found_again(q: Queue[Any], machine: Any) -> None:
    other: Queue[Any] = Queue(q.store, "mail", machine=machine)
    leases = claimed(q, 60)
    for at in range(0, 60, 20):
        q.complete_many(leases[at : at + 20])
        flush(q)
    call = Call(q, q._complete_many(leases))
    call.until(lambda request: isinstance(request, Get) and "/finished/" in request.key)
    root = root_of("mail", 0)
    there: Any = q.store.perform(List(f"{root}finished/"))
    for _ in range(3):
        other.reap()
    lost = [each for each in there.keys if each[len(root) :] not in repr(other._run(read_state("mail", 0)))]
    assert lost
    q.store.perform(Delete(tuple(lost)))  # as a collector would
    assert codes(call.finish()) == ["ok"] * 60
