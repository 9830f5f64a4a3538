"""What repeats a request, and for how long: the policies by name, and the functions that follow one.

A call has a time-out, and what it needs is tried for as long as that allows: see ``Patience``. The number of tries
counts where no call waits, as in the passes of upkeep.

Only what may be repeated is given to them: reads, writes of what nobody else writes, conditional writes whose second
answer the caller can judge, API calls that are harmless twice, and the turns of a worker. The commit protocol waits by
measured times instead (``deadline.backoff``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from ..clock import Machine
from ..errors import OsqueueError, Throttled, Timeout, Unavailable
from ..stores.base import Failed, StoreReply, StoreRequest
from .effects import AT_ONCE, All, Flow, Pause, Sleep

E = TypeVar("E")
R = TypeVar("R")

DOUBLINGS_MAX = 32  # far beyond any maximum
NOTHING_DONE = "Nothing was enqueued or changed."  # the end of an error before a commit was sent
PART_DONE = (
    "Some jobs of this call were enqueued."  # the end of an error after a commit of a part of the call
)
ENDLESS = sys.maxsize  # tries: the caller's time ends them


class RetryPolicy(Struct, frozen=True):
    """How often something is tried that brings no definite answer, and how long the pauses between are."""

    tries: int  # the first included
    pause_s: float  # before the second try; doubled for each further one, up to …
    pause_s_max: float = 1.0

    def pause_after(self, failures: int, machine: Machine | None = None) -> float:
        """Seconds to wait after so many tries in a row that failed; with a machine between half of that and all."""
        seconds = min(self.pause_s_max, self.pause_s * 2.0 ** min(failures - 1, DOUBLINGS_MAX))
        return seconds if machine is None else seconds * (0.5 + machine.uniform() / 2)


ONCE = RetryPolicy(1, 0)  # what a second try would be told, nobody could judge
OBJECT = RetryPolicy(3, 0.1)  # an object beside the head: a payload, a part of the archive, what is staged
ENTRY = RetryPolicy(4, 0.05)  # the entry of an id, or what a purge strips: there are many
HEAD_READ = RetryPolicy(5, 0.2)  # the head, for a caller that waits for its content
NEEDED = RetryPolicy(5, 0.2)  # what nothing goes on without: a receipt, the store's clock, a head to restore
CALL = RetryPolicy(ENDLESS, 0.1, 5.0)  # a call to an API: the caller says for how long
TURN = RetryPolicy(ENDLESS, 0.1, 10.0)  # a worker's turn, for as long as the worker runs
WORD = RetryPolicy(ENDLESS, 1.0, 60.0)  # what a worker says of itself, while there is no queue or no answer


class Tries:
    """The tries of one need: as many as the policy allows, or for as long as the call has time."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failed = 0
        self._allowed: bool | None = None  # by the call; None: no call runs this flow, as far as is known

    def again(self) -> Generator[Sleep, Any, bool]:
        """Pause after a try that failed, and return whether another one may follow."""
        self._failed += 1
        if self._failed >= self._policy.tries and not (self._allowed and self._policy.tries > 1):
            return False
        self._allowed = yield Pause(self._policy.pause_after(self._failed))
        return self._allowed is not False


class Patience:
    """The time that one call may lose while the store fails its requests. A commit has what is left of it.

    Time in which the store replies does not count: a bulk of a million jobs is staged for longer than a time-out.
    """

    def __init__(self, machine: Machine, seconds: float) -> None:
        self._machine = machine
        self._seconds = seconds
        self._asked = 0.0  # monotonic seconds: when the latest request was sent
        self.left = seconds

    def renew(self) -> None:
        """Begin again: a commit was made, or the call waited for something else than the store."""
        self.left = self._seconds

    def note(self, effect: object) -> float:
        """Note when a request is sent. Return when its reply has to be there, in monotonic seconds."""
        self._asked = self._machine.monotonic()
        if isinstance(effect, Sleep):
            self.renew()
        return self._asked + self.left

    def spend(self, pause_s: float) -> float:
        """Count a request that failed, and the pause after it. Return the seconds to pause; 0: the time is over."""
        self.left -= self._machine.monotonic() - self._asked
        seconds = max(0.0, min(pause_s, self.left))
        self.left -= seconds
        return seconds


