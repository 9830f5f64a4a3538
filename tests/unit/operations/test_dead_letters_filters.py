"""A redrive of some letters finds all of them, however many others lie in front, and says why it moves none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from osqueue import Damaged, Queue, Throttled, Timeout, limits
from osqueue.core.context import ReductionContext
from osqueue.core.erase import blank_job
from osqueue.core.job_ops import FailedAttempt, FailJobs
from osqueue.core.ops import Code, Outcome
from osqueue.core.ops import Request as Asked
from osqueue.core.queue_ops import RedriveJobs
from osqueue.core.reduce import reduce
from osqueue.core.state import Backlog, JobRecord, State
from osqueue.objects.layout import root_of
from osqueue.operations.dead_letters import REDRIVE_TRIES, RedriveProgress
from osqueue.stores.base import Delete, List, PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from simulation.tight import limited

OTHERS, WANTED = 120, 20
ROUNDS = 3  # reads of blocks for one commit
SMALL = {"DEAD_BYTES_MAX": 800, "BLOCK_BYTES_MAX": 900, "LOAD_ROUNDS_MAX": ROUNDS}
KIND_B = {"kinds": ["b"]}


@pytest.fixture
def q(machine: Any) -> Iterator[Queue[Any]]:
    """Letters of kind a fill far more blocks than one commit reads; those of kind b lie behind them."""
    with limited(SMALL):
        q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
        for kind, count in (("a", OTHERS), ("b", WANTED)):
            for start in range(0, count, 10):
                q.enqueue_many([{"payload": start + at, "kind": kind, "max_attempts": 1} for at in range(10)])
                q.fail_many(
                    [{"job_id": e.job_id, "token": e.token, "error": f"boom {kind}"} for e in q.claim(10)]
                )
        yield q


def payloads(q: Queue[Any], kind: str) -> list[int]:
    return [letter.payload for letter in q.claim(1_000, kinds=[kind])]


@pytest.mark.parametrize("which", [KIND_B, {"error": "boom b"}, "fingerprint"], ids=str)
def test_letters_behind_many_others_are_found(q: Queue[Any], which: Any) -> None:
    if which == "fingerprint":
        (fingerprint,) = (group.fingerprint for group in q.dead_letter_groups() if "b" in group.kinds)
        which = {"fingerprint": fingerprint}
    assert q.redrive(dry_run=True, **which) == WANTED
    assert q.redrive(**which) == WANTED
    assert q.redrive(dry_run=True, **which) == 0
    stats = q.stats()
    assert (stats["queued"], stats["failed"]) == (WANTED, OTHERS)


@pytest.mark.parametrize("how", [{}, {"rate": 1_000}], ids=["at once", "paced"])
def test_those_that_were_found_and_those_that_were_left_are_in_order(q: Queue[Any], how: Any) -> None:
    assert q.redrive(**KIND_B, **how) == WANTED
    assert payloads(q, "b") == list(range(WANTED))
    left = [letter.job_id for letter in q.dead_letters(1_000)[0]]
    assert len(left) == OTHERS
    assert left == sorted(left)


def test_a_limit_is_kept_and_the_next_redrive_goes_on(q: Queue[Any]) -> None:
    assert [q.redrive(limit=7, **KIND_B) for _ in range(4)] == [7, 7, 6, 0]
    assert payloads(q, "b") == list(range(WANTED))


def test_a_letter_that_a_purge_has_blanked_is_not_run_again(machine: Any) -> None:
    job = JobRecord(b"k" * 16, b"secret", machine.now_ms(), attempt=1)
    state = State(b"c" * 16, 7, dead=Backlog((blank_job(job),)))
    context = ReductionContext(machine.now_ms(), b"d" * 16, 5, {}, frozenset())
    reduction = reduce(state, [Asked("e", 1, 7, 0, 7, (RedriveJobs(10, 10),))], context)
    ((outcome,),) = reduction.outcomes.values()
    assert outcome.runs[0] == (Code.OK, 0)
    assert reduction.state.dead.ready == (blank_job(job),)


def test_a_redrive_that_matches_nothing_ends(q: Queue[Any]) -> None:
    before = q.stats()["commits"]
    assert q.redrive(kinds=["c"]) == 0
    assert q.stats()["failed"] == OTHERS + WANTED
    assert q.stats()["commits"] - before <= OTHERS + WANTED


class Busy(WrappedStore):
    """A store on which every commit of a redrive is followed by one that makes another letter."""

    other: Any = None

    def perform(self, request: StoreRequest) -> StoreReply:
        reply = self.inner.perform(request)
        other, self.other = self.other, None
        if other is not None and isinstance(request, PutIfMatch):
            other.enqueue(0, kind="late", max_attempts=1)
            (lease,) = other.claim(kinds=["late"])
            lease.fail("boom b")
        self.other = other
        return reply

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


def test_letters_that_come_during_a_redrive_do_not_keep_it_from_ending(q: Queue[Any]) -> None:
    store = Busy(q.store)
    mine: Queue[Any] = Queue(store, "mail", machine=q.machine)
    store.other = q
    assert WANTED <= mine.redrive(error="boom b") < WANTED + OTHERS
    assert q.stats()["failed"] >= OTHERS


def test_an_unreadable_block_is_told_and_what_lies_before_it_stays_in_front(q: Queue[Any]) -> None:
    store = q.store
    names = store.perform(List(root_of("mail", 0) + "segments/")).keys
    store.perform(Delete(names))
    with pytest.raises(Damaged, match="0 jobs were queued again"):
        q.redrive(**KIND_B)


def test_several_in_one_commit_share_what_it_reads(shard: Any) -> None:
    """The second finds what the first left unread; it says so, rather than that there is nothing."""
    with limited({"DEAD_BYTES_MAX": 800, "BLOCK_BYTES_MAX": 900}):
        keys = shard.enqueue(60)
        leases = shard.claim(60)
        shard.apply(
            FailJobs(tuple(FailedAttempt(each.job.key, each.token, "boom", final=True) for each in leases))
        )
        shard.apply(RedriveJobs(1, 1))  # now some are in the head
        ask = RedriveJobs(60, 60, error="another")
        request = shard.request(ask, ask)
        first, second = shard.commit([request], load=False).outcomes[request.identity]
        (_, looked), (_, none) = first.runs[1], second.runs[1]
        assert (first.runs[1][0], second.runs[1][0]) == (Code.RETRY, Code.RETRY)
        assert (0 < looked < len(keys), none) == (True, 0)
        shard.check()
        assert shard.apply(RedriveJobs(60, 60))[0].count == 59
        assert shard.drain(60) == [keys[0], *keys[1 + looked :], *keys[1 : 1 + looked]]


# ── Kinds ────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("how", [{}, {"limit": 2}, {"kinds": ["rare"]}, {"rate": 100}], ids=str)
def test_letters_of_a_kind_without_a_lane_join_the_mixed_one(machine: Any, how: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
    for at in range(5):
        q.enqueue(at, kind="rare", max_attempts=1)
        (lease,) = q.claim()
        lease.fail("x")
    for at in range(limits.LANES_MAX):
        q.enqueue(at, kind=f"k{at}")
    assert q.redrive(dry_run=True) == 5
    count = how.get("limit", 5)
    assert q.redrive(**how) == count
    assert q.stats()["failed"] == 5 - count
    assert [lease.payload for lease in q.claim(9, kinds=["rare"])] == list(range(count))


def test_the_reducer_tells_how_many_it_looked_at(shard: Any) -> None:
    shard.enqueue(kind="rare")
    (lease,) = shard.claim()
    shard.apply(FailJobs((FailedAttempt(lease.job.key, lease.token, "x", final=True),)))
    assert shard.apply(RedriveJobs(10, 10, error="y"))[0].runs == ((Code.OK, 0), (Code.EMPTY, 1))
    assert shard.apply(RedriveJobs(10, 10))[0].runs == ((Code.OK, 1), (Code.EMPTY, 1))


@pytest.mark.parametrize(("moved", "error"), [(0, Throttled), (7, Timeout)])
def test_a_redrive_in_which_others_get_in_the_way_says_what_it_has_moved(
    moved: int, error: type[Exception]
) -> None:
    """Throttled means that nothing was applied."""
    redriven = RedriveProgress()
    redriven.add(Outcome(((Code.OK, moved), (Code.OK, 9))))
    nothing = Outcome(((Code.OK, 0), (Code.OK, 0)))
    for _ in range(REDRIVE_TRIES - 1):
        redriven.add(nothing)
    with pytest.raises(error, match=f"^{moved} jobs were queued again; others"):
        redriven.add(nothing)
