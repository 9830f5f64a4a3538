"""The board where the waiters of a shard meet: what it keeps, whom it wakes, and what a fork's child gets of it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from contextlib import AbstractContextManager
from typing import Any

from osqueue import AsyncQueue, Queue, WaitTimeout
from osqueue.core.job_ops import FailedAttempt, FailJobs
from osqueue.core.state import (
    ARCHIVE_ONLY,
    COMPLETED,
    FAILED,
    Backlog,
    FinishedJob,
    JobRecord,
    State,
    TableRef,
)
from osqueue.objects.layout import root_of
from osqueue.operations import waiters
from osqueue.operations.head_board import Pace
from osqueue.operations.waiters import CompletionBoard, JobWaiter, board_of
from osqueue.stores.memory import MemoryStore

ROOT = root_of("mail", 0)
LATER = 100.0


def head(
    seq: int, *over: bytes, epoch: int = 1, tables: str = "", echo: tuple[bytes, ...] = (), dead: bytes = b""
) -> State:
    rows = [FinishedJob(JobRecord(key, b"", 0), COMPLETED, 0) for key in over]
    rows += [FinishedJob(JobRecord(key, b"", 0), FAILED, 0, mark=ARCHIVE_ONLY) for key in echo]
    return State(
        commit=seq.to_bytes(16, "big"),
        epoch=epoch,
        seq=seq,
        finished=tuple(rows),
        tables=tuple(TableRef(name, 0, 1, 1, b"", b"z", 0, 0) for name in tables),
        dead=Backlog(tail=(JobRecord(dead, b"", 0),)) if dead else Backlog(),
    )


def joined(board: CompletionBoard, key: bytes) -> AbstractContextManager[JobWaiter]:
    return board.joined(key, Pace(1.0, 1.0), 0.0, LATER)


def names_to_read(board: CompletionBoard, waiter: JobWaiter) -> str:
    """The tables that would be read now; they count as read then, and as empty."""
    search = board.begin(waiter, 0.0)
    if search is None:
        return ""
    names = [each.name for batch in search.batches() for each, _ in batch]
    for name in names:
        search.note(name, {})
    search.whole = True
    board.end(search, 0.0)
    return "".join(sorted(names))


# ── Heads ────────────────────────────────────────────────────────────────────
def test_a_board_nobody_stands_at_keeps_nothing() -> None:
    board = CompletionBoard(ROOT)
    board.see(head(1), "v1")
    assert board.state is None
    with joined(board, b"k"):
        board.see(head(1), "v1")
        assert board.version == "v1"
    assert board.state is None


def test_an_older_head_does_not_take_the_place_of_a_newer_one_but_tells_of_results_all_the_same() -> None:
    board = CompletionBoard(ROOT)
    woken: list[str] = []
    with joined(board, b"k") as waiter, waiter.waking(lambda: woken.append("k")):
        board.see(head(5), "v5")
        looks = board.looks
        board.see(head(3, dead=b"k"), "v3")  # it has been redriven since
        assert (waiter.found, woken) == (None, [])
        board.see(head(4, b"k"), "v4")
        assert (board.version, board.looks, woken) == ("v5", looks, ["k"])
        assert waiter.found is not None
        board.see(head(1, epoch=2), "new")  # the head was made anew
        assert (board.version, board.looks) == ("new", looks + 1)


def test_each_of_several_who_wait_for_one_job_is_woken_until_it_leaves() -> None:
    board = CompletionBoard(ROOT)
    woken: list[int] = []
    with joined(board, b"k") as first, first.waking(lambda: woken.append(0)):
        with joined(board, b"k") as second, second.waking(lambda: woken.append(1)):
            board.see(head(1, b"k", b"other"), "v")
        assert woken == [0, 1]
        board.see(head(2, b"k"), "v")
        assert woken == [0, 1, 0]


def test_who_was_told_between_its_look_and_its_sleep_does_not_sleep() -> None:
    board = CompletionBoard(ROOT)
    woken: list[int] = []
    with joined(board, b"k") as waiter:
        board.see(head(1, b"k"), "v")
        with waiter.waking(lambda: woken.append(1)):
            assert woken == [1]


# ── What has to be read ──────────────────────────────────────────────────────
def test_between_heads_in_a_row_nothing_has_to_be_read() -> None:
    board = CompletionBoard(ROOT)
    with joined(board, b"k") as waiter:
        board.see(head(1, tables="a"), "v1")
        assert names_to_read(board, waiter) == "a"
        board.see(head(2, tables="ab"), "v2")
        board.see(head(3, tables="abc"), "v3")
        assert names_to_read(board, waiter) == ""
        board.see(head(5, tables="abcde"), "v5")  # one was missed
        assert names_to_read(board, waiter) == "de"
        board.see(head(6, tables="fe"), "v6")
        assert names_to_read(board, waiter) == ""
        board.see(head(1, tables="g", epoch=2), "new")
        assert names_to_read(board, waiter) == "g"


def test_a_job_that_fails_with_hundreds_is_looked_for_among_the_dead(shard: Any) -> None:
    keys = shard.enqueue(300)
    leases = shard.claim(300)
    board = CompletionBoard(ROOT)
    with joined(board, keys[150]) as waiter:
        board.see(shard.state, "v1")
        assert names_to_read(board, waiter) == ""
        shard.apply(
            FailJobs(tuple(FailedAttempt(each.job.key, each.token, "x" * 300, final=True) for each in leases))
        )
        board.see(shard.state, "v2")
        assert len(shard.state.dead.spans) == 1
        assert names_to_read(board, waiter) == shard.state.dead.spans[0].name


def test_what_was_missed_stays_to_be_read_whatever_follows() -> None:
    board = CompletionBoard(ROOT)
    with joined(board, b"k") as waiter:
        board.see(head(1), "v1")
        assert names_to_read(board, waiter) == ""
        board.see(head(3, tables="a"), "v3")
        board.see(head(4, tables="b"), "v4")  # perhaps a merged with others
        assert names_to_read(board, waiter) == "b"


def test_what_was_read_is_not_read_again_when_it_comes_back_out_of_an_index() -> None:
    board = CompletionBoard(ROOT)
    with joined(board, b"k") as waiter:
        board.see(head(1), "v1")
        assert names_to_read(board, waiter) == ""
        board.see(head(3, tables="ab"), "v3")
        assert names_to_read(board, waiter) == "ab"
        board.see(head(5, tables="i"), "v5")
        assert names_to_read(board, waiter) == "i"
        board.see(head(7, tables="abc"), "v7")
        assert names_to_read(board, waiter) == "c"


def test_a_newcomer_is_looked_for_everywhere_and_only_once() -> None:
    board = CompletionBoard(ROOT)
    with joined(board, b"k") as first:
        board.see(head(1, tables="ab"), "v1")
        assert names_to_read(board, first) == "ab"
        with joined(board, b"l") as second:
            assert names_to_read(board, second) == ""  # what was seen before it came is not believed
            board.confirm("v1")
            assert names_to_read(board, second) == "ab"
            assert names_to_read(board, first) + names_to_read(board, second) == ""


def test_who_searches_does_so_alone_and_not_for_ever() -> None:
    board = CompletionBoard(ROOT)
    with joined(board, b"k") as first, joined(board, b"l") as second:
        board.see(head(1, tables="a"), "v1")
        assert board.begin(first, 0.0) is not None
        assert board.begin(second, waiters.SEARCH_SECONDS_MAX - 0.1) is None
        assert board.begin(second, waiters.SEARCH_SECONDS_MAX) is not None


def test_a_job_that_fails_into_a_segment_is_looked_for_once_for_each_run() -> None:
    board = CompletionBoard(ROOT)
    woken: list[int] = []
    with joined(board, b"k") as waiter, waiter.waking(lambda: woken.append(1)):
        board.see(head(1), "v1")
        assert names_to_read(board, waiter) == ""
        board.see(head(2, echo=(b"k",)), "v2")
        assert (woken, waiter.settled) == ([1], False)
        names_to_read(board, waiter)
        board.see(head(3, echo=(b"k",)), "v3")  # redriven, and its record not archived yet
        assert (woken, waiter.settled) == ([1], True)


# ── Those who are gone ───────────────────────────────────────────────────────
def test_a_waiter_whose_event_loop_was_closed_disturbs_nobody() -> None:
    store = MemoryStore()
    q: Queue[Any] = Queue(store, "mail")
    board = board_of(store, ROOT)

    async def begin() -> Any:
        aq: AsyncQueue[Any] = AsyncQueue(store, "mail")
        task = asyncio.ensure_future(aq.enqueue_and_wait("x", timeout=60))
        while not any(each._wake for each in board._present):  # noqa: ASYNC110 - it has no other sign of it
            await asyncio.sleep(0)
        return task

    loop = asyncio.new_event_loop()
    waiter = loop.run_until_complete(begin())
    loop.close()
    (lease,) = q.claim()
    lease.complete("r")
    assert not any(each._wake for each in board._present)
    assert q.enqueue(1).status == "queued"
    assert q.stats()["completed"] == 1
    waiter._log_destroy_pending = False
    waiter.get_coro().close()


def test_a_shard_of_a_store_has_one_board_and_it_goes_with_its_last_queue() -> None:
    store = MemoryStore()
    board = board_of(store, ROOT)
    assert board_of(store, ROOT) is board
    assert board_of(store, root_of("mail", 1)) is not board
    assert board_of(MemoryStore(), ROOT) is not board
    board.looks = 7
    del board
    gc.collect()
    assert board_of(store, ROOT).looks == 0


def test_a_forks_child_waits_at_a_board_of_its_own() -> None:
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    q.enqueue(1)
    board = q._flows.board(0)
    with joined(board, b"k"), board._lock, waiters._BOARDS._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # it hangs: the lock is that of a thread which is not here
            try:
                fresh = board._waiters == {} == board._present
                q.enqueue_and_wait(2, timeout=0)
            except WaitTimeout:
                os._exit(0 if fresh else 1)
            finally:
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
