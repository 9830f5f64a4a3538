"""The archive and the backups in a store of their own, whose clock is hours off: moments are those of heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Queue, Unavailable, limits
from osqueue.maintenance import doctor as checks
from osqueue.maintenance import two_clocks
from osqueue.objects import archive, backups
from osqueue.objects.backups import is_purge, purged_keys
from osqueue.stores.base import Found, Get, Store
from osqueue.stores.memory import MemoryStore
from osqueue.stores.split import SplitStore
from osqueue.stores.wrapped import WrappedStore
from tests.support.clinic import Clinic
from tests.support.scene import HOUR, ROOT, done, names, parts, reaping
from tests.support.stepping import LOST, writes

CLOCK = f"{ROOT}clock"

OFF_MS = [hours * limits.HOUR_MS for hours in (-5, -1, 0, 1, 5)]


class Off:
    """A machine's clock, read by somebody whose own is off."""

    def __init__(self, machine: Any, off_ms: int) -> None:
        self.machine = machine
        self.off_ms = off_ms

    def now_ms(self) -> int:
        return int(self.machine.now_ms()) + self.off_ms


class Far(WrappedStore):
    """A store whose clock can only be learnt from what is written there, in whole seconds."""

    def clock_ms(self) -> None:
        return None

    def perform(self, request: Any) -> Any:
        reply = self.inner.perform(request)
        if isinstance(reply, Found):
            return Found(reply.body, reply.version, reply.modified_ms // 1000 * 1000)
        return reply

    async def perform_async(self, request: Any) -> Any:
        return self.perform(request)


def split(machine: Any, off_ms: int, kind: Callable[[Store], Store]) -> SplitStore:
    off: Any = Off(machine, off_ms)
    return SplitStore(kind(MemoryStore(machine)), kind(MemoryStore(off)))


@pytest.fixture(params=OFF_MS)
def off_ms(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=[lambda inner: inner, Far], ids=["near", "far"])
def store(request: pytest.FixtureRequest, machine: Any, off_ms: int) -> Any:
    return split(machine, off_ms, request.param)


@pytest.fixture
def q(machine: Any, store: Any) -> Queue[Any]:
    return Queue(store, "mail", machine=machine)


def at_hour(machine: Any, seconds: float) -> None:
    machine.advance((-machine.time_ms % limits.HOUR_MS) / 1000 + seconds)


def test_a_part_lies_in_one_hour_that_of_heads(q: Queue[Any], store: Any, machine: Any) -> None:
    """By the archive's clock it would lie in an hour before its jobs finished, or in two."""
    (job,) = done(q)
    finished = machine.time_ms / 1000
    assert q.reap().archived == 1
    (part,) = parts(store)
    assert part.startswith(archive.hour_of("mail", machine.time_ms))
    assert [each.job_id for each in q.history(since=finished)] == [job]
    assert names(store.second, "") == [part, backups.name_of("mail", 0, machine.time_ms)]


def test_a_part_that_took_past_the_hour_is_in_the_next_one_as_well(
    q: Queue[Any], store: Any, machine: Any
) -> None:
    done(q)
    at_hour(machine, HOUR - 1)
    call = reaping(q).until(writes(archive.ROOT))
    machine.advance(2)
    call.finish()
    assert [name for name in parts(store) if name.startswith(archive.hour_of("mail", machine.time_ms))]
    assert len(list(q.history())) == 1


def test_a_part_is_no_part_until_the_clock_of_heads_has_told_its_hour(
    q: Queue[Any], store: Any, machine: Any
) -> None:
    """Nothing is committed that relies on it, and the next pass writes it again."""
    done(q)
    q.reap()  # has measured the clock
    done(q)
    call = reaping(q).until(writes(archive.ROOT))
    call.step()  # it is written
    call.until(writes(CLOCK))
    while call.next is not None and call.next.key == CLOCK:  # type: ignore[union-attr]
        call.step(lambda _: LOST)
    with pytest.raises(Unavailable, match="the store did not give its clock"):
        call.finish()
    assert len(parts(store)) == 2
    assert q.reap().archived == 1
    assert len(list(q.history())) == 2


def test_a_restore_believes_what_happened_after_its_copy_was_made(machine: Any, off_ms: int) -> None:
    """The copy was made when the clock of its writer was ahead, so only the store can say when that was."""
    clinic = Clinic(machine)
    clinic.store = split(machine, off_ms, Far)
    clinic.q = clinic.queue()
    at_hour(machine, 60)
    job = clinic.q.enqueue("once").job_id
    clinic.change(now_ms=machine.time_ms + 40 * 60_000)
    clinic.queue().reap()  # copies it
    clinic.run(checks.fix_clock("mail", 0, machine, machine.now_ms))
    clinic.q = clinic.queue()
    machine.advance(300)
    (lease,) = clinic.q.claim()
    lease.complete("r")
    machine.advance(300)
    report = clinic.restore(force=True)
    assert report.backup_ms > machine.time_ms
    assert (report.live, report.recovered) == (0, 1)
    assert clinic.queue().claim() == []
    assert clinic.queue().result(job) == "r"


@pytest.mark.parametrize("seconds", [0, 1, 4_000])
def test_a_copy_is_never_believed_to_be_younger_than_it_is(machine: Any, off_ms: int, seconds: int) -> None:
    clinic = Clinic(machine)
    clinic.store = split(machine, off_ms, Far)
    clinic.write("backup/mail/00/2027-01-15T08", b"a head")
    made = machine.time_ms
    machine.advance(seconds + 0.7)
    copy = clinic.store.perform(Get("backup/mail/00/2027-01-15T08"))
    told = clinic.run(two_clocks.made_ms("mail", 0, copy, machine.time_ms))
    assert made - 3 * two_clocks.TICK_MS <= told <= made
    (probe,) = [name for name in clinic.names("backup/") if is_purge(name)]
    assert clinic.run(purged_keys([probe])) == frozenset()


def test_with_one_store_a_copy_was_made_when_it_says(machine: Any) -> None:
    clinic = Clinic(machine)
    copy = Found(b"", "1", 77)
    assert clinic.run(two_clocks.made_ms("mail", 0, copy, machine.time_ms)) == 77
    assert clinic.names() == []
