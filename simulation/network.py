"""What lies between a client and the store: time, loss and repetition.

A request takes effect at one moment between being sent and being answered. A conditional write holds its key
while it runs, so that one key takes only so many of them a second; who finds the condition unmet is refused at
once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from osqueue.errors import Timeout, Unavailable
from osqueue.stores.base import (
    Delete,
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    List,
    PassTurn,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    StoreReply,
    StoreRequest,
    TakeTurn,
    Written,
)

from .conditions import Latency
from .truth import Truth
from .turns import TurnDesks
from .world import Deliver, World

_ERROR = Failed(Unavailable("503 (injected): the request had no effect"))
_TOO_SOON = Failed(Unavailable("429: the object was written a moment ago"), too_soon=True)
_LOST = Failed(Timeout("injected: the reply was lost"))
SMALL_BYTES_MAX = 100  # of a body that a store takes while it throttles others
Swap = PutIfMatch | PutIfAbsent
WRITES = (Put, PutIfMatch, PutIfAbsent)


class Network:
    """Carries requests to the truth and replies back."""

    def __init__(self, world: World, truth: Truth, latency: Latency) -> None:
        self.world = world
        self.truth = truth
        self.latency = latency
        self.requests: Counter[str] = Counter()
        self.turns = TurnDesks(world)
        self._written: dict[str, float] = {}  # when each object was, where the store wants a gap between
        self._busy: set[str] = set()
        self._queues: dict[str, deque[tuple[Swap, Deliver]]] = {}
        self._refuses_until = self._throttles_until = float("-inf")  # seconds

    def send(self, request: StoreRequest, deliver: Deliver) -> None:
        """One request of a client, with whatever befalls it."""
        world, faults = self.world, self.world.faults
        self.requests[type(request).__name__] += 1
        there, back = self._ways(request)
        there += self._seconds(getattr(request, "body", b""))
        if isinstance(request, Get | List | Put) and world.happens("slow", faults.slow):
            back += world.chance.uniform(0.0, faults.slow_seconds_max)

        def answer(reply: StoreReply) -> None:
            size = self._seconds(reply.body) if isinstance(reply, Found) else 0.0
            world.after(back + size, lambda: deliver(reply))

        def lose(reply: StoreReply) -> None:
            world.after(faults.timeout_seconds, lambda: deliver(_LOST))

        outage = self._outage(request)
        if outage is not None:
            world.after(there + back, lambda: deliver(outage))
            return
        if world.happens("error", faults.error):
            error = _TOO_SOON if self.latency.swap_gap_s and isinstance(request, WRITES) else _ERROR
            world.after(there + back, lambda: deliver(error))  # a busy store says the same for other reasons
            return
        swap = isinstance(request, PutIfMatch | PutIfAbsent | DeleteIfMatch)
        if swap and world.happens("refused", faults.refused):
            world.after(there + back, lambda: deliver(Refused()))
            return
        if world.happens("late", faults.late):
            world.after(faults.timeout_seconds, lambda: deliver(_LOST))
            world.after(there + world.long_while(), lambda: self._arrive(request, _ignore))
            return
        reply_lost = world.happens("lost", faults.lost)
        world.after(there, lambda: self._arrive(request, lose if reply_lost else answer))
        # Nobody sends a note twice: whoever got the turn at once has to know that nobody can read one.
        if not isinstance(request, Get | List | TakeTurn) and world.happens("duplicate", faults.duplicate):
            world.after(there + world.long_while(), lambda: self._arrive(request, _ignore))

    def _outage(self, request: StoreRequest) -> Failed | None:
        """Return the reply of a store that refuses all requests just now, or throttles all but small ones."""
        world, faults = self.world, self.world.faults
        if world.happens("refusal", faults.refusal):
            self._refuses_until = world.now + world.outage_while()
        if world.happens("throttling", faults.throttling):
            self._throttles_until = world.now + world.outage_while()
        if faults.refusal and world.now < self._refuses_until:
            return world.refusal("the store allows nothing")
        is_small = len(getattr(request, "body", b"")) <= SMALL_BYTES_MAX and not isinstance(request, List)
        hot = getattr(request, "hot", False)  # a head has to go on: what it refers to does not
        if faults.throttling and world.now < self._throttles_until and not (is_small or hot):
            return Failed(Unavailable("503 SlowDown (injected): the request had no effect"))
        return None

    def _seconds(self, body: bytes) -> float:
        """How long so many bytes take on their way."""
        rate = self.latency.bytes_per_second
        return len(body) / rate if rate else 0.0

    def _ways(self, request: StoreRequest) -> tuple[float, float]:
        """Seconds to the effect, and from there to the reply."""
        latency = self.latency
        match request:
            case Get():
                median = latency.get
            case List():
                median = latency.list
            case Delete() | DeleteIfMatch():
                median = latency.delete
            case Put():
                median = latency.put
            case TakeTurn() | PassTurn():
                median = latency.turn
            case _:
                return 0.0, 0.0  # a swap's time is spent at its key
        total = median * self.world.chance.lognormvariate(0.0, latency.sigma) / 1000
        share = self.world.chance.uniform(0.4, 0.8)
        return total * share, total * (1 - share)

    def _arrive(self, request: StoreRequest, answer: Callable[[StoreReply], None]) -> None:
        if isinstance(request, TakeTurn | PassTurn):
            self.turns.perform(request, answer)
        elif isinstance(request, PutIfMatch | PutIfAbsent):
            self._swap(request, answer)
        else:
            answer(self._perform(request))

    def _perform(self, request: StoreRequest) -> StoreReply:
        """Let a request take effect now, unless it is a write too soon after another."""
        if isinstance(request, PutIfMatch) and request.yields and self.turns.is_taken(request.key):
            return Refused()
        gap = self.latency.swap_gap_s
        if not gap or not isinstance(request, WRITES):
            return self.truth.perform(request)
        if isinstance(request, PutIfMatch) and not self._can_win(request):
            return Refused()
        if self.world.now - self._written.get(request.key, float("-inf")) < gap:
            self.world.injected["too soon"] += 1
            return _TOO_SOON
        reply = self.truth.perform(request)
        if isinstance(reply, Written):
            self._written[request.key] = self.world.now
        return reply

    # ── Compare-and-swap: one at a time on one key ───────────────────────────
    def _swap(self, request: Swap, answer: Deliver) -> None:
        latency, chance = self.latency, self.world.chance
        if latency.parallel:
            total = chance.uniform(latency.swap_low, latency.swap_high) / 1000
            self.world.after(total, lambda: answer(self._perform(request)))
            return
        if request.key in self._busy:
            self._queues.setdefault(request.key, deque()).append((request, answer))
            return
        if not self._can_win(request):
            refusal = latency.get * chance.lognormvariate(0.0, latency.sigma) / 1000
            self.world.after(refusal, lambda: answer(self._perform(request)))
            return
        self._busy.add(request.key)
        total = chance.uniform(latency.swap_low, latency.swap_high) / 1000
        effect = total * 0.8
        gap = 1 / latency.swaps_per_second if latency.swaps_per_second else 0.0

        def take_effect() -> None:
            reply = self._perform(request)
            self.world.after(total - effect, lambda: answer(reply))
            rest = gap - effect if isinstance(reply, Written) else 0.0
            self.world.after(max(0.0, rest), lambda: self._free(request.key))

        self.world.after(effect, take_effect)

    def _free(self, key: str) -> None:
        self._busy.discard(key)
        waiting = self._queues.get(key)
        while waiting and key not in self._busy:
            self._swap(*waiting.popleft())

    def _can_win(self, request: Swap) -> bool:
        if isinstance(request, PutIfMatch):
            return self.truth.matches(request.key, request.version)
        return self.truth.read(request.key) is None


def _ignore(reply: StoreReply) -> None:
    """Nobody waits for this answer."""
