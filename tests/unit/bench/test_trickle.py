"""What a trickle costs with a window, and that no window ends a lease."""

from __future__ import annotations

import pytest

from bench.contention import decoded_once
from bench.trickle import COMMIT_SECONDS_MAX, DOLLARS_MAX, RATE, WINDOW_S, Trickle
from osqueue import LeaseLost
from osqueue.commit import window

SECONDS = 300.0  # of virtual time


def test_a_trickle_with_a_window_costs_a_tenth() -> None:
    with decoded_once():
        without, found = Trickle(0.0).tally(60.0), Trickle(WINDOW_S).tally(SECONDS)
    assert without.dollars > 50
    assert found.rate > 0.8 * RATE
    assert found.dollars < DOLLARS_MAX
    assert found.longest_s < WINDOW_S + COMMIT_SECONDS_MAX
    assert without.longest_s < COMMIT_SECONDS_MAX


# Each lease is needed again up to a second before its end, and the window is longer than the lease.
def test_a_window_ends_no_lease() -> None:
    Trickle(5.0, lease_s=4.0, work_s=3.0).tally(SECONDS)


def test_a_window_without_its_guard_ends_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "LEASE_SHARE", 100.0)
    with pytest.raises(LeaseLost):
        Trickle(5.0, lease_s=4.0, work_s=3.0).tally(SECONDS)
