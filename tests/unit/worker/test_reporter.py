"""A worker over an API: one call and one commit for each batch, and what happens when calls are refused or lost."""

from __future__ import annotations

from typing import Any

from osqueue import Queue, Snooze
from osqueue.client.transports.base import ApiCall, CallOutcome
from osqueue.contract.functions import CONTENT_BYTES_MAX
from osqueue.stores.base import PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from tests.support.in_process import InProcess
from tests.support.scripted import LATE, fault

BATCHES, SIZE = 6, 10


class Swaps(MemoryStore):
    """Counts how often a head was written."""

    count = 0

    def perform(self, request: StoreRequest) -> StoreReply:
        self.count += isinstance(request, PutIfMatch) and request.key.endswith("/head")
        return super().perform(request)


def worked(q: Queue[Any], **options: Any) -> Any:
    return q.run(until_empty=True, poll=0.01, signals=False, **options)


def test_each_batch_is_one_call_and_one_commit() -> None:
    store = Swaps()
    q: Queue[Any] = Queue(transport := InProcess(store), "mail")
    q.handler(batch=SIZE)(lambda jobs: [each.payload for each in jobs])
    q.enqueue_many([{"payload": at} for at in range(BATCHES * SIZE)])
    store.count, before = 0, transport.api.store.requests
    transport.routes.clear()

    assert worked(q, concurrency=1).completed == BATCHES * SIZE

    # A first claim; for each batch its endings and the next claim; a last look whether the work is done.
    assert transport.routes == ["turn"] * (1 + BATCHES + 1)
    after = transport.api.store.requests
    assert store.count == 1 + BATCHES
    # The head once, and beside every fourth swap the door of few writers.
    assert after["get"] - before["get"] <= 1 - (1 + BATCHES) // -4


def test_claims_of_several_handlers_ride_as_well() -> None:
    store = Swaps()
    q: Queue[Any] = Queue(transport := InProcess(store), "mail")
    for kind in "abc":
        q.handler(kind=kind, batch=SIZE)(lambda jobs: None)
        q.enqueue_many([{"payload": at, "kind": kind} for at in range(SIZE)])
    store.count = 0
    transport.routes.clear()
    assert worked(q, concurrency=3).completed == 3 * SIZE
    assert transport.routes[0] == "turn"
    assert set(transport.routes) == {"turn"}
    assert store.count <= 1 + 3  # one claim for all, and at most one commit for each batch


def test_a_turn_over_an_api_ends_jobs_in_every_way() -> None:
    q: Queue[Any] = Queue(InProcess(MemoryStore()), "mail")
    q.configure(backoff_base=0.001)

    @q.handler
    def work(job: Any) -> Any:
        if job.payload == "snooze" and job.run == 1:
            return Snooze(0)
        if job.payload == "fail":
            raise KeyError("no")
        return object() if job.payload == "odd" else job.payload

    for payload in ("snooze", "fail", "odd", "fine"):
        q.enqueue(payload, max_attempts=1)
    tally = worked(q)
    assert (tally.completed, tally.failed, tally.released, tally.lost) == (2, 2, 1, 0)
    errors = {job.error for job in q.jobs("failed")[0]}
    assert any("cannot be serialised" in each for each in errors)
    assert "KeyError: 'no'" in errors


class Narrow(InProcess):
    """A way on which bodies may have so many bytes, as a proxy in front of an API may want it."""

    most = 40_000

    def send(self, call: ApiCall) -> CallOutcome:
        if len(call.body) > self.most:
            return fault("too_large", 413)
        return super().send(call)


def test_endings_that_are_too_large_together_are_said_one_by_one_and_one_that_is_by_itself_fails() -> None:
    q: Queue[Any] = Queue(Narrow(MemoryStore()), "mail")
    q.handler(batch=5)(lambda jobs: ["x" * each.payload for each in jobs])
    q.enqueue_many([{"payload": size, "max_attempts": 1} for size in (20_000, 20_000, 30_000, 50_000, 5)])
    tally = worked(q, concurrency=1)
    assert (tally.completed, tally.failed, tally.lost) == (4, 1, 0)
    (job,) = q.jobs("failed")[0]
    assert "too_large" in job.error


def test_a_result_past_the_limit_of_an_api_fails_its_own_job() -> None:
    q: Queue[Any] = Queue(InProcess(MemoryStore()), "mail")
    q.handler(lambda job: "x" * job.payload)
    q.enqueue_many([{"payload": size, "max_attempts": 1} for size in (CONTENT_BYTES_MAX, 5)])
    tally = worked(q)
    assert (tally.completed, tally.failed) == (1, 1)


class Losing(InProcess):
    """The answer of one call does not arrive."""

    lost = -1

    def send(self, call: ApiCall) -> CallOutcome:
        reply = super().send(call)
        return LATE if len(self.routes) - 1 == self.lost else reply


def test_a_lost_turn_loses_no_ending_and_what_it_leased_runs_out_by_itself() -> None:
    q: Queue[Any] = Queue(transport := Losing(MemoryStore()), "mail")
    q.handler(batch=SIZE)(lambda jobs: None)
    q.enqueue_many([{"payload": at} for at in range(3 * SIZE)])
    transport.routes.clear()
    transport.lost = 1  # the endings of the first batch, and the claim of the second
    tally = worked(q, concurrency=1)
    assert transport.routes[:4] == ["turn", "turn", "complete", "turn"]
    assert (tally.claimed, tally.completed, tally.lost) == (2 * SIZE, 2 * SIZE, 0)
    stats = q.stats()
    assert (stats["completed"], stats["processing"]) == (2 * SIZE, SIZE)
