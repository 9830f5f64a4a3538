"""Everything that was committed and everything a client was told: the history that the checks compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from osqueue.commit import steps
from osqueue.commit.request_status import CommitResult
from osqueue.commit.writer import ShardWriter
from osqueue.core.context import ReductionContext
from osqueue.core.ops import Identity, Op, Outcome, Request
from osqueue.core.reduce import Reduction, reduce
from osqueue.core.restore import RestoreLoss
from osqueue.core.state import State

from .machine import VirtualMachine


class Violation(Exception):
    """Something happened that must never happen."""


class RecordedReduction(Struct, frozen=True):
    """One reduction somebody made, whether or not it was committed."""

    base: State
    requests: tuple[Request, ...]
    reduction: Reduction
    listed: bool  # the announced requests were looked for
    at: float = 0.0  # seconds of virtual time when it was made
    wakes: bool = False  # by somebody who can invoke consumers


class RecordedCommit(Struct, frozen=True):
    """One head that was current, from ``at`` until the next commit."""

    at: float  # seconds of virtual time
    state: State


class Applied(Struct, frozen=True):
    """One request that became part of the state."""

    request: Request
    outcomes: tuple[Outcome, ...]
    index: int  # of its commit in ``Ledger.commits``


class ClientCall(Struct):
    """One call of a client, from its first step to its answer."""

    client: str
    ops: tuple[Op, ...]
    began: float
    ended: float = 0.0
    identities: list[Identity] = []  # every identity the call spoke under; the last one is the answer's
    answer: CommitResult | None = None
    error: Exception | None = None
    shared: bool = False  # its operations were committed together with those of others


class Repair(Struct, frozen=True):
    """A head that no reduction made: by an operator, or by whatever befell the old one."""

    kind: str  # "restore", "reclock" or "poison"
    base: State  # the backup, or the head before
    state: State
    loss: RestoreLoss = RestoreLoss()  # what the operator of a restore was told


class Ledger:
    """The history of one run."""

    def __init__(self, passed_over_max: int = 0) -> None:
        """``passed_over_max`` is how many commits may leave out a call where nothing fails; 0: not judged."""
        self.commits: list[RecordedCommit] = []
        self.latest_ms = 0  # of any head's clock: a repair may set it back
        self.batches: dict[bytes, RecordedReduction] = {}  # by commit id
        self.applied: dict[Identity, Applied] = {}
        self.never: dict[Identity, str] = {}  # identities that were given up as never applied, and why
        self.calls: list[ClientCall] = []
        self.clock: Callable[[], float] = lambda: 0.0  # seconds of virtual time
        self.machines: dict[str, VirtualMachine] = {}  # of each writer that spoke
        self.copied: set[str] = set()  # writers of whom there is a clone
        self.repairs: dict[bytes, Repair] = {}  # by commit id, whether or not they came to be
        self.passed_over_max = passed_over_max
        self.lost = False  # is the head damaged or missing just now?
        self.lives: list[float] = []  # when a repair took effect, or the head was lost

    def record(self, at: float, state: State) -> None:
        """Note that a head became current."""
        self.commits.append(RecordedCommit(at, state))
        self.latest_ms = max(self.latest_ms, state.now_ms)

    def current(self, since: float, until: float) -> Iterator[State]:
        """The heads that were current at some moment of an interval, the newest first."""
        for commit in reversed(self.commits):
            if commit.at <= until:
                yield commit.state
            if commit.at < since:
                return

    def committed(self) -> Iterator[RecordedReduction]:
        """What led to each commit, repairs excepted."""
        found = (self.batches.get(commit.state.commit) for commit in self.commits)
        return (batch for batch in found if batch is not None)

    def kinds(self) -> Counter[str]:
        """How often commits did what not every commit does."""
        found: Counter[str] = Counter()
        for batch in self.committed():
            base, state = batch.base, batch.reduction.state
            found["direct"] += not batch.listed
            found["took others along"] += len(batch.reduction.outcomes) > 1
            found["announced requests that came too late"] += any(
                each.identity not in batch.reduction.outcomes for each in batch.requests
            )
            found["no room for a writer"] += batch.reduction.crowded
            found["wrote objects"] += bool(batch.reduction.objects)
            found["forgot writers"] += not base.sessions.keys() <= state.sessions.keys()
            found["raised the floor"] += state.floor > base.floor
            found["raised the floor of staged objects"] += state.gc_floor > base.gc_floor
        return found

    def repaired(self, since: float, until: float) -> bool:
        """Was the head lost or repaired at some moment of an interval, or is it lost?"""
        return any(since <= moment <= until for moment in self.lives) or self.lost

    def index_before(self, moment: float) -> int:
        """How many commits there were before a moment."""
        count = len(self.commits)
        while count and self.commits[count - 1].at >= moment:
            count -= 1
        return count


class WatchedWriter(ShardWriter):
    """A writer that notes every identity it takes, call by call."""

    call: ClientCall | None = None
    spoken: dict[str, VirtualMachine] | None = None  # of all writers

    def identify(self, ops: tuple[Op, ...], state: State) -> Request:
        request = super().identify(ops, state)
        if self.call is not None:
            self.call.identities.append(request.identity)
        if self.spoken is not None and isinstance(self.machine, VirtualMachine):
            self.spoken[request.env] = self.machine
        return request


@contextmanager
def watched_reductions(ledger: Ledger) -> Iterator[None]:
    """Note every reduction of the commit protocol, so that a commit can be told from what led to it."""

    def watched(
        state: State, requests: Sequence[Request], context: ReductionContext, **options: Any
    ) -> Reduction:
        reduction = reduce(state, requests, context, **options)
        ledger.batches[context.commit] = RecordedReduction(
            state, tuple(requests), reduction, options.get("listed", False), ledger.clock(), context.wakes
        )
        return reduction

    name = "reduce"  # the protocol's own name for it
    before = getattr(steps, name)
    setattr(steps, name, watched)
    try:
        yield
    finally:
        setattr(steps, name, before)


def describe(request: Request) -> str:
    """A request in a violation's message."""
    ops = ", ".join(type(op).__name__ for op in request.ops)
    return f"({request.env[:4]}, n {request.n}, nonce {request.nonce:x}, born {request.born}: {ops})"
