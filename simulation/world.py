"""Virtual time, and the processes that live in it.

A process is a generator of effects (a client program that runs the real commit flow). Nothing happens at the
same time as anything else: the heap of events gives one order, and the seed gives the heap.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from osqueue.commit.effects import All, Effect, Sleep
from osqueue.errors import Unavailable
from osqueue.stores.base import Failed, StoreReply, StoreRequest

from .conditions import Faults
from .machine import VirtualMachine, source

EXPIRED_SECONDS = 0.02  # that a request takes whose credentials have run out
EVENTS_MAX = 300_000  # five times what a run takes; one with more is not going anywhere
Program = Generator[Effect, Any, None]
Deliver = Callable[[StoreReply], None]


class World:
    """The clock, the events to come, and what was done to the clients so far."""

    def __init__(self, seed: object, faults: Faults, events_max: int = EVENTS_MAX) -> None:
        self.now = 0.0  # seconds
        self.seed = seed
        self.faults = faults
        self.chance = source(seed, "world")
        self.injected: Counter[str] = Counter()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.events = 0
        self.events_max = events_max
        self.refused_at = float("-inf")  # seconds: when a client sent its latest request that was refused

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something later."""
        self._count += 1
        heapq.heappush(self._heap, (self.now + seconds, self._count, action))

    def run(self, until: Callable[[], bool], seconds_max: float) -> bool:
        """Let time pass until something holds; False when it did not within that many seconds from now."""
        end = self.now + seconds_max
        while not until():
            if not self._heap or self._heap[0][0] > end:
                return False
            self.now, _, action = heapq.heappop(self._heap)
            self.events += 1
            if self.events > self.events_max:
                return False
            action()
        return True

    def happens(self, kind: str, probability: float) -> bool:
        """Draw whether a fault happens now, and count it."""
        if probability and self.chance.random() < probability:
            self.injected[kind] += 1
            return True
        return False

    def long_while(self) -> float:
        """A delay between a tenth of a second and the profile's longest, every order of magnitude as likely."""
        return self._while(self.faults.delay_seconds_max)

    def freeze_while(self) -> float:
        """The same for a client that stands still."""
        return self._while(self.faults.freeze_seconds_max or self.faults.delay_seconds_max)

    def suspend_while(self) -> float:
        """The same for a machine."""
        return self._while(self.faults.suspend_seconds_max)

    def outage_while(self) -> float:
        """Draw how long the store refuses requests, or fails them."""
        return self._while(self.faults.outage_seconds_max)

    def refusal(self, why: str) -> Failed:
        """Return the reply to a request that is refused. Each is an error of its own."""
        self.refused_at = self.now
        return Failed(Unavailable(f"403 (injected): {why}", permanent=True))

    def _while(self, high: float) -> float:
        low = 0.1
        return float(low * (high / low) ** self.chance.random())


class Process:
    """One client: performs its program's effects, unless it is frozen or dead."""

    def __init__(
        self,
        world: World,
        send: Callable[[StoreRequest, Deliver], None],
        program: Program,
        *,
        machine: VirtualMachine | None = None,
        stage: Callable[[], AbstractContextManager[None]] = nullcontext,
        died: Callable[[], None] = lambda: None,
    ) -> None:
        self.world = world
        self.alive = True
        self._send = send
        self._program = program
        self._machine = machine
        self._stage = stage  # entered for every step: which release this client runs
        self._died = died
        self._expired_until = float("-inf")  # seconds: when it has credentials again

    def start(self, after: float = 0.0) -> None:
        """Begin a while from now."""
        self.world.after(after, lambda: self._step(None))

    def kill(self) -> None:
        """Die between two steps. What is on its way to the store arrives all the same."""
        self.alive = False

    def _step(self, reply: Any) -> None:
        if not self.alive:
            return
        try:
            with self._stage():
                effect = self._program.send(reply)
        except StopIteration:
            self.alive = False
            return
        self._stand_still(lambda: self._perform(effect))

    def _stand_still(self, action: Callable[[], None]) -> None:
        """Go on, after whatever befalls the client and its machine meanwhile."""
        world, faults, machine = self.world, self.world.faults, self._machine
        if machine is not None and world.happens("step", faults.step):
            machine.step(world.chance.randint(-faults.step_ms_max, faults.step_ms_max))
        if machine is not None and world.happens("suspend", faults.suspend):
            seconds = world.suspend_while()
            machine.suspend(seconds, wall=world.happens("suspend unnoticed", faults.stops_wall))
            world.after(seconds, action)
        elif world.happens("freeze", faults.freeze):
            world.after(world.freeze_while(), action)
        else:
            action()

    def _perform(self, effect: Effect) -> None:
        if not self.alive:
            return
        if isinstance(effect, Sleep):
            self.world.after(effect.seconds, lambda: self._step(None))
            return
        dies = self.world.happens("crash", self.world.faults.crash)
        before = dies and self.world.chance.random() < 0.3
        if not before:
            self._request(effect)
        if dies:
            self.kill()
            self._died()

    def _request(self, effect: StoreRequest | All) -> None:
        requests = effect.requests if isinstance(effect, All) else (effect,)
        replies: dict[int, StoreReply] = {}

        def arrive(position: int, reply: StoreReply) -> None:
            replies[position] = reply
            if len(replies) == len(requests):
                whole = tuple(replies[at] for at in range(len(requests)))
                self._resume(whole if isinstance(effect, All) else whole[0])

        if not requests:
            self._resume(())
        world, faults = self.world, self.world.faults
        if world.happens("expired", faults.expired):
            self._expired_until = world.now + world.outage_while()
        for position, request in enumerate(requests):
            if faults.expired and world.now < self._expired_until:
                refused = world.refusal("the credentials have run out")
                world.after(EXPIRED_SECONDS, partial(arrive, position, refused))
            else:
                self._send(request, partial(arrive, position))

    def _resume(self, reply: Any) -> None:
        self._stand_still(lambda: self._step(reply))
