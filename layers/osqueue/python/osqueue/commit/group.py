"""Group commit inside one process: callers of one Queue object share its flights.

The first caller flies with whatever waits; those who come meanwhile ride the next flight, which waits a moment
for as many as the last one carried. There is no background thread and no timer: with one caller a flight carries
one request and waits for nobody, with many it carries many. One shard never has
two flights of one Queue object in the air, which is what gives its writer one outstanding request.

A caller that leaves (its deadline passed, its thread was interrupted, its coroutine was cancelled) detaches only
itself. The flight goes on: a rider inherits it from an interrupted thread, and leases that were granted to nobody
are given back by the next flight.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any

from msgspec import Struct

from ..clock import Machine
from ..core.ops import Claim, Held, Op, Release
from ..errors import Timeout, Unavailable
from ..stores.base import Failed
from .coalesce import coalesced, runs_of, shares
from .driver import BlockingDriver
from .effects import All, Effect, Flow, Sleep
from .event_queue import Outbox
from .protocol import Answer, TurnedAway, commit
from .writer import Writer

ITEMS_PER_FLIGHT_MAX = 4_000
LEAVE_GRACE_SECONDS = 1.0  # a rider outwaits its flight's own deadline by this much

LINGER_SHARE = 0.5  # of the last flight's time that the next one waits for those who just landed
LINGER_SECONDS_MAX = 0.005

TORN = "the thread that flew this operation was interrupted. It may still be applied."


class Rider(Struct, eq=False):
    """One caller's operations on their way."""

    ops: tuple[Op, ...]
    deadline: float  # monotonic seconds
    wake: Any  # a threading.Lock, held, or an asyncio.Future; None: nobody waits for this one
    look: bool = False  # take announced requests along
    answer: Answer | None = None
    error: BaseException | None = None
    gone: bool = False
    lead: bool = False  # woken to fly, not because it has arrived

    def waits(self) -> bool:
        """Is there still somebody behind it? A chore, done for one who left, has nobody."""
        return self.wake is not None and not self.gone and self.answer is None and self.error is None


class Flight:
    """One run of the commit protocol for several riders; can be resumed by another after an interruption."""

    def __init__(self, writer: Writer, riders: list[Rider]) -> None:
        self.riders = riders
        self.runs = runs_of([op for rider in riders for op in rider.ops])
        look = any(rider.look for rider in riders)
        deadline = max([rider.deadline for rider in riders])
        self.flow: Flow[Answer] = commit(writer, [coalesced(run) for run in self.runs], deadline, look)
        self.pending: Effect | None = None
        self.answer: Answer | None = None
        self.told = False  # have its events been put where they are told from?
        self.torn = (
            False  # interrupted outside an effect, inside the protocol or after it: nobody can resume it
        )

    def run(self, perform: Callable[[Effect], Any]) -> Answer:
        """Fly, or fly on. An effect that was interrupted counts as one whose reply was lost."""
        reply = _lost(self.pending)
        while True:
            self.torn = True
            try:
                self.pending = self.flow.send(reply)
            except StopIteration as stop:
                self.answer = answer = stop.value
                return answer  # type: ignore[no-any-return]
            self.torn = False
            reply = perform(self.pending)

    def land(self, answer: Answer) -> list[Op]:
        """Hand every rider its outcomes; answers what has to be done for those who left."""
        at = 0
        chores: list[Op] = []
        shared = map(shares, self.runs, answer.outcomes)
        outcomes, now_ms = tuple(chain.from_iterable(shared)), answer.now_ms
        for rider in self.riders:
            end = at + len(rider.ops)
            rider.answer = Answer(outcomes[at:end], now_ms)
            at = end
            if rider.gone:
                chores.extend(give_back(rider.answer))
        return chores

    def crash(self, error: BaseException) -> None:
        """Hand every rider that has no answer the error."""
        for rider in self.riders:
            if rider.answer is None:
                rider.error = error


def give_back(answer: Answer) -> list[Op]:
    """What undoes an answer that nobody received: its leases are released."""
    leases = [lease for outcome in answer.outcomes for lease in outcome.leases]
    return [Release(tuple(Held(lease.job.key, lease.token) for lease in leases))] if leases else []


def _signal(riders: Sequence[Rider]) -> None:
    """Let each go on. Its lock is what it waits for: an Event would take three of them, and be made for every call."""
    for rider in riders:
        if rider.wake is not None and rider.wake.locked():
            rider.wake.release()


def _lost(effect: Effect | None) -> Any:
    if effect is None or isinstance(effect, Sleep):
        return None
    failed = Failed(Unavailable("the caller was interrupted while it waited for the store"))
    return tuple(failed for _ in effect.requests) if isinstance(effect, All) else failed


def boarding(waiting: Sequence[Rider]) -> tuple[list[Rider], list[Rider]]:
    """The riders of the next flight, and of the one after it: all who wait, up to a limit, those who left excepted."""
    riders = [rider for rider in waiting if not rider.gone]
    if len(riders) < 2 or _items(riders) <= ITEMS_PER_FLIGHT_MAX:
        return riders, []
    items = accumulate([_items([rider]) for rider in riders])
    count = max(1, sum([so_far <= ITEMS_PER_FLIGHT_MAX for so_far in items]))
    return riders[:count], riders[count:]


def _items(riders: Sequence[Rider]) -> int:
    """How much work they bring."""
    return sum([op.limit if type(op) is Claim else op.codes_max() for rider in riders for op in rider.ops])


