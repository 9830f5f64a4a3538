"""A worker's turn over every store and API, blocking and async: endings and the next claim in one commit."""

from __future__ import annotations

from typing import Any

from osqueue import Queue
from osqueue.core.job_ops import ClaimJobs
from osqueue.operations.endings import aborted, failed, released, throttled

SIZE = 5


def commits(behind: Any) -> int:
    return int(Queue[Any](behind, "mail").stats()["commits"])


def turn(q: Any, endings: Any, claims: Any) -> Any:
    return q._run(q._flows.turn(endings, claims))


def held(lease: Any) -> tuple[bytes, str]:
    return lease.key, lease.token


def test_endings_of_every_kind_and_a_claim_are_one_commit(q: Any, behind: Any) -> None:
    for at in range(6):
        q.enqueue(at)
    one, two, three, four = (held(each) for each in q.claim(4, worker="ada"))
    result = q._flows.completion(*one, q._flows.encode_result({"n": 1}))
    endings = [result, failed(*two, "no", 60, True, 0.5), released(*three, 60), aborted(*four, "asked")]
    before = commits(behind)
    done, (claimed,) = turn(q, endings, [ClaimJobs(9, "ada", 60_000)])
    assert commits(behind) == before + 1
    assert [(each.ok, each.code) for each in done] == [
        (True, "ok"),
        (True, "failing"),
        (True, "ok"),
        (True, "cancelled"),
    ]
    assert [granted.payload for granted in claimed.leases] == [b"4", b"5"]
    assert {granted.lease.worker for granted in claimed.leases} == {"ada"}
    assert q.result(done[0].job_id) == {"n": 1}


def test_a_claim_finds_the_place_that_an_ending_beside_it_has_freed(q: Any) -> None:
    q.configure(max_running=1)
    q.enqueue_many([{"payload": at} for at in range(3)])
    (lease,) = q.claim(3)
    _, (claimed, none) = turn(q, [released(*held(lease), 60)], [ClaimJobs(3, "ada", 60_000)] * 2)
    assert [granted.payload for granted in claimed.leases] == [b"1"]
    assert (none.leases, none.reason) == ((), "running_limit")


def test_a_pause_that_an_ending_asks_for_holds_for_the_claim_beside_it(q: Any) -> None:
    q.enqueue_many([{"payload": at, "kind": "mail"} for at in range(3)])
    (lease,) = q.claim()
    _, (claimed,) = turn(q, [throttled(*held(lease), 60, "queue", "429")], [ClaimJobs(3, "ada", 60_000)])
    assert (claimed.leases, claimed.reason, claimed.scope) == ((), "paused", "queue")


def test_late_endings_are_told_so_in_their_places(q: Any) -> None:
    q.enqueue_many([{"payload": at} for at in range(2)])
    late, good = q.claim(2)
    late.release(delay=60)
    done, found = turn(q, [aborted(*held(late)), aborted(*held(good))], [])
    assert [(each.ok, each.code) for each in done] == [(False, "lease_lost"), (True, "cancelled")]
    assert found == []


def test_a_worker_says_and_claims_a_batch_in_one_commit(opened: Any, behind: Any) -> None:
    q = opened()
    q.handlers.add(lambda jobs: [each.payload for each in jobs], None, batch=SIZE)
    q.enqueue_many([{"payload": at} for at in range(3 * SIZE)])
    before = commits(behind)
    tally = q.run(concurrency=1, until_empty=True, poll=0.01, signals=False)
    assert (tally.claimed, tally.completed) == (3 * SIZE, 3 * SIZE)
    assert commits(behind) == before + 1 + 3
