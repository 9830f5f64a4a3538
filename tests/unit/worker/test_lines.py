"""What a worker claims: how free hands are dealt out among its lines."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from osqueue.operations.claims import ClaimResult
from osqueue.worker.lines import ClaimLines, HandlerRule


def lines_of(q: Queue[Any]) -> ClaimLines:
    async def call(flow: Any) -> Any: ...

    return ClaimLines(q.handlers, q._flows, 1.0, call, lambda: None)


@pytest.fixture
def q() -> Queue[Any]:
    return Queue.connect("memory://", "lines")


def dealt(lines: ClaimLines, free: int) -> dict[Any, tuple[int, int]]:
    return {each.line.kinds: (each.limit, each.hands) for each in lines.deal(free, 0.0, False)}


def test_plain_handlers_get_one_claim_for_all_hands(q: Queue[Any]) -> None:
    q.handler(kind="a")(print)
    q.handler(kind="b")(print)
    assert dealt(lines_of(q), 8) == {("a", "b"): (8, 8)}
    assert dealt(lines_of(q), 0) == {}


def test_a_line_with_places_gets_no_more_and_the_rest_goes_to_the_others(q: Queue[Any]) -> None:
    q.handler(kind="gpu", concurrency=1)(print)
    q.handler(kind="mail")(print)
    lines = lines_of(q)
    assert dealt(lines, 8) == {("gpu",): (1, 1), ("mail",): (7, 7)}
    assert dealt(lines, 7) == {("mail",): (7, 7)}  # its place is taken


def test_a_batch_has_one_hand_for_many_jobs(q: Queue[Any]) -> None:
    q.handler(kind="row", batch=400)(print)
    assert dealt(lines_of(q), 2) == {("row",): (800, 2)}
    assert dealt(lines_of(q), 8) == {("row",): (1_000, 3)}


def test_lines_take_turns_where_hands_are_few(q: Queue[Any]) -> None:
    q.handler(kind="row", batch=10)(print)
    q.handler(kind="gpu", concurrency=3)(print)
    q.handler(kind="mail")(print)
    lines = lines_of(q)
    first = []
    for _ in range(3):
        (claim,) = lines.deal(1, 0.0, False)
        claim.line.give(claim.hands)
        first.append(claim.line.kinds)
    assert sorted(map(str, first)) == sorted(map(str, [("row",), ("gpu",), ("mail",)]))


def test_the_work_is_done_when_every_line_has_found_nothing_since_the_last_job(q: Queue[Any]) -> None:
    q.handler(kind="row", batch=10)(print)
    q.handler(kind="mail")(print)
    lines = lines_of(q)
    one, other = lines._lines
    empty = ClaimResult((), "empty")
    some: Any = ClaimResult((object(),))  # type: ignore[arg-type]
    lines.hear(one, empty, True, 0.0)
    assert not lines.are_over
    lines.hear(other, some, True, 0.0)
    lines.hear(other, empty, True, 0.0)
    assert not lines.are_over  # a job of the other may have made one for the first
    lines.hear(one, ClaimResult((), "running_limit"), True, 0.0)
    assert not lines.are_over
    lines.hear(one, empty, True, 0.0)
    assert lines.are_over


def test_a_rule_without_options_is_claimed_with_the_others() -> None:
    assert not HandlerRule(print).claims_apart
    assert HandlerRule(print, batch=1).claims_apart


def test_a_line_hears_of_jobs_that_were_enqueued_while_it_claimed(q: Queue[Any]) -> None:
    q.handler(kind="mail")(print)
    lines = lines_of(q)
    (claim,) = lines.deal(1, 0.0, True)
    q.enqueue(1, kind="mail")
    head = q._writers[0].head
    assert head is not None
    waiter = claim.line.waiter
    assert waiter.hears("root/", head.state)  # by a look of its rest, which goes on beside a claim
    lines.hear(claim.line, ClaimResult((), "empty"), False, 0.0)
    assert waiter.hears("root/", head.state)
    claim.line.give(claim.hands)
    lines.deal(1, 0.0, True)
    assert not waiter.hears("root/", head.state)