class BlockingGroup:
    """Group commit for threads."""

    _pilot: Rider | None
    _expected: int
    _lingering: Rider | None
    _flight: Flight | None

    def __init__(self, writer: Writer, driver: BlockingDriver, outbox: Outbox) -> None:
        self.writer = writer
        self.driver = driver
        self.outbox = outbox
        self._start_afresh(driver.machine)

    def submit(self, ops: tuple[Op, ...], deadline: float, look: bool = False) -> Answer:
        """Commit operations together with those of other callers; answers this caller's part.

        ``look`` takes announced requests along even when nobody seems to collide.
        """
        machine = self.driver.machine
        if machine.process() != self._process:
            self._start_afresh(machine)
        rider = Rider(ops, deadline, threading.Lock(), look)
        rider.wake.acquire()
        try:
            self._board(rider)
            while rider.answer is None and rider.error is None:
                if rider.lead:
                    rider.lead = False
                    self._fly(rider)
                else:
                    self._wait(rider, machine)
            if rider.error is not None:
                raise rider.error
            assert rider.answer is not None
            return rider.answer
        except BaseException:
            while not self._left(rider):
                pass  # interrupted again, as by an impatient Ctrl-C
            raise

    def _board(self, rider: Rider) -> None:
        with self._lock:
            self._waiting.append(rider)
            if self._pilot is None:
                self._pilot = rider
                rider.lead = True
            if len(self._waiting) == self._expected and self._lingering is not None:
                _signal((self._lingering,))
                self._lingering = None

    def _start_afresh(self, machine: Machine) -> None:
        """At first, and in a fork's child, where what was in the air belongs to the parent."""
        self._process = machine.process()
        self._lock = threading.Lock()
        self._lingering = None  # the leader, while it waits for others to come along
        self._waiting: list[Rider] = []
        self._pilot = None  # who has the controls; None: nobody flies
        self._flight = None  # in the air
        self._interrupted: Flight | None = None  # in the air no more, to be flown on
        self._expected = 1  # riders of the last flight: as many are likely to come again
        self._linger = 0.0  # seconds that the next one may wait for them

    def _wait(self, rider: Rider, machine: Machine) -> None:
        patience = max(0.0, rider.deadline - machine.monotonic()) + LEAVE_GRACE_SECONDS
        woken = rider.wake.acquire(timeout=patience)
        if not woken and rider.answer is None and not rider.lead:
            raise Timeout("the queue was too busy to answer this operation in time. It may still be applied.")

    def _left(self, rider: Rider) -> bool:
        """Leave; False when an interruption came between. What was done before it does no harm when done again."""
        try:
            self._leave(rider)
        except Exception:
            raise
        except BaseException:  # noqa: BLE001 - whatever interrupts
            return False
        return True

    def _leave(self, rider: Rider) -> None:
        """This caller gives up, or its thread was interrupted, wherever: the others go on.

        Somebody else flies its flight on, unless the protocol itself was torn. What it was granted is given back.
        """
        with self._lock:
            rider.gone = True
            flight = self._flight if self._pilot is rider else None
            chores = give_back(rider.answer) if rider.answer is not None else []
            if flight is not None and flight.answer is not None:
                chores = flight.land(flight.answer)
                self._put_events(flight, flight.answer)
            elif flight is not None and flight.torn:
                flight.crash(Unavailable(TORN))
            elif flight is not None:
                self._interrupted = flight
            if chores:
                self._waiting.insert(0, Rider(tuple(chores), rider.deadline, None))
            if flight is not None:
                _signal([each for each in flight.riders if not each.waits()])
            if self._pilot is rider:
                self._flight = self._lingering = None
                heirs = flight or self._interrupted  # the latter when it was to be flown on by this one
                self._pass_on(heirs.riders if heirs is not None else ())

    def _fly(self, leader: Rider) -> None:
        """One flight with this thread at the controls. An interruption leaves it to ``_leave`` to pass them on."""
        began = self.driver.machine.monotonic()
        if self._expected > len(self._waiting):
            self._await_others(leader)
        with self._lock:
            self._lingering = None
            flight, left = self._interrupted, self._waiting
            if flight is None:
                riders, left = boarding(self._waiting)
                flight = Flight(self.writer, riders)
            # In one step: whoever is interrupted before it leaves all of them waiting, and after it a flight.
            self._interrupted, self._flight, self._waiting[:] = None, flight, left
        try:
            answer = flight.run(self.driver.perform)
        except Exception as error:  # noqa: BLE001 - whatever it is, every rider hears it
            flight.crash(error)
            if isinstance(error, TurnedAway) and error.events:  # of a commit that was made all the same
                self.outbox.put(error.events)
        else:
            self._land(flight, answer, leader)
        _signal(flight.riders)
        with self._lock:
            self._flight = None
            self._expected = len(flight.riders)
            self._linger = min(LINGER_SECONDS_MAX, (self.driver.machine.monotonic() - began) * LINGER_SHARE)
            self._pass_on()
        self.outbox.deliver()

    def _land(self, flight: Flight, answer: Answer, leader: Rider) -> None:
        chores = flight.land(answer)
        if chores:
            with self._lock:
                self._waiting.insert(0, Rider(tuple(chores), leader.deadline, None))
        self._put_events(flight, answer)

    def _put_events(self, flight: Flight, answer: Answer) -> None:
        if answer.events and not flight.told:
            self.outbox.put(answer.events)
            flight.told = True

    def _await_others(self, leader: Rider) -> None:
        """Wait a moment for as many as came last time."""
        with self._lock:
            if self._interrupted is not None or self._expected <= len(self._waiting):
                return
            self._lingering = leader
        leader.wake.acquire(timeout=self._linger)

    def _pass_on(self, riders: Sequence[Rider] = ()) -> None:
        """Give the controls to a caller that still waits, if there is one. Called with the lock held."""
        for rider in (*riders, *self._waiting):
            if rider.waits():
                self._pilot = rider
                rider.lead = True
                _signal((rider,))
                return
        self._pilot = None
