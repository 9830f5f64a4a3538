"""Threads in virtual time: one runs at a time, until it waits for something, and goes on when the world says so.

So the code that really blocks runs as it is: group commit among threads, and the server behind the API.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from osqueue.commit import group
from osqueue.forks import ProcessIdentity
from osqueue.stores.base import Passed, PassTurn, PutIfAbsent, PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.wrapped import PerformingStore

from .machine import VirtualMachine
from .world import Deliver, World

Wake = Callable[[Any], None]
PREEMPTED = 0.02  # how often a thread that comes by is stopped for the others
POINTS_MAX = 80  # a thread that is to be interrupted somewhere is, at one of its next so many points


class Interrupted(BaseException):
    """A thread is interrupted, as by Ctrl-C."""


class _Dead(BaseException):
    """The process of a thread has died."""


class Host:
    """A process: what runs in it dies with it."""

    def __init__(self, world: World, send: Callable[[StoreRequest, Deliver], None]) -> None:
        self.world = world
        self.alive = True
        self.fibers: list[Fiber] = []
        self.died: Callable[[], None] = lambda: None  # called when it crashed
        self.forks: Callable[[], None] = lambda: None  # called when it forks
        self.ends: Callable[[], None] = lambda: None  # called when it is over, however that came
        self._send = send

    def run(self, body: Callable[[], None], after: float = 0.0) -> Fiber:
        """A thread of this process."""
        self.fibers = [each for each in self.fibers if not each.over]
        fiber = Fiber(self, body)
        self.fibers.append(fiber)
        self.world.after(after, fiber.go_on)
        return fiber

    def send(self, request: StoreRequest, deliver: Deliver) -> None:
        """One request to the store; the process may stand still before it or after it, or die."""
        world, faults = self.world, self.world.faults
        if not self.alive:
            return
        if world.happens("fork", faults.fork):
            self.forks()
        if world.happens("crash", faults.crash):
            if world.chance.random() > 0.3:
                self._send(request, lambda reply: None)
            self.alive = False
            world.after(0.0, self._crash)
            return

        def arrived(reply: StoreReply) -> None:
            pause = world.freeze_while() if world.happens("freeze", faults.freeze) else 0.0
            self.later(pause, partial(deliver, reply)) if pause else self._alive(partial(deliver, reply))

        if world.happens("freeze", faults.freeze):
            self.later(world.freeze_while(), lambda: self._send(request, arrived))
        else:
            self._send(request, arrived)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something a while from now, if the process is alive then."""
        self.world.after(seconds, partial(self._alive, action))

    def _alive(self, action: Callable[[], None]) -> None:
        if self.alive:
            action()

    def _crash(self) -> None:
        self.kill()
        self.died()

    def kill(self) -> None:
        """Nothing of it runs any more; what is on its way to the store arrives all the same."""
        self.alive = False
        for fiber in self.fibers:
            fiber.unwind()
        self.ends()


_running: list[Fiber] = []  # the one whose turn it is; none: the world's own


def running() -> Fiber | None:
    """Which thread's turn it is; None: the world's."""
    return _running[-1] if _running else None


class Fiber:
    """One thread."""

    def __init__(self, host: Host, body: Callable[[], None]) -> None:
        self.host = host
        self.world = host.world
        self.over = False
        self.dead = False
        self.fuse = 0  # points until it is interrupted; 0: it is not to be
        self.snaps = (
            False  # it is to be interrupted by its next conditional write: before, within or after it
        )
        self._body = body
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._ticket = 0  # of what it waits for
        self._reply: Any = None
        self._error: BaseException | None = None
        self._failure: BaseException | None = None

    # ── By the world ─────────────────────────────────────────────────────────
    def go_on(self) -> None:
        """Run until it waits again, or ends. What it raises is raised here."""
        if self.over or (self.dead and self._thread is None):
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        _running.append(self)
        self._go.release()
        self._back.acquire()
        _running.pop()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def interrupt(self) -> None:
        """Whatever it waits for, it is interrupted now."""
        self._throw(Interrupted())

    def unwind(self) -> None:
        """Its process has died: end the thread, without any effect."""
        self.dead = True
        if self._thread is not None and not self.over:
            self._throw(_Dead())
        assert self.over or self._thread is None, "a dead thread waits for something"

    def _throw(self, error: BaseException) -> None:
        if not self.over:
            self._ticket += 1
            self._error = error
            self.go_on()

    # ── By itself ────────────────────────────────────────────────────────────
    def _run(self) -> None:
        self._go.acquire()
        try:
            self._body()
        except _Dead:
            pass
        except BaseException as failure:  # noqa: BLE001 - the world raises it
            if not self.dead:
                self._failure = failure
        self.over = True
        self._back.release()

    def wait(self, subscribe: Callable[[Wake], None]) -> Any:
        """Let the others run until somebody wakes this one; answers what it was woken with."""
        if self.dead:
            raise _Dead
        self._ticket += 1
        ticket = self._ticket

        def wake(value: Any) -> None:
            if self._ticket == ticket and self.host.alive:
                self._ticket += 1
                self._reply = value
                self.go_on()

        subscribe(wake)
        self._back.release()
        self._go.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._reply

    def pause(self, seconds: float) -> None:
        """Sleep."""
        self.wait(lambda wake: self.world.after(seconds, partial(wake, None)))

    def point(self) -> None:
        """A place where a thread may be interrupted, or stopped for the others."""
        if self.dead:
            return
        if self.fuse:
            self.fuse -= 1
            if not self.fuse:
                raise Interrupted
        if self.world.chance.random() < PREEMPTED:
            self.pause(0.0)


