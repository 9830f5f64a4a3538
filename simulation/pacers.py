"""Pacers in virtual time: callers who reserve, wait and act, on machines that stand still and whose clocks are wrong.

Each commit is compared with the one before it: numbers grow, slots have their distances, a request takes one slot
however often it is sent, and the pacer's own time never leaps. Each time a caller acts it is looked, by the true time,
whether that was his slot's, whether it was void or paused, and that nobody acted by it before.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Generator, Iterator
from typing import Any

from msgspec.structs import replace

from osqueue import limits
from osqueue.client.pacing import ApiAccess
from osqueue.client.transports.base import ApiAnswer, ApiCall, CallOutcome, LostCall
from osqueue.commit import protocol
from osqueue.commit.effects import Flow, QueueFlow, Sleep, Submit
from osqueue.commit.pacer_writer import PacerWriter
from osqueue.commit.writer import CLOCK_DRIFT_MAX
from osqueue.core.encoding import decode_head
from osqueue.core.ops import Code, Identity, Request
from osqueue.core.pacing import Slot, exists, head_us, own_us, slot_of
from osqueue.core.queue_ops import ChangePacer, ReserveSlots, ReturnSlot
from osqueue.core.state import NO_PACER, PacerRow
from osqueue.errors import NotFound, OsqueueError, Throttled, Timeout, Unavailable
from osqueue.objects.layout import root_of_pacer
from osqueue.operations.pacer_access import FREE, PRICED, REMOTE, PacerAccess, StoreAccess
from osqueue.operations.pacing import HeldSlot, PacerFlows
from osqueue.server import pacers
from osqueue.server.app import failed, success
from osqueue.server.request import RequestContext
from osqueue.stores.base import Put, StoreRequest

from .conditions import Profile
from .ledger import Ledger, Violation
from .machine import VirtualMachine, source
from .network import Network
from .truth import Truth
from .world import Process, World

NAME = "sim"
ROOT = root_of_pacer(NAME)
HEAD = ROOT + "head"
INTERVALS = (0.05, 0.25, 2.0)
BURSTS = (1, 1, 3)
GRACE_US = 100_000
AHEAD_US = 60_000_000
RUN_SECONDS = 400.0
NEWS_SHARE = (
    1.1  # of the age of a look: seconds after a change by which its holder knows of it, clocks being unequal
)
WAYS_SECONDS = (0.005, 0.005, 0.02, 0.1, 0.6)  # of a call over the API, and of its response
TOLD_US = 2_000  # to which times are rounded
DRIFT_SECONDS = 700.0  # between measurements of the clock
TROUBLES = (Timeout, Unavailable, Throttled, NotFound)


class PacedCaller:
    """One process that uses the pacer."""

    def __init__(self, run: PacerRun, name: str) -> None:
        self.run = run
        self.name = name
        self.dice = source(run.world.seed, name)
        clients = run.profile.clients
        skew_ms = self.dice.choice((0, 0, self.dice.randint(-clients.skew_ms_max, clients.skew_ms_max)))
        drift = self.dice.choice((-1, 0, 1)) * clients.drift_max
        self.machine = VirtualMachine(run.world, name, run.world.seed, skew_ms, drift)
        self.writer = PacerWriter(ROOT, NAME, self.machine, run.clock_ms)
        self.store = StoreAccess(NAME, self.machine, lambda: self.writer, run.pace)
        self.access = self.reached()
        self.flows = PacerFlows(NAME, self.machine, self.access, GRACE_US, AHEAD_US)

    def reached(self) -> PacerAccess:
        """Return how this caller reaches the pacer."""
        return self.store

    def perform(self, flow: QueueFlow[Any]) -> Flow[Any]:
        """Run one of the library's flows; raises what it raises."""
        reply: Any = None
        go_on: Any = flow.send
        while True:
            try:
                effect = go_on(reply)
            except StopIteration as stop:
                return stop.value
            go_on = flow.send
            if isinstance(effect, ApiCall):
                reply = yield from self.call(effect)
                continue
            if not isinstance(effect, Submit):
                reply = yield effect
                continue
            deadline = self.machine.monotonic() + self.dice.choice((2.0, 25.0, 25.0))
            try:
                reply = yield from protocol.commit(self.writer, effect.ops, deadline)
            except OsqueueError as error:
                go_on, reply = flow.throw, error

    def call(self, call: ApiCall) -> Flow[CallOutcome]:
        """Carry a call over the API."""
        raise NotImplementedError

    def use(self) -> Generator[Any, Any, None]:
        """Take turns, reserve and wait later, or give back."""
        while True:
            yield Sleep(self.dice.choice((0.0, 0.0, 0.2, 3.0)))
            units = self.dice.randint(1, self.run.burst)
            try:
                held: HeldSlot = yield from self.perform(self.flows.reserve(units))
                self.run.was_told(self.name, held.slot)
                if self.dice.random() < 0.1:
                    yield from self._return(held.slot)
                    continue
                if self.dice.random() < 0.2:
                    yield Sleep(self.dice.choice((0.1, 1.0, 5.0)))
                held = yield from self.perform(self.flows.wait(held))
            except TROUBLES as error:
                self.run.asked[type(error).__name__] += 1
                yield Sleep(self.dice.random())
                continue
            self.run.acts(self, held.slot)

    def _return(self, slot: Slot) -> Flow[None]:
        """Give a slot back, and try to give back what was not taken: more units, and the number after it."""
        yield from self.perform(self.access.give_back(replace(slot, units=slot.units + 1)))
        if (yield from self.perform(self.access.give_back(slot))):
            yield from self.perform(self.access.give_back(replace(slot, number=slot.number + 1)))

    def steer(self) -> Generator[Any, Any, None]:
        """Pause and resume; seldom begin again, or remove the pacer for a while."""
        while True:
            yield Sleep(self.dice.expovariate(1 / 15.0))
            try:
                yield from self.perform(self.access.pause(True))
                self.run.at_rest = True
                yield Sleep(self.dice.choice((0.5, 4.0, 20.0)))
                self.run.at_rest = False
                yield from self.perform(self.access.pause(False))
                if self.dice.random() < 0.3:
                    if self.dice.random() < 0.3:
                        yield from self.perform(self.access.remove())
                    yield from self.perform(
                        self.access.create(
                            self.run.interval, self.run.burst, self.dice.choice(("reset", "keep"))
                        )
                    )
            except TROUBLES as error:
                self.run.asked[f"operator: {type(error).__name__}"] += 1


