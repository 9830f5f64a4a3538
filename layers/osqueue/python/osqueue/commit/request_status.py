"""What a head says of a request: applied, not yet, never, or nobody can tell."""

from __future__ import annotations

from enum import Enum, auto

from ..core.ops import Code, Outcome, Request, decode_outcomes, token_of
from ..core.reduce import turned_away
from ..core.state import State


class Verdict(Enum):
    """What a head says of a request."""

    PENDING = auto()
    APPLIED = auto()
    CLONED = auto()  # another process speaks with this writer's identity
    NEVER = auto()  # not applied, and never will be
    TURNED_AWAY = auto()  # the same, since there was no room for it
    UNKNOWN = auto()


def verdict(state: State, request: Request) -> Verdict:
    """Look a request up in the session rows."""
    if state.epoch != request.epoch:
        return Verdict.UNKNOWN
    if turned_away(state, request):
        return Verdict.TURNED_AWAY
    row = state.sessions.get(request.env)
    if row is not None and (row.n, row.nonce) == (request.n, request.nonce):
        return Verdict.APPLIED
    if row is not None and row.n > request.n:
        return Verdict.UNKNOWN
    if request.born < state.floor:
        # A row older than the request was never dropped since. A younger one may be a clone's, in the place of
        # a dropped one that told of this request.
        return Verdict.NEVER if row is not None and row.seq <= request.born else Verdict.UNKNOWN
    return Verdict.PENDING if row is None or row.n < request.n else Verdict.CLONED


def outcomes_of(state: State, request: Request) -> tuple[Outcome, ...]:
    """The outcomes of an applied request, with the leases that are still its own."""
    remembered = decode_outcomes(state.sessions[request.env].outcomes)
    by_token = {lease.token: lease for lease in state.leases.values()}
    position = 0
    outcomes = []
    for each in remembered:
        if each.runs and each.runs[0][0] == Code.GRANTED:
            tokens = [token_of(request.nonce, position + at) for at in range(each.count)]
            position += each.count
            each = Outcome(each.runs, tuple(by_token[token] for token in tokens if token in by_token))
        outcomes.append(each)
    return tuple(outcomes)
