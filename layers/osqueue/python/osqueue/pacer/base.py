"""What Pacer and AsyncPacer share: how a pacer is opened, and each public method as a flow.

What a method does is written once, in ``operations.pacing`` and behind ``PacerAccess``; ``queue.flow_methods`` makes
methods and coroutines of it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from .. import forks, limits
from ..clock import MACHINE, Machine
from ..commit.effects import QueueFlow, Submit
from ..commit.pacer_writer import PacerWriter
from ..core.state import Transition
from ..errors import NotSupported, Rejected, shown
from ..model.pacer import PacerStatus, slot_moment
from ..model.validation import is_queue_name, microseconds, milliseconds, plain_text
from ..objects.layout import root_of_pacer
from ..operations.context import Writers
from ..operations.pacer_access import FREE, PRICED, IfExists, StoreAccess
from ..operations.pacing import HeldSlot, PacerFlows
from ..queue.flow_methods import FlowMethod
from ..queue.opening import open_place
from ..stores.base import Store
from ..stores.counting import CountingStore, counted

if TYPE_CHECKING:  # loaded where they are used
    from ..client.pacing import ApiAccess
    from ..client.transports.base import Transport

GRACE_MS_MIN = 1  # clocks tell no less
R = TypeVar("R")


class PacerBase:
    """What Pacer and AsyncPacer share: everything but how a flow is run."""

    _window_s = 0.0  # nobody who reserves a slot waits for others

    def __init__(
        self,
        store: Store | Transport,
        name: str,
        *,
        grace: float | timedelta | None = None,
        max_ahead: float | timedelta = limits.PACER_AHEAD_MS_DEFAULT / 1000,
        timeout: float = limits.REQUEST_TIMEOUT_S,
        machine: Machine = MACHINE,
    ) -> None:
        self.name = pacer_name(name)
        self.machine = machine
        self._options: dict[str, Any] = {"grace": grace, "max_ahead": max_ahead, "timeout": timeout}
        self.timeout = milliseconds(timeout, "timeout", 1, limits.DAY_MS) / 1000
        self._place: CountingStore | Transport = counted(store)
        self._writers = Writers(self._writer)
        self.access = self._opened(self._place)
        self._flows = PacerFlows(
            self.name,
            machine,
            self.access,
            None if grace is None else microseconds(grace, "grace", GRACE_MS_MIN, limits.DAY_MS),
            microseconds(max_ahead, "max_ahead", 0, limits.PACER_AHEAD_MS_MAX),
        )
        self._make_driver()

    @classmethod
    def connect(
        cls,
        address: str,
        name: str,
        *,
        grace: float | timedelta | None = None,
        max_ahead: float | timedelta = limits.PACER_AHEAD_MS_DEFAULT / 1000,
        timeout: float = limits.REQUEST_TIMEOUT_S,
    ) -> Self:
        """Open the pacer ``name`` by address.

        A store: ``memory://``, ``file:///path``, ``s3://bucket/prefix``. Or an API: ``https://host/stage``,
        ``http://host:port``, ``lambda://prefix``.

        Durations are seconds or timedeltas. ``grace`` is how late a slot may be used, by default a tenth of the
        interval and at least 50 ms; ``max_ahead`` how far ahead one may be taken; ``timeout`` how long one request may
        try. Nothing is sent yet. Raises Rejected for an address, a name or a duration that is not valid.
        """
        checked = pacer_name(name)
        return cls(open_place(address), checked, grace=grace, max_ahead=max_ahead, timeout=timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as the address, the name and the options."""
        return functools.partial(type(self), self._place, self.name, **self._options), ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _make_driver(self) -> None:
        """Make what runs the flows."""
        raise NotImplementedError

    def _opened(self, place: CountingStore | Transport) -> StoreAccess | ApiAccess:
        """Return how the pacer is reached: through its store, or over an API."""
        if isinstance(place, CountingStore):
            pace = FREE if place.look_pace.free else PRICED
            return StoreAccess(self.name, self.machine, self._own_writer, pace)
        from ..client.pacing import ApiAccess

        return ApiAccess(self.name, self.machine, self.timeout)

    def _writer(self, _: int) -> PacerWriter:
        assert isinstance(self._place, CountingStore)
        return PacerWriter.on(self._place, root_of_pacer(self.name), self.name, self.machine)

    def _own_writer(self) -> PacerWriter:
        writer = self._writers[0]
        assert isinstance(writer, PacerWriter)
        return writer

    def _deadline(self, submit: Submit, left: float) -> float:
        return self.machine.monotonic() + left

    def _tell(self, events: Sequence[Transition]) -> None:
        """No job has its transitions here."""

    @property
    def requests(self) -> dict[str, int]:
        """How many requests this object has sent to its store: get, put, list, delete.

        To an API: get, post, put, patch, delete.
        """
        return self._place.requests

    # ── Flows, one for each public method ────────────────────────────────────
    def _create(
        self, interval: float | timedelta, burst: int = 1, if_exists: IfExists = "keep"
    ) -> QueueFlow[PacerStatus]:
        """Make the pacer: slots ``interval`` seconds apart, 1 ms to 30 days; returns the settings that hold.

        With a ``burst`` above 1 it is a token bucket: so many slots at once after a rest, and ``interval`` for each on
        average. One that exists is kept as it is ("keep"), begins again with these settings ("reset": all reservations
        are void), or makes this raise Conflict ("fail"). Raises Rejected for a setting that is not valid.
        """
        return self.access.create(interval, burst, if_exists)

    def _pause(self) -> QueueFlow[PacerStatus]:
        """Let time stand still for all callers: no slot comes. A caller may reserve meanwhile. Raises NotFound.

        When this returns, no caller starts any more. It takes 1.5 s, or 0.3 s on a folder, in memory and on Valkey if
        no caller has reserved over an API within the last day.
        """
        return self.access.pause(True)

    def _resume(self) -> QueueFlow[PacerStatus]:
        """Let time go on: all slots move by the pause, and keep their order and distances. Raises NotFound.

        The first slot comes two to three seconds later, or 0.1 to 0.3 s where ``pause`` takes 0.3 s.
        """
        return self.access.pause(False)

    def _status(self) -> QueueFlow[PacerStatus]:
        """The pacer as it is now. Raises NotFound."""
        return self.access.status()

    def _remove(self) -> QueueFlow[None]:
        """Remove the pacer, for everybody: who waits for a slot gets NotFound. Raises NotFound."""
        return self.access.remove()

    create = FlowMethod(_create)
    pause = FlowMethod(_pause)
    resume = FlowMethod(_resume)
    status = FlowMethod(_status)
    remove = FlowMethod(_remove)


