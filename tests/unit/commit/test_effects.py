"""Flows side by side: what they submit to a shard goes there in one commit, in their order, and each gets its own."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from osqueue.commit.effects import Sleep, Submit, submit_together
from osqueue.commit.request_status import CommitResult
from osqueue.core.ops import Code, Outcome
from osqueue.core.queue_ops import RunTimers
from osqueue.errors import Unavailable

ONE, TWO, THREE = RunTimers(), RunTimers(flush=True), RunTimers(flush=False)


def submits(*steps: Any) -> Generator[Any, Any, list[Any]]:
    """Yields its steps, and answers what came for each."""
    found = []
    for step in steps:
        try:
            reply = yield step
        except Unavailable as error:
            found.append(error)
        else:
            found.append(reply.outcomes if isinstance(reply, CommitResult) else reply)
    return found


def outcomes(count: int, first: int = 1) -> tuple[Outcome, ...]:
    return tuple(Outcome(((int(Code.OK), first + at),)) for at in range(count))


def test_what_is_for_one_shard_goes_together_in_the_order_of_the_flows() -> None:
    flow = submit_together([submits(Submit(0, (ONE, TWO))), submits(Submit(0, (THREE,)))])
    assert flow.send(None) == Submit(0, (ONE, TWO, THREE))
    with pytest.raises(StopIteration) as stop:
        flow.send(CommitResult(outcomes(3), 7))
    first, second = stop.value.value
    assert first == [outcomes(2)]
    assert second == [outcomes(1, first=3)]


def test_a_flow_that_comes_later_to_a_shard_keeps_its_place_in_the_order() -> None:
    ending = submits(Submit(1, (ONE,)), Submit(2, (TWO,)))  # of two shards, one after the other
    claim = submits(Submit(2, (THREE,)))
    flow = submit_together([ending, claim])
    assert flow.send(None) == Submit(1, (ONE,))
    assert flow.send(CommitResult(outcomes(1), 7)) == Submit(2, (TWO, THREE))


def test_what_cannot_be_shared_is_asked_for_alone_and_first() -> None:
    hasty, looking, idle = Submit(0, (ONE,), 1.0), Submit(0, (ONE,), look=True), Submit(0, ())
    steps: tuple[Any, ...] = (Sleep(1.0), hasty, looking, idle)
    flow = submit_together([submits(Submit(0, (TWO,))), *[submits(step) for step in steps]])
    asked = [flow.send(None), *[flow.send(None) for _ in steps]]
    assert asked == [*steps, Submit(0, (TWO,))]


def test_an_error_is_told_to_those_who_wait_for_it_and_to_nobody_else() -> None:
    lost, broken = Unavailable("no answer"), ValueError("a defect")

    def defect() -> Generator[Any, Any, None]:
        yield Sleep(1.0)
        raise broken

    flow = submit_together(
        [submits(Submit(0, (ONE,))), submits(Submit(0, (TWO,)), Submit(1, (TWO,))), defect()]
    )
    assert flow.send(None) == Sleep(1.0)
    assert flow.send(None) == Submit(0, (ONE, TWO))
    assert flow.throw(lost) == Submit(1, (TWO,))
    with pytest.raises(StopIteration) as stop:
        flow.send(CommitResult(outcomes(1), 7))
    assert stop.value.value == [[lost], [lost, outcomes(1)], broken]


def test_flows_end_where_they_stand_with_whoever_runs_them() -> None:
    ended = []

    def flow_that_tidies_up() -> Generator[Any, Any, None]:
        try:
            yield Submit(0, (ONE,))
        finally:
            ended.append(1)

    flow = submit_together([flow_that_tidies_up(), flow_that_tidies_up()])
    flow.send(None)
    flow.close()
    assert ended == [1, 1]


def test_nothing_is_submitted_for_nobody() -> None:
    with pytest.raises(StopIteration) as stop:
        submit_together([]).send(None)
    assert stop.value.value == []