class RemotePacedCaller(PacedCaller):
    """A process that uses the pacer over an API, whose server is its own: clock, writer and faults."""

    def reached(self) -> PacerAccess:
        """Return how this caller reaches the pacer."""
        self.server = VirtualMachine(self.run.world, f"{self.name}'s server", self.run.world.seed, 0, 0.0)
        self.writer = PacerWriter(ROOT, NAME, self.server, self.run.clock_ms)
        return ApiAccess(NAME, self.machine, 25.0)

    def call(self, call: ApiCall) -> Flow[CallOutcome]:
        """Carry a call over the API: there, and back unless its response is lost."""
        yield Sleep(self.dice.choice(WAYS_SECONDS))
        until = self.server.monotonic() + limits.REQUEST_TIMEOUT_S
        request = RequestContext(
            *(call.route, call.path, {}, call.body, self.server, None, until, None, {}),  # type: ignore[arg-type]
            access=self.store,
        )
        try:
            answer = success((yield from self.perform(getattr(pacers, call.route.name)(request))), {})
        except OsqueueError as error:
            answer = failed(error, {})
        yield Sleep(self.dice.choice(WAYS_SECONDS))
        if self.dice.random() < 0.02:
            return LostCall(Unavailable("the connection broke"))
        return ApiAnswer(answer.status, answer.body)


