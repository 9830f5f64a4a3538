"""Processes of several callers who share one Queue object and so its commits: threads, or tasks of an event loop.

All of it is the real thing: the queue, its group commit, the drivers. A caller may leave at any step, because its
thread is interrupted, its task is cancelled or its deadline passes; the process may fork, or die.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from osqueue.commit import async_group, group
from osqueue.commit.async_group import AsyncGroup
from osqueue.commit.effects import Effect, Flow, HeadPlace, Submit
from osqueue.commit.group import LEADER_INTERRUPTED, CommitBatch, CommitWaiter
from osqueue.commit.request_status import CommitResult
from osqueue.commit.writer import ShardWriter
from osqueue.core.job_ops import CancelJob, ClaimJobs, ExtendLeases, JobSpec, LeaseBeat
from osqueue.core.ops import Op
from osqueue.core.queue_ops import ChangeSettings, RunTimers
from osqueue.errors import OsqueueError
from osqueue.queue.asynchronous import AsyncQueue
from osqueue.queue.blocking import Queue

from . import answers
from .clients import Client
from .fibers import POINTS_MAX, Fiber, Host, Interrupted, ThreadedMachine, VirtualStore, weak_point
from .ledger import ClientCall, Violation, WatchedWriter
from .loop import VirtualLoop
from .machine import source

if TYPE_CHECKING:
    from .run import Run

LEASE_MS = 600_000  # so long that no lease ends by itself before it is missed
PATIENCE_SECONDS = 120.0
ANSWERED_SECONDS_MAX = 3 * PATIENCE_SECONDS  # where a batch waits for another one
LEAVING_SECONDS_MAX = 2.0  # after which a caller that is to leave has left
FORKS_MAX = 4


class SharedWriter(WatchedWriter):
    """The writer of a crew."""

    crew: Crew


class WatchedBatch(CommitBatch):
    """A batch whose waiters are known, where they are a crew's."""

    crew: Crew | None

    def __init__(self, writer: ShardWriter, waiters: list[CommitWaiter]) -> None:
        super().__init__(writer, waiters)
        if not isinstance(writer, SharedWriter):
            self.crew = None
            return
        self.crew = writer.crew
        self.ops = [op for waiter in waiters for op in waiter.ops]
        # What it speaks under is what its waiters spoke under, each with its share.
        writer.call = self.call = ClientCall(writer.crew.name, (), writer.crew.world.now, identities=[])
        weak_point()
        self.crew.takes_off(self)

    def run(self, perform: Callable[[Effect], Any]) -> CommitResult:
        if self.pending is not None and self.crew is not None:
            self.crew.world.injected["flown on"] += 1
        return super().run(perform)

    def distribute(self, answer: CommitResult) -> list[Op]:
        chores = super().distribute(answer)
        if self.crew is not None:
            self.crew.lands(self)
        return chores


@contextmanager
def watched_flights() -> Iterator[None]:
    """Every batch of a crew is watched."""
    name = "CommitBatch"
    before = [(home, getattr(home, name)) for home in (group, async_group)]
    for home, _ in before:
        setattr(home, name, WatchedBatch)
    try:
        yield
    finally:
        for home, real in before:
            setattr(home, name, real)


class CrewMember(Client):
    """One caller of a crew."""

    def __init__(self, crew: Crew, name: str) -> None:
        run = crew.run
        super().__init__(run.world, run.ledger, run.invariants, run.book, name, crew.writer)
        self.crew = crew
        self.now: ClientCall | None = None  # the call that is under way
        self.leaves = Leaving(self)

    def call(
        self, *ops: Op, timeout: float | None = None, look: bool = False
    ) -> Generator[Any, Any, ClientCall]:
        """Commit operations together with the others of the process."""
        call = ClientCall(self.name, ops, self.world.now, identities=[], shared=True)
        self.ledger.calls.append(call)
        self.now = self.crew.aboard[id(ops)] = call
        self.leaves.plan()
        self.crew.host.later(ANSWERED_SECONDS_MAX, lambda: self.crew.misses(call))
        try:
            call.answer = yield Submit(0, ops, timeout or self.crew.patience(), look)
        except OsqueueError as error:
            call.error = error
        except GeneratorExit:  # it left
            self.world.injected["left"] += self.crew.host.alive
            raise
        finally:
            call.ended = self.world.now
            self.now = None
            self.leaves.forget()
        self.crew.heard(call)
        return call

    def turn(self) -> Flow[None]:
        """One thing after the other."""
        roll = self.dice.random()
        if roll < 0.4:
            yield from self.produce(1, self.crew.pause_seconds)
        elif roll < 0.9:
            yield from self.labour()
        elif roll < 0.95 and self.book.keys:
            yield from self.call(CancelJob(self.dice.choice(self.book.keys[-40:])))
        else:
            yield from self.call(RunTimers(), ChangeSettings(backoff_base_ms=self.dice.choice((100, 1_000))))

    def staged(self, jobs: Any) -> Flow[list[JobSpec]]:
        """Nothing is staged: that is what other clients do."""
        yield from ()
        return list(jobs)

    def labour(self) -> Flow[None]:
        """Claim, as all of the process do, beat and finish."""
        yield from self.pause(self.crew.pause_seconds)
        call = yield from self.call(ClaimJobs(self.dice.choice((1, 2, 5)), self.crew.name, LEASE_MS))
        leases = call.answer.outcomes[0].leases if call.answer else ()
        if not leases:
            return
        if self.dice.random() < 0.3:
            yield from self.call(ExtendLeases(tuple(LeaseBeat(each.job.key, each.token) for each in leases)))
        yield from self.finish(leases)


