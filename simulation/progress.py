"""Invariant 9: an announced request is soon part of a commit."""

from __future__ import annotations

from osqueue import limits
from osqueue.commit import steps
from osqueue.core.intents import intent_body, intents_prefix, parse_intent_key, read_intent
from osqueue.core.ops import Request
from osqueue.core.reduce import applicable
from osqueue.core.state import State

from .ledger import RecordedReduction, Violation

COMBINED_COMMITS_MAX = 2  # that may leave out an announced request: a listing may be older than its head


class PendingRequest:
    """An announced request that is not part of any commit yet."""

    def __init__(self, since_ms: int, size: int) -> None:
        self.since_ms = since_ms  # head time
        self.size = size  # bytes
        self.left_out = 0  # combined commits that had room for it and went without


class Progress:
    """Watches what is announced, and what combined commits take along."""

    def __init__(self, root: str, ordered: bool) -> None:
        self.place = intents_prefix(root)
        self.ordered = ordered  # nothing fails in this run: every combiner finds what is announced
        self.waiting: dict[Request, PendingRequest] = {}

    def landed(self, key: str, body: bytes, state: State | None) -> None:
        """A request was announced under this key, or announced again."""
        name = parse_intent_key(key.removeprefix(self.place))
        request = read_intent(name, body) if name is not None else None
        if request is not None and state is not None and applicable(state, request):
            self.waiting.setdefault(request, PendingRequest(state.now_ms, len(body)))

    def commit(self, state: State, batch: RecordedReduction) -> None:
        """A commit was made."""
        for request in [each for each in self.waiting if not applicable(state, each)]:
            del self.waiting[request]  # it is in, or it never will be
        if batch.listed:
            self._left_out(batch)
        else:
            self._shut_out(state)

    def _left_out(self, batch: RecordedReduction) -> None:
        """A combined commit goes without a request only for as many, or as large, older ones as it may take.

        What was listed may have been judged by a head that was replaced meanwhile: then others fill its place in vain.
        """
        late = any(not applicable(batch.base, each) for each in batch.requests)
        if not self.ordered or batch.reduction.crowded or late:
            return
        others = batch.requests[:-1]  # the last one is the writer's own
        taken = sum(len(intent_body(each)) for each in others)
        youngest = max(map(order, others), default=(0, "", 0))
        full = len(others) >= limits.INTENTS_PER_COMMIT_MAX
        for request, waiting in sorted(self.waiting.items(), key=lambda each: order(each[0])):
            full |= taken + waiting.size > limits.INTENT_BYTES_PER_COMMIT_MAX
            if full and order(request) > youngest:
                break
            waiting.left_out += 1
            if waiting.left_out > COMBINED_COMMITS_MAX:
                raise Violation(f"invariant 9: {told(request)} was left out again and again")

    def _shut_out(self, state: State) -> None:
        """Direct commits in a row do not go on for long past a request that is there."""
        if state.direct <= limits.HOT_COMMITS or state.now_ms - state.direct_ms < steps.PUBLISHED_MS_MAX:
            return
        for request, waiting in self.waiting.items():
            if state.now_ms - waiting.since_ms >= steps.PUBLISHED_MS_MAX:
                raise Violation(f"invariant 9: {state.direct} direct commits in a row passed {told(request)}")


def order(request: Request) -> tuple[int, str, int]:
    """In which requests are applied."""
    return request.born, request.env, request.n


def told(request: Request) -> str:
    """An announced request in a violation's message."""
    return f"({request.env[:4]}, n {request.n}, born {request.born})"
