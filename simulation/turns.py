"""Turns in virtual time: who has the turn at a key, who waits for it, and how it is lost.

A holder that dies, or whose answer is lost, keeps the turn until ``DEAD_SECONDS`` have gone by; a kernel is faster, and
so the simulator looks at more. Now and then a turn is lost: somebody else gets it, and its holder goes on as if it had
it. Notes are read twice, by nobody, or long after their writers have given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from osqueue.stores.base import Answered, Passed, PassTurn, Refused, TakeTurn, Turn

from .world import Deliver, World

DEAD_SECONDS = 20.0
LOST_AFTER_SECONDS_MAX = 0.2


class TurnWaiter(Struct, eq=False):
    """Somebody who waits for a turn."""

    note: bytes
    deliver: Deliver
    over: bool = False


class Grant(Struct, eq=False):
    """The turn was given to somebody."""

    desk: Desk
    notes: list[TurnWaiter]  # that it was given


class Desk:
    """The turn at one key."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.held: Grant | None = None
        self.waiting: list[TurnWaiter] = []
        self.box: list[TurnWaiter] = []

    def take(self, request: TakeTurn, deliver: Deliver) -> None:
        """Have the turn, or wait for it."""
        waiter = TurnWaiter(request.note, deliver)
        if self.held is None:
            self._give(waiter, noted=False)
            return
        self.waiting.append(waiter)
        if not self.world.happens("note lost", self.world.faults.note):
            self.box.append(waiter)
        self.world.after(request.wait_seconds, lambda: self._end(waiter, Refused(noted=True)))

    def pass_on(self, grant: Grant, answers: Sequence[tuple[int, bytes]]) -> Passed:
        """Answer, and let the next one have it."""
        for at, answer in answers:
            short = answer if not self.world.happens("answer short", self.world.faults.note) else b""
            if not self.world.happens("answer of a note lost", self.world.faults.note):
                self._end(grant.notes[at], Answered(short))
        if grant is self.held:
            self._free()
        return Passed()

    def _end(self, waiter: TurnWaiter, reply: Any) -> None:
        if not waiter.over:
            waiter.over = True
            self.waiting = [each for each in self.waiting if each is not waiter]
            waiter.deliver(reply)

    def _free(self) -> None:
        self.held = None
        if self.waiting:
            self._give(self.waiting.pop(0), noted=True)

    def _give(self, waiter: TurnWaiter, noted: bool) -> None:
        world = self.world
        notes = [each for each in self.box if each is not waiter]
        # Some stay, as if they had been put back: they are read again, whatever has become of their writers.
        self.box = [each for each in notes if world.happens("note read again", world.faults.note)]
        self.held = grant = Grant(self, notes)
        waiter.over = True
        waiter.deliver(Turn(tuple(each.note for each in notes), grant, noted))
        lost = world.happens("turn lost", world.faults.turn)
        seconds = world.chance.uniform(0.0, LOST_AFTER_SECONDS_MAX) if lost else DEAD_SECONDS

        def gone() -> None:
            if grant is self.held:
                self._free()

        world.after(seconds, gone)


class TurnDesks:
    """The turns at all keys."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.desks: dict[str, Desk] = {}

    def is_taken(self, key: str) -> bool:
        """Return whether a writer has the turn at a key."""
        desk = self.desks.get(key)
        return desk is not None and desk.held is not None

    def perform(self, request: TakeTurn | PassTurn, deliver: Deliver) -> None:
        """A request about a turn arrives."""
        if isinstance(request, TakeTurn):
            self.desks.setdefault(request.key, Desk(self.world)).take(request, deliver)
        else:
            held = request.turn.held
            assert isinstance(held, Grant)
            deliver(held.desk.pass_on(held, request.answers))