def weak_point() -> None:
    """A place where a thread that is to be interrupted somewhere often is."""
    fiber = running()
    if fiber is not None and not fiber.dead and fiber.fuse and fiber.world.chance.random() < 0.5:
        fiber.fuse = 0
        raise Interrupted


class Lock:
    """``threading.Lock`` in virtual time."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: list[Wake] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        fiber = running()
        assert fiber is not None, "only threads take locks"
        if fiber.dead:
            return True
        fiber.point()
        until = fiber.world.now + timeout if timeout >= 0 else float("inf")
        while self._held:
            left = until - fiber.world.now
            if not blocking or left <= 0:
                return False
            mine: list[Wake] = []
            try:
                fiber.wait(partial(self._subscribe, fiber.world, mine, left))
            except _Dead:
                raise
            except BaseException:
                if mine[0] not in self._waiting and not self.locked():
                    self._wake_next(fiber.world)  # the turn that was this one's
                raise
            finally:
                self._waiting = [each for each in self._waiting if each is not mine[0]]
        self._held = True
        return True

    def _subscribe(self, world: World, mine: list[Wake], left: float, wake: Wake) -> None:
        mine.append(wake)
        self._waiting.append(wake)
        if left != float("inf"):
            world.after(left, partial(wake, False))

    def _wake_next(self, world: World) -> None:
        if self._waiting:
            world.after(0.0, partial(self._waiting.pop(0), True))

    def release(self) -> None:
        fiber = running()
        assert fiber is not None, "only threads let go of locks"
        if fiber.dead:
            return
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        self._wake_next(fiber.world)

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def forked(self) -> Lock:
        """The same lock in a fork's child, where nobody waits, and nobody lets go of it."""
        lock = Lock()
        lock._held = self._held
        return lock


class RLock(Lock):
    """``threading.RLock`` in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self._owner: Fiber | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._is_owned():
            if not super().acquire(blocking, timeout):
                return False
            self._owner = running()
        self._depth += 1
        return True

    def release(self) -> None:
        fiber = running()
        if fiber is not None and fiber.dead:
            return
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._depth -= 1
        if not self._depth:
            self._owner = None
            super().release()

    def __enter__(self) -> bool:
        acquired = super().__enter__()
        weak_point()  # Python 3.14 handles signals here, and the lock stays held
        return acquired

    def _is_owned(self) -> bool:
        return self._held and self._owner is running()

    def forked(self) -> RLock:
        """Return the lock of a fork's child, where no thread that holds it exists."""
        lock = RLock()
        lock._held = self._held
        return lock


class _Threading:
    """What group commit takes of the module."""

    Lock = Lock
    RLock = RLock


@contextmanager
def virtual_threads() -> Iterator[None]:
    """Group commit waits in virtual time."""
    name = "threading"
    before = getattr(group, name)
    setattr(group, name, _Threading)
    try:
        yield
    finally:
        setattr(group, name, before)


class ThreadedMachine(VirtualMachine):
    """A machine with threads: wherever one asks for time or chance, it may be stopped."""

    pid = 1  # as the kernel knows it

    def __init__(self, *of_the_world: Any) -> None:
        super().__init__(*of_the_world)
        self._identity = ProcessIdentity(lambda: self.pid, lambda: None)

    def forked(self, name: str, seed: object, pid: int, hooks: bool) -> ThreadedMachine:
        """Return the machine as a fork's child finds it. Without ``hooks`` its memory does not know of the fork."""
        twin = self.clone(name, seed)
        twin.pid = self.pid
        twin._identity = ProcessIdentity(lambda: twin.pid, lambda: None)
        twin.pid = pid
        if hooks:
            twin._identity.begin_child()
        return twin

    def monotonic(self) -> float:
        _come_by()
        return super().monotonic()

    def uniform(self) -> float:
        _come_by()
        return super().uniform()

    def bits(self, count: int) -> int:
        _come_by()
        return super().bits(count)

    def sleep(self, seconds: float) -> None:
        fiber = running()
        assert fiber is not None, "only threads sleep"
        fiber.point()
        fiber.pause(seconds)
        fiber.point()

    def process(self) -> int:
        return self._identity.id()

    def name(self) -> str:
        return f"host-{self.pid}"


def _come_by() -> None:
    fiber = running()
    if fiber is not None:
        fiber.point()


class VirtualStore(PerformingStore):
    """The store as a process reaches it."""

    remote = False  # several requests go one after the other: threads for them are not what is looked at

    def __init__(self, host: Host) -> None:
        self.host = host

    def perform(self, request: StoreRequest) -> StoreReply:
        fiber = running()
        if isinstance(request, PassTurn) and (fiber is None or fiber.dead):
            # Who leaves passes the turn on, and does not stop before it has. A process that has died does so in vain.
            if self.host.alive:
                self.host.send(request, lambda reply: None)
            return Passed()
        assert fiber is not None, "only threads block"
        fiber.point()
        where = 0.0
        if fiber.snaps and isinstance(request, PutIfMatch | PutIfAbsent):
            fiber.snaps, where = False, fiber.world.chance.random()
        if where > 0.6:
            raise Interrupted
        if where > 0.3:
            self.host.send(request, lambda reply: None)
            raise Interrupted
        reply: StoreReply = fiber.wait(partial(self.host.send, request))
        if where:
            raise Interrupted
        fiber.point()
        return reply

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        import asyncio

        future: asyncio.Future[StoreReply] = asyncio.get_running_loop().create_future()
        self.host.send(request, lambda reply: None if future.done() else future.set_result(reply))
        return await future
