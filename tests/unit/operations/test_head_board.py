"""The board where those of a process meet who wait at a head: what a store's hint does to the next look."""

from __future__ import annotations

from osqueue.operations.head_board import HeadBoard, Pace, WorkWaiter, hint_of

PACE = Pace(0.01, 10.0)
LATER = 100.0


def quiet() -> tuple[HeadBoard, WorkWaiter]:
    """A board at which nothing has happened for a long time, and the one who looks for all."""
    board, waiter = HeadBoard("root/"), WorkWaiter(PACE)
    for _ in range(20):
        board.looking(PACE, LATER, 0.0)
    board.version = "seen"
    return board, waiter


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
