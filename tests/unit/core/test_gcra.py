"""GCRA against a log of all starts: as many as the bound allows, and never one more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osqueue.core import gcra

STEPS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=60)


@given(STEPS, st.integers(1, 20), st.integers(1, 6))
def test_in_any_window_no_more_start_than_the_bound_allows_and_no_fewer_than_they_might(
    steps: list[tuple[int, int, int]], interval: int, burst: int
) -> None:
    tat = now = 0
    log: list[tuple[int, int]] = []
    for passed, wanted, units in steps:
        now += passed
        free = gcra.allowed(tat, now, interval, burst, units)
        at = gcra.next_us(tat, now, interval, burst, units)
        assert (free > 0) == (at == now and units <= burst)
        if units <= burst:
            assert gcra.allowed(tat, at, interval, burst, units) > 0
            assert at == now or gcra.allowed(tat, at - 1, interval, burst, units) == 0
        count = min(free, wanted)
        if count:
            tat = gcra.moved(tat, now, interval, count * units)
            log.append((now, count * units))
        for first, (since, _) in enumerate(log):
            started = sum(each for _, each in log[first:])
            assert started * interval <= (log[-1][0] - since) + burst * interval
        if units <= burst and wanted > free:  # it gives all that the bound has left
            over = [
                sum(each for _, each in log[first:]) + units
                for first in range(len(log))
                if (sum(each for _, each in log[first:]) + units) * interval
                > (now - log[first][0]) + burst * interval
            ]
            assert over or not log


def test_starts_until_a_moment_to_come_are_counted_as_if_taken_one_by_one() -> None:
    assert gcra.allowed(0, 0, 10, 1, 1, 35) == 4
    assert gcra.allowed(0, 0, 10, 3, 1, 35) == 6
    assert gcra.allowed(0, 0, 10, 3, 2, 35) == 3
    assert gcra.allowed(0, 0, 10, 3, 4, 1_000) == 0


@given(STEPS, st.integers(1, 20), st.integers(1, 6))
def test_on_credit_one_start_goes_beyond_the_bound_and_none_starts_sooner_or_later(
    steps: list[tuple[int, int, int]], interval: int, burst: int
) -> None:
    """A sliding log says when a start may take place: when every window up to it has room for one unit more."""
    tat = now = 0
    log: list[tuple[int, int]] = []
    for passed, wanted, size in steps:
        now += passed
        units = size * burst  # up to three bursts
        for _ in range(wanted):
            windows = [
                (now - since, sum(each for _, each in log[first:])) for first, (since, _) in enumerate(log)
            ]
            room = all((taken + 1) * interval <= width + burst * interval for width, taken in windows)
            assert (gcra.allowed(tat, now, interval, burst) > 0) == room
            assert (gcra.next_us(tat, now, interval, burst) == now) == room
            if not room:
                break
            assert all(
                (taken + units) * interval <= width + (burst + units - 1) * interval
                for width, taken in windows
            )
            tat = gcra.moved(tat, now, interval, units)
            log.append((now, units))
