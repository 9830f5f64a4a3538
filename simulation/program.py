"""A program of a run: one writer, its dice, and what comes of each of its calls, which is judged and noted."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from osqueue import limits
from osqueue.commit import protocol, steps
from osqueue.commit.effects import (
    AwaitNews,
    Flow,
    Pause,
    QueueEffect,
    QueueFlow,
    RemoteRequest,
    Sleep,
    Submit,
)
from osqueue.commit.retry import NOTHING_DONE, Patience
from osqueue.commit.writer import Head
from osqueue.core.consumers import Wake
from osqueue.core.ops import Op
from osqueue.core.state import State
from osqueue.errors import (
    Damaged,
    NewerFormat,
    OsqueueError,
    Unavailable,
)
from osqueue.model.codecs import JSON, Codec
from osqueue.model.reports import ReapReport as Reaped
from osqueue.operations.admin import AdminFlows
from osqueue.operations.context import Writers
from osqueue.operations.flows import EmbeddedFlows
from osqueue.operations.waiters import board_of

from . import answers
from .invariants import Invariants
from .ledger import ClientCall, Ledger, Violation, WatchedWriter
from .machine import VirtualMachine, source
from .world import World

R = TypeVar("R")
KINDS = ("", "mail")
TIMEOUTS_SECONDS = (2.0, 25.0, 25.0, 600.0)


class AllFlows(EmbeddedFlows, AdminFlows):
    """All flows of one queue."""


class Outdated(Exception):
    """The queue speaks a newer format; this client stops, as it should."""


class SharedKeys:
    """What the clients of a run know of each other's jobs: the keys, so that somebody can cancel them."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.batches: list[bytes] = []  # those that were opened
        self.producing = 0  # producers that have not finished
        self.passes = 0  # of reapers, ended well
        self.reaped = Reaped()  # what they did
        self.troubles: Counter[str] = Counter()  # what kept others from it
        self.asked: Counter[str] = Counter()  # calls of callers, and how they were answered