class ReservationBase:
    """A slot that was reserved."""

    def __init__(self, pacer: Any, held: HeldSlot, spent: bool = False) -> None:
        self._pacer = pacer
        self._held = held
        self._spent = spent  # used or given back
        self._process = forks.process()  # the only process that may use it

    def __reduce__(self) -> tuple[Any, ...]:
        raise NotSupported(
            "a reservation cannot be sent to another process, nor copied: two could use it. Remedy: send the pacer, and"
            " reserve there.",
            field="reservation",
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} of {self._pacer.name}>"

    @property
    def number(self) -> int:
        """Grows with every reservation of the pacer; none is given twice."""
        return self._held.slot.number

    @property
    def units(self) -> int:
        """How many starts it stands for."""
        return self._held.slot.units

    @property
    def at(self) -> datetime:
        """The moment, by the store's clock. A pause moves it: of a paused pacer it is what a resume now would give."""
        now_ms = self._pacer.machine.now_ms()
        return slot_moment(self._held.row, self._held.slot.at_us, now_ms)

    @property
    def seconds_left(self) -> float:
        """Until then, as this process knows; below 0 when it has gone by."""
        return float(self._pacer._flows.left_us(self._held)) / 1e6

    @property
    def _is_over(self) -> bool:
        """Whether this process may not use it: it was used or given back, or belongs to the parent of a fork."""
        return self._spent or self._process != forks.process()

    def _run(self, flow: QueueFlow[R]) -> Any:
        return self._pacer._run(flow)

    def _wait(self) -> QueueFlow[None]:
        """Wait for the slot, then act once.

        Another slot is reserved, and this is that slot from now on, if the slot had gone by when it was to be used, had
        become void, was used or given back, or was reserved by the parent of this process before a fork. Raises
        Throttled, NotFound, Unavailable: then do not act.
        """
        flows = self._pacer._flows
        self._held = yield from (flows.take(self.units) if self._is_over else flows.wait(self._held))
        self._spent = True
        self._process = forks.process()

    def _give_back(self) -> QueueFlow[bool]:
        """Give the slot back instead of using it: the next reservation takes it.

        Return False if a later slot was reserved since (this one is a gap), if it was used, or in a child of a fork.
        """
        if self._is_over:
            return False
        self._spent = True  # also where no answer comes: it may be somebody else's
        self._spent = given = yield from self._pacer.access.give_back(self._held.slot)
        return bool(given)

    wait = FlowMethod(_wait)
    give_back = FlowMethod(_give_back)


def pacer_name(value: Any) -> str:
    """A pacer's name."""
    if not isinstance(value, str) or not is_queue_name(value):
        raise Rejected(
            f"name: {shown(value)} is not the name of a pacer. Use 1 to 64 of a-z, 0-9 and '-', beginning with a letter"
            " or digit.",
            field="name",
        )
    return plain_text(value)


def refuse_function(function: Any, remedy: str) -> Rejected:
    """The error for what cannot be paced."""
    return Rejected(f"function: {shown(function)} cannot be paced here: {remedy}", field="function")