class Leaving:
    """When a caller leaves, and how."""

    def __init__(self, member: CrewMember) -> None:
        self.member = member
        self.fiber: Fiber | None = None
        self.task: asyncio.Task[None] | None = None

    def plan(self) -> None:
        """A call begins."""
        me = self.member
        if not me.world.happens("leave", me.world.faults.leave):
            return
        roll = me.dice.random()
        if self.fiber is not None and roll < 0.7:
            if roll < 0.4:
                self.fiber.fuse = me.dice.randint(1, POINTS_MAX)
            else:
                self.fiber.snaps = True
            return
        call = me.now
        seconds = LEAVING_SECONDS_MAX * me.dice.random() ** 3
        me.crew.host.later(seconds, lambda: self._leave(call))

    def _leave(self, call: ClientCall | None) -> None:
        if self.member.now is not call:
            return
        if self.fiber is not None:
            self.fiber.interrupt()
        elif self.task is not None:
            self.task.cancel()

    def forget(self) -> None:
        """The call is over."""
        if self.fiber is not None:
            self.fiber.fuse, self.fiber.snaps = 0, False


class Crew:
    """One process."""

    def __init__(self, run: Run, name: str, turns: int, writer: SharedWriter, host: Host) -> None:
        self.run = run
        self.world = run.world
        self.name = name
        self.turns = turns  # that its callers still have to take
        self.pause_seconds = run.profile.clients.pause_seconds
        self.dice = source(run.world.seed, "crew", name)
        self.writer = writer
        self.writer.crew = self
        self.host = host
        self.aboard: dict[int, ClientCall] = {}  # by the operations they brought
        self.landed: list[tuple[CommitWaiter, ClientCall]] = []  # waiters that were granted leases
        self.told: set[str] = set()  # tokens that some caller of it was told
        self.left = run.profile.clients.threads  # callers that have not finished
        self.queue = self.opened()
        host.died = self._died
        host.forks = self.fork
        run.hosts.append(host)

    # ── What differs ─────────────────────────────────────────────────────────
    def opened(self) -> Any:
        """The Queue object."""
        raise NotImplementedError

    def start(self, member: CrewMember) -> None:
        """Let a caller begin."""
        raise NotImplementedError

    # ── The course of it ─────────────────────────────────────────────────────
    def begin(self) -> None:
        """All callers begin."""
        for at in range(self.run.profile.clients.threads):
            self.start(CrewMember(self, f"{self.name}.{at}"))

    def patience(self) -> float:
        """How long a call may take."""
        if self.run.profile.ordered:
            return PATIENCE_SECONDS
        return self.dice.choice((2.0, 25.0, PATIENCE_SECONDS))

    def takes_turn(self) -> bool:
        """Is there anything left to do for a caller?"""
        self.turns -= 1
        return self.turns >= 0

    def finished(self) -> None:
        """One caller is done."""
        self.left -= 1
        if not self.left:
            self.run.book.producing -= 1

    def _died(self) -> None:
        if self.left > 0:
            self.left = 0
            self.run.crew(f"{self.name}+", type(self), self.turns).begin()

    def fork(self) -> None:
        """The process is copied as it is, in the middle of whatever it does; the copy has none of its threads.

        Every second fork runs no hooks, as that of a server in C.
        """
        if self.run.forks >= FORKS_MAX:
            return
        self.run.forks += 1
        name = f"{self.name}/{self.run.forks}"
        writer = copy.copy(self.writer)
        machine = self.writer.machine
        assert isinstance(machine, ThreadedMachine)
        hooks = self.run.forks % 2 == 0
        writer.machine = machine.forked(name, self.world.seed, 1 + self.run.forks, hooks)
        writer.encoder = copy.deepcopy(writer.encoder)
        writer.blocks = dict(writer.blocks)
        writer.call = None
        child = type(self)(self.run, name, self.turns // 2, writer, Host(self.world, self.run.network.send))
        for shard, each in self.queue._commit_groups.items():
            child.queue._commit_groups[shard] = _forked(each, child.queue)
        self.run.book.producing += 1
        child.begin()

    # ── What is checked ──────────────────────────────────────────────────────
    @contextmanager
    def told_only(self, member: CrewMember) -> Iterator[None]:
        """A caller hears answers and the library's errors, and nothing else."""
        try:
            yield
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"{member.name} was told {type(error).__name__}: {error}") from error

    def takes_off(self, batch: WatchedBatch) -> None:
        """What earlier callers were granted and did not hear of has to be given back by this one at the latest."""
        for waiter in batch.waiters:
            call = self.aboard.get(id(waiter.ops))
            if call is not None:
                call.identities = batch.call.identities
        given = {held.token for op in batch.ops for held in getattr(op, "held", ())}
        for waiter, call in list(self.landed):
            if not call.ended:
                continue  # it is about to hear
            self.landed.remove((waiter, call))
            if call.answer is None and (tokens := _tokens(waiter.answer) - given):
                raise Violation(
                    f"{call.client} left, and {len(tokens)} leases that nobody heard of are not given back"
                )

    def lands(self, batch: WatchedBatch) -> None:
        """Note who was granted something."""
        for waiter in batch.waiters:
            call = self.aboard.get(id(waiter.ops))
            known = any(each is waiter for each, _ in self.landed)
            if call is not None and call.answer is None and _tokens(waiter.answer) and not known:
                self.landed.append((waiter, call))

    def misses(self, call: ClientCall) -> None:
        """Long after its deadline, a caller must not wait any more."""
        if self.run.profile.ordered and not call.ended:
            raise Violation(f"{call.client} was never answered")

    def heard(self, call: ClientCall) -> None:
        """A caller has its answer: is it true, and its alone?"""
        answers.judge(self.run.ledger, self.run.invariants.library, call)
        if torn := LEADER_INTERRUPTED in str(call.error):
            self.world.injected["torn"] += 1
        if call.error is not None and self.run.profile.ordered and not torn:
            raise Violation(f"{call.client} was told {call.error}, although nothing fails")
        tokens = _tokens(call.answer)
        if tokens & self.told:
            raise Violation(f"{call.client} was given a lease that another caller was given")
        self.told |= tokens


