"""A typed application, as its author writes it. Both type checkers accept it: ``make types``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from msgspec import Struct

from osqueue import (
    AsyncLease,
    AsyncPacer,
    AsyncQueue,
    AsyncWorkerJob,
    Done,
    Enqueued,
    Job,
    Kind,
    Lease,
    Pacer,
    PacerStatus,
    Queue,
    Reservation,
    Snooze,
    WorkerJob,
    WorkerStatus,
)
from osqueue.queue.lease import ClaimedLeases
from osqueue.stores.memory import MemoryStore
from osqueue.worker import Tally


class Mail(Struct, frozen=True):
    to: str
    subject: str = ""


class Newsletter(Mail, frozen=True):
    issue: int = 1


q = Queue.connect("memory://", "mails", type=Mail, timeout=20)
assert_type(q, Queue[Mail])


@q.handler
def send(job: WorkerJob[Mail]) -> int | Snooze:
    if job.stopping:
        return Snooze(60)
    return len(job.payload.to)


@q.handler(kind="audit", run_within=10)
def audit(job: WorkerJob[Any]) -> None:
    job.heartbeat()


@q.handler(kind="count")
def count(job: WorkerJob[object]) -> str:  # it takes payloads of any type, so it takes mails
    return repr(job.payload)


@q.handler(kind="slow")
async def send_slowly(job: AsyncWorkerJob[Mail]) -> str:
    await job.heartbeat()
    return job.payload.subject


@q.handler(kind="row", batch=500, within=2)
def load(jobs: list[WorkerJob[Mail]]) -> list[int | Snooze]:
    return [Snooze(60) if job.stopping else len(job.payload.to) for job in jobs]


@q.handler(kind="page", batch=10, concurrency=1, run_within=60)
async def load_slowly(jobs: list[AsyncWorkerJob[Mail]]) -> None:
    await jobs[0].heartbeat()


@q.handler(kind="gpu", concurrency=1)
def render(job: WorkerJob[Mail]) -> str:
    return job.payload.subject


def enqueue() -> None:
    added = q.enqueue(Mail("ada@example.com"), id="order-7", delay=timedelta(seconds=1), priority=3, units=2)
    assert_type(added, Enqueued)
    q.enqueue(Newsletter("ada@example.com", issue=7), headers={"traceparent": "00"})
    assert_type(q.enqueue_many([{"payload": Mail("bob@example.com"), "delay": 3}]), list[Enqueued])
    assert_type(q.cancel("order-7"), str)


def work_by_hand() -> None:
    leases = q.claim(limit=10, wait=0, lease=60)
    assert_type(leases, ClaimedLeases[Lease[Mail]])
    assert_type(leases.reason, str | None)
    for lease in leases:
        assert_type(lease, Lease[Mail])
        assert_type(lease.payload, Mail)
        lease.heartbeat(lease=30)
        lease.complete({"sent": True})
    assert_type(q.release_many(leases, delay=1), list[Done])


def steer() -> None:
    q.configure(max_attempts=5, result_ttl=timedelta(hours=1), kinds={"slow": Kind(run_within=60)})
    page, cursor = q.jobs(state="queued", limit=10, group="customer-7", headers={"tenant": None})
    assert_type(page, list[Job])
    assert_type(cursor, str | None)
    assert_type(q.workers(), list[WorkerStatus])


def work() -> Tally:
    with q as opened:
        assert_type(opened, Queue[Mail])
        return opened.run(concurrency=3, until_empty=True, signals=False)


async def the_same_with_coroutines() -> None:
    aq = AsyncQueue.connect("memory://", "mails", type=Mail)
    assert_type(aq, AsyncQueue[Mail])

    @aq.handler
    async def send(job: AsyncWorkerJob[Mail]) -> None:
        await job.heartbeat()

    async with aq as opened:
        assert_type(opened, AsyncQueue[Mail])
        assert_type(await opened.enqueue(Mail("ada@example.com"), priority=1), Enqueued)
        for lease in await opened.claim(limit=2):
            assert_type(lease, AsyncLease[Mail])
            assert_type(lease.payload, Mail)
            await lease.complete()
        assert_type(await opened.run(until_empty=True, signals=False), Tally)


pacer, async_pacer = Pacer.connect("memory://", "stripe"), AsyncPacer.connect("memory://", "stripe")


@pacer
def charge(order: int, *, by: str) -> float:
    return order * 1.0


@async_pacer
async def refund(order: int) -> bool:
    return bool(order)


def act_one_interval_apart() -> None:
    assert_type(pacer.create(timedelta(seconds=1), if_exists="reset"), PacerStatus)
    assert_type(charge(1, by="ada"), float)
    assert_type(pacer.call(charge, 1, by="ada"), float)
    assert_type(pacer.reserve(), Reservation)
    assert_type(pacer.reserve().give_back(), bool)
    with pacer.turn() as turn:
        assert_type(turn.number, int)


async def the_same_in_tasks() -> None:
    assert_type(await async_pacer.status(), PacerStatus)
    assert_type(await refund(1), bool)
    assert_type(await async_pacer.call(refund, 1), bool)
    async with async_pacer.turn() as turn:
        assert_type(await turn.give_back(), bool)


# A queue whose payloads have no type, one whose type only an annotation can say, and one that is given its store.
assert_type(Queue.connect("memory://", "anything"), Queue[Any])
either: Queue[Mail | str] = Queue.connect("memory://", "either", type=Mail | str)
assert_type(Queue(MemoryStore(), "lists", type=list[Mail]), Queue[list[Mail]])
assert_type(AsyncQueue(MemoryStore(), "anything"), AsyncQueue[Any])


def any_queue(queue: Queue) -> None:  # no type: Any
    assert_type(queue, Queue[Any])
