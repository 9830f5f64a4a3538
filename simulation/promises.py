"""Was a caller of the library told the truth? What each call answered against what happened while it ran.

A caller asks by a job id or by an id of its own, which may stand for several jobs while the call runs. An answer is
true when at some moment of the call one of them explains it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from osqueue.core.state import CANCELLED, COMPLETED, FAILED, PROCESSING
from osqueue.errors import (
    Damaged,
    Expired,
    JobCancelled,
    JobFailed,
    NotFinished,
    NotFound,
    OsqueueError,
    Throttled,
    Timeout,
    Unavailable,
    WaitTimeout,
)
from osqueue.model.job import Enqueued, Job
from osqueue.model.keys import is_key, key_of

from .ledger import Ledger, Violation
from .machine import EPOCH_MS
from .stories import GONE, LIVE, NOWHERE, SLACK_MS, Stories

_NO_ANSWER = (Timeout, Unavailable, Throttled)


class Ask(Struct):
    """One call of a caller."""

    client: str
    kind: str  # the method
    text: str  # the id it names
    payload: Any = None
    began: float = 0.0
    ended: float = 0.0
    answer: Any = None
    error: OsqueueError | None = None


class Promises:
    """Judges every call as it is answered."""

    def __init__(self, queue: str, ledger: Ledger, stories: Stories) -> None:
        self.queue = queue
        self.ledger = ledger
        self.stories = stories
        self.told: set[bytes] = set()  # jobs of which somebody was told that they are theirs

    def judge(self, ask: Ask) -> None:
        """A call was answered just now."""
        if isinstance(ask.error, _NO_ANSWER) and not isinstance(ask.error, WaitTimeout):
            return
        if isinstance(ask.error, Damaged) and self.stories.truth.damaged:
            return
        if not _JUDGES[ask.kind](self, ask):
            told = ask.answer if ask.error is None else f"{type(ask.error).__name__}: {ask.error}"
            raise Violation(
                f"{ask.client} asked {ask.kind} of {ask.text} and was told {told}; it was never so"
            )

    # ── Enqueue ──────────────────────────────────────────────────────────────
    def enqueued(self, ask: Ask) -> bool:
        """A job under an id."""
        return ask.error is None and self._enqueued(ask, ask.answer)

    def _enqueued(self, ask: Ask, done: Enqueued) -> bool:
        if done.status == "rejected":
            return isinstance(done.error, _NO_ANSWER)
        key, stories = key_of(done.job_id or ""), self.stories
        known = stories.accepted.get(key)
        if known is None or known.client_id != ask.text:
            return False
        states = stories.during(key, ask.began, ask.ended)
        match done.status:
            case "queued":
                mine = known.payload == msgspec.json.encode(ask.payload) and key not in self.told
                self.told.add(key)
                return mine and ask.began <= known.at <= ask.ended
            case "replaced" | "postponed":
                return (
                    known.payload == msgspec.json.encode(ask.payload) and ask.began <= known.at <= ask.ended
                )
            case "duplicate":
                return not states.isdisjoint(LIVE) or self._in_window(ask, key)
            case _:
                return self._lived(ask, key) and done.result == self._value(key)

    def _in_window(self, ask: Ask, key: bytes) -> bool:
        """Of a job that replaced others, the window is that of the first: not looked into."""
        known = self.stories.accepted[key]
        replaced = key in self.stories.successors.values()
        return replaced or ask.began <= known.at + known.window_ms / 1000 + SLACK_MS / 1000

    def enqueued_many(self, ask: Ask) -> bool:
        """The same id twice in one call: both are new only if the first was over before the second came in."""
        return ask.error is None and all(self._enqueued(ask, done) for done in ask.answer)

    def waited(self, ask: Ask) -> bool:
        """A job under an id, and its result."""
        return isinstance(ask.error, WaitTimeout) or self.result(ask)

    # ── Questions ────────────────────────────────────────────────────────────
    def result(self, ask: Ask) -> bool:
        """The result, or why there is none."""
        match ask.error:
            case None:
                return self._any(ask, lambda key: self._lived(ask, key) and ask.answer == self._value(key))
            case JobFailed():
                return self._was(ask, FAILED)
            case JobCancelled():
                return self._was(ask, CANCELLED)
            case NotFinished():
                return self._was(ask, *LIVE)
            case Expired():
                return self._any(ask, lambda key: self._expired(ask, key))
            case NotFound():
                return self._unknown(ask)
            case _:
                return False

    def status(self, ask: Ask) -> bool:
        """Where the job is."""
        if ask.error is not None:
            return False
        if ask.answer is None:
            return self._unknown(ask) or self._any(ask, lambda key: self._expired(ask, key))
        job: Job = ask.answer
        key = key_of(job.job_id)
        return key in self._candidates(ask) and job.state in self.stories.during(key, ask.began, ask.ended)

    def amended(self, ask: Ask) -> bool:
        """Another TTL."""
        match ask.error:
            case None:
                return self._was(ask, *LIVE, COMPLETED, CANCELLED)
            case NotFinished():
                return self._was(ask, FAILED) or self._any(ask, self.stories.successors.__contains__)
            case _:
                return isinstance(ask.error, Expired | NotFound) and self.result(ask)

    def cancelled(self, ask: Ask) -> bool:
        """A cancel by id."""
        if ask.error is not None:
            return False
        if ask.answer == "not_found":
            return self._unknown(ask) or self._any(
                ask, lambda key: self._expired(ask, key) or FAILED in self._states(ask, key)
            )
        return self._was(
            ask,
            {"cancelled": CANCELLED, "completed": COMPLETED, "failed": FAILED}.get(ask.answer, PROCESSING),
        )

    # ── What was so ──────────────────────────────────────────────────────────
    def _candidates(self, ask: Ask) -> set[bytes | None]:
        found = self.stories.stood_for(ask.text, self.queue, ask.began, ask.ended)
        for key in list(found):
            while key is not None and (key := self.stories.successors.get(key)) is not None:
                found.add(key)
        return found | {key_of(ask.text)} if is_key(ask.text) else found

    def _any(self, ask: Ask, explains: Callable[[bytes], bool]) -> bool:
        return any(key is not None and explains(key) for key in self._candidates(ask))

    def _states(self, ask: Ask, key: bytes) -> set[str]:
        return self.stories.during(key, ask.began, ask.ended)

    def _was(self, ask: Ask, *states: str) -> bool:
        return self._any(ask, lambda key: not self._states(ask, key).isdisjoint(states))

    def _unknown(self, ask: Ask) -> bool:
        found = self._candidates(ask)
        return None in found or any(
            self._states(ask, key) & {NOWHERE, GONE} for key in found if key is not None
        )

    def _value(self, key: bytes) -> Any:
        data = self.stories.results[key]
        return msgspec.json.decode(data) if data else None

    def _lived(self, ask: Ask, key: bytes) -> bool:
        """Was its result to be given out at some moment of the call, by the head's time?"""
        before = self.ledger.commits[max(0, self.ledger.index_before(ask.began) - 1)].state.now_ms
        expiries = self.stories.expiries(key, ask.began, ask.ended)
        return COMPLETED in self._states(ask, key) and any(each > before - SLACK_MS for each in expiries)

    def _expired(self, ask: Ask, key: bytes) -> bool:
        end_ms = EPOCH_MS + ask.ended * 1000 + SLACK_MS
        return any(each <= end_ms for each in self.stories.expiries(key, ask.began, ask.ended))


_JUDGES: dict[str, Callable[[Promises, Ask], bool]] = {
    "enqueue": Promises.enqueued,
    "enqueue_many": Promises.enqueued_many,
    "enqueue_and_wait": Promises.waited,
    "result": Promises.result,
    "status": Promises.status,
    "update_result_ttl": Promises.amended,
    "cancel": Promises.cancelled,
}
