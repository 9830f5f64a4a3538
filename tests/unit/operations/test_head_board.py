"""The board where those of a process meet who wait at a head: what a store's hint does to the next look."""

from __future__ import annotations

import logging

import pytest

from osqueue import Queue
from osqueue.core.state import State
from osqueue.errors import Unavailable
from osqueue.operations.head_board import NEVER_BEFORE, HeadBoard, Pace, WorkWaiter, hint_of

PACE = Pace(0.01, 10.0)
LATER = 100.0


def quiet() -> tuple[HeadBoard, WorkWaiter]:
    """A board at which nothing has happened for a long time, and the one who looks for all."""
    board, waiter = HeadBoard("root/"), WorkWaiter(PACE)
    for _ in range(20):
        board.looking(PACE, LATER, 0.0)
    board.version = "seen"
    return board, waiter


@pytest.fixture
def head_with_a_job() -> State:
    q = Queue[int].connect("memory://", "promises")
    q.enqueue(1)
    head = q._writers[0].head
    assert head is not None
    return head.state


def test_a_hint_wakes_the_one_who_looks_and_brings_its_look_forward() -> None:
    board, waiter = quiet()
    with board.present(waiter, LATER):
        before = board.look_at(waiter, LATER)
        board.hint("new")
        assert waiter.news
        assert board.look_at(waiter, LATER) == LATER + PACE.quick < before


def test_a_hint_of_what_was_seen_wakes_nobody() -> None:
    board, waiter = quiet()
    with board.present(waiter, LATER):
        board.look_at(waiter, LATER)
        board.version = "seen"
        board.hint("seen")
        assert not waiter.news


def test_where_hints_have_just_begun_one_quick_look_comes_first() -> None:
    board, waiter = HeadBoard("root/"), WorkWaiter(PACE)
    board.hinted = lambda: True
    with board.present(waiter, LATER):
        assert board.look_at(waiter, LATER) == LATER + PACE.quick
        board.looking(PACE, LATER, 0.0)
        assert board.look_at(waiter, LATER) == LATER + PACE.hinted
    with board.present(waiter, LATER):
        assert board.look_at(waiter, LATER) == LATER + PACE.hinted


def test_where_nobody_waits_a_hint_does_nothing() -> None:
    board, _ = quiet()
    next_look = board.next_look
    board.hint("new")
    assert board.next_look == next_look


def test_a_board_that_is_gone_wants_no_more_hints() -> None:
    board, _ = quiet()
    told = hint_of(board)
    assert told("new")
    del board
    assert not told("newer")


def test_looks_that_fail_are_logged_when_they_begin_and_when_they_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    board, waiter = quiet()
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        with board.present(waiter, LATER):
            for _ in range(3):
                board.note_failure(Unavailable("503 SlowDown"))
            board.confirm("another version")
        with board.present(waiter, LATER):  # a claim was made meanwhile
            board.note_failure(Unavailable("503 SlowDown"))
            board.version = "seen"
            board.confirm("seen")
            board.confirm("seen")
    begins, ends = "cannot be reached (unavailable: 503 SlowDown)", "can be reached again"
    assert [begins in text for text in caplog.messages] == [True, False] * 2
    assert [ends in text for text in caplog.messages] == [False, True] * 2


def test_a_refusal_of_a_look_is_left_to_the_call_that_raises_it(caplog: pytest.LogCaptureFixture) -> None:
    board, waiter = quiet()
    with board.present(waiter, LATER):
        board.note_failure(Unavailable("403 AccessDenied", permanent=True))
        assert board.refused_since(NEVER_BEFORE)
        board.confirm("seen")
    assert caplog.messages == []


def test_a_head_promises_jobs_once_to_each_claim_that_begins_after_it(head_with_a_job: State) -> None:
    waiter = WorkWaiter(PACE)
    assert waiter.hears("root/", head_with_a_job)
    waiter.begin_claim()
    assert not waiter.hears("root/", head_with_a_job)


def test_a_claim_that_began_before_a_head_does_not_end_its_promise(head_with_a_job: State) -> None:
    waiter = WorkWaiter(PACE)
    waiter.begin_claim()  # another writer may carry it out, and enqueue a job after it in the same commit
    assert waiter.hears("root/", head_with_a_job)
    assert waiter.hears("root/", head_with_a_job)
