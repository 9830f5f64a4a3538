"""What the simulator has found, one small test each."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import limits
from osqueue.commit.effects import All, Effect, Sleep
from osqueue.commit.protocol import commit
from osqueue.commit.request_status import RequestStatus, status_of_request
from osqueue.commit.writer import ShardWriter
from osqueue.core.context import ReductionContext
from osqueue.core.encoding import decode_head, encode_segment
from osqueue.core.intents import intent_body, intent_key, intents_prefix, within_bytes
from osqueue.core.job_ops import AttachSpans, ClaimJobs, EnqueueJobs, JobSpec
from osqueue.core.ops import Code, Op, Request
from osqueue.core.queue_ops import RunTimers
from osqueue.core.reduce import Reduction, reduce
from osqueue.core.state import FinishedJob, JobRecord, Session, State, keysums
from osqueue.core.weights import finished_weight
from osqueue.errors import Timeout, Unavailable
from osqueue.stores.base import Failed, List, Put, PutIfMatch
from simulation.conditions import ANNOUNCING
from simulation.machine import EPOCH_MS, VirtualMachine
from simulation.profile import PROFILES
from simulation.run import simulate
from simulation.tight import limited
from simulation.truth import Truth

HOUR_MS = 3_600_000


def test_a_tick_is_remembered_and_served_by_a_commit_that_changes_its_schedule() -> None:
    assert simulate(68854032, PROFILES["schedules run"]).violation == ""


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def request(*ops: Op, env: str = "w", n: int = 1, nonce: int = 1, born: int = 0) -> Request:
    return Request(env, n, nonce, born, 7, ops)


def apply(state: State, *requests: Request, now_ms: int = EPOCH_MS) -> Reduction:
    return reduce(state, requests, ReductionContext(now_ms, bytes(15) + b"\1", 1))


def empty(**fields: Any) -> State:
    return State(commit=bytes(16), epoch=7, **fields)


def test_two_flushing_sweeps_in_one_commit_move_each_job_once() -> None:
    rows = tuple(FinishedJob(JobRecord(key(at), b"", 0), "completed", 0) for at in (1, 2))
    state = empty(finished=rows, finished_bytes=sum(map(finished_weight, rows)))
    done = apply(state, request(RunTimers(flush=True), RunTimers(flush=True)))
    assert [table.count for table in done.state.tables] == [2]
    assert done.state.counters.keysum_out == keysums(row.job for row in rows)
    assert (done.state.finished, done.state.finished_bytes) == ((), 0)


def test_a_bulk_joins_behind_jobs_that_wait_in_the_tail() -> None:
    with limited({"READY_BYTES_MAX": 100}):
        state = apply(
            empty(), request(*(EnqueueJobs((JobSpec(key(at), b"", kind="k"),)) for at in (1, 2, 3)))
        ).state
        assert [len(state.lanes[0].backlog.ready), len(state.lanes[0].backlog.tail)] == [1, 2]
        _, span = encode_segment([JobRecord(key(9), b"", 0, 5, "k")], "segments/000000000001-0-0")
        claim = request(ClaimJobs(3, "w", HOUR_MS), env="v")
        done = apply(state, request(AttachSpans(5, "k", (span,)), n=2), claim)
    granted = [lease.job.key for lease in done.outcomes[claim.identity][0].leases]
    assert granted == [key(1), key(2), key(3)]  # two of them out of a segment that this commit writes itself
    assert [each.name for each in done.state.lanes[0].backlog.spans] == [span.name]


def test_a_clones_outcome_is_not_taken_for_ones_own() -> None:
    clone = request(RunTimers(), nonce=1)
    mine = request(ClaimJobs(1, "w", HOUR_MS), nonce=2)
    done = apply(empty(), clone, mine)
    assert done.outcomes.keys() == {clone.identity}


@pytest.mark.parametrize("n", [3, 2])
def test_a_row_younger_than_the_request_proves_nothing_below_the_floor(n: int) -> None:
    mine = request(RunTimers(), n=3, nonce=1, born=10)
    row = Session(n, 2, 50, 0, b"")  # a clone's, written after the row that told of mine was dropped
    assert status_of_request(empty(seq=60, floor=20, sessions={"w": row}), mine) is RequestStatus.UNKNOWN


def test_a_row_older_than_the_request_was_never_dropped_since() -> None:
    mine = request(RunTimers(), n=3, nonce=1, born=10)
    row = Session(2, 2, 9, 0, b"")
    assert status_of_request(empty(seq=60, floor=20, sessions={"w": row}), mine) is RequestStatus.NEVER


def test_a_full_table_of_silent_writers_lets_a_new_one_in_though_nobody_commits() -> None:
    with limited({"SESSIONS_BYTES_MAX": 400}):
        state = empty()
        for at in range(50):
            one = request(EnqueueJobs((JobSpec(key(at), b""),)), env=f"env{at}", born=state.seq)
            after = apply(state, one)
            if after.crowded:
                break
            state = after.state
        assert apply(
            state, request(EnqueueJobs((JobSpec(key(99), b""),)), env="late", born=state.seq)
        ).crowded
        later = apply(
            state,
            request(EnqueueJobs((JobSpec(key(99), b""),)), env="late", born=state.seq),
            now_ms=EPOCH_MS + HOUR_MS,
        )
    assert not later.crowded
    assert later.state.floor > 0


class Clock:
    now = 0.0


def perform(truth: Truth, effect: Effect, *, lists: bool = True) -> Any:
    """What a store answers whose clock moves with every step."""
    assert isinstance(truth._world, Clock)
    truth._world.now += effect.seconds if isinstance(effect, Sleep) else 0.01
    if isinstance(effect, Sleep):
        return None
    if isinstance(effect, All):
        return tuple(perform(truth, each, lists=lists) for each in effect.requests)
    if isinstance(effect, List) and not lists:
        return Failed(Unavailable("no permission to list"))
    return truth.perform(effect)


def test_a_store_that_never_lists_ends_at_the_deadline() -> None:
    truth = Truth(Clock())
    machines = [VirtualMachine(truth._world, name, 1) for name in "ab"]
    first, second = (ShardWriter("q/", "q", machine, truth.clock_ms) for machine in machines)
    for at, writer in enumerate((first, second)):
        run(truth, writer, EnqueueJobs((JobSpec(key(at), b""),)), 5.0)
    flow = commit(second, (EnqueueJobs((JobSpec(key(8), b""),)),), machines[1].monotonic() + 5.0)
    effect = next(flow)
    while getattr(effect, "key", "") != "q/head":
        effect = flow.send(perform(truth, effect))
    run(
        truth, first, EnqueueJobs((JobSpec(key(9), b""),)), 5.0
    )  # so that the second one loses, and announces
    with limited(ANNOUNCING), pytest.raises((Timeout, Unavailable)):
        finish(truth, flow, effect, lists=False)


def run(truth: Truth, writer: ShardWriter, op: Op, seconds: float) -> Any:
    flow = commit(writer, (op,), writer.machine.monotonic() + seconds)
    reply: Any = None
    try:
        while True:
            reply = perform(truth, flow.send(reply))
    except StopIteration as stop:
        return stop.value


def finish(truth: Truth, flow: Any, effect: Effect, *, lists: bool) -> None:
    for _ in range(10_000):
        effect = flow.send(perform(truth, effect, lists=lists))


def test_a_clock_can_be_measured_while_everybody_measures_theirs() -> None:
    truth = Truth(Clock())
    writer = ShardWriter("q/", "q", VirtualMachine(truth._world, "a", 1, skew_ms=2 * HOUR_MS))
    flow = writer.measure_clock()
    written = perform(truth, next(flow))
    truth.perform(Put("q/clock", b""))  # another writer, in between
    with pytest.raises(StopIteration):
        flow.send(perform(truth, flow.send(written)))
    assert writer.measured is not None
    assert -1_100 <= writer.measured.store_ms - EPOCH_MS - truth._world.now * 1000 <= 0


def test_a_step_of_the_wall_clock_does_not_move_the_time_of_commits() -> None:
    truth = Truth(Clock())
    machine = VirtualMachine(truth._world, "a", 1)
    writer = ShardWriter("q/", "q", machine)
    flow = writer.measure_clock()
    found = perform(truth, flow.send(perform(truth, next(flow))))
    with pytest.raises(StopIteration):
        flow.send(found)
    state = State(commit=bytes(16), epoch=1)
    before = writer.now_ms(state)
    machine.skew_ms = 5 * HOUR_MS
    assert writer.now_ms(state) == before


def test_an_announced_request_over_the_budget_does_not_keep_others_from_being_combined() -> None:
    def sized(born: int, size: int) -> Request:
        return request(EnqueueJobs((JobSpec(key(born), bytes(size)),)), born=born)

    full = limits.INTENT_BYTES_PER_COMMIT_MAX
    huge, small, last = sized(1, full + 1), sized(2, 10), sized(3, 10)
    assert within_bytes([huge, small]) == [huge]
    assert within_bytes([small, last, sized(4, full)]) == [small, last]


def test_an_empty_claim_is_answered_and_nothing_is_written() -> None:
    truth = Truth(Clock())
    writer = ShardWriter("q/", "q", VirtualMachine(truth._world, "a", 1), truth.clock_ms)
    run(truth, writer, EnqueueJobs((JobSpec(key(1), b""),)), 5.0)
    run(truth, writer, ClaimJobs(1, "w", HOUR_MS), 5.0)
    before = truth.read("q/head")
    answer = run(truth, writer, ClaimJobs(1, "w", HOUR_MS), 5.0)
    assert answer.outcomes[0].code == Code.EMPTY
    assert truth.read("q/head") == before


def test_the_time_is_not_known_from_an_answer_during_which_the_wall_clock_was_set() -> None:
    truth = Truth(Clock())
    machine = VirtualMachine(truth._world, "a", 1)
    writer = ShardWriter("q/", "q", machine)
    flow = writer.measure_clock()
    written = perform(truth, next(flow))
    machine.step(HOUR_MS)
    with pytest.raises(StopIteration):
        flow.send(perform(truth, flow.send(written)))
    assert writer.clock_is_due()


def test_an_older_request_whose_object_has_to_be_read_goes_before_younger_ones() -> None:
    truth = Truth(Clock())
    large, small, combiner = (
        ShardWriter("q/", "q", VirtualMachine(truth._world, name, 1), truth.clock_ms) for name in "abc"
    )
    run(truth, combiner, EnqueueJobs((JobSpec(key(1), b""),)), 5.0)
    for at, writer in enumerate((large, small)):
        flow = writer.read_head()
        with pytest.raises(StopIteration):
            flow.send(perform(truth, next(flow)))
        assert writer.head is not None
        state = writer.head.state
        one = writer.identify((EnqueueJobs((JobSpec(key(7 + at), bytes((2_000, 0)[at])),)),), state)
        place = intents_prefix("q/") + intent_key(one, writer.name_bytes_max, state.seals)
        truth.perform(Put(place, intent_body(one)))
        run(truth, combiner, EnqueueJobs((JobSpec(key(2 + at), b""),)), 5.0)  # the next one is younger
    with limited({"INTENTS_PER_COMMIT_MAX": 1}):
        flow = commit(combiner, (RunTimers(),), combiner.machine.monotonic() + 5.0, True)
        effect: Any = next(flow)
        while not isinstance(effect, PutIfMatch):
            assert not isinstance(effect, All) or not any(
                isinstance(each, PutIfMatch) for each in effect.requests
            )
            effect = flow.send(perform(truth, effect))
    ready = decode_head(effect.body).lanes[0].backlog.ready
    assert key(7) in [job.key for job in ready]
    assert key(8) not in [job.key for job in ready]
