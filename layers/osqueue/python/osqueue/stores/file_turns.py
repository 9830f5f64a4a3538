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
import functools
import os
import select
import struct
import zlib
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

from msgspec import Struct

from .. import forks
from ..clock import Machine
from .base import Answered, Passed, PassTurn, Refused, TakeTurn, Turn
from .file_access import PRIVATE_FILE, FolderAccess
from .file_locks import FileLock, open_lock

if TYPE_CHECKING:
    from ..threads import DaemonThreads

LINGER_SHARE = 0.25  # of how long the last turn was held: so long at most those are waited for who came to it
LINGER_SECONDS_MAX = 0.005  # a holder may have been stopped: that says nothing of the next turn
LINGER_STEP_SECONDS = 0.0002  # between two looks for them
STUCK_SECONDS = 3.0  # for which nobody waits again for a turn that was waited for in vain
LOOK_SECONDS = 0.02  # between two tries of the lock by someone who hears nothing
BOX_BYTES_MAX = 1 << 16  # of notes that are read at once, which is what a pipe holds
LEFTOVER_MS_MAX = 3_600_000  # a channel older than this whose process is gone is removed
THREADS_MAX = 64  # that wait for coroutines
PIPES_MAX = 64  # boxes that are kept open

PIPE_BYTES_MAX = min(select.PIPE_BUF, 4096)
# Its length; the checksum of what follows; what it is; the channel of the writer that waits.
_FRAME = struct.Struct("<HIB16s")
_CHECKED_FROM = 6
_NOTE, _ANSWER, _WAKE, _TAKEN = range(4)
_NOBODY = b"\0" * 16


class Pipe:
    """An open pipe. Whoever uses it keeps it open: a number that was closed may stand for another file by then."""

    descriptor = -1  # should it not open

    def __init__(self, path: str, flags: int) -> None:
        self.descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def is_gone(self) -> bool:
        """Has somebody removed it? Then nobody else reads it, or writes into it."""
        return os.fstat(self.descriptor).st_nlink == 0

    def holds_something(self) -> bool:
        """Return whether a read would bring something."""
        poll = select.poll()  # of this call: two threads cannot use one at a time
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(0))

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
    content: bytes

    def frame(self) -> bytes:
        return _framed(_NOTE, self.channel, self.content)


class Crowd(Struct, frozen=True):
    """Who came to the last turn that was held here: they are likely to come again."""

    others: int
    held_seconds: float


class HeldTurn:
    """The turn at one object. It ends with this object at the latest."""

    def __init__(self, lock: FileLock, box: Pipe, key: str) -> None:
        self.lock = lock
        self.box = box
        self.key = key
        self.since: float | None = None  # on the monotonic clock: when its notes were read
        self.notes: list[WaitingNote] = []

    def is_over(self) -> bool:
        """Have others had the chance to take it?"""
        return self.lock.descriptor < 0

    def __del__(self) -> None:
        self.lock.close()


