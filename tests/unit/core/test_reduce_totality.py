"""Whatever is asked in whatever order: the reducer never raises, loses nothing, and answers the same each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from osqueue.core.context import ReductionContext
from osqueue.core.encoding import decode_head, encode_head
from osqueue.core.intents import intent_body, intent_key, parse_intent_key, read_intent, request_in_key
from osqueue.core.job_ops import (
    AbortJobs,
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
from osqueue.core.ops import Op, decode_outcomes, encode_outcomes
from osqueue.core.queue_ops import ChangeSettings, LengthenPauses, RaiseGcFloor, RedriveJobs, RunTimers
from osqueue.core.reduce import reduce
from osqueue.core.rows import BodyRef
from osqueue.core.state import State
from simulation.invariants import MOVES
from simulation.tight import limited

SEAL = b"sixteen bytes ..."
TIGHT = {
    "READY_BYTES_MAX": 500,
    "TAIL_BYTES_MAX": 400,
    "DELAYED_BYTES_MAX": 400,
    "DEAD_BYTES_MAX": 500,
    "LEASES_BYTES_MAX": 3_000,
    "FINISHED_BYTES_MAX": 800,
    "INLINE_LEASED_BYTES_MAX": 500,
    "BLOCK_BYTES_MAX": 200,
    "FANOUT": 3,
    "LANES_MAX": 4,
    "DELAYED_SPANS_SOFT": 4,
}
PLENTY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
small = st.integers(0, 40)
which = st.integers(0, 10**6)

STEPS = st.one_of(
    st.tuples(st.just("enqueue"), st.integers(1, 12), st.integers(0, 3), small),
    st.tuples(st.just("delay"), st.integers(1, 12), st.integers(0, 3), small),
    st.tuples(st.just("claim"), st.integers(1, 20), st.integers(0, 4), small),
    st.tuples(
        st.sampled_from(["complete", "fail", "final", "release", "later", "abort", "beat", "cancel", "lie"]),
        st.integers(1, 5),
        which,
        small,
    ),
    st.tuples(
        st.sampled_from(["sweep", "flush", "redrive", "pause", "resume", "wait", "floor"]),
        small,
        which,
        small,
    ),
)


def operation(shard: Any, known: list[bytes], step: tuple[str, int, int, int]) -> Op | None:
    """One operation of a random walk; None lets time pass."""
    what, many, who, amount = step
    held = list(shard.state.leases.values())
    some = [held[(who + at) % len(held)] for at in range(min(many, len(held)))] if held else []
    holds = tuple(LeaseRef(lease.job.key, lease.token) for lease in some)
    anybody = known[who % len(known)] if known else bytes(16)
    match what:
        case "enqueue" | "delay":
            delay = amount * 1_000 if what == "delay" else 0
            news = tuple(
                JobSpec(
                    shard.key(),
                    bytes(amount * 9),
                    kind="abc"[who % 3],
                    priority=who,
                    delay_ms=delay,
                    max_attempts=2,
                )
                for _ in range(many)
            )
            known.extend(new.key for new in news)
            return EnqueueJobs(news)
        case "claim":
            kinds = None if who > 3 else ("abc"[who % 3],)
            return ClaimJobs(many, "ada", 1_000 + amount * 1_000, kinds)
        case "complete":
            return CompleteJobs(tuple(Completion(h.key, h.token, bytes(amount * 20)) for h in holds))
        case "fail" | "final":
            items = tuple(
                FailedAttempt(h.key, h.token, "e" * amount, amount * 500, final=what == "final")
                for h in holds
            )
            return FailJobs(items)
        case "release" | "later":
            return ReleaseJobs(holds, amount * 500 if what == "later" else 0)
        case "abort":
            return AbortJobs(holds, "why")
        case "beat":
            return ExtendLeases(
                tuple(LeaseBeat(h.key, h.token, amount, "n" * amount) for h in holds), amount * 1_000
            )
        case "cancel":
            return CancelJob(anybody)
        case "lie":
            return CompleteJobs((Completion(anybody, "0-0"), Completion(b"?" * 16, "")))
        case "sweep" | "flush":
            return RunTimers(flush=what == "flush")
        case "redrive":
            return RedriveJobs(
                1 + amount, 1 + who % 50, None if amount % 2 else ("a",), "e" if amount % 3 else ""
            )
        case "pause" | "resume":
            return ChangeSettings(paused=what == "pause")
        case "floor":
            return RaiseGcFloor(amount)
    shard.now += amount * 700
    return None


@PLENTY
@given(steps=st.lists(STEPS, min_size=5, max_size=60), seed=st.integers(0, 1_000))
def test_no_sequence_of_operations_raises_or_loses_a_job(
    new_shard: Callable[..., Any], steps: list[Any], seed: int
) -> None:
    with limited(TIGHT):
        shard = new_shard(seed=seed)  # checks sums and places after every commit, and the wire round trip
        known: list[bytes] = []
        at: dict[bytes, str] = {}
        for step in steps:
            op = operation(shard, known, step)
            if op is None:
                continue
            shard.apply(op, env="wxyz"[step[2] % 4])
            if not shard.last.changed:
                assert shard.last.events == ()
                continue
            for event in shard.last.events:
                assert (event.origin, event.target, event.cause) in MOVES
                assert at.get(event.key, "") == event.origin
                at[event.key] = "gone" if event.cause == "expired" else event.target
            for key, place in shard.places().items():
                assert at[key] == place  # the events tell of every transition


@PLENTY
@given(steps=st.lists(STEPS, min_size=1, max_size=25), seed=st.integers(0, 1_000))
def test_the_same_arguments_give_the_same_answer(
    new_shard: Callable[..., Any], steps: list[Any], seed: int
) -> None:
    with limited(TIGHT):
        shard = new_shard(seed=seed)
        known: list[bytes] = []
        for step in steps:
            op = operation(shard, known, step)
            if op is not None:
                shard.apply(op)
        requests = [shard.request(ClaimJobs(5, "b", 5_000), env="b"), shard.request(RunTimers(True), env="a")]
        context = ReductionContext(shard.now + 999, b"c" * 16, 9)
        before = encode_head(shard.state)
        first = reduce(shard.state, requests, context)
        assert reduce(shard.state, requests[::-1], context) == first  # nor does their order matter
        assert reduce(decode_head(before), requests, context) == first
        assert encode_head(shard.state) == before  # the state that was read is untouched


keys = st.binary(min_size=16, max_size=16)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-5, 2**40)
contents = st.one_of(
    st.binary(max_size=50), st.builds(BodyRef, st.just("bodies/00ff-aa-1"), small, small, small)
)
news = st.builds(
    JobSpec, keys, contents, texts, texts, st.integers(-3, 12), numbers, numbers, numbers, numbers
)
helds = st.tuples(st.builds(LeaseRef, keys, texts))
beats = st.tuples(st.builds(LeaseBeat, keys, texts, numbers, st.none() | texts))
OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(EnqueueJobs, st.tuples(news, news)),
    st.builds(ClaimJobs, st.integers(-5, 999), texts, numbers, st.one_of(st.none(), st.tuples(texts))),
    st.builds(ExtendLeases, beats, numbers),
    st.builds(CompleteJobs, st.tuples(st.builds(Completion, keys, texts, contents))),
    st.builds(
        FailJobs,
        st.tuples(st.builds(FailedAttempt, keys, texts, texts, numbers, st.floats(0, 1), st.booleans())),
    ),
    st.builds(ReleaseJobs, helds, numbers, numbers, numbers, st.booleans(), texts),
    st.builds(LengthenPauses, st.lists(st.tuples(st.none() | texts, numbers), max_size=3).map(tuple)),
    st.builds(AbortJobs, helds, texts),
    st.builds(CancelJob, keys),
    st.builds(ChangeSettings, st.one_of(st.none(), st.booleans()), numbers, numbers, numbers),
    st.builds(RedriveJobs, numbers, st.integers(-1, 50), st.one_of(st.none(), st.tuples(texts)), texts),
    st.builds(RunTimers, st.booleans()),
    st.builds(RaiseGcFloor, numbers),
)


@PLENTY
@given(ops=st.lists(OPS, max_size=8), later=st.integers(0, 2**40))
def test_no_operation_is_too_strange_for_the_reducer(
    new_shard: Callable[..., Any], ops: list[Any], later: int
) -> None:
    shard = new_shard(checked=False)  # such requests repeat keys, which honest writers never do
    for op in ops:
        request = shard.request(op)
        name = parse_intent_key(intent_key(request, 100_000, (SEAL,)))
        assert name is not None
        assert request_in_key(name, (SEAL,)) == read_intent(name, intent_body(request)) == request
        done = shard.commit([request])
        (outcomes,) = done.outcomes.values()
        kept = decode_outcomes(encode_outcomes(outcomes))
        assert [each.runs for each in kept] == [each.runs for each in outcomes]
        shard.now += later // 100


def test_requests_are_applied_once_and_only_to_their_own_head(new_shard: Callable[..., Any]) -> None:
    shard = new_shard()
    request = shard.request(EnqueueJobs((shard.new(),)))
    assert shard.commit([request]).outcomes
    assert not shard.commit([request]).outcomes
    assert not shard.commit([request, request]).outcomes
    foreign = State(commit=bytes(16), epoch=8)
    assert not reduce(foreign, [request], ReductionContext(1, b"c" * 16, 1)).outcomes


def test_one_request_given_twice_at_once_counts_once(new_shard: Callable[..., Any]) -> None:
    shard = new_shard()
    request = shard.request(EnqueueJobs((shard.new(),)))
    shard.commit([request, request])
    assert shard.state.counters.enqueued == 1
