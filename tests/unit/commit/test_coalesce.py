"""Operations of one flight that are alike: made one, they do what they would have done one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from osqueue import limits
from osqueue.commit.coalesce import coalesced, runs_of, split_outcomes
from osqueue.core.job_ops import (
    CancelJob,
    ClaimJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    ExtendLeases,
    FailedAttempt,
    FailJobs,
    JobSpec,
    LeaseBeat,
    LeaseRef,
    ReleaseJobs,
)
from osqueue.core.ops import Code, Op, Outcome
from osqueue.core.queue_ops import ChangeSettings, RunTimers
from osqueue.core.state import JobRecord, LeaseRecord, State
from simulation.tight import limited

KEYS = [at.to_bytes(16, "big") for at in range(1, 40)]
PLENTY = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))

which = st.integers(0, 11)
STEPS = st.tuples(
    st.sampled_from(["enqueue", "claim", "claim", "complete", "fail", "beat", "release", "cancel", "pause"]),
    st.lists(which, min_size=1, max_size=3),
    which,
)


def operation(state: State, step: tuple[str, list[int], int]) -> Op:
    """What a caller may ask for who has seen this state."""
    what, some, one = step
    held = [LeaseRef(lease.job.key, lease.token) for lease in state.leases.values()] or [
        LeaseRef(KEYS[0], "none")
    ]
    mine = [held[at % len(held)] for at in some]
    match what:
        case "enqueue":
            return EnqueueJobs(
                tuple(JobSpec(KEYS[at], b"1", kind="ab"[at % 2], delay_ms=at % 3 // 2) for at in some)
            )
        case "claim":
            return ClaimJobs(len(some), "ada" if one else "bob", 5_000, ("a",) if one == 1 else None)
        case "complete":
            return CompleteJobs(tuple(Completion(each.key, each.token) for each in mine))
        case "fail":
            return FailJobs(
                tuple(FailedAttempt(each.key, each.token, "no", 1_000, final=one == 1) for each in mine)
            )
        case "beat":
            return ExtendLeases(tuple(LeaseBeat(each.key, each.token) for each in mine), 5_000 if one else 0)
        case "release":
            return ReleaseJobs(tuple(mine))
        case "cancel":
            return CancelJob(KEYS[one])
        case _:
            return ChangeSettings(paused=not one % 3)


def together(shard: Any, ops: Sequence[Op]) -> list[Outcome]:
    runs = runs_of(ops)
    answers = shard.apply(*map(coalesced, runs))
    return [share for run, answer in zip(runs, answers, strict=True) for share in split_outcomes(run, answer)]


def content(state: State) -> State:
    """All but what is remembered of the request itself."""
    return State(
        **{name: getattr(state, name) for name in state.__struct_fields__ if not name.startswith("sessions")}
    )


@PLENTY
@given(flights=st.lists(st.lists(STEPS, min_size=1, max_size=10), min_size=1, max_size=8))
def test_everybody_gets_what_they_would_have_got_alone(
    new_shard: Callable[..., Any], flights: list[Any]
) -> None:
    with limited({"LEASES_BYTES_MAX": 1_200}):  # so that some claims get less than they ask for
        apart, one = new_shard(checked=False), new_shard(checked=False)
        for steps in flights:
            ops = [operation(apart.state, step) for step in steps]
            expected = apart.apply(*ops)
            for op, mine, other in zip(ops, together(one, ops), expected, strict=True):
                assert mine.leases == other.leases
                if (
                    isinstance(op, ClaimJobs) and mine.leases
                ):  # why there were no more is told once, to the last
                    assert mine.runs[0] == other.runs[0]
                else:
                    assert mine.runs == other.runs
            assert content(one.state) == content(apart.state)


def test_neighbours_that_are_alike_become_one_and_others_stay_themselves() -> None:
    ops = [
        EnqueueJobs((JobSpec(KEYS[0], b"1"),)),
        EnqueueJobs((JobSpec(KEYS[1], b"2"),)),
        ClaimJobs(1, "ada", 5_000),
        ClaimJobs(2, "ada", 5_000),
        ClaimJobs(1, "bob", 5_000),
        RunTimers(),
        RunTimers(),
        EnqueueJobs((JobSpec(KEYS[2], b"3"),)),
    ]
    assert [coalesced(run) for run in runs_of(ops)] == [
        EnqueueJobs((JobSpec(KEYS[0], b"1"), JobSpec(KEYS[1], b"2"))),
        ClaimJobs(3, "ada", 5_000),
        ClaimJobs(1, "bob", 5_000),
        RunTimers(),
        RunTimers(),
        EnqueueJobs((JobSpec(KEYS[2], b"3"),)),
    ]


@pytest.mark.parametrize("reason", [Code.EMPTY, Code.IN_FLIGHT_LIMIT, Code.UNREADABLE])
def test_whoever_gets_no_job_hears_why(reason: Code) -> None:
    leases = tuple(LeaseRecord(JobRecord(key, b"1", 1), "t", "ada", 1, 1, 2, 1) for key in KEYS[:3])
    run = [ClaimJobs(2, "ada", 1), ClaimJobs(2, "ada", 1), ClaimJobs(2, "ada", 1)]
    got = split_outcomes(run, Outcome(((Code.GRANTED, 3), (reason, 0)), leases))
    assert [each.leases for each in got] == [leases[:2], leases[2:], ()]
    assert got[2].code is reason


def test_a_claim_of_all_that_a_flight_may_carry_stays_within_the_head(shard: Any) -> None:
    shard.enqueue(50)
    run = [ClaimJobs(limits.CLAIM_LIMIT_MAX, "ada", 5_000)] * 4
    (answer,) = shard.apply(coalesced(run))
    assert [len(each.leases) for each in split_outcomes(run, answer)] == [50, 0, 0, 0]
