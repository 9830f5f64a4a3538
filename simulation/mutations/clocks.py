"""How a writer tells the time, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager

from osqueue.clock import Machine, Moment
from osqueue.commit import deadline, writer
from osqueue.commit.effects import Flow
from osqueue.commit.writer import ClockReading, ShardWriter
from osqueue.core.state import State
from osqueue.stores.base import Found, Get

from .control import Control, in_runs, in_scene, patched


def leases_from_the_earliest() -> AbstractContextManager[None]:
    """A lease counts from the time by which others are ended."""
    return patched((ShardWriter, "latest_ms", lambda self, now_ms: now_ms))


def whole_seconds_taken_for_exact() -> AbstractContextManager[None]:
    """Take a time of the store for the moment of the write, not for the beginning of a second."""
    real = ShardWriter.latest_ms

    def latest_ms(self: ShardWriter, now_ms: int) -> int:
        self.tick_ms = 0
        return real(self, now_ms)

    return patched((ShardWriter, "latest_ms", latest_ms))


def ends_from_the_latest() -> AbstractContextManager[None]:
    """Leases are ended by the time that it may be at the latest."""
    real = ShardWriter.now_ms

    def now_ms(self: ShardWriter, state: State) -> int:
        return self.latest_ms(real(self, state))

    return patched((ShardWriter, "now_ms", now_ms))


def wall_clock_believed() -> AbstractContextManager[None]:
    """A machine's own wall clock tells the time."""

    def now_ms(self: ShardWriter, state: State) -> int:
        return max(self.machine.now_ms(), state.now_ms)

    return patched((ShardWriter, "now_ms", now_ms))


def clocks_that_disagree() -> AbstractContextManager[None]:
    """A measurement is used on, although a clock of the machine was set or stood still."""
    return patched((writer, "clocks_disagree", lambda earlier, later: False))


def measured_once() -> AbstractContextManager[None]:
    """Who announces asks for the time once, and not again before it grants leases to others."""
    real = deadline.Deadline.tell_time

    def tell_time(self: deadline.Deadline) -> Flow[None]:
        if self.writer.measured is None:
            yield from real(self)

    def is_due(self: ShardWriter) -> bool:
        return self.measured is None

    return patched((deadline.Deadline, "tell_time", tell_time), (ShardWriter, "clock_is_due", is_due))


def answer_dated_by_its_end() -> AbstractContextManager[None]:
    """The store's clock is taken to have stood where it stood when the answer arrived, however long that took."""

    def measured(store_ms: int, since: Moment, until: Moment) -> ClockReading:
        return ClockReading(store_ms, until, until)

    return patched((writer, "ClockReading", measured))


def slow_answers_believed() -> AbstractContextManager[None]:
    """A client that stood still while it asked for the time makes do with what it was told."""
    return patched((writer, "MEASURING_SECONDS_MAX", float("inf")))


def refused_clock_believed() -> AbstractContextManager[None]:
    """A clock that the store refuses to write again is taken for one that was written within a few gaps before."""

    def overhear(self: ShardWriter) -> Flow[None]:
        now, earlier_s = self.machine.moment(), 3 * self.swap_gap_s
        found = yield Get(self.root + writer.CLOCK)
        if isinstance(found, Found):
            self._set_clock(
                found.modified_ms, Moment(now.monotonic - earlier_s, now.wall_ms - int(earlier_s * 1000))
            )

    return patched((ShardWriter, "_overhear_clock", overhear))


def age_by_one_clock() -> AbstractContextManager[None]:
    """How old a head is is told by a clock that may have stood still."""

    def ms_since(self: Machine, moment: Moment) -> float:
        return (self.monotonic() - moment.monotonic) * 1000

    return patched((Machine, "ms_since", ms_since))


CONTROLS: tuple[Control, ...] = (
    Control("leases from the latest", leases_from_the_earliest, (in_runs("calm", "ms early", seed=2),)),
    Control("a second's width", whole_seconds_taken_for_exact, (in_runs("calm", "ms early", seed=4),)),
    Control(
        "ends by the earliest", ends_from_the_latest, (in_runs("clocks", "ms early|ahead of the store"),)
    ),
    Control("the store's clock", wall_clock_believed, (in_runs("clocks", "ahead of the store|ms more"),)),
    Control("clocks that agree", clocks_that_disagree, (in_runs("clocks", "ms more"),)),
    Control("time asked for again", measured_once, (in_runs("clocks", "ms more"),)),
    Control("an answer's beginning", answer_dated_by_its_end, (in_runs("clocks", "ms early", seeds=30),)),
    Control("prompt answers", slow_answers_believed, (in_scene("asked for the time", "ms more"),)),
    Control(
        "a clock seen to change", refused_clock_believed, (in_runs("gaps", "ms early|ms more", seed=30),)
    ),
    Control(
        "age by both clocks",
        age_by_one_clock,
        (in_runs("clocks", "nobody knows what became", seed=21, seeds=30),),
    ),
)
