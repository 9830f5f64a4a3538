"""What is counted at the store while an invocation commits."""

from __future__ import annotations

import threading

from osqueue.contract import metrics
from osqueue.metering.store import MeteredStore, MetricCounts
from osqueue.stores.base import Get, PutIfAbsent, PutIfMatch, Refused, Written
from osqueue.stores.memory import MemoryStore
from osqueue.testing import Clock
from tests.support.patience import PATIENCE

HEAD = "3f9a/emails/0/head"


def test_a_commit_takes_from_its_latest_look_to_the_write_that_won() -> None:
    """Looks of a claim that waits are none of it, and a race that was lost is."""
    clock = Clock()
    store = MeteredStore(MemoryStore(clock), clock)
    made = store.perform(PutIfAbsent(HEAD, b"1"))
    assert isinstance(made, Written)
    with store.invocation() as counts:
        for _ in range(30):
            store.perform(Get(HEAD))
            clock.advance(0.1)
        assert isinstance(store.perform(PutIfMatch(HEAD, b"2", "another")), Refused)
        clock.advance(0.05)
        assert isinstance(store.perform(PutIfMatch(HEAD, b"2", made.version)), Written)
    assert [round(each) for each in counts.whole.series[metrics.COMMIT_MS]] == [150]
    assert counts.whole.values == {metrics.COMMITS: 1, metrics.CONFLICTS: 1}


class Overtaken(dict[metrics.Metric, float]):
    """What is read of it is old by the time that something is made of it, if another thread may write meanwhile."""

    def __init__(self, other: threading.Thread) -> None:
        super().__init__()
        self._other = other

    def get(self, key: metrics.Metric, default: float = 0) -> float:  # type: ignore[override]
        found = super().get(key, default)
        if self._other.ident is None:
            self._other.start()
            self._other.join(0.05)  # which is over at once, or has to wait for us
        return found


def test_threads_that_count_at_once_lose_nothing() -> None:
    counts = MetricCounts()
    other = threading.Thread(target=counts.add, args=(metrics.COMMITS, 1))
    counts.values = Overtaken(other)
    counts.add(metrics.COMMITS, 1)
    other.join(PATIENCE)
    assert counts.values == {metrics.COMMITS: 2}
