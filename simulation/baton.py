"""Programs that block, one at a time: who makes a system call gives the others a turn first.

Each program has a thread, of which only one ever runs, and which one follows from the seed. So a run replays.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

STANDS_STILL = 0.03  # this share of the calls takes long enough for others to do a lot
STILL_SECONDS_MAX = 0.4
CALL_SECONDS_MAX = 0.000_2
KILLED = {"write in place": 0.01, "flush in place": 0.03}  # of so many calls a process does not come back
KILLED_ELSEWHERE = 0.000_3


class PowerCut(BaseException):
    """The machine is off: nothing that runs on it goes on."""


class Killed(BaseException):
    """The process that runs has been killed: it makes no call any more."""


class _Runner:
    def __init__(self, program: Callable[[], None]) -> None:
        self.program = program
        self.go = threading.Semaphore(0)
        self.wake = 0.0  # when it goes on
        self.alive = True
        self.killed = False


class Turns:
    """Virtual time, and whose turn it is."""

    def __init__(self, chance: random.Random, now: float = 0.0) -> None:
        self.now = now  # seconds since the run began
        self.off = False
        self.kills = False  # are processes killed now and then?
        self._chance = chance
        self._runners: list[_Runner] = []
        self._running: _Runner | None = None
        self._back = threading.Semaphore(0)
        self._failure: Exception | None = None

    def start(self, program: Callable[[], None]) -> None:
        """Let a program take part."""
        self._runners.append(_Runner(program))

    def run(self) -> None:
        """Until all have ended. What one of them raises is raised."""
        for runner in self._runners:
            threading.Thread(target=self._thread, args=(runner,), daemon=True).start()
        while alive := [each for each in self._runners if each.alive]:
            self.now = max(self.now, min(each.wake for each in alive))
            self._running = self._chance.choice([each for each in alive if each.wake <= self.now])
            self._running.go.release()
            self._back.acquire()
        self._running = None
        if self._failure is not None:
            raise self._failure

    def call(self, name: str) -> None:
        """A system call is about to be made."""
        if self.kills and self._running and self._chance.random() < KILLED.get(name, KILLED_ELSEWHERE):
            self._running.killed = True
        if self._chance.random() < STANDS_STILL:
            self.pause(self._chance.uniform(0, STILL_SECONDS_MAX))
        else:
            self.pause(self._chance.uniform(0, CALL_SECONDS_MAX))

    def pause(self, seconds: float) -> None:
        """Let others go on for a while."""
        runner = self._running
        if runner is None:
            self.now += seconds
            return
        if not self.off:
            runner.wake = self.now + seconds
            self._back.release()
            runner.go.acquire()
        if self.off:
            raise PowerCut
        if runner.killed:
            raise Killed

    def running(self) -> object:
        """Whose turn it is."""
        return self._running

    def revive(self) -> None:
        """Another process begins where one was killed."""
        assert self._running is not None
        self._running.killed = False

    def switch_off(self) -> None:
        """The power goes: whoever runs ends where it stands."""
        self.off = True
        raise PowerCut

    def _thread(self, runner: _Runner) -> None:
        runner.go.acquire()
        try:
            if not self.off:
                runner.program()
        except PowerCut:
            pass
        except Exception as error:  # noqa: BLE001 - raised again where the run is waited for
            self._failure = self._failure or error
            self.off = True
        finally:
            runner.alive = False
            self._back.release()
