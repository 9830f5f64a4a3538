"""A burst of new writers on one shard is served."""

from __future__ import annotations

from bench.burst import CALL_SECONDS_MAX, burst
from bench.contention import decoded_once


def test_a_burst_of_functions_is_served_whole() -> None:
    with decoded_once():
        found = burst({at: [0.0] for at in range(1_100)})
    assert not found.failed
    assert len(found.waits) == 1_100
    assert found.waits[-1] < CALL_SECONDS_MAX / 4
