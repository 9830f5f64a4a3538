"""What a head says of a request: applied, not yet, never, or nobody can tell; and what its commit brought."""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

from ..core.ops import Code, Outcome, Request, decode_outcomes, token_of
from ..core.reduce import Told, was_refused
from ..core.state import State


class CommitResult(Struct, frozen=True):
    """What a commit brought."""

    outcomes: tuple[Outcome, ...]  # one for each operation
    now_ms: int  # head time of the commit, or of the head that the answer was read from
    events: tuple[Told, ...] = ()  # what there is to tell of the commit, when this writer made it


class RequestStatus(Enum):
    """What a head says of a request."""

    PENDING = auto()
    APPLIED = auto()
    CLONED = auto()  # another process speaks with this writer's identity
    NEVER = auto()  # not applied, and never will be
    TURNED_AWAY = auto()  # the same, since there was no room for it
    UNKNOWN = auto()


def status_of_request(state: State, request: Request) -> RequestStatus:
    """Look a request up in the session rows."""
    if state.epoch != request.epoch:
        return RequestStatus.UNKNOWN
    if was_refused(state, request):
        return RequestStatus.TURNED_AWAY
    row = state.sessions.get(request.env)
    if row is not None and (row.n, row.nonce) == (request.n, request.nonce):
        return RequestStatus.APPLIED
    if row is not None and row.n > request.n:
        return RequestStatus.UNKNOWN
    if request.born < state.floor:
        # A row older than the request was never dropped since. A younger one may be a clone's, in the place of
        # a dropped one that told of this request.
        return RequestStatus.NEVER if row is not None and row.seq <= request.born else RequestStatus.UNKNOWN
    return RequestStatus.PENDING if row is None or row.n < request.n else RequestStatus.CLONED


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
