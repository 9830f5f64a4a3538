"""Turns among the processes that share a folder: who may replace an object next, and what the others want done.

Each object has a *lock* and a *box*. Whoever holds the lock (``flock``) has the turn. Whoever finds it held puts a
note into the box, a named pipe, and waits at a named pipe of their own, the *channel*. The holder empties the box,
carries the notes out with its own work, answers into the channels, unlocks, and wakes one of those whose notes are
left. Nothing here is durable, and nothing has to arrive: the pipes only save pauses. Someone who hears nothing
for ``LOOK_SECONDS`` tries the lock, so a killed holder's turn is free at once (the kernel unlocks it), and the turn
of one that was woken and does not come is free as well.

Pipes take what is at most ``PIPE_BUF`` long in one piece. Longer notes are left out, so their callers do their own
work when their turn comes; longer answers are empty, and are read from the object.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import itertools
import os
import select
import struct
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from .. import forks
from ..clock import Machine
from .base import Answered, Passed, PassTurn, Refused, TakeTurn, Turn

STUCK_SECONDS = 3.0  # for which nobody waits again for a turn that was waited for in vain
LOOK_SECONDS = 0.02  # between two tries of the lock by someone who hears nothing
BOX_BYTES_MAX = 1 << 16  # of notes that are read at once, which is what a pipe holds
LEFTOVER_MS_MAX = 3_600_000  # a channel older than this whose process is gone is removed
THREADS_MAX = 64  # that wait for coroutines
PIPES_MAX = 64  # boxes that are kept open

PIPE_BYTES_MAX = min(select.PIPE_BUF, 4096)
_FRAME = struct.Struct(
    "<HBQ16s"
)  # its length; what it is; which wait it belongs to; the channel of who waits
_NOTE, _ANSWER, _WAKE = range(3)
_NOBODY = b"\0" * 16


class Pipe:
    """An open pipe. Whoever uses it keeps it open: a number that was closed may stand for another file by then."""

    def __init__(self, path: str, flags: int) -> None:
        self.descriptor = -1  # should it not open
        self.descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def read(self) -> bytes:
        """What is in it, at once."""
        try:
            return os.read(self.descriptor, BOX_BYTES_MAX)
        except BlockingIOError:
            return b""

    def write(self, frame: bytes) -> None:
        """Put something in. Raises OSError where it is full, or nobody reads it."""
        os.write(self.descriptor, frame)


class WaitingNote(Struct, frozen=True):
    """A note out of the box."""

    channel: bytes
    wait: int
    content: bytes

    def frame(self) -> bytes:
        return _framed(_NOTE, self.wait, self.channel, self.content)


class HeldTurn:
    """The turn at one object. It ends with this object at the latest."""

    def __init__(self, lock: int, box: Pipe) -> None:
        self.lock = lock
        self.box = box
        self.notes: list[WaitingNote] = []
        self.process = os.getpid()

    def unlock(self) -> None:
        """Let others have it. Closing is not enough: a child forked meanwhile has the descriptor, and the lock."""
        lock, self.lock = self.lock, -1
        if lock >= 0:
            if os.getpid() == self.process:
                fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def forget(self) -> None:
        """It was not ours."""
        lock, self.lock = self.lock, -1
        os.close(lock)

    def __del__(self) -> None:
        self.unlock()


class FolderTurns:
    """The turns of the store whose own files lie in ``folder``."""

    def __init__(self, folder: str, machine: Machine) -> None:
        self.folder = folder
        self._machine = machine
        self._guard = forks.lock()
        self._waits = itertools.count(1)  # never from the beginning: an answer may come late
        self._start_afresh()

    def _start_afresh(self) -> None:
        """At first, and in a fork's child: the channels are the parent's."""
        self._process = os.getpid()
        self._ready = False
        self._idle: list[Channel] = []
        self._boxes: dict[str, Pipe] = {}
        self._threads: Any = None  # of coroutines that wait
        self._stuck: dict[str, float] = {}  # until when, on the monotonic clock, by key

    # ── The two requests ─────────────────────────────────────────────────────
    def take(self, request: TakeTurn) -> Turn | Answered | Refused:
        """Wait for the turn, or for somebody to carry the note out. Refused where the folder offers none, too."""
        turn = self.take_now(request.key)
        if turn is not None:
            return turn
        try:
            if self._machine.monotonic() < self._stuck.get(request.key, 0.0):
                return Refused()
            channel = self._channel()
            try:
                return self._wait(request, channel)
            finally:
                with self._guard:
                    self._idle.append(channel)
        except OSError:
            return Refused()

    def take_now(self, key: str) -> Turn | None:
        """The turn, if nobody has it."""
        try:
            held = self._lock(key)
            return None if held is None else _turn(held, _notes_in(held.box), None)
        except OSError:
            return None

    async def perform_async(self, request: TakeTurn | PassTurn) -> Turn | Answered | Refused | Passed:
        """The same for coroutines. Who waits has threads of its own: the loop's may be what the holder waits for."""
        if isinstance(request, PassTurn):
            return self.pass_on(request)
        turn = self.take_now(request.key)
        if turn is not None:
            return turn
        import asyncio  # here, because blocking callers never need it
        from concurrent.futures import ThreadPoolExecutor

        with self._guard:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(THREADS_MAX, "osqueue-turns")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.take, request)

    def pass_on(self, request: PassTurn) -> Passed:
        """Answer, unlock, and wake one of those that still wait."""
        held = request.turn.held
        assert isinstance(held, HeldTurn)
        try:
            self._pass_on(held, dict(request.answers))
        except OSError:  # nobody hears of it, and all try the lock after a while
            pass
        finally:
            held.unlock()
        return Passed()

    def _pass_on(self, held: HeldTurn, answered: dict[int, bytes]) -> None:
        left: list[WaitingNote] = []
        for at, note in enumerate(held.notes):
            answer = answered.get(at)
            if answer is None:
                left.append(note)
            else:
                self._send(note, _ANSWER, answer)
        left += _notes_in(held.box)
        while left and not self._is_there(left[0]):
            left.pop(0)  # else the notes of the dead would fill the box
        box = held.box
        self._fill(box, left)
        held.unlock()
        if not left:
            # Somebody may have put a note in after the box was emptied, and found the lock held just before this.
            left = _notes_in(box)
            self._fill(box, left)
        for note in left:
            if self._send(note, _WAKE, b""):
                return

    # ── Waiting ──────────────────────────────────────────────────────────────
    def _wait(self, request: TakeTurn, channel: Channel) -> Turn | Answered | Refused:
        end = self._machine.monotonic() + request.wait_seconds
        wait = next(self._waits)
        channel.clear()
        content = request.note if len(request.note) + _FRAME.size <= PIPE_BYTES_MAX else b""
        note = WaitingNote(channel.name, wait, content)
        self._fill(self._box(request.key), [note])
        while True:
            held = self._lock(request.key)
            answer = channel.answer(wait)
            if answer is not None:
                if held is not None:
                    self._pass_on(held, {})
                return Answered(answer)
            if held is not None:
                return _turn(held, _notes_in(held.box), note)
            left = end - self._machine.monotonic()
            if left <= 0:
                self._stuck[request.key] = end + STUCK_SECONDS
                return Refused(noted=True)
            channel.wait(min(left, LOOK_SECONDS))

    def _lock(self, key: str) -> HeldTurn | None:
        box = self._box(key)
        lock = os.open(f"{self.folder}/{_stem(key)}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        held = HeldTurn(lock, box)  # which gives it back, whatever comes
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.forget()
            return None
        return held

    # ── Boxes and channels ───────────────────────────────────────────────────
    def _box(self, key: str) -> Pipe:
        if self._process != os.getpid():
            with self._guard:
                self._start_afresh()
        box = self._boxes.get(key)
        if box is None:
            with self._guard:
                self._prepare()
                if len(self._boxes) >= PIPES_MAX:
                    self._boxes.clear()
                box = self._boxes[key] = _open_pipe(f"{self.folder}/{_stem(key)}.box")
        return box

    def _fill(self, box: Pipe, notes: list[WaitingNote]) -> None:
        for note in notes:
            try:
                box.write(note.frame())
            except BlockingIOError:  # it is full: whoever waits tries the lock after a while
                return

    def _channel(self) -> Channel:
        with self._guard:
            if self._idle:
                return self._idle.pop()
        name = self._machine.bits(64).to_bytes(8, "big").hex().encode()
        return Channel(name, self._path(name))

    def _path(self, channel: bytes) -> str:
        return f"{self.folder}/{channel.decode()}.channel"

    def _send(self, note: WaitingNote, kind: int, content: bytes) -> bool:
        """Write into the channel of somebody who waits; False when nobody is there."""
        if len(content) + _FRAME.size > PIPE_BYTES_MAX:
            content = b""
        try:
            path = self._path(note.channel)
            reached = Pipe(path, os.O_WRONLY)  # which tells whether anybody is there
            # Whoever reads a pipe as well gets no SIGPIPE, should the other one die just now.
            Pipe(path, os.O_RDWR).write(_framed(kind, note.wait, _NOBODY, content))
            del reached
        except (OSError, UnicodeError):  # it has gone, or reads nothing
            return False
        return True

    def _is_there(self, note: WaitingNote) -> bool:
        """Does anybody wait at its channel?"""
        try:
            Pipe(self._path(note.channel), os.O_WRONLY)
        except (OSError, UnicodeError):
            return False
        return True

    def _prepare(self) -> None:
        """Make the folder, once, and remove the channels of processes that are gone."""
        if self._ready:
            return
        os.makedirs(self.folder, exist_ok=True)
        oldest = (self._machine.now_ms() - LEFTOVER_MS_MAX) / 1000
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.name.endswith(".channel") and entry.stat().st_mtime < oldest:
                        _remove_unread(entry.path)
        self._ready = True

    def close(self) -> None:
        """Give up what nobody uses just now."""
        with self._guard:
            if self._process == os.getpid():
                for channel in self._idle:
                    channel.remove()
            self._start_afresh()


class Channel:
    """Where one caller waits."""

    def __init__(self, name: bytes, path: str) -> None:
        self.name = name
        self._path = path
        self._pipe = _open_pipe(path)
        self._poll = select.poll()
        self._poll.register(self._pipe.descriptor, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Until something comes, so long at most."""
        self._poll.poll(seconds * 1000)

    def answer(self, wait: int) -> bytes | None:
        """The answer to this wait, if it has come."""
        for kind, which, _, content in _frames(self._pipe.read()):
            if (kind, which) == (_ANSWER, wait):
                return content
        return None

    def clear(self) -> None:
        """Forget what came for earlier waits."""
        self.answer(0)

    def remove(self) -> None:
        """Nobody waits here any more."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)


def _turn(held: HeldTurn, notes: list[WaitingNote], own: WaitingNote | None) -> Turn:
    held.notes = [note for note in notes if note != own]
    return Turn(tuple([note.content for note in held.notes]), held, noted=own is not None)


def offered() -> bool:
    """Does this system name pipes?"""
    return hasattr(os, "mkfifo")


def _notes_in(box: Pipe) -> list[WaitingNote]:
    return [
        WaitingNote(channel, wait, content)
        for kind, wait, channel, content in _frames(box.read())
        if kind == _NOTE
    ]


def _open_pipe(path: str) -> Pipe:
    """A named pipe, made where there is none, open at both ends: so it is never at its end, and never lost."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o644)
    return Pipe(path, os.O_RDWR)


def _remove_unread(path: str) -> None:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.ENXIO:  # nobody has it open
            os.unlink(path)


@functools.lru_cache(maxsize=1024)
def _stem(key: str) -> str:
    return blake2b(key.encode(), digest_size=8).hexdigest()


def _framed(kind: int, wait: int, channel: bytes, content: bytes) -> bytes:
    return _FRAME.pack(_FRAME.size + len(content), kind, wait, channel) + content


def _frames(data: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    at = 0
    while at + _FRAME.size <= len(data):
        length, kind, wait, channel = _FRAME.unpack_from(data, at)
        if length < _FRAME.size:
            return
        yield kind, wait, channel.rstrip(b"\0"), data[at + _FRAME.size : at + length]
        at += length