class FolderTurns:
    """The turns of the store whose own files lie in ``folder``."""

    def __init__(self, folder: str, machine: Machine, access: FolderAccess, lingers: bool) -> None:
        self.folder = folder
        self._machine = machine
        self._access = access
        self._lingers = lingers  # does a turn take so long that it pays to wait for others with it?
        self._guard = forks.lock()
        self._threads: DaemonThreads | None = None  # of coroutines that wait
        self._start_afresh()

    def _start_afresh(self) -> None:
        """At first, and in a fork's child: the channels are the parent's."""
        self._process = os.getpid()
        self._ready = False
        self._idle: list[Channel] = []
        self._boxes: dict[str, Pipe] = {}
        self._stuck: dict[str, float] = {}  # until when, on the monotonic clock, by key
        self._waited: set[str] = set()  # keys of turns that a wait did not get, until the box is empty
        self._crowds: dict[str, Crowd] = {}  # by key

    # ── The two requests ─────────────────────────────────────────────────────
    def take(self, request: TakeTurn) -> Turn | Answered | Refused:
        """Wait for the turn, or for somebody to carry the note out. Refused where the folder offers none, too."""
        try:
            held = self._lock(request.key)
            if held is not None:
                return self._turn(held, None)
            if self._machine.monotonic() < self._stuck.get(request.key, 0.0):
                return Refused()
            channel = self._channel()
            reply: Turn | Answered | Refused | None = None
            try:
                reply = self._wait(request, channel)
                return reply
            finally:
                if isinstance(reply, Turn | Answered):
                    with self._guard:
                        self._idle.append(channel)
                else:  # its note may stay in the box: the next holder of the turn drops it if no caller waits there
                    channel.remove()
        except OSError:
            return Refused()

    async def perform_async(self, request: TakeTurn | PassTurn) -> Turn | Answered | Refused | Passed:
        """The same for coroutines. Who waits has threads of its own: the loop's may be what the holder waits for."""
        if isinstance(request, PassTurn):
            return self.pass_on(request)
        if request.key not in self._crowds:
            try:
                held = self._lock(request.key)
                if held is not None:
                    return self._turn(held, None)
            except OSError:
                return Refused()
        import asyncio  # here, because blocking callers never need it

        return await asyncio.wrap_future(self._of_coroutines().submit(self.take, request))

    def _of_coroutines(self) -> DaemonThreads:
        """Return the threads on which coroutines wait."""
        from ..threads import DaemonThreads  # here, because blocking callers never need it

        with self._guard:
            if self._threads is None:
                self._threads = DaemonThreads("osqueue-turns", THREADS_MAX, awaited=True)
            return self._threads

    def pass_on(self, request: PassTurn) -> Passed:
        """Answer, unlock, and wake one of those that still wait."""
        held = request.turn.held
        assert isinstance(held, HeldTurn)
        try:
            if not held.is_over():
                self._pass_on(held, dict(request.answers))
        except OSError:  # nobody hears of it, and all try the lock after a while
            pass
        finally:
            held.lock.close()
        return Passed()

    def is_taken(self, key: str) -> bool:
        """Return whether another caller has the turn at an object, or waits for it: then its box is not empty.

        A turn that this caller waited for without success does not count, for as long as its holder stands still. The
        next turn empties a killed holder's box.
        """
        try:
            taken = self._box(key, make=False).holds_something()
        except OSError:  # no caller has made a box here
            return False
        if not taken:
            self._waited.discard(key)
        return taken and key not in self._waited

    def _turn(self, held: HeldTurn, own: WaitingNote | None) -> Turn:
        """What the holder gets."""
        try:
            notes = self._gathered(held, own)
        except BaseException:
            held.lock.close()  # its caller is interrupted, and may keep the traceback
            raise
        self._waited.discard(held.key)
        self._fill(held.box, [_framed(_TAKEN, _NOBODY, b"")])
        held.since = self._machine.monotonic()
        held.notes = [note for note in notes if note != own]
        return Turn(tuple([note.content for note in held.notes]), held, noted=own is not None)

    def _gathered(self, held: HeldTurn, own: WaitingNote | None) -> list[WaitingNote]:
        """The notes, once those have come again who came to the last turn that was held here.

        Whoever was answered with that turn comes back a moment after it. Where flushes make a turn long it pays to wait
        that moment: else half of them would fill every second commit, and the other half the ones between.
        """
        notes = _notes_in(held.box)
        crowd = self._crowds.get(held.key)
        if crowd is not None:
            now = self._machine.monotonic()
            end = now + min(crowd.held_seconds * LINGER_SHARE, LINGER_SECONDS_MAX)
            while now < end and sum(note != own for note in notes) < crowd.others:
                self._machine.sleep(LINGER_STEP_SECONDS)
                notes += _notes_in(held.box)
                now = self._machine.monotonic()
        return notes

    def _remember(self, held: HeldTurn, others: int) -> None:
        if held.since is None or not self._lingers:  # it was had for nothing, or costs next to nothing
            return
        seconds = self._machine.monotonic() - held.since
        if others and seconds * LINGER_SHARE > LINGER_STEP_SECONDS:
            self._crowds[held.key] = Crowd(others, seconds)
        else:
            self._crowds.pop(held.key, None)

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
        self._remember(held, len(answered) + len(left))
        box = held.box
        self._fill(box, [note.frame() for note in left])
        held.lock.close()
        if not left:
            # Somebody may have put a note in after the box was emptied, and found the lock held just before this.
            left = _notes_in(box)
            self._fill(box, [note.frame() for note in left])
        for note in left:
            if self._send(note, _WAKE, b""):
                return

    # ── Waiting ──────────────────────────────────────────────────────────────
    def _wait(self, request: TakeTurn, channel: Channel) -> Turn | Answered | Refused:
        end = self._machine.monotonic() + request.wait_seconds
        channel.clear()
        content = request.note if len(request.note) + _FRAME.size <= PIPE_BYTES_MAX else b""
        note = WaitingNote(channel.name, content)
        self._fill(self._box(request.key), [note.frame()])
        while True:
            held = self._lock(request.key)
            answer = channel.answer()
            if answer is not None:
                if held is not None:
                    self._pass_on(held, {})
                return Answered(answer)
            if held is not None:
                return self._turn(held, note)
            left = end - self._machine.monotonic()
            if left <= 0:
                self._stuck[request.key] = end + STUCK_SECONDS
                self._waited.add(request.key)
                return Refused(noted=True)
            channel.wait(min(left, LOOK_SECONDS))

    def _lock(self, key: str) -> HeldTurn | None:
        path = f"{self.folder}/{_stem(key)}.lock"
        while True:
            box = self._box(key)
            lock = open_lock(path, self._access)
            held = HeldTurn(lock, box, key)  # which releases it, whatever comes
            if not lock.taken():
                return None
            if lock.is_named():
                return held
            lock.close()

    # ── Boxes and channels ───────────────────────────────────────────────────
    def _box(self, key: str, *, make: bool = True) -> Pipe:
        if self._process != os.getpid():
            with self._guard:
                self._start_afresh()
        box = self._boxes.get(key)
        if box is None or box.is_gone():
            with self._guard:
                if make:
                    self._prepare()
                if len(self._boxes) >= PIPES_MAX:
                    self._boxes.clear()
                box = self._boxes[key] = self._opened(f"{self.folder}/{_stem(key)}.box", make)
        return box

    def _opened(self, path: str, make: bool) -> Pipe:
        return _open_pipe(path, self._access) if make else Pipe(path, os.O_RDWR)

    def _fill(self, box: Pipe, frames: Iterable[bytes]) -> None:
        for frame in frames:
            try:
                box.write(frame)
            except BlockingIOError:  # it is full: whoever waits tries the lock after a while
                return

    def _channel(self) -> Channel:
        with self._guard:
            while self._idle:
                channel = self._idle.pop()
                if not channel.pipe.is_gone():
                    return channel
        name = self._machine.bits(64).to_bytes(8, "big").hex().encode()
        return Channel(name, self._path(name), self._access)

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
            Pipe(path, os.O_RDWR).write(_framed(kind, _NOBODY, content))
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
        """Make the folder, and remove the channels of processes that are gone, once."""
        self._access.make_folders(self.folder)  # another process may have removed it
        if self._ready:
            return
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
            threads = self._threads
        if threads is not None:
            threads.close()


