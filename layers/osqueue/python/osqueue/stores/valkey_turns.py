"""Turns at a Valkey or Redis server: who may replace an object next, and what the others want done.

For the prefix ``osqueue`` these names, none of which is kept for longer than ``KEPT_MS`` after its last use::

    osqueue:turn/<key>      who has the turn
    osqueue:box/<key>       notes of those who wait, the first of whom is next
    osqueue:hear/<waiter>   what somebody who waits is told

Whoever finds the turn free takes it with all notes, in one script. Whoever does not leaves its note in the same
script, and waits until it is told: an answer, that it has the turn, or to come again. The holder tells all whose notes
it has read, and hands the turn to the first who came since, in one script; so does whoever waits no longer, and finds
that it has the turn. Nothing here has to last. Who hears nothing for ``LOOK_SECONDS`` tries to take the turn: that of
a holder that died or stands still is free after ``HELD_MS``, and one that was handed to somebody who is not there any
more after ``HANDED_MS``. Whoever has waited in vain does without a turn for as long as the holder may have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from ..clock import Machine
from ..errors import OsqueueError
from .base import Answered, Passed, PassTurn, Refused, TakeTurn, Turn

HELD_MS = 3_000  # much longer than a commit on this machine or the next takes
HANDED_MS = 300  # for whom it is handed to, to come for the notes
KEPT_MS = 10_000  # longer than anybody waits
LOOK_SECONDS = 0.1  # between two tries to take the turn by someone who hears nothing
HEAR_SECONDS_MIN = 0.001  # the server counts milliseconds, and takes none for endless
VAIN_SECONDS = 0.5  # a shorter wait in vain says nothing of the holder
NOTES_MAX = 500  # that are read at once
THREADS_MAX = 64  # that wait for coroutines
WAITER_CHARS = 32
_TURN, _ANSWER, _AGAIN = b"T", b"A", b"R"

# The turn with the notes of those who wait, or 0; then the own note is among them, unless it is "".
TAKE = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local notes = redis.call('LRANGE', KEYS[2], 0, ARGV[3] - 1)
  redis.call('LTRIM', KEYS[2], ARGV[3], -1)
  return notes
end
if ARGV[4] ~= '' then
  redis.call('RPUSH', KEYS[2], ARGV[1] .. ARGV[4])
  redis.call('PEXPIRE', KEYS[2], ARGV[5])
end
return 0
"""
# The turn and the notes, for whom it was handed to; 0 where it is over.
READ = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local notes = redis.call('LRANGE', KEYS[2], 0, ARGV[3] - 1)
redis.call('LTRIM', KEYS[2], ARGV[3], -1)
return notes
"""
_HAND_OVER = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local first = redis.call('LINDEX', KEYS[2], 0)
if first then
  local waiter = string.sub(first, 1, 32)
  redis.call('SET', KEYS[1], waiter, 'PX', ARGV[2])
  redis.call('RPUSH', ARGV[4] .. waiter, 'T')
  redis.call('PEXPIRE', ARGV[4] .. waiter, ARGV[3])
else
  redis.call('DEL', KEYS[1])
end
return 1
"""
# What those are told whose notes were read, KEYS[3…]; then the turn, for the first who came since.
PASS = (
    """
for at = 3, #KEYS do
  redis.call('RPUSH', KEYS[at], ARGV[at + 2])
  redis.call('PEXPIRE', KEYS[at], ARGV[3])
end
"""
    + _HAND_OVER
)
# Wait no longer: the own note goes, and the turn, should it have been handed over just now.
LEAVE = "redis.call('LREM', KEYS[2], 1, ARGV[1] .. ARGV[5])" + _HAND_OVER
SCRIPTS = (TAKE, READ, PASS, LEAVE)

Run = Callable[[str, Sequence[Any], Sequence[Any]], Any]  # a script, with keys and arguments
Hear = Callable[[str, float], bytes | None]  # the first of a list, once there is one, within so many seconds


class ServedTurn(Struct, frozen=True):
    """The turn at one object, as the server knows it."""

    key: str
    holder: str
    waiters: tuple[str, ...]  # whose notes were read


