"""Turns at a Valkey or Redis server: who may replace an object next, and what the others want done.

For the prefix ``osqueue`` these names, none of which outlives ``KEPT_MS``::

    osqueue:turn/<key>      who has the turn, for ``HELD_MS`` at most
    osqueue:box/<key>       notes of those who wait, the first of whom is next
    osqueue:hear/<waiter>   what somebody who waits is told: an answer, or that it has the turn

Whoever finds the turn free takes it with all notes, in one script. Whoever does not leaves its note in the same
script, and waits for an answer. The holder answers and hands the turn to the first of those that are left, in one
script again; so does whoever waits no longer, and finds that it has the turn. Nothing here has to last: the turn of a
holder that died or stands still is free after ``HELD_MS``, and those who hear nothing for ``LOOK_SECONDS`` try to take
it. Whoever has waited in vain does without a turn for so long.
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
KEPT_MS = 10_000  # a note waits for a second at most
LOOK_SECONDS = 0.1  # between two tries to take the turn by someone who hears nothing
NOTES_MAX = 500  # that are read at once
THREADS_MAX = 64  # that wait for coroutines
WAITER_CHARS = 32
_TURN, _ANSWER = b"T", b"A"

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
# The notes, for whom the turn was handed to; 0 where it is over.
READ = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local notes = redis.call('LRANGE', KEYS[2], 0, ARGV[2] - 1)
redis.call('LTRIM', KEYS[2], ARGV[2], -1)
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
# Answers, then what is left of the notes, then the turn for the first who waits. KEYS[3…]: who is answered.
PASS = (
    """
for at = 3, #KEYS do
  redis.call('RPUSH', KEYS[at], ARGV[at + 2])
  redis.call('PEXPIRE', KEYS[at], ARGV[3])
end
for at = #ARGV, #KEYS + 3, -1 do redis.call('LPUSH', KEYS[2], ARGV[at]) end
if #ARGV > #KEYS + 2 then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
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
    notes: tuple[bytes, ...]  # of others, with their names


class ServerTurns:
    """The turns of the objects below one prefix of a server."""

    def __init__(self, prefix: str, machine: Machine, run: Run, hear: Hear) -> None:
        self._prefix = prefix
        self._machine = machine
        self._run = run
        self._hear = hear
        self._stuck: dict[str, float] = {}  # by key: until when nobody waits, on the monotonic clock

    def take(self, request: TakeTurn) -> Turn | Answered | Refused:
        """Wait for the turn, or for somebody to carry the note out. Raises Unavailable, Timeout."""
        name = f"{self._machine.bits(WAITER_CHARS * 4):0{WAITER_CHARS}x}"
        end = self._machine.monotonic() + request.wait_seconds
        stuck = self._machine.monotonic() < self._stuck.get(request.key, 0.0)
        notes = self._try(request.key, name, b"" if stuck else request.note)
        if notes is not None:
            return self._turn(request.key, name, notes, noted=False)
        if stuck:
            return Refused()
        try:
            return self._wait(request, name, end)
        except BaseException:  # Ctrl-C: whoever resumes the commit does without a turn
            with suppress(OsqueueError):
                self._leave(request, name)
            raise

    def _wait(self, request: TakeTurn, name: str, end: float) -> Turn | Answered | Refused:
        notes: list[bytes] | None = None
        while (left := end - self._machine.monotonic()) > 0:
            told = self._hear(f"{self._prefix}:hear/{name}", min(left, LOOK_SECONDS))
            if told is None:
                notes = self._try(request.key, name, b"")
            elif told[:1] == _ANSWER:
                return Answered(told[1:])
            else:
                notes = self._asked(READ, request.key, name, NOTES_MAX)
            if notes is not None:
                return self._turn(request.key, name, notes, noted=True)
        self._stuck[request.key] = end + HELD_MS / 1000
        self._leave(request, name)
        return Refused(noted=True)

    def _leave(self, request: TakeTurn, name: str) -> None:
        hear = f"{self._prefix}:hear/"
        self._run(LEAVE, self._places(request.key), (name, HELD_MS, KEPT_MS, hear, request.note))

    def pass_on(self, request: PassTurn) -> Passed:
        """Answer, and let the first of those who still wait have the turn. Raises Unavailable, Timeout."""
        held = request.turn.held
        assert isinstance(held, ServedTurn)
        answers = dict(request.answers)
        told = [
            (note[:WAITER_CHARS].decode(), answers[at]) for at, note in enumerate(held.notes) if at in answers
        ]
        left = [note for at, note in enumerate(held.notes) if at not in answers]
        hear = f"{self._prefix}:hear/"
        self._run(
            PASS,
            (*self._places(held.key), *(hear + waiter for waiter, _ in told)),
            (held.holder, HELD_MS, KEPT_MS, hear, *(_ANSWER + answer for _, answer in told), *left),
        )
        return Passed()

    def _turn(self, key: str, name: str, notes: Sequence[bytes], *, noted: bool) -> Turn:
        own = name.encode()
        others = tuple([note for note in notes if not note.startswith(own)])
        return Turn(tuple([note[WAITER_CHARS:] for note in others]), ServedTurn(key, name, others), noted)

    def _try(self, key: str, name: str, note: bytes) -> list[bytes] | None:
        return self._asked(TAKE, key, name, HELD_MS, NOTES_MAX, note, KEPT_MS)

    def _asked(self, script: str, key: str, *arguments: Any) -> list[bytes] | None:
        found = self._run(script, self._places(key), arguments)
        return found if isinstance(found, list) else None

    def _places(self, key: str) -> tuple[str, str]:
        return f"{self._prefix}:turn/{key}", f"{self._prefix}:box/{key}"