def patient(flow: Generator[E, Any, R], machine: Machine, seconds: float) -> Generator[E | Sleep, Any, R]:
    """Run a flow as a call that may lose so much time to a store that fails its requests."""
    patience = Patience(machine, seconds)
    reply: Any = None
    while True:
        try:
            effect = flow.send(reply)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        if isinstance(effect, Pause):
            pause = patience.spend(effect.seconds)
            reply = pause > 0
            if reply:
                yield Sleep(pause)
        else:
            patience.note(effect)
            reply = yield effect


def impatient(flow: Generator[E, Any, R]) -> Generator[E | Sleep, Any, R]:
    """Run a flow whose needs are tried as often as their policies allow, whatever time the call has.

    For what a caller can do without, while something else waits: leases that were granted run out.
    """
    reply: Any = None
    while True:
        try:
            effect = flow.send(reply)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        reply = yield (Sleep(effect.seconds) if isinstance(effect, Pause) else effect)


def ask(request: StoreRequest, policy: RetryPolicy) -> Flow[StoreReply]:
    """Ask until there is a definite answer, or an error that asking again does not mend."""
    tries = Tries(policy)
    before: StoreReply | None = None
    while True:
        reply: StoreReply = yield request
        if before is not None and is_late(reply):
            return before  # which names the cause
        if not is_open(reply) or not (yield from tries.again()):
            return reply
        before = reply


def ask_all(requests: Sequence[StoreRequest], policy: RetryPolicy) -> Flow[list[StoreReply]]:
    """Ask many, some at a time, and those again that brought no definite answer."""
    replies: dict[int, StoreReply] = {}
    left = list(range(len(requests)))
    tries = Tries(policy)
    while True:
        for start in range(0, len(left), AT_ONCE):
            group = left[start : start + AT_ONCE]
            found = yield All(tuple([requests[at] for at in group]))
            new = zip(group, found, strict=True)
            replies.update((at, reply) for at, reply in new if at not in replies or not is_late(reply))
        left = [at for at in left if is_open(replies[at])]
        if not left or not (yield from tries.again()):
            return [replies[at] for at in range(len(requests))]


def is_open(reply: StoreReply) -> bool:
    """Return whether repeating the request may bring a definite reply."""
    return isinstance(reply, Failed) and not reply.error.permanent


def is_late(reply: StoreReply) -> bool:
    """Return whether the call had no more time to wait for the reply."""
    return isinstance(reply, Failed) and reply.late


def is_refusal(reply: StoreReply) -> bool:
    """Return whether the store refuses the request until something is changed."""
    return isinstance(reply, Failed) and reply.error.permanent


def before_commit(error: OsqueueError) -> OsqueueError:
    """Return a copy of a store's error that states that nothing was committed yet. Other errors stay as they are."""
    if not isinstance(error, Unavailable | Timeout) or NOTHING_DONE in error.message:
        return error
    message = f"{error.message.rstrip('.')}. {NOTHING_DONE}"
    return type(error)(message, retry_after=error.retry_after, permanent=error.permanent)


def after_commit(error: OsqueueError) -> OsqueueError:
    """Return a copy of an error that does not state that nothing was done: a part of its call is committed."""
    message = error.message.removesuffix(NOTHING_DONE).rstrip()
    if message == error.message:
        return error
    message = f"{message} {PART_DONE}"
    return type(error)(message, retry_after=error.retry_after, permanent=error.permanent)


def retried(attempt: Callable[[], Generator[E, Any, R]], policy: RetryPolicy) -> Generator[E | Sleep, Any, R]:
    """Run a flow until it raises nothing that passes."""
    tries = Tries(policy)
    while True:
        try:
            return (yield from attempt())
        except (Timeout, Unavailable, Throttled) as error:
            if error.permanent or not (yield from tries.again()):
                raise
