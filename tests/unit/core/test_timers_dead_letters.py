"""Dead letters are let go of when they are over their TTL, however many there are."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue, Unavailable, limits
from osqueue.core.job_ops import FailedAttempt, FailJobs
from osqueue.core.ops import Code
from osqueue.core.queue_ops import RunTimers
from osqueue.core.state import waiting
from osqueue.maintenance import reaper
from osqueue.stores.base import Delete, Get, List
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited
from tests.support.scene import HEAD, ROOT

TTL_SECONDS = limits.DEAD_TTL_MS_DEFAULT / 1000
TRACE = "t" * 1_500


def bury(q: Queue[Any], count: int) -> None:
    """Dead letters, as a worker leaves them: with an error, and the end of a traceback."""
    error = {"type": "ConnectionError", "message": "refused: " + "e" * 200, "traceback": TRACE}
    for start in range(0, count, 100):
        q.enqueue_many([{"payload": start + at, "max_attempts": 1} for at in range(100)])
        left = 100
        while left:
            leases = q.claim(limit=left)
            q.fail_many([{"job_id": each.job_id, "token": each.token, "error": error} for each in leases])
            left -= len(leases)


@pytest.fixture
def q(machine: Any) -> Queue[Any]:
    return Queue(MemoryStore(machine), "mail", machine=machine)


def test_thousands_of_letters_go_in_a_few_reaps(q: Queue[Any], machine: Any) -> None:
    bury(q, 3_000)
    machine.advance(TTL_SECONDS + 1)
    reaps = 0
    while q.stats()["failed"]:
        q.reap()
        reaps += 1
        assert reaps <= 5
    assert q.stats()["counters"]["failed"] == 3_000


def test_one_pass_takes_no_more_than_its_share_of_commits(
    q: Queue[Any], machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "SWEEPS_MAX", 3)
    bury(q, 1_000)
    machine.advance(TTL_SECONDS + 1)
    q.reap()
    assert 0 < q.stats()["failed"] < 1_000
    while q.stats()["failed"]:
        before = q.stats()["failed"]
        q.reap()
        assert q.stats()["failed"] < before


def test_a_pass_with_none_to_let_go_of_sweeps_once(q: Queue[Any], machine: Any) -> None:
    bury(q, 100)
    q.reap()
    before = q.stats()["commits"]
    q.reap()
    assert q.stats()["commits"] == before


def test_letters_that_are_not_over_their_time_stay(q: Queue[Any], machine: Any) -> None:
    bury(q, 200)
    machine.advance(TTL_SECONDS / 2)
    bury(q, 100)
    machine.advance(TTL_SECONDS / 2 + 1)
    for _ in range(3):
        q.reap()
    assert q.stats()["failed"] == 100


def test_each_sweep_lets_some_go_and_says_when_there_are_more(shard: Any) -> None:
    with limited({"DEAD_BYTES_MAX": 800, "FINISHED_BYTES_MAX": 2_000, "BLOCK_BYTES_MAX": 500}):
        shard.enqueue(60)
        leases = shard.claim(60)
        items = [FailedAttempt(each.job.key, each.token, "boom", final=True, trace=TRACE) for each in leases]
        shard.apply(FailJobs(tuple(items)))
        shard.now += limits.DEAD_TTL_MS_DEFAULT
        more = Code.RETRY
        sweeps = 0
        while more == Code.RETRY:
            before = waiting(shard.state.dead)
            more = shard.apply(RunTimers(flush=True))[0].code
            sweeps += 1
            assert more == Code.OK or waiting(shard.state.dead) < before
            assert sweeps < 20
        assert set(shard.places().values()) == {"gone"}
        assert not waiting(shard.state.dead)


def test_letters_that_cannot_be_read_do_not_keep_a_pass_busy(q: Queue[Any], machine: Any) -> None:
    bury(q, 1_000)
    q.store.perform(Delete(q.store.perform(List(ROOT + "segments/")).keys))
    machine.advance(TTL_SECONDS + 1)
    with pytest.raises(Unavailable, match="is not there"):
        q.reap()
    commits = q.stats()["commits"]
    with pytest.raises(Unavailable, match="is not there"):
        q.reap()
    assert q.stats()["commits"] - commits <= 2


def test_what_is_let_go_of_takes_its_traceback_with_it(q: Queue[Any], machine: Any) -> None:
    bury(q, 100)
    machine.advance(TTL_SECONDS + 1)
    q.reap()
    names = q.store.perform(List(ROOT + "finished/")).keys
    assert names
    assert not any(TRACE.encode() in q.store.perform(Get(key)).body for key in (HEAD, *names))
