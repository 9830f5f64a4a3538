"""Purge: nothing of a job is left in the store, and everything else is."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Conflict, NotFound, Queue, Rejected, Throttled, Timeout, Unavailable
from osqueue.core.audit import imbalances
from osqueue.core.encoding import decode_head
from osqueue.objects.backups import is_purge
from osqueue.stores.base import Found, Get, List, StoreReply, StoreRequest
from osqueue.stores.faulty import FaultyStore
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore

SECRET = "ada@example.com"


def contents(store: Any) -> dict[str, bytes]:
    """Every object of a store, archive parts decompressed."""
    found: dict[str, bytes] = {}
    after = ""
    while True:
        listed = store.perform(List("", after=after))
        for key in listed.keys:
            reply = store.perform(Get(key))
            if isinstance(reply, Found):
                found[key] = gzip.decompress(reply.body) if key.endswith(".gz") else reply.body
        if not listed.more:
            return found
        after = listed.keys[-1]


def imbalanced(store: Any) -> list[str]:
    """What heads, and their backups, say of themselves and is not so."""
    copies = [key for key in contents(store) if key.startswith("backup/") and not is_purge(key)]
    heads = [data for key, data in contents(store).items() if key.endswith("/head") or key in copies]
    return [each for data in heads for each in imbalances(decode_head(data))]


def holders(store: Any, secret: str = SECRET) -> list[str]:
    """The objects in which a secret can be read."""
    return [key for key, data in contents(store).items() if secret.encode() in data]


def secret_job(q: Any, large: bool = False, **options: Any) -> str:
    text: str = q.enqueue({"to": SECRET, "more": "y" * (5_000 if large else 1)}, id=SECRET, **options).job_id
    return text


def waiting(q: Any, large: bool) -> str:
    return secret_job(q, large)


def delayed(q: Any, large: bool) -> str:
    return secret_job(q, large, delay=3600)


def in_a_segment(q: Any, large: bool) -> str:
    payload = {"to": SECRET, "more": "y" * (5_000 if large else 1)}
    jobs = [{"payload": at} for at in range(1_500)]
    done = q.enqueue_many([*jobs, {"payload": payload}, *jobs])
    text: str = done[1_500].job_id
    return text


def failed(q: Any, large: bool) -> str:
    job_id = secret_job(q, large, max_attempts=1)
    (lease,) = q.claim()
    lease.fail(f"no mailbox {SECRET}")
    return job_id


def failed_and_archived(q: Any, large: bool) -> str:
    job_id = failed(q, large)
    q.reap()
    return job_id


def failed_in_a_segment(q: Any, large: bool) -> str:
    many = [{"payload": at, "max_attempts": 1, "priority": 9} for at in range(300)]
    q.enqueue_many(many)
    job_id = secret_job(q, large, max_attempts=1, priority=9)
    q.enqueue_many(many)
    while leases := q.claim(200):
        q.fail_many([{"job_id": each.job_id, "token": each.token, "error": SECRET} for each in leases
                     if each.job_id == job_id])  # fmt: skip
        rest = [each for each in leases if each.job_id != job_id]
        q.fail_many([{"job_id": each.job_id, "token": each.token, "error": "no"} for each in rest])
    return job_id


def completed(q: Any, large: bool) -> str:
    job_id = secret_job(q)
    q.claim()[0].complete({"sent to": SECRET, "more": "y" * (5_000 if large else 1)})
    return job_id


def completed_and_archived(q: Any, large: bool) -> str:
    job_id = completed(q, large)
    q.enqueue("other")
    q.claim()[0].complete("another result " + "z" * 5_000)
    q.reap()
    return job_id


def redriven_and_completed(q: Any, large: bool) -> str:
    job_id = failed_and_archived(q, large)
    q.redrive()
    q.claim()[0].complete(SECRET)
    q.reap()
    return job_id


PLACES = [
    waiting,
    delayed,
    in_a_segment,
    failed,
    failed_and_archived,
    failed_in_a_segment,
    completed,
    completed_and_archived,
    redriven_and_completed,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda each: each.__name__)
def test_nothing_of_a_purged_job_is_left(q: Any, behind: Any, place: Callable[[Any, bool], str]) -> None:
    other = q.enqueue("keep me", id="other", priority=0, delay=60).job_id
    list(q.events(wait=0))  # somebody listens: its transitions are recorded
    job_id = place(q, False)
    before = q.stats()
    assert holders(behind)
    report = q.purge(job_id)
    assert holders(behind) == []
    assert imbalanced(behind) == []
    assert report.jobs == (job_id,)
    assert report.left == ()
    assert q.status(job_id) is None
    with pytest.raises(NotFound):
        q.why(job_id)
    assert q.status("other").job_id == other
    after = q.stats()
    live = ("queued", "failed", "scheduled")
    was_live = not place.__name__.endswith(("completed", "completed_and_archived"))
    assert sum(before[name] - after[name] for name in live) == was_live
    again = q.purge(job_id)
    assert (again.cancelled, again.state, again.tables, again.archive, again.ids) == (0, 0, 0, 0, 0)
    q.reap()
    assert q.enqueue("anew", id=SECRET).status == "queued"


@pytest.mark.parametrize(
    "place", [waiting, in_a_segment, failed, failed_in_a_segment], ids=lambda each: each.__name__
)
def test_large_payloads_are_wiped_and_those_beside_them_are_not(
    q: Any, behind: Any, place: Callable[[Any, bool], str]
) -> None:
    q.enqueue_many([{"payload": f"{at}" * 2_000, "priority": 0, "delay": 3_600} for at in range(3)])
    job_id = place(q, True)
    assert q.purge(job_id).contents == 1
    assert holders(behind) == []
    assert imbalanced(behind) == []
    assert q.stats()["scheduled"] == 3


def test_a_payload_is_wiped_although_its_job_is_over(q: Any, behind: Any) -> None:
    job_id = secret_job(q, large=True)
    q.claim()[0].complete()
    q.reap()
    assert q.purge(job_id).contents == 1
    assert holders(behind) == []
    assert imbalanced(behind) == []


def test_one_of_many_payloads_in_a_shared_object_is_wiped(q: Any, behind: Any) -> None:
    done = q.enqueue_many([{"payload": f"{SECRET if at == 1 else at} " * 500} for at in range(3)])
    assert q.purge(done[1].job_id).contents == 1
    assert holders(behind) == []
    assert imbalanced(behind) == []
    assert [lease.payload for lease in q.claim(9)] == ["0 " * 500, "2 " * 500]


def test_large_results_are_wiped(q: Any, behind: Any) -> None:
    job_id = completed(q, True)
    assert q.purge(job_id).contents == 1
    assert holders(behind) == []
    assert imbalanced(behind) == []


def test_a_job_that_only_the_archive_knows_is_purged_by_its_job_id(q: Any, behind: Any, clock: Any) -> None:
    job_id = completed_and_archived(q, False)
    clock.shift_ms += 2 * 86_400_000
    q.reap()
    assert q.status(job_id) is None
    report = q.purge(job_id)
    assert report.archive >= 1
    assert holders(behind) == []
    assert imbalanced(behind) == []
    parts = [data for key, data in contents(behind).items() if key.startswith("archive/")]
    assert sum(data.count(b"\n") for data in parts) == 1  # the other job's record
    with pytest.raises(NotFound):
        q.purge(SECRET)


def test_backups_forget_it_too_and_stay_readable(q: Any, behind: Any, clock: Any) -> None:
    job_id = waiting(q, False)
    q.reap()
    clock.shift_ms += 3_700_000
    q.claim()[0].complete(SECRET)
    q.reap()
    report = q.purge(job_id)
    assert report.backups >= 1
    assert holders(behind) == []
    assert imbalanced(behind) == []


def test_a_job_that_is_being_worked_on_is_not_purged(q: Any, behind: Any) -> None:
    job_id = secret_job(q)
    (lease,) = q.claim()
    with pytest.raises(Conflict):
        q.purge([job_id])
    lease.heartbeat()
    lease.complete()
    assert q.purge(SECRET).ids == 1
    assert holders(behind) == []
    assert imbalanced(behind) == []


def test_several_jobs_are_purged_at_once(opened: Any, behind: Any) -> None:
    q = opened()
    q.configure(shards=2)
    ids = [q.enqueue(f"{SECRET} {at}").job_id for at in range(6)]
    report = q.purge(ids)
    assert (set(report.jobs), report.cancelled, report.state) == (set(ids), 6, 6)
    assert holders(behind) == []
    assert imbalanced(behind) == []
    assert q.stats()["queued"] == 0


@pytest.mark.parametrize("jobs", [7, "", ["x"] * 1 + [7], [str(at) for at in range(1_001)]])
def test_a_purge_that_makes_no_sense_is_refused(q: Any, jobs: Any) -> None:
    q.enqueue(1)
    with pytest.raises((Rejected, NotFound)):
        q.purge(jobs)
    assert q.stats()["queued"] == 1


# ── Anywhere it may die ──────────────────────────────────────────────────────
class Dead(BaseException):
    """The process ended here."""


class Mortal(WrappedStore):
    """A store whose client dies before, or right after, its n-th request."""

    def __init__(self, inner: Any, last: int, after: bool) -> None:
        super().__init__(inner)
        self.last = last
        self.after = after

    def perform(self, request: StoreRequest) -> StoreReply:
        self.last -= 1
        if self.last == 0 and self.after:
            self.inner.perform(request)
        if self.last <= 0:
            raise Dead
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize(
    "place", [waiting, in_a_segment, failed_and_archived, redriven_and_completed], ids=lambda e: e.__name__
)
def test_a_purge_that_died_anywhere_is_completed_by_the_next(
    place: Callable[[Any, bool], str], by_id: bool, after: bool
) -> None:
    if by_id and place is in_a_segment:
        pytest.skip("jobs of a bulk this large have no ids of their own here")
    for last in range(1, 200):
        store = MemoryStore()
        q: Queue[Any] = Queue(store, "mail")
        job_id = place(q, False)
        name = SECRET if by_id else job_id
        try:
            Queue[Any](Mortal(store, last, after), "mail").purge(name)
        except Dead:
            try:
                Queue[Any](store, "mail").purge(name)
            except NotFound:
                assert by_id  # the id was the last thing to go
            assert holders(store) == [], f"died at request {last}"
            assert imbalanced(store) == []
            assert q.status(job_id) is None
        else:
            assert last > 10
            return
    pytest.fail("a purge takes more requests than this test has patience")


@pytest.mark.parametrize("seed", range(8))
def test_a_store_that_fails_and_loses_replies_only_makes_it_longer(seed: int) -> None:
    store = MemoryStore()
    job_id = redriven_and_completed(Queue[Any](store, "mail"), True)
    faulty = FaultyStore(store, error_rate=0.1, lost_reply_rate=0.1, seed=seed)
    for _ in range(200):
        try:
            report = Queue[Any](faulty, "mail").purge(job_id)
            break
        except (Unavailable, Throttled, Timeout):
            continue
    else:
        pytest.fail("it never came to an end")
    assert report.left == ()
    assert holders(store) == []
    assert imbalanced(store) == []
