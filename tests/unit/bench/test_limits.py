"""The worst window of a log of starts."""

from __future__ import annotations

from bench.limits import worst


def test_the_worst_window_is_half_open() -> None:
    assert worst([], 1.0) == 0
    assert worst([0.0, 0.5, 1.0, 1.4], 1.0) == 3
    assert worst([0.0, 1.0, 2.0], 1.0) == 1
