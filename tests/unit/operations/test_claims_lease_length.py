"""No lease ends before its length is over, however late, coarse or slow the clocks are by which it is judged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osqueue import limits
from osqueue.commit.protocol import commit
from osqueue.commit.request_status import CommitResult
from osqueue.commit.writer import ShardWriter
from osqueue.core.job_ops import ClaimJobs, EnqueueJobs, ExtendLeases, JobSpec, LeaseBeat
from osqueue.core.ops import Code, Op
from osqueue.core.queue_ops import RunTimers
from osqueue.stores.base import Get, Put
from simulation.machine import EPOCH_MS, VirtualMachine
from simulation.truth import Truth

KEY = bytes(15) + b"\1"


class Clock:
    """True time, seconds."""

    def __init__(self) -> None:
        self.now = 0.0


class Slow:
    """A store whose requests take their time before and after their effect: half and half."""

    def __init__(self, clock: Clock, **seconds: float) -> None:
        self.clock = clock
        self.truth = Truth(clock)
        self.seconds = seconds

    def perform(self, effect: Any) -> Any:
        kind = type(effect).__name__
        if kind == "Sleep":
            self.clock.now += effect.seconds
            return None
        if kind == "All":
            return tuple(map(self.perform, effect.requests))
        about_the_clock = isinstance(effect, Get | Put) and effect.key == "q/clock"
        half = self.seconds.get(kind, 0.01) / 2 if about_the_clock else 0.005
        self.clock.now += half
        reply = self.truth.perform(effect)
        self.clock.now += half
        return reply

    def run(self, writer: ShardWriter, *ops: Op) -> CommitResult:
        flow = commit(writer, ops, writer.machine.monotonic() + 600)
        reply = None
        while True:
            try:
                reply = self.perform(flow.send(reply))
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]

    def is_held(self, writer: ShardWriter, token: str) -> bool:
        self.run(writer, RunTimers())  # whatever has ended by its clock ends
        assert writer.head is not None
        lease = writer.head.state.leases.get(KEY)
        return lease is not None and lease.token == token


def writers(store: Slow, drift: float = 0.0) -> tuple[ShardWriter, ShardWriter]:
    """One that grants, and one that judges; the latter's clock may run fast."""
    machines = (
        VirtualMachine(store.clock, "grants", 1, -3_600_000, -drift),
        VirtualMachine(store.clock, "judges", 1, 3_600_000, drift),
    )
    first, second = (ShardWriter("q/", "q", machine) for machine in machines)
    return first, second


def held_until(store: Slow, lease_ms: int, phase: float, drift: float = 0.0, beats: bool = False) -> None:
    """The lease is held shortly before its length is over, whoever looks."""
    clock = store.clock
    first, second = writers(store, drift)
    store.run(first, EnqueueJobs((JobSpec(KEY, b""),)))
    clock.now += phase
    asked = clock.now
    token = store.run(first, ClaimJobs(1, "w", lease_ms)).outcomes[0].leases[0].token
    if beats:
        asked = clock.now
        assert store.run(first, ExtendLeases((LeaseBeat(KEY, token),))).outcomes[0].code == Code.OK
    store.seconds = {}
    store.run(second, RunTimers())
    clock.now = max(clock.now, asked + lease_ms / 1000 - 0.011)
    if clock.now - asked < lease_ms / 1000:
        assert store.is_held(second, token)


@pytest.mark.parametrize("beats", [False, True])
def test_a_slow_answer_about_the_clock_takes_nothing_from_a_lease(beats: bool) -> None:
    held_until(Slow(Clock(), Get=15.0), 10_000, 0.0, beats=beats)
    held_until(Slow(Clock(), Put=15.0), 20_000, 0.0, beats=beats)


@given(
    phase=st.floats(0, 2),
    put=st.floats(0.001, 3),
    get=st.floats(0.001, 30),
    drift=st.sampled_from([0.0, 0.0002, 0.0004]),
    lease_ms=st.sampled_from([1_000, 2_500, 10_000, limits.CLOCK_AGE_MS_MAX]),
)
def test_a_lease_lasts_whatever_the_clocks_say(
    phase: float, put: float, get: float, drift: float, lease_ms: int
) -> None:
    held_until(Slow(Clock(), Put=put, Get=get), lease_ms, phase, drift)


def test_a_lease_ends_soon_after_its_length_is_over() -> None:
    store = Slow(Clock())
    first, second = writers(store)
    store.run(first, EnqueueJobs((JobSpec(KEY, b""),)))
    token = store.run(first, ClaimJobs(1, "w", 10_000)).outcomes[0].leases[0].token
    store.clock.now += 12.1  # two seconds more: each clock is known to one of them
    assert not store.is_held(second, token)


def test_a_delayed_job_waits_for_the_whole_of_its_delay() -> None:
    store = Slow(Clock(), Get=15.0)
    first, second = writers(store)
    asked = store.clock.now
    store.run(first, EnqueueJobs((JobSpec(KEY, b"", delay_ms=10_000),)))
    store.seconds = {}
    while not store.run(second, ClaimJobs(1, "w", 10_000)).outcomes[0].leases:
        store.clock.now += 0.05
    assert store.clock.now - asked >= 10.0


def test_the_clock_another_writer_has_just_written_is_bounded_by_the_answer() -> None:
    store = Slow(Clock())
    writer = ShardWriter("q/", "q", VirtualMachine(store.clock, "w", 1))
    flow = writer.measure_clock()
    written = store.perform(next(flow))
    store.clock.now += 20
    store.truth.perform(Put("q/clock", b"another's"))
    store.clock.now += 20
    with pytest.raises(StopIteration):
        flow.send(store.perform(flow.send(written)))
    true_ms = EPOCH_MS + store.clock.now * 1000
    state = store.run(writer, RunTimers()) and writer.head and writer.head.state
    assert state
    now_ms = writer.now_ms(state)
    assert now_ms <= true_ms + 20 <= writer.latest_ms(now_ms) + 20
