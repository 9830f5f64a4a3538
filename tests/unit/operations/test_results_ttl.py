"""Changing how long a result lives, where the job is not in the head: the evidence has to be the youngest there is."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from osqueue import Queue
from osqueue.core.context import ReductionContext
from osqueue.core.job_ops import CompleteJobs, Completion, EnqueueJobs, JobSpec, SetResultTtl
from osqueue.core.ops import Code, Request
from osqueue.core.queue_ops import RunTimers
from osqueue.core.reduce import reduce
from osqueue.core.state import State, TableRef
from osqueue.objects.lookup import JobLocation, seek
from osqueue.stores.memory import MemoryStore

HOUR_MS = 3_600_000


def location(q: Queue[Any], key: bytes) -> tuple[State, JobLocation]:
    state, found = q._run(seek("mail", 0, key))
    assert state is not None
    assert found is not None
    return state, found


def apply(state: State, op: Any, now_ms: int) -> tuple[State, Code]:
    request = Request("w" * 16, 1, 0, state.seq, state.epoch, (op,))
    done = reduce(state, [request], ReductionContext(now_ms, bytes(16), 7))
    return done.state, done.outcomes[request.identity][0].code


def test_an_older_row_is_refused_once_a_younger_one_has_come_and_gone(machine: Any) -> None:
    q = Queue[Any](MemoryStore(machine), "mail", machine=machine)
    q.enqueue(1, result_ttl=60)
    (lease,) = q.claim()
    lease.complete(5)
    q.reap()
    state, found = location(q, lease.key)
    amend = SetResultTtl(lease.key, HOUR_MS, found.row, found.table, seen=state.seq)
    assert apply(state, amend, state.now_ms)[1] == Code.OK
    q.update_result_ttl(lease.job_id, 7_200)
    q._run(_submit(RunTimers(flush=True)))  # the younger row leaves the head
    later, _ = location(q, lease.key)
    assert isinstance(later.tables[-1], TableRef)
    assert later.tables[-1].updated_rows
    assert apply(later, amend, later.now_ms)[1] == Code.RETRY
    fresh = replace(amend, seen=later.seq)
    assert apply(later, fresh, later.now_ms)[1] == Code.OK


def test_a_changed_row_stays_in_the_head_for_the_commit_that_changes_it(shard: Any) -> None:
    """A table outlives a lost swap, and a restore believes it."""
    (key,) = shard.enqueue()
    (lease,) = shard.claim()
    shard.apply(CompleteJobs((Completion(key, lease.token),)))
    shard.apply(SetResultTtl(key, HOUR_MS), RunTimers(flush=True))
    assert [row.expires_ms for row in shard.state.finished] == [shard.now + HOUR_MS]
    assert shard.state.tables == ()
    shard.apply(RunTimers(flush=True))
    assert [row.expires_ms for row in shard.rows(shard.state.tables[0])] == [shard.now + HOUR_MS]


def test_a_job_cancelled_in_its_segment_leaves_no_ttl_behind(machine: Any) -> None:
    q = Queue[Any](MemoryStore(machine), "mail", machine=machine)
    jobs = q.enqueue_many([{"payload": n} for n in range(3_000)])
    key = bytes.fromhex(str(jobs[-1].job_id).replace("-", ""))
    state, found = location(q, key)
    assert found.place is not None
    at = found.place
    assert q.cancel(str(jobs[-1].job_id)) == "cancelled"
    q.reap()
    after, _ = location(q, key)
    amend = SetResultTtl(key, HOUR_MS, span=at.top.name, offset=at.offset, index=at.index, vector=at.vector)
    assert apply(state, amend, state.now_ms)[1] == Code.OK
    changed, code = apply(after, amend, after.now_ms)
    assert code == Code.RETRY
    assert changed.result_ttls == {}


def test_one_key_twice_in_one_request_is_one_job() -> None:
    new = JobSpec(b"k" * 16, b"1", client_id="a", seen=0)
    state = State(commit=bytes(16), epoch=7)
    request = Request("w" * 16, 1, 0, 0, 7, (EnqueueJobs((new, new)),))
    done = reduce(state, [request], ReductionContext(1, bytes(16), 7))
    assert done.outcomes[request.identity][0].codes == [Code.QUEUED, Code.DUPLICATE]
    assert done.state.counters.enqueued == 1


def _submit(op: Any) -> Any:
    from osqueue.commit.effects import Submit

    return (yield Submit(0, (op,)))


def test_a_dead_letter_takes_its_ttl_along_and_leaves_the_room_to_others(machine: Any) -> None:
    q = Queue[Any](MemoryStore(machine), "mail", machine=machine)
    job_id = str(q.enqueue(1, max_attempts=1).job_id)
    q.update_result_ttl(job_id, 7_200)
    (lease,) = q.claim()
    lease.fail("no")
    state, found = location(q, lease.key)
    assert state.result_ttls == {}
    assert found.job.result_ttl_ms == 7_200_000
    q.redrive()
    q.claim()[0].complete(5)
    machine.advance(7_000)
    assert q.result(job_id) == 5
