"""A shard full of writers that have gone is open again after a while, also to one who has not asked for the time."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import limits
from osqueue.commit.driver import BlockingDriver
from osqueue.commit.protocol import commit
from osqueue.commit.request_status import CommitResult
from osqueue.commit.writer import ShardWriter
from osqueue.core.encoding import encode_head
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.state import Session, State
from osqueue.core.weights import session_weight, session_weight_of
from osqueue.errors import Throttled
from osqueue.stores.base import Found, Get, Missing, Put, Unchanged
from osqueue.stores.memory import MemoryStore


def full(now_ms: int) -> State:
    """A head with no room for another writer's session."""
    sessions: dict[str, Session] = {}
    size = 0
    while size + session_weight_of("e" * 16, 0) <= limits.SESSIONS_BYTES_MAX:
        env, row = f"{len(sessions):016x}", Session(1, 7, len(sessions) + 1, now_ms, b"")
        size += session_weight(env, row)
        sessions[env] = row
    return State(bytes(16), 7, len(sessions) + 1, now_ms, sessions=sessions, sessions_bytes=size)


def configure(machine: Any, head: State) -> CommitResult:
    """What a writer is told that has just begun, by a store that does not tell its clock, as S3 does not."""
    store = MemoryStore(machine)
    store.perform(Put("q/head", encode_head(head)))
    writer = ShardWriter("q/", "q", machine)
    return BlockingDriver(store, machine).run(
        commit(writer, (ChangeSettings(paused=True),), machine.monotonic() + 5)
    )


def test_a_new_writer_asks_for_the_time_before_it_is_turned_away(machine: Any) -> None:
    begun = machine.now_ms()
    machine.advance(limits.SESSION_IDLE_MS_MIN / 1000 + 60)
    assert configure(machine, full(begun)).outcomes[0].code == Code.OK


def test_while_the_others_may_still_be_at_work_it_is_turned_away(machine: Any) -> None:
    with pytest.raises(Throttled, match="too many writers"):
        configure(machine, full(machine.now_ms()))


class WritesAgain(MemoryStore):
    """The writer's small object is written once more after its answer: the request has arrived twice."""

    def __init__(self, machine: Any, seconds: float) -> None:
        super().__init__(machine)
        self.machine = machine
        self.seconds = seconds

    def get(self, request: Get) -> Found | Missing | Unchanged:
        found = super().get(request)
        if isinstance(found, Found):
            self.machine.advance(self.seconds)
            self.put(Put(request.key, found.body))
            again = super().get(request)
            assert isinstance(again, Found)
            return Found(
                found.body, found.version, again.modified_ms
            )  # a version that is a hash stays the same
        return found


def test_a_write_that_arrives_twice_does_not_put_the_clock_ahead(machine: Any) -> None:
    store = WritesAgain(machine, 20.0)
    writer = ShardWriter("q/", "q", machine)
    BlockingDriver(store, machine).run(writer.measure_clock())
    now_ms = writer.now_ms(State(bytes(16), 7, 1, 0))
    assert machine.now_ms() - 1_000 <= now_ms <= machine.now_ms()