class Channel:
    """Where one caller waits."""

    def __init__(self, name: bytes, path: str, access: FolderAccess) -> None:
        self.name = name
        self._path = path
        self.pipe = _open_pipe(path, access)
        self._poll = select.poll()
        self._poll.register(self.pipe.descriptor, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Until something comes, so long at most."""
        self._poll.poll(seconds * 1000)

    def answer(self) -> bytes | None:
        """Return the latest answer that has come, if any.

        It may belong to an earlier wait at this channel: the caller compares it with its request.
        """
        answers = [content for kind, _, content in _frames(self.pipe.read()) if kind == _ANSWER]
        return answers[-1] if answers else None

    def clear(self) -> None:
        """Forget what came for earlier waits."""
        self.pipe.read()

    def remove(self) -> None:
        """Nobody waits here any more."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)


def offered() -> bool:
    """Does this system name pipes?"""
    return hasattr(os, "mkfifo")


def _notes_in(box: Pipe) -> list[WaitingNote]:
    return [WaitingNote(channel, content) for kind, channel, content in _frames(box.read()) if kind == _NOTE]


def _open_pipe(path: str, access: FolderAccess) -> Pipe:
    """A named pipe, created where there is none, open at both ends: so it is never at its end, and never lost."""
    access.create(path, lambda name: os.mkfifo(name, PRIVATE_FILE))
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


def _framed(kind: int, channel: bytes, content: bytes) -> bytes:
    data = _FRAME.pack(_FRAME.size + len(content), 0, kind, channel) + content
    length, _, *rest = _FRAME.unpack_from(data)
    return _FRAME.pack(length, zlib.crc32(data[_CHECKED_FROM:]), *rest) + content


def _frames(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Read what pipes brought, up to a frame that is not whole: another process wrote or read a part of one."""
    at = 0
    while at + _FRAME.size <= len(data):
        length, checksum, kind, channel = _FRAME.unpack_from(data, at)
        frame = data[at : at + length]
        if len(frame) != length or length < _FRAME.size or zlib.crc32(frame[_CHECKED_FROM:]) != checksum:
            return
        yield kind, channel.rstrip(b"\0"), frame[_FRAME.size :]
        at += length