class PacerRun:
    """One run."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self.profile = profile
        self.world = World(f"{profile.name}/{seed}", profile.faults)
        self.truth = Truth(self.world)
        self.truth.watchers.append(self.watch)
        self.network = Network(self.world, self.truth, profile.latency)
        self.ledger = Ledger()
        self.ledger.clock = self.truth.seconds
        chance = self.world.chance
        self.tells_time = chance.random() < 0.5  # as a folder does; else as S3
        self.pace = FREE if self.tells_time else PRICED
        self.at_rest = False  # has a pause returned, and no resume been sent?
        self.interval = chance.choice(INTERVALS)
        self.burst = chance.choice(BURSTS)
        self.asked: Counter[str] = Counter()
        self.callers: list[PacedCaller] = []
        self.commits = 0
        self.row, self.now_ms = NO_PACER, 0  # of the newest head
        self.rows: deque[tuple[float, PacerRow]] = deque(
            [(0.0, NO_PACER)]
        )  # those current lately, since when
        self.applied: set[Identity] = set()
        self.given: dict[tuple[int, int], Slot] = {}  # by epoch and number
        self.told: dict[tuple[int, int], str] = {}  # to whom
        self.used: dict[tuple[int, int], str] = {}  # by whom
        self.spaced: list[Slot] = []  # of this epoch, less those given back
        self.error_us = 0.0  # by which anybody's clock may be wrong

    def clock_ms(self) -> int | None:
        """The store's clock, where it is told."""
        return self.truth.clock_ms() if self.tells_time else None

    def work(self) -> None:
        """Let them use it, while an operator pauses it."""
        self.enter("operator", PacedCaller.steer, first=True)
        remotes = self.world.chance.choice((0, 3, 3))
        for at in range(self.profile.clients.paced):
            self.enter(f"caller{at}", PacedCaller.use, RemotePacedCaller if at < remotes else PacedCaller)
        self.world.run(lambda: False, RUN_SECONDS)

    def enter(
        self, name: str, program: Any, kind: type[PacedCaller] = PacedCaller, *, first: bool = False
    ) -> None:
        """A process begins; should it die, another takes its place."""
        caller = kind(self, name)
        self.callers.append(caller)

        def begin() -> Generator[Any, Any, None]:
            while first:
                try:
                    yield from caller.perform(caller.access.create(self.interval, self.burst, "keep"))
                    break
                except TROUBLES:
                    continue
            yield from program(caller)

        Process(
            self.world,
            self.network.send,
            begin(),
            machine=caller.machine,
            died=lambda: self.enter(f"{name}+", program, kind, first=first),
        ).start(self.world.chance.random())

    # ── What is committed ────────────────────────────────────────────────────
    def watch(self, request: StoreRequest, key: str, body: bytes) -> None:
        """A write took effect."""
        if key != HEAD:
            return
        if isinstance(request, Put):
            raise Violation("the head was written without a condition")
        state = decode_head(body)
        batch = self.ledger.batches[state.commit]
        before, row = self.row, state.pacer
        changes = [op for each in batch.requests for op in each.ops if isinstance(op, ChangePacer)]
        for each in sorted(batch.requests, key=lambda each: (each.born, each.env, each.n)):
            self._apply(each, batch.reduction.outcomes.get(each.identity, ()), row)
        self._compare(before, self.now_ms, row, state.now_ms, changes)
        self.row, self.now_ms = row, state.now_ms
        self.commits += 1
        self.rows.append((self.world.now, row))
        while len(self.rows) > 1 and self.rows[1][0] < self.world.now - NEWS_SHARE * REMOTE.checked:
            self.rows.popleft()
        self._clocks()

    def _apply(self, request: Request, outcomes: Any, row: PacerRow) -> None:
        if outcomes and request.identity in self.applied:
            raise Violation("a request was applied twice")
        self.applied.update([request.identity] if outcomes else [])
        for op, outcome in zip(request.ops, outcomes, strict=False):
            if isinstance(op, ReserveSlots) and outcome.code == Code.RESERVED:
                self._give(slot_of(op, outcome), row)
            elif isinstance(op, ReturnSlot) and outcome.code == Code.OK:
                taken = self.given.get((op.epoch, op.number))
                if taken is None or taken.units != op.units:
                    raise Violation(f"slot {op.number} was given back, but was not taken with these units")
                self.spaced = [each for each in self.spaced if each.number != op.number]

    def _give(self, slot: Slot, row: PacerRow) -> None:
        place = (slot.epoch, slot.number)
        if place in self.given:
            raise Violation(f"slot {slot.number} was given twice")
        self.given[place] = slot
        if self.spaced and self.spaced[-1].epoch != slot.epoch:
            self.spaced = []
        self.spaced.append(slot)
        interval, units = round(self.interval * 1e6), 0
        for each in reversed(self.spaced[-50:]):
            units += each.units
            if units * interval > slot.at_us - each.at_us + self.burst * interval:
                raise Violation(f"slot {slot.number} is too near to slot {each.number}")

    def _compare(
        self, before: PacerRow, was_ms: int, row: PacerRow, now_ms: int, changes: list[ChangePacer]
    ) -> None:
        if not (exists(before) and exists(row)) or before.epoch != row.epoch:
            if exists(row) and not any(change.created for change in changes) and row is not before:
                raise Violation("a pacer came from nowhere")
            return
        if row.number < before.number:
            raise Violation("the numbers went back")
        passed = (now_ms - was_ms) * 1000
        own = own_us(row, now_ms) - own_us(before, was_ms)
        if own > passed or (before.paused_ms and own > 0):
            raise Violation("the pacer's time leapt: slots came nearer in a pause")

    def _clocks(self) -> None:
        """By how much clocks may differ from the store's."""
        if self.tells_time:
            return
        for each in self.callers:
            measured = each.writer.measured
            if measured is not None:
                took = measured.until.monotonic - measured.since.monotonic
                drift = 2 * (CLOCK_DRIFT_MAX + self.profile.clients.drift_max) * DRIFT_SECONDS
                self.error_us = max(self.error_us, (1.0 + took + drift) * 1e6)

    # ── What callers do ──────────────────────────────────────────────────────
    def was_told(self, name: str, slot: Slot) -> None:
        """A caller heard of his slot."""
        place = (slot.epoch, slot.number)
        if self.given.get(place) != slot:
            raise Violation(f"{name} was told of a slot that was never given")
        if self.told.setdefault(place, name) != name:
            raise Violation(f"slot {slot.number} is held by {name} and {self.told[place]}")

    def acts(self, caller: PacedCaller, slot: Slot) -> None:
        """A caller acts, by a slot."""
        self._clocks()
        place = (slot.epoch, slot.number)
        if self.given.get(place) != slot:
            raise Violation(f"{caller.name} acts by a slot that was never given")
        if place in self.used:
            raise Violation(f"slot {slot.number} was used by {self.used[place]} and {caller.name}")
        if self.at_rest:
            raise Violation(f"{caller.name} acted by slot {slot.number} after a pause had returned")
        self.used[place] = caller.name
        remote = isinstance(caller.access, ApiAccess)
        if all(self._wrong(row, slot, remote) for row in self._seen_lately(caller.access.pace.checked)):
            why = self._wrong(self.row, slot, remote)
            raise Violation(f"{caller.name} acted by slot {slot.number}, which {why}")

    def _seen_lately(self, checked: float) -> Iterator[PacerRow]:
        """Return the rows that a look of this age, in seconds, may have shown."""
        ends = [*(since for since, _ in self.rows), math.inf][1:]
        for (_, row), end in zip(self.rows, ends, strict=True):
            if end >= self.world.now - NEWS_SHARE * checked:
                yield row

    def _wrong(self, row: PacerRow, slot: Slot, remote: bool) -> str | None:
        """What speaks against acting now, as the row says."""
        if row.epoch != slot.epoch:
            return "was void"
        if row.paused_ms:
            return "was of a paused pacer"
        now_ms = self.truth.clock_ms()
        early = head_us(row, slot.at_us, now_ms) - now_ms * 1000
        if early > self.error_us + TOLD_US:
            return f"came {early / 1e6:.3f} s later"
        late_us = REMOTE.checked * 1e6 if remote else 0.0  # of the response by which grace counts
        if -early > GRACE_US + self.error_us + TOLD_US + late_us:
            return f"had gone by {-early / 1e6:.3f} s before"
        return None
