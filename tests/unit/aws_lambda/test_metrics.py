"""What is counted at the store while an invocation commits."""

from __future__ import annotations

from osqueue.aws_lambda.metrics import MeteredStore
from osqueue.contract import metrics
from osqueue.stores.base import Get, PutIfAbsent, PutIfMatch, Refused, Written
from osqueue.stores.memory import MemoryStore
from osqueue.testing import Clock

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