class ThreadCrew(Crew):
    """Callers are threads."""

    def opened(self) -> Any:
        return SharedQueue(self)

    def start(self, member: CrewMember) -> None:
        def body() -> None:
            while self.takes_turn():
                with suppress(Interrupted), self.told_only(member):
                    self.queue._run(member.turn())
            self.finished()

        member.leaves.fiber = self.host.run(body, self.world.chance.random() * 2)


class TaskCrew(Crew):
    """Callers are tasks of one event loop."""

    def opened(self) -> Any:
        self.loop = VirtualLoop(self.host)
        return SharedAsyncQueue(self)

    def start(self, member: CrewMember) -> None:
        async def body() -> None:
            while self.takes_turn():
                task = member.leaves.task = self.loop.create_task(self.queue._run(member.turn()))
                await asyncio.wait({task})
                with suppress(asyncio.CancelledError), self.told_only(member):
                    task.result()
            self.finished()

        self.loop.begin(body, after=self.world.chance.random() * 2)


class SharedQueue(Queue[Any]):
    """The queue of a process with threads."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        super().__init__(VirtualStore(crew.host), crew.writer.queue, machine=crew.writer.machine)

    def _writer(self, shard: HeadPlace) -> ShardWriter:
        return self.crew.writer


class SharedAsyncQueue(AsyncQueue[Any]):
    """The queue of a process with an event loop."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        super().__init__(VirtualStore(crew.host), crew.writer.queue, machine=crew.writer.machine)

    def _writer(self, shard: HeadPlace) -> ShardWriter:
        return self.crew.writer


def _forked(group: Any, queue: Any) -> Any:
    """A group as the child of a fork finds it: whoever waits or flies in it belongs to the parent."""
    child = copy.copy(group)
    child.writer, child.driver = queue._writers[0], queue._driver
    child._waiting = [replace(each) for each in group._waiting]
    if isinstance(group, AsyncGroup):
        if group._task is not None and not group._task.done():
            child._task = queue.crew.loop.create_future()  # what the parent's loop would end
    else:
        child._lock = group._lock.forked()
        for waiter in child._waiting:
            waiter.wake = waiter.wake and waiter.wake.forked()
    return child


def _tokens(answer: CommitResult | None) -> set[str]:
    return {lease.token for each in answer.outcomes for lease in each.leases} if answer else set()