class ServerTurns:
    """The turns of the objects below one prefix of a server."""

    def __init__(self, prefix: str, machine: Machine, run: Run, hear: Hear) -> None:
        self._prefix = prefix
        self._machine = machine
        self._run = run
        self._hear = hear
        self._stuck: dict[str, float] = {}  # by key: until when nobody waits, on the monotonic clock

    def waits_for(self, key: str) -> bool:
        """Return whether this caller would wait for the turn: not when it has just waited without success."""
        return self._machine.monotonic() >= self._stuck.get(key, 0.0)

    def take(self, request: TakeTurn) -> Turn | Answered | Refused:
        """Wait for the turn, or for somebody to carry the note out. Raises Unavailable, Timeout."""
        name = f"{self._machine.bits(WAITER_CHARS * 4):0{WAITER_CHARS}x}"
        now, stuck = self._machine.monotonic(), not self.waits_for(request.key)
        try:
            notes = self._try(request.key, name, b"" if stuck else request.note)
            if notes is not None:
                self._stuck.pop(request.key, None)
                return self._turn(request.key, name, notes, noted=False)
            return Refused() if stuck else self._wait(request, name, now + request.wait_seconds)
        except OsqueueError:  # the server does not answer: what was left there lapses by itself
            raise
        except BaseException:  # Ctrl-C: whoever resumes the commit does without a turn
            with suppress(OsqueueError):
                self._leave(request, name)
            raise

    def _wait(self, request: TakeTurn, name: str, end: float) -> Turn | Answered | Refused:
        notes: list[bytes] | None = None
        while (left := end - self._machine.monotonic()) > 0:
            seconds = max(HEAR_SECONDS_MIN, min(left, LOOK_SECONDS))
            told = self._hear(f"{self._prefix}:hear/{name}", seconds)
            if told is None:
                notes = self._try(request.key, name, b"")
            elif told == _AGAIN:
                notes = self._try(request.key, name, request.note)
            elif told == _TURN:
                notes = self._asked(READ, request.key, name, HELD_MS, NOTES_MAX)
            else:
                return Answered(told[len(_ANSWER) :])
            if notes is not None:
                return self._turn(request.key, name, notes, noted=True)
        if request.wait_seconds >= VAIN_SECONDS:
            self._stuck[request.key] = end + HELD_MS / 1000
        self._leave(request, name)
        return Refused(noted=True)

    def _leave(self, request: TakeTurn, name: str) -> None:
        self._run(LEAVE, self._places(request.key), (name, *self._next(), request.note))

    def pass_on(self, request: PassTurn) -> Passed:
        """Tell those who left notes, and let the first who came since have the turn. Raises Unavailable, Timeout."""
        held = request.turn.held
        assert isinstance(held, ServedTurn)
        answers = {at: _ANSWER + answer for at, answer in request.answers}
        hear = [f"{self._prefix}:hear/{waiter}" for waiter in held.waiters]
        told = [answers.get(at, _AGAIN) for at in range(len(hear))]
        self._run(PASS, (*self._places(held.key), *hear), (held.holder, *self._next(), *told))
        return Passed()

    def _turn(self, key: str, name: str, notes: Sequence[bytes], *, noted: bool) -> Turn:
        others = [note for note in notes if not note.startswith(name.encode())]
        waiters = tuple([note[:WAITER_CHARS].decode() for note in others])
        return Turn(tuple([note[WAITER_CHARS:] for note in others]), ServedTurn(key, name, waiters), noted)

    def _try(self, key: str, name: str, note: bytes) -> list[bytes] | None:
        return self._asked(TAKE, key, name, HELD_MS, NOTES_MAX, note, KEPT_MS)

    def _asked(self, script: str, key: str, *arguments: Any) -> list[bytes] | None:
        found = self._run(script, self._places(key), arguments)
        return found if isinstance(found, list) else None

    def _places(self, key: str) -> tuple[str, str]:
        return self.name_of(key), f"{self._prefix}:box/{key}"

    def name_of(self, key: str) -> str:
        """Return what exists while a caller has the turn at an object."""
        return f"{self._prefix}:turn/{key}"

    def _next(self) -> tuple[int, int, str]:
        """How the turn is handed on: how long it is kept for whom it is handed to, and where that one hears of it."""
        return HANDED_MS, KEPT_MS, f"{self._prefix}:hear/"
