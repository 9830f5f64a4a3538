"""Everything that was committed and everything a client was told: the history that the checks compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from ..commit import protocol
from ..commit.writer import Writer
from ..core.draft import Context
from ..core.ops import Identity, Op, Outcome, Request
from ..core.reduce import Reduction, reduce
from ..core.restore import Loss
from ..core.state import State


class Violation(Exception):
    """Something happened that must never happen."""


class Batch(Struct, frozen=True):
    """One reduction somebody made, whether or not it was committed."""

    base: State
    requests: tuple[Request, ...]
    reduction: Reduction
    listed: bool  # the announced requests were looked for


class Commit(Struct, frozen=True):
    """One head that was current, from ``at`` until the next commit."""

    at: float  # seconds of virtual time
    state: State


class Applied(Struct, frozen=True):
    """One request that became part of the state."""

    request: Request
    outcomes: tuple[Outcome, ...]
    index: int  # of its commit in ``Ledger.commits``


class Call(Struct):
    """One call of a client, from its first step to its answer."""

    client: str
    ops: tuple[Op, ...]
    began: float
    ended: float = 0.0
    identities: list[Identity] = []  # every identity the call spoke under; the last one is the answer's
    answer: protocol.Answer | None = None
    error: Exception | None = None


class Repair(Struct, frozen=True):
    """A head that no reduction made: by an operator, or by whatever befell the old one."""

    kind: str  # "restore", "reclock" or "poison"
    base: State  # the backup, or the head before
    state: State
    loss: Loss = Loss()  # what the operator of a restore was told


class Ledger:
    """The history of one run."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.batches: dict[bytes, Batch] = {}  # by commit id
        self.applied: dict[Identity, Applied] = {}
        self.never: dict[Identity, str] = {}  # identities that were given up as never applied, and why
        self.calls: list[Call] = []
        self.latest: dict[str, Identity] = {}
        self.repairs: dict[bytes, Repair] = {}  # by commit id, whether or not they came to be
        self.lost = False  # is the head damaged or missing just now?
        self.lives: list[float] = []  # when a repair took effect, or the head was lost

    def current(self, since: float, until: float) -> Iterator[State]:
        """The heads that were current at some moment of an interval, the newest first."""
        for commit in reversed(self.commits):
            if commit.at <= until:
                yield commit.state
            if commit.at < since:
                return

    def repaired(self, since: float, until: float) -> bool:
        """Was the head lost or repaired at some moment of an interval, or is it lost?"""
        return any(since <= moment <= until for moment in self.lives) or self.lost

    def index_before(self, moment: float) -> int:
        """How many commits there were before a moment."""
        count = len(self.commits)
        while count and self.commits[count - 1].at >= moment:
            count -= 1
        return count


class WatchedWriter(Writer):
    """A writer that notes every identity it takes, call by call."""

    call: Call | None = None

    def identify(self, ops: tuple[Op, ...], state: State) -> Request:
        request = super().identify(ops, state)
        if self.call is not None:
            self.call.identities.append(request.identity)
        return request


@contextmanager
def watched_reductions(ledger: Ledger) -> Iterator[None]:
    """Note every reduction of the commit protocol, so that a commit can be told from what led to it."""

    def watched(state: State, requests: Sequence[Request], context: Context, **options: Any) -> Reduction:
        reduction = reduce(state, requests, context, **options)
        ledger.batches[context.commit] = Batch(
            state, tuple(requests), reduction, options.get("listed", False)
        )
        return reduction

    name = "reduce"  # the protocol's own name for it
    before = getattr(protocol, name)
    setattr(protocol, name, watched)
    try:
        yield
    finally:
        setattr(protocol, name, before)