class Program:
    """One writer and the dice of whoever holds it."""

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        invariants: Invariants,
        book: SharedKeys,
        name: str,
        writer: WatchedWriter,
        shard: int = 0,
    ) -> None:
        self.shard = shard
        self.world = world
        self.ledger = ledger
        self.invariants = invariants
        self.book = book
        self.name = name
        self.writer = writer
        assert isinstance(writer.machine, VirtualMachine)
        self.machine = writer.machine
        writer.spoken = ledger.machines
        self.dice = source(world.seed, "client", name)
        self.produces = False  # the run lasts until every producer is done
        self.time_limits = 0.0  # share of its jobs that have some
        self.units = 0.0  # share of its jobs that count as several starts
        self.throttles = 0.0  # share of its leases that it gives back with a word on others
        self.uniques = 0.0  # share of its calls under ids that say how they are kept unique
        self.restarts = 0.0  # share of these calls that restart an id
        self.groups = 0  # of most of its jobs
        self.fair = False  # it lets groups share alike
        self.policies = False  # it changes what they wait for
        self.reruns = 0.0  # share of its runs of a schedule that come twice in a commit
        self.follows = 0.0  # share of its jobs that others follow, or that are of a batch
        self.kinds: tuple[str, ...] = KINDS  # of its jobs; the first one has no name
        self.secrets = False  # do results and errors tell what a purge has to erase?
        self.peers: Sequence[Program] = ()  # of each shard the one who commits there; none: it does so itself
        self.copies = 0
        self.on_wakes: Callable[[list[Wake]], None] | None = (
            None  # what it does with the wakes of its commits
        )
        self.flows = self.library()

    def library(self) -> AllFlows:
        """The library's own flows, in a process of their own."""
        place = object()
        self.writer.on_head = board_of(place, self.writer.root).see
        writers = Writers(lambda shard: self.writer)
        return AllFlows(self.writer.queue, Codec(JSON), self.writer.machine, writers, place)

    def clone(self) -> Self:
        """A copy with the same identity, as a restored snapshot makes one; only the entropy differs."""
        self.copies += 1
        self.ledger.copied.add(self.writer.env)
        name = f"{self.name}~{self.copies}"
        writer = copy.copy(self.writer)
        writer.machine = self.machine.clone(name, self.world.seed)
        writer.blocks = dict(writer.blocks)
        writer.publications = copy.deepcopy(writer.publications)
        writer.call = None
        twin = type(self)(self.world, self.ledger, self.invariants, self.book, name, writer, self.shard)
        twin.on_wakes = self.on_wakes
        return twin

    # ── Calls ────────────────────────────────────────────────────────────────
    def call(self, *ops: Op, timeout: float | None = None, look: bool = False) -> Flow[ClientCall]:
        """Commit operations; whatever comes of it is judged at once and noted."""
        call = ClientCall(self.name, ops, self.world.now, identities=[])
        self.ledger.calls.append(call)
        self.writer.call = call
        wait = timeout if timeout is not None else self.dice.choice(TIMEOUTS_SECONDS)
        try:
            deadline = self.writer.machine.monotonic() + wait
            call.answer = yield from protocol.commit(self.writer, ops, deadline, look)
        except OsqueueError as error:
            call.error = error
        call.ended = self.world.now
        if (
            isinstance(call.error, OsqueueError)
            and call.error.permanent
            and self.world.refused_at < call.began
        ):
            raise Violation(
                f"{self.name} was refused, and the store has allowed everything since: {call.error}"
            )
        self._wake(call)
        answers.judge(self.ledger, self.invariants.library, call)
        if isinstance(call.error, NewerFormat):
            raise Outdated
        return call

    def can_wake(self, send: Callable[[list[Wake]], None]) -> None:
        """It invokes the consumers that its commits wake."""
        self.on_wakes = send
        self.writer.wakes = True

    def _wake(self, call: ClientCall) -> None:
        told = call.error.events if isinstance(call.error, steps.RequestRefused) else ()
        wakes = [each for each in (call.answer.events if call.answer else told) if isinstance(each, Wake)]
        if wakes and self.on_wakes is not None:
            self.on_wakes(wakes)

    def pause(self, mean_seconds: float) -> Flow[None]:
        """Do something else for a while."""
        yield Sleep(self.dice.expovariate(1 / mean_seconds))

    def head(self) -> Flow[State | None]:
        """The head as it is now, or None when the store did not say."""
        try:
            head = yield from self.writer.read_head()
        except NewerFormat as error:
            raise Outdated from error
        except Damaged:
            return None
        return head.state if isinstance(head, Head) and head.version is not None else None

    def run(self, flow: QueueFlow[R], stall_seconds: float = 0.0) -> Flow[R]:
        """Run one of the library's flows, standing still before each commit; raises what it raises."""
        reply: Any = None
        go_on: Callable[[Any], QueueEffect] = flow.send
        patience = Patience(self.writer.machine, limits.REQUEST_TIMEOUT_S)
        ran_out = False  # a flow may keep the error of that, go on, and raise it at its end
        while True:
            try:
                effect = go_on(reply)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            except NewerFormat as error:
                raise Outdated from error
            except Unavailable as error:
                early = patience.left > 0 and not ran_out
                if early and NOTHING_DONE in error.message and not error.permanent:
                    raise Violation(
                        f"{self.name} gave up with {patience.left:.1f} s left: {error}"
                    ) from error
                raise
            go_on = flow.send
            if isinstance(effect, AwaitNews):
                reply = yield Sleep(effect.seconds)
                patience.renew()
            elif isinstance(effect, Pause):
                if reply := (seconds := patience.spend(effect.seconds)) > 0:
                    yield Sleep(seconds)
                else:
                    ran_out = True
            elif isinstance(effect, Submit):
                if stall_seconds:
                    yield Sleep(stall_seconds)
                who = self.peers[int(effect.shard)] if self.peers else self
                call = yield from who.call(*effect.ops, timeout=effect.timeout, look=effect.look)
                reply = call.answer
                patience.renew()
                if call.error is not None:
                    go_on, reply = flow.throw, call.error
            else:
                assert not isinstance(effect, RemoteRequest), "nothing here is remote"
                patience.note(effect)
                reply = yield effect
