"""The instances of one function: started when they are needed, up to a limit."""

from __future__ import annotations

import threading
from collections import deque

from msgspec import Struct

from ..clock import MACHINE
from .instance import Instance, InstanceState, LaunchSpec
from .invocation import Invocation, failure

PATIENCE_S = 10.0  # a request waits this long for an instance before it is throttled
JOIN_S = 5.0  # for which the keeper of a process that was killed has time


class NoInstance(Exception):
    """Every instance was busy for longer than a request waits. Nothing was run."""


class InstanceStatus(Struct, frozen=True):
    """An instance, as people see it."""

    function: str
    pid: int | None
    state: InstanceState


class Pool:
    """Hands invocations to instances, the one that waits longest first."""

    def __init__(self, launch: LaunchSpec, processes: int, patience_s: float = PATIENCE_S) -> None:
        self.function = launch.function
        self._launch = launch
        self._processes = processes
        self.patience_s = patience_s
        self._lock = threading.Lock()
        self._waiting: deque[Invocation] = deque()
        self._frozen: list[Instance] = []  # the one used last is used next, so that the rest stay asleep
        self._starting: set[Instance] = set()
        self._all: set[Instance] = set()
        self._closed = False

    def submit(self, invocation: Invocation) -> None:
        """Have it run as soon as there is an instance for it."""
        with self._lock:
            if self._closed:
                invocation.finish(failure("ServiceException", "the stack is stopping"))
            elif self._frozen:
                self._give(self._frozen.pop(), invocation)
            else:
                self._waiting.append(invocation)
                self._grow()

    def invoke(self, invocation: Invocation, patience_s: float | None = None) -> None:
        """Have it run; raises NoInstance when no instance takes it within that time (by default: the pool's)."""
        self.submit(invocation)
        if invocation.left_queue.wait(self.patience_s if patience_s is None else patience_s):
            return
        with self._lock:
            if invocation in self._waiting:
                self._waiting.remove(invocation)
                raise NoInstance

    def instances(self) -> list[InstanceStatus]:
        """What there is at the moment."""
        with self._lock:
            return [InstanceStatus(self.function.name, each.pid, each.state) for each in self._all]

    def crash(self) -> InstanceStatus | None:
        """Kill an instance, in the middle of an invocation if one runs. None: there is none."""
        with self._lock:
            order: dict[InstanceState, int] = {"running": 1, "frozen": 2, "starting": 3, "ended": 4}
            for each in sorted(self._all, key=lambda one: 0 if one.busy else order[one.state]):
                seen = InstanceStatus(self.function.name, each.pid, each.state)
                if each.state != "ended" and each.kill() is not None:
                    if each in self._frozen:  # nobody else is given to it
                        self._frozen.remove(each)
                    return seen
        return None

    def close(self) -> None:
        """Let instances end, and make them where they do not."""
        with self._lock:
            self._closed = True
            instances = list(self._all)
            self._turn_away()
        for each in instances:
            each.stop()

    def join(self, until: float) -> None:
        """Wait until every instance has ended; those that have not by then (``MACHINE.monotonic()``) are killed."""
        with self._lock:
            instances = list(self._all)
        for each in instances:
            if not each.join(max(until - MACHINE.monotonic(), 0)):
                each.kill()
                each.join(JOIN_S)

    # ── What instances say ───────────────────────────────────────────────────
    def next_for(self, instance: Instance) -> Invocation | None:
        """An instance is ready: the invocation that waits longest, or None."""
        with self._lock:
            self._starting.discard(instance)
            if instance.killed:
                return None
            if self._waiting:
                invocation = self._waiting.popleft()
                invocation.left_queue.set()
                return invocation
            self._frozen.append(instance)
            return None

    def gone(self, instance: Instance) -> None:
        """An instance has ended. What it was given but has not begun is given to another."""
        with self._lock:
            self._all.discard(instance)
            was_starting = instance in self._starting
            self._starting.discard(instance)
            if instance in self._frozen:
                self._frozen.remove(instance)
            while not instance.box.empty():
                unbegun = instance.box.get()
                if unbegun is not None:
                    self._waiting.appendleft(unbegun)
            if was_starting and self._waiting and instance.fault is not None:
                self._waiting.popleft().finish(instance.fault)
            if self._closed:
                self._turn_away()
            self._grow()

    def _turn_away(self) -> None:
        while self._waiting:
            self._waiting.popleft().finish(failure("ServiceException", "the stack is stopping"))

    def _give(self, instance: Instance, invocation: Invocation) -> None:
        invocation.left_queue.set()
        instance.box.put(invocation)

    def _grow(self) -> None:
        """Start instances for those who wait. Whoever is ready first serves them, a new one or one that was busy."""
        while (
            not self._closed and len(self._starting) < len(self._waiting) and len(self._all) < self._processes
        ):
            instance = Instance(self._launch, self)
            self._all.add(instance)
            self._starting.add(instance)
            instance.start()
