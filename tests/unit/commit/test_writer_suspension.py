"""A machine that was suspended: a clock may have stood still, and what was known is older than it seems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from osqueue import limits
from osqueue.commit.driver import BlockingDriver
from osqueue.commit.protocol import commit
from osqueue.commit.request_status import CommitResult
from osqueue.commit.writer import ShardWriter
from osqueue.core.job_ops import EnqueueJobs, JobSpec
from osqueue.core.ops import Code, Op
from osqueue.core.queue_ops import ChangeSettings
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited


def run(store: MemoryStore, writer: ShardWriter, *ops: Op) -> CommitResult:
    return BlockingDriver(store, writer.machine).run(commit(writer, ops, writer.machine.monotonic() + 25))


def seq_and_floor(writer: ShardWriter) -> tuple[int, int]:
    assert writer.head is not None
    return writer.head.state.seq, writer.head.state.floor


def test_a_job_enqueued_after_a_suspension_is_accepted_and_not_unknown(
    new_machine: Callable[..., Any],
) -> None:
    awake, asleep = new_machine(1), new_machine(2)
    store = MemoryStore(awake)
    mine, other = (
        ShardWriter("q/", "q", asleep, store.clock_ms),
        ShardWriter("q/", "q", awake, store.clock_ms),
    )
    run(store, mine, ChangeSettings(backoff_base_ms=7))
    known = seq_and_floor(mine)[0]
    crowd = tuple(JobSpec(bytes([at % 256, at // 256]) + bytes(14), b"") for at in range(500))
    with limited({"SESSIONS_BYTES_MAX": 8 * limits.KB}):  # an eighth of what a head keeps
        while seq_and_floor(other)[1] <= known if other.head else True:  # others come and go, are forgotten
            awake.advance(limits.SESSION_IDLE_MS_MIN / 1000)
            for _ in range(40):
                other.redraw()
                run(store, other, EnqueueJobs(crowd))
    asleep.time_ms = awake.time_ms  # and its monotonic clock has stood still
    job = JobSpec(bytes(15) + b"\1", b"1")
    assert run(store, mine, EnqueueJobs((job,))).outcomes[0].code == Code.QUEUED
