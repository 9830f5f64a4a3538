"""Slots that a claim borrows: what it costs, when who waits asks again, and that no slot is deposited twice."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Pacer, Queue
from osqueue.commit.effects import AwaitNews, Submit
from osqueue.commit.request_status import CommitResult
from osqueue.core.job_ops import ClaimJobs
from osqueue.core.ops import Code, outcome
from osqueue.core.queue_ops import ReserveSlots
from osqueue.core.rows import Lent
from osqueue.operations.claims import ClaimFlows, ClaimResult, again_at, why_empty
from osqueue.operations.head_board import NEVER
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def pacer(store: MemoryStore, machine: Any) -> Pacer:
    return Pacer(store, "stripe", machine=machine)


@pytest.fixture
def queue(store: MemoryStore, machine: Any) -> Queue[Any]:
    return Queue(store, "mail", machine=machine)


def counted(queue: Queue[Any], call: Any) -> dict[str, int]:
    """The requests of a call."""
    before = queue.requests
    call()
    return {kind: count - before[kind] for kind, count in queue.requests.items() if count > before[kind]}


def steps(queue: Queue[Any], machine: Any, flow: Any) -> tuple[Any, list[Any]]:
    """Run a flow while time passes as it wishes; answers its result, and what it asked for."""
    asked: list[Any] = []
    reply: Any = None
    while True:
        try:
            effect = flow.send(reply)
        except StopIteration as stop:
            return stop.value, asked
        asked.append(effect)
        if isinstance(effect, AwaitNews):
            machine.advance(effect.seconds + 1e-6)
            reply = None
        elif isinstance(effect, Submit):
            reply = queue._group(effect.shard).submit(effect.ops, queue._deadline(effect), effect.look)
        else:
            reply = queue._driver.perform(effect)


def test_a_block_costs_a_look_and_a_commit_of_the_limiter(queue: Queue[Any], pacer: Pacer) -> None:
    pacer.create(0.02, burst=50)
    queue.enqueue_many([{"payload": at} for at in range(60)])
    assert counted(queue, queue.claim) == {"put": 1}
    queue.configure(limiter="stripe")
    counted(queue, queue.claim)  # the first one has to find the limiter
    machine_block = counted(queue, lambda: queue.claim(10))
    assert machine_block == {"get": 1, "put": 2}
    queue.configure(max_running=15)
    queue.claim(10)
    assert counted(queue, lambda: queue.claim(10)) == {"get": 1}  # nothing could start: nobody is asked


def test_who_waits_asks_again_when_the_limiter_said_and_seldom_before(
    queue: Queue[Any], pacer: Pacer, machine: Any
) -> None:
    pacer.create(30)
    queue.configure(limiter="stripe")
    queue.enqueue_many([{"payload": at} for at in range(3)])
    assert len(queue.claim(3)) == 1
    began = machine.seconds
    claimed, asked = steps(queue, machine, queue._flows.claim(3, wait=100))
    assert len(claimed.leases) == 1
    assert 30 <= machine.seconds - began < 33
    assert sum(isinstance(each, Submit) for each in asked) < 12
    assert sum(isinstance(each, AwaitNews) for each in asked) < 8


def test_a_claim_that_is_made_again_brings_no_slots_along() -> None:
    op = ClaimJobs(1, "ada", 1_000, None, Lent("stripe", 1, ()))
    flow = ClaimFlows.claim_in(None, 0, op)  # type: ignore[arg-type]
    first = flow.send(None)
    again = flow.send(CommitResult((outcome([Code.RETRY]),), 0))
    once_more = flow.send(CommitResult((outcome([Code.RETRY]),), 0))
    assert [each.ops[0].lent for each in (first, again, once_more)] == [op.lent, None, None]  # type: ignore[union-attr]


def test_a_claim_asks_its_limiter_once_however_many_shards_have_jobs(
    queue: Queue[Any], pacer: Pacer, machine: Any
) -> None:
    pacer.create(3_600)
    queue.configure(limiter="stripe", shards=5)
    for at in range(20):
        queue.enqueue(at)
    assert len(queue.claim()) == 1
    claimed, asked = steps(queue, machine, queue._flows.claim())
    assert (claimed.reason, claimed.scope, claimed.by_limiter) == ("rate_limited", "queue", True)
    reserved = [each for each in asked if isinstance(each, Submit) and isinstance(each.ops[0], ReserveSlots)]
    assert len(reserved) == 1


def test_what_a_limiter_refused_closes_shards_without_jobs_too() -> None:
    refused = why_empty([(Code.EMPTY, 0), (Code.NO_SLOTS, 700), (Code.EMPTY, 0)])
    assert (refused.reason, refused.scope, refused.retry_after) == ("rate_limited", "queue", 0.7)
    assert again_at(refused, 5.0) == 5.7
    elsewhere = why_empty([(Code.EMPTY, 0), (Code.NO_SLOTS, 0), (Code.RATE_LIMITED, 90)])
    assert (elsewhere.scope, elsewhere.retry_after, again_at(elsewhere, 5.0)) == ("kind", 0.09, NEVER)
    assert again_at(ClaimResult(()), 5.0) == NEVER


class Slow(WrappedStore):
    """A store whose answers take long."""

    def __init__(self, inner: Any, machine: Any, seconds: float) -> None:
        super().__init__(inner)
        self.machine, self.seconds = machine, seconds

    def perform(self, request: Any) -> Any:
        self.machine.advance(self.seconds / 2)
        reply = self.inner.perform(request)
        self.machine.advance(self.seconds / 2)
        return reply

    async def perform_async(self, request: Any) -> Any:
        return self.perform(request)


def test_where_commits_take_longer_than_a_slot_lives_jobs_start(
    store: MemoryStore, pacer: Pacer, machine: Any
) -> None:
    pacer.create(1)
    queue = Queue[Any](Slow(store, machine, 1.3), "mail", machine=machine)
    queue.configure(limiter="stripe")
    queue.enqueue_many([{"payload": at} for at in range(99)])
    began, started = machine.seconds, 0
    while machine.seconds < began + 200:
        claimed, _ = steps(queue, machine, queue._flows.claim(1, wait=20))
        started += len(claimed.leases)
    assert started > 20  # a commit takes three seconds and more
    assert pacer.status().number < started + 20  # it takes some until the queue knows how long commits take


def test_a_shard_that_is_ahead_of_its_limiter_takes_no_slots_from_others(
    queue: Queue[Any], store: MemoryStore, pacer: Pacer, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pacer.create(0.02, burst=5)
    queue.configure(limiter="stripe")
    with monkeypatch.context() as patch:
        patch.setattr(store, "clock_ms", lambda: machine.now_ms() + 30_000)
        queue.enqueue_many([{"payload": at} for at in range(9)])
    queue.claim()  # finds the limiter, and that what it gives is over
    before = pacer.status().number
    began = machine.seconds
    asked = counted(queue, lambda: steps(queue, machine, queue._flows.claim(wait=20)))
    assert pacer.status().number == before
    assert asked.get("put", 0) == 0
    claimed, _ = steps(queue, machine, queue._flows.claim(wait=60))
    assert len(claimed.leases) == 1
    assert 28 <= machine.seconds - began <= 31
