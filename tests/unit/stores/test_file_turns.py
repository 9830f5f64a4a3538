"""Turns in a folder: who has the turn, whose notes it finds, and who is woken when."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from osqueue.clock import Machine
from osqueue.stores import file_turns
from osqueue.stores.base import Answered, PassTurn, Refused, TakeTurn, Turn
from osqueue.stores.file import FileStore
from tests.support.patience import PATIENCE

KEY = "queue/0/head"
PATIENT = 60.0  # seconds; nobody here waits for so long


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileStore]:
    """A store whose callers only go on when they are woken."""
    monkeypatch.setattr(file_turns, "LOOK_SECONDS", PATIENT)
    store = FileStore(tmp_path, fsync=False)
    yield store
    store.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def take(store: FileStore, note: bytes = b"note", seconds: float = PATIENT) -> Turn | Answered | Refused:
    return store.take_turn(TakeTurn(KEY, note, seconds))


def taken(store: FileStore) -> Turn:
    turn = take(store)
    assert isinstance(turn, Turn)
    return turn


def bytes_in_box(store: FileStore) -> int:
    return struct.unpack("i", fcntl.ioctl(store._turns._box(KEY).descriptor, termios.FIONREAD, b"\0" * 4))[0]


def in_line(
    store: FileStore, threads: ThreadPoolExecutor, *notes: bytes
) -> list[Future[Turn | Answered | Refused]]:
    """Somebody has the turn, these wait for it in this order, and then the first of them has it."""
    turn = taken(store)
    waiting = []
    for note in notes:
        before = bytes_in_box(store)
        waiting.append(threads.submit(take, store, note))
        while bytes_in_box(store) == before:
            time.sleep(0.001)
    store.pass_turn(PassTurn(turn))
    return waiting


def first(waiting: list[Future[Turn | Answered | Refused]]) -> Turn:
    turn = waiting[0].result()
    assert isinstance(turn, Turn)
    return turn


def test_nobody_waits_who_is_alone(store: FileStore) -> None:
    for _ in range(3):
        turn = taken(store)
        assert turn.notes == ()
        assert not turn.noted
        store.pass_turn(PassTurn(turn))


def test_a_note_is_carried_out_by_the_holder_of_the_turn(
    store: FileStore, threads: ThreadPoolExecutor
) -> None:
    waiting = in_line(store, threads, b"first", b"second", b"third")
    turn = first(waiting)
    assert turn.notes == (b"second", b"third")
    store.pass_turn(PassTurn(turn, ((0, b"2"), (1, b"3"))))
    assert [each.result() for each in waiting[1:]] == [Answered(b"2"), Answered(b"3")]


class HandClock(Machine):
    """Its monotonic clock stands still but for what a test or a sleep adds."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.slept: list[float] = []
        self.while_asleep: Callable[[], None] = lambda: None
        self.monotonic = lambda: self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        self.while_asleep()


