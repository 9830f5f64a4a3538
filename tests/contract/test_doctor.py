"""Damage and repair over every store: the promises are probed, a lost head comes back, every job is accounted for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import LeaseLost, Queue, Unknown
from osqueue.clock import Moment
from osqueue.commit.driver import BlockingDriver
from osqueue.core.encoding import decode_head
from osqueue.maintenance import doctor as checks
from osqueue.maintenance.head_restore import Restorer
from osqueue.maintenance.store_probes import MACHINE_APART_MS_MAX, OK, WARNING, StoreProbes, measure
from osqueue.objects.layout import root_of
from osqueue.stores.base import Delete, Get, List, Put
from simulation.tight import limited

pytestmark = pytest.mark.embedded

HEAD = root_of("mail", 0) + "head"
HOUR_MS = 3_600_000
SMALL = {"READY_BYTES_MAX": 900, "TAIL_BYTES_MAX": 700, "FINISHED_BYTES_MAX": 600}


class Ward:
    """One store, opened as often as a test likes."""

    def __init__(self, new_store: Callable[[], Any], clock: Any) -> None:
        self.new_store = new_store
        self.clock = clock
        self.store = new_store()
        self.driver = BlockingDriver(self.store, clock)
        self.opened: list[Queue[Any]] = []

    def queue(self) -> Queue[Any]:
        self.opened.append(Queue(self.new_store(), "mail", machine=self.clock))
        return self.opened[-1]

    def now_ms(self) -> int:
        there = self.store.clock_ms()
        return self.clock.now_ms() - self.driver.run(measure(self.clock)) if there is None else there

    def restore(self) -> Any:
        return self.driver.run(Restorer("mail", 0, self.clock, self.now_ms()).run())

    def levels(self) -> set[str]:
        return {each.level for each in self.driver.run(checks.examine("mail", self.now_ms(), True))}

    def head(self) -> Any:
        return decode_head(self.store.perform(Get(HEAD)).body)


@pytest.fixture
def ward(new_store: Callable[[], Any], clock: Any) -> Iterator[Ward]:
    """At half past an hour: with the next hour there would be another backup of the head."""
    clock.shift_ms += (HOUR_MS // 2 - clock.now_ms()) % HOUR_MS
    made = Ward(new_store, clock)
    yield made
    for q in made.opened:
        q.close()
    made.store.close()


def drain(q: Queue[Any]) -> list[Any]:
    found = []
    while leases := q.claim(50):
        found += [lease.payload for lease in leases]
        q.complete_many(leases)
    return found


def test_every_store_of_ours_keeps_its_promises(ward: Ward) -> None:
    began = ward.clock.monotonic()
    probe = StoreProbes(ward.clock, ward.store.clock_ms())
    found = ward.driver.run(probe.run())
    took_ms = (ward.clock.monotonic() - began) * 1000
    assert [each for each in found if each.level != OK] == []
    assert probe.apart_ms is not None
    assert -10 <= probe.apart_ms <= 1_010 + took_ms  # S3 tells whole seconds
    assert probe.clock().level == OK or probe.apart_ms > MACHINE_APART_MS_MAX  # this process stood still
    assert ward.store.perform(List("doctor/")).keys == ()


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_after_a_restore_every_job_of_the_backup_runs_once_or_is_archived(ward: Ward, how: str) -> None:
    with limited(SMALL):
        q = ward.queue()
        q.enqueue_many([{"payload": at} for at in range(80)])
        q.enqueue_many([{"payload": f"{at}" * 1_500} for at in range(3)])
        held = q.claim(10)
        q.reap()  # the backup: ten jobs are leased, all others wait
        q.complete_many(q.claim(30))
        stalled = ward.queue()
        stalled.enqueue("since the backup")
        q.reap()  # those thirty are archived
        before = {job.job_id for job in q.history()}
        assert len(before) == 30
        if how == "missing":
            ward.store.perform(Delete((HEAD,)))
        else:
            ward.store.perform(Put(HEAD, b"not a head any more"))
        restored = ward.restore()
        assert restored.loss.finished == 30
        assert restored.loss.stalled == 10
        assert ward.levels() <= {OK, WARNING}

        fresh = ward.queue()
        for lease in held:
            with pytest.raises((LeaseLost, Unknown)):
                lease.complete()
        with pytest.raises(LeaseLost):
            held[0].complete()
        epoch, enqueued = ward.head().epoch, ward.head().counters.enqueued
        writer = stalled._writers[0]
        writer.head = replace(
            writer.head, seen=Moment(ward.clock.monotonic() + 60, ward.clock.now_ms() + 60_000)
        )  # it thinks it has only just looked
        # However long ago the others committed, it takes a turn where the store offers turns.
        writer.alone_after_ms = HOUR_MS
        late = []
        with suppress(Unknown):  # where it takes turns it sees the new life before it has sent anything
            stalled.enqueue("by a writer of the old life")
            late.append("by a writer of the old life")
        assert (ward.head().epoch, ward.head().counters.enqueued) == (epoch, enqueued + len(late))
        assert ward.store.turns == bool(late)

        ran = drain(fresh)
        assert sorted(map(str, ran)) == sorted(
            [*late, *map(str, range(10)), *map(str, range(40, 80)), *(f"{at}" * 1_500 for at in range(3))]
        )
        fresh.reap()
        jobs = [job.job_id for job in fresh.history()]
        assert len(jobs) == len(set(jobs)) == 83 + len(late)
        assert before < set(jobs)


def test_a_head_that_is_ahead_is_set_back_while_others_write(ward: Ward) -> None:
    q = ward.queue()
    q.enqueue(1)
    state = ward.head()
    now = ward.now_ms()
    fixed = ward.driver.run(checks.fix_clock("mail", 0, ward.clock, lambda: now - 3_600_000))
    assert fixed is not None
    assert ward.head().now_ms == now - 3_600_000 < state.now_ms
    assert [lease.payload for lease in ward.queue().claim()] == [1]