def lingering(folder: Path, fsync: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[FileStore, HandClock]:
    """A store whose last turn was long, and had one other's note."""
    monkeypatch.setattr(file_turns, "LOOK_SECONDS", PATIENT)
    clock = HandClock()
    store = FileStore(folder, fsync=fsync, machine=clock)
    with ThreadPoolExecutor(2) as pool:
        waiting = in_line(store, pool, b"one", b"other")
        turn = first(waiting)
        clock.seconds += 1.0
        store.pass_turn(PassTurn(turn, ((0, b"done"),)))
        assert waiting[1].result() == Answered(b"done")
    clock.slept.clear()
    return store, clock


def test_a_long_turn_waits_for_those_who_came_to_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = lingering(tmp_path, monkeypatch=monkeypatch, fsync=True)
    with ThreadPoolExecutor(1) as pool:
        coming: list[Future[Turn | Answered | Refused]] = []

        def come() -> None:
            if not coming:
                coming.append(pool.submit(take, store, b"again"))
                while not bytes_in_box(store):
                    time.sleep(0.001)

        clock.while_asleep = come
        turn = taken(store)
        assert turn.notes == (b"again",)
        assert len(clock.slept) == 1
        store.pass_turn(PassTurn(turn, ((0, b"done"),)))
        assert coming[0].result() == Answered(b"done")
    store.close()


def test_nobody_is_waited_for_twice_who_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = lingering(tmp_path, monkeypatch=monkeypatch, fsync=True)
    store.pass_turn(PassTurn(taken(store)))
    most = file_turns.LINGER_SECONDS_MAX
    assert sum(clock.slept) == pytest.approx(most, abs=2 * file_turns.LINGER_STEP_SECONDS)
    clock.slept.clear()
    store.pass_turn(PassTurn(taken(store)))
    assert clock.slept == []
    store.close()


def test_nobody_is_waited_for_where_nothing_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = lingering(tmp_path, monkeypatch=monkeypatch, fsync=False)
    store.pass_turn(PassTurn(taken(store)))
    assert clock.slept == []
    store.close()


def test_whoever_is_interrupted_while_it_waits_for_others_keeps_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = lingering(tmp_path, monkeypatch=monkeypatch, fsync=True)

    def interrupt() -> None:
        raise KeyboardInterrupt

    clock.while_asleep = interrupt
    with pytest.raises(KeyboardInterrupt) as caught:
        take(store)
    assert caught.tb is not None  # it may be looked at for long
    assert isinstance(take(FileStore(tmp_path), seconds=0.0), Turn)
    store.close()


def test_whoever_is_not_answered_has_the_turn_next(store: FileStore, threads: ThreadPoolExecutor) -> None:
    waiting = in_line(store, threads, b"first", b"second", b"third")
    store.pass_turn(PassTurn(first(waiting), ((1, b"3"),)))
    turn = first(waiting[1:])
    assert turn.noted
    assert turn.notes == ()
    store.pass_turn(PassTurn(turn))


def test_nobody_is_forgotten_however_they_come_and_go(store: FileStore, threads: ThreadPoolExecutor) -> None:
    """Each waits until it is woken: a wake-up that is lost would be missed here for a minute."""
    served = [0] * 6
    lock = threading.Lock()
    inside = [0]

    def work(at: int) -> None:
        for turn_number in range(150):
            reply = take(store, f"{at}.{turn_number}".encode())
            if isinstance(reply, Turn):
                with lock:
                    inside[0] += 1
                    assert inside[0] == 1
                answers = tuple((position, b"ok " + note) for position, note in enumerate(reply.notes))
                with lock:
                    inside[0] -= 1
                store.pass_turn(PassTurn(reply, answers))
            else:
                assert reply == Answered(b"ok " + f"{at}.{turn_number}".encode())
            served[at] += 1

    for each in [threads.submit(work, at) for at in range(len(served))]:
        each.result(timeout=PATIENCE)
    assert served == [150] * len(served)


def test_a_turn_that_nobody_passes_on_is_not_waited_for_longer_than_asked(
    store: FileStore, threads: ThreadPoolExecutor
) -> None:
    turn = taken(store)
    assert take(store, seconds=0.0) == Refused(noted=True)
    assert threads.submit(take, store, b"note", 0.01).result() == Refused()
    assert take(store) == Refused()  # at once: its holder stands still
    store.pass_turn(PassTurn(turn))
    store.pass_turn(PassTurn(taken(store)))


def test_a_turn_ends_with_its_holder(store: FileStore) -> None:
    turn: Turn | None = taken(store)
    del turn
    store.pass_turn(PassTurn(taken(store)))


def test_the_child_of_a_fork_does_not_keep_its_parents_turn(store: FileStore) -> None:
    turn = taken(store)
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover - it is another process
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    store.pass_turn(PassTurn(turn))
    store.pass_turn(PassTurn(taken(store)))
    os.write(go[1], b"x")
    os.waitpid(child, 0)


def test_what_is_too_long_for_a_pipe_is_left_out(store: FileStore, threads: ThreadPoolExecutor) -> None:
    waiting = in_line(store, threads, b"first", b"x" * file_turns.PIPE_BYTES_MAX)
    turn = first(waiting)
    assert turn.notes == (b"",)
    store.pass_turn(PassTurn(turn, ((0, b"y" * file_turns.PIPE_BYTES_MAX),)))
    assert waiting[1].result() == Answered(b"")


def test_the_longest_note_and_answer_that_a_pipe_takes_arrive(
    store: FileStore, threads: ThreadPoolExecutor
) -> None:
    most = file_turns.PIPE_BYTES_MAX - file_turns._FRAME.size
    waiting = in_line(store, threads, b"first", b"x" * most)
    turn = first(waiting)
    assert turn.notes == (b"x" * most,)
    store.pass_turn(PassTurn(turn, ((0, b"y" * most),)))
    assert waiting[1].result() == Answered(b"y" * most)


def test_rubbish_in_a_box_stands_in_nobodys_way(store: FileStore) -> None:
    store.pass_turn(PassTurn(taken(store)))
    (box,) = Path(store.root, ".osqueue", "turns").glob("*.box")
    with box.open("wb", buffering=0) as pipe:
        pipe.write(b"\xff" * 99)
    turn = taken(store)
    store.pass_turn(PassTurn(turn, tuple((at, b"") for at in range(len(turn.notes)))))
    store.pass_turn(PassTurn(taken(store)))


def test_a_frame_of_which_a_part_arrives_is_left_out_and_so_is_what_follows(store: FileStore) -> None:
    whole, other = (file_turns.WaitingNote(b"channel", content) for content in (b"whole", b"other"))
    for length in range(1, len(whole.frame())):
        read = file_turns._frames(other.frame() + whole.frame()[:length] + whole.frame())
        assert [content for *_, content in read] == [b"other"]
    read = file_turns._frames(other.frame() + whole.frame())
    assert [content for *_, content in read] == [b"other", b"whole"]


def test_no_turns_where_the_folder_takes_no_pipes(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, mode: int) -> None:
        raise PermissionError(1, "not here", path)

    monkeypatch.setattr(os, "mkfifo", refuse)
    assert take(store) == Refused()


def test_channels_are_removed_when_the_store_is_closed(store: FileStore, threads: ThreadPoolExecutor) -> None:
    store.pass_turn(PassTurn(first(in_line(store, threads, b"first"))))
    folder = Path(store.root, ".osqueue", "turns")
    assert list(folder.glob("*.channel"))
    store.close()
    assert not list(folder.glob("*.channel"))
    assert all(stat.S_ISFIFO(each.stat().st_mode) for each in folder.glob("*.box"))


def test_channels_of_processes_that_are_gone_are_removed(store: FileStore) -> None:
    folder = Path(store.root, ".osqueue", "turns")
    folder.mkdir(parents=True)
    for name, age in (("old", 2 * file_turns.LEFTOVER_MS_MAX), ("young", 0)):
        os.mkfifo(folder / f"{name}.channel")
        at = (store.clock_ms() - age) / 1000
        os.utime(folder / f"{name}.channel", (at, at))
    store.pass_turn(PassTurn(taken(store)))
    assert [each.name for each in folder.glob("*.channel")] == ["young.channel"]


def test_no_more_pipes_are_open_than_a_process_bears(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_turns, "PIPES_MAX", 2)
    before = len(os.listdir("/dev/fd"))
    for at in range(20):
        turn = store.take_turn(TakeTurn(f"{at}/head", b"", PATIENT))
        assert isinstance(turn, Turn)
        store.pass_turn(PassTurn(turn))
        del turn
    assert len(os.listdir("/dev/fd")) <= before + 2


@pytest.mark.parametrize("left", ["nothing", "a new folder"])
def test_whoever_removes_the_folder_ends_no_turns(
    store: FileStore, threads: ThreadPoolExecutor, left: str
) -> None:
    waiting = in_line(store, threads, b"first")  # now there are a box and a channel
    store.pass_turn(PassTurn(first(waiting)))
    shutil.rmtree(f"{store.root}/.osqueue/turns")
    other = FileStore(store.root, fsync=False)
    if left == "a new folder":
        other.pass_turn(PassTurn(taken(other)))
    waiting = in_line(store, threads, b"first", b"second")
    turn = first(waiting)
    assert turn.notes == (b"second",)
    third = threads.submit(take, other, b"third")
    while not bytes_in_box(other):
        time.sleep(0.001)
    store.pass_turn(PassTurn(turn, ((0, b"2"),)))
    assert waiting[1].result() == Answered(b"2")
    turn = first([third])
    store.pass_turn(PassTurn(turn))
    other.close()


def test_a_store_that_is_closed_in_the_middle_of_a_turn_goes_on(
    store: FileStore, threads: ThreadPoolExecutor
) -> None:
    waiting = in_line(store, threads, b"first", b"second")
    turn = first(waiting)
    store.close()
    store.pass_turn(PassTurn(turn, ((0, b"2"),)))
    assert waiting[1].result() == Answered(b"2")


def test_a_wait_of_a_closed_store_is_answered_beside_a_later_one(
    store: FileStore, threads: ThreadPoolExecutor
) -> None:
    waiting = in_line(store, threads, b"first", b"second")
    turn = first(waiting)
    store.close()
    again = threads.submit(take, store, b"third", 0.2)
    assert again.result() == Refused(noted=True)  # whatever comes of the second one
    store.pass_turn(PassTurn(turn, ((0, b"2"),)))
    assert waiting[1].result() == Answered(b"2")


def test_the_notes_of_the_dead_do_not_fill_the_box(store: FileStore) -> None:
    box = store._turns._box(KEY)
    for at in range(12):
        note = file_turns.WaitingNote(f"{at:016x}".encode(), b"x" * 1_000)
        store._turns._fill(box, [note.frame()])
    turn = taken(store)
    assert len(turn.notes) == 12
    store.pass_turn(PassTurn(turn))
    assert bytes_in_box(store) == 0


def test_a_note_of_a_caller_that_gave_up_leaves_the_box_with_the_next_turn(store: FileStore) -> None:
    turn = taken(store)
    waiter = FileStore(store.root, fsync=False)  # whose process lives on, and waits for no turn again
    assert take(waiter, b"x" * file_turns.PIPE_BYTES_MAX, 0.0) == Refused(noted=True)
    store.pass_turn(PassTurn(turn))
    store.pass_turn(PassTurn(taken(store)))
    assert not store._turns.is_taken(KEY)
    waiter.close()


def test_no_swap_yields_again_while_a_holder_stands_still(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_turns, "STUCK_SECONDS", 0.0)
    lone = FileStore(store.root, fsync=False)
    turn = taken(store)
    assert lone._turns.is_taken(KEY)
    assert take(lone, seconds=0.0) == Refused(noted=True)
    assert not lone._turns.is_taken(KEY)
    store.pass_turn(PassTurn(turn))
    assert not lone._turns.is_taken(KEY)
    turn = taken(store)
    assert lone._turns.is_taken(KEY)
    store.pass_turn(PassTurn(turn))
    lone.close()
