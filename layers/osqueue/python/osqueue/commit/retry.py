"""What repeats a request, and how often: the policies by name, and the functions that follow one.

Only what may be repeated is given to them: reads, writes of what nobody else writes, conditional writes whose second
answer the caller can judge, API calls that are harmless twice, and the turns of a worker. The commit protocol waits by
measured times instead (``deadline.backoff``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from itertools import count
from typing import Any, TypeVar

from msgspec import Struct

from ..clock import Machine
from ..errors import Throttled, Timeout, Unavailable
from ..stores.base import Failed, StoreReply, StoreRequest
from .effects import AT_ONCE, All, Flow, Sleep

E = TypeVar("E")
R = TypeVar("R")

DOUBLINGS_MAX = 32  # far beyond any maximum
ENDLESS = sys.maxsize  # tries: the caller's time ends them


class RetryPolicy(Struct, frozen=True):
    """How often something is tried that brings no definite answer, and how long the pauses between are."""

    tries: int  # the first included
    pause_s: float  # before the second try; doubled for each further one, up to …
    pause_s_max: float = float("inf")
    after_silence: bool = (
        True  # also where the store did not answer in time, which a caller waits for each time
    )

    def pause_after(self, failures: int, machine: Machine | None = None) -> float:
        """Seconds to wait after so many tries in a row that failed; with a machine between half of that and all."""
        seconds = min(self.pause_s_max, self.pause_s * 2.0 ** min(failures - 1, DOUBLINGS_MAX))
        return seconds if machine is None else seconds * (0.5 + machine.uniform() / 2)


ONCE = RetryPolicy(1, 0)  # what a second try would be told, nobody could judge
OBJECT = RetryPolicy(3, 0.1)  # an object beside the head: a payload, a part of the archive, what is staged
ENTRY = RetryPolicy(4, 0.05)  # the entry of an id, or what a purge strips: there are many
HEAD_READ = RetryPolicy(5, 0.2, after_silence=False)  # the head, when somebody waits for what it says
NEEDED = RetryPolicy(5, 0.2)  # what nothing goes on without: a receipt, the store's clock, a head to restore
CALL = RetryPolicy(ENDLESS, 0.1, 5.0)  # a call to an API: the caller says for how long
TURN = RetryPolicy(ENDLESS, 0.1, 10.0)  # a worker's turn, for as long as the worker runs
WORD = RetryPolicy(ENDLESS, 1.0, 60.0)  # what a worker says of itself, while there is no queue or no answer


def ask(request: StoreRequest, policy: RetryPolicy) -> Flow[StoreReply]:
    """Ask until there is a definite answer, or an error that asking again does not mend."""
    for tried in count(1):
        reply: StoreReply = yield request
        if tried == policy.tries or not _is_open(reply, policy):
            return reply
        yield Sleep(policy.pause_after(tried))
    raise AssertionError("unreachable")


def ask_all(requests: Sequence[StoreRequest], policy: RetryPolicy) -> Flow[list[StoreReply]]:
    """Ask many, some at a time, and those again that brought no definite answer."""
    replies: dict[int, StoreReply] = {}
    left = list(range(len(requests)))
    for tried in count(1):
        for start in range(0, len(left), AT_ONCE):
            group = left[start : start + AT_ONCE]
            found = yield All(tuple([requests[at] for at in group]))
            replies.update(zip(group, found, strict=True))
        left = [at for at in left if _is_open(replies[at], policy)]
        if not left or tried == policy.tries:
            return [replies[at] for at in range(len(requests))]
        yield Sleep(policy.pause_after(tried))
    raise AssertionError("unreachable")


def _is_open(reply: StoreReply, policy: RetryPolicy) -> bool:
    """Whether asking again may bring a definite answer."""
    if not isinstance(reply, Failed) or reply.error.permanent:
        return False
    return policy.after_silence or not isinstance(reply.error, Timeout)


def retried(attempt: Callable[[], Generator[E, Any, R]], policy: RetryPolicy) -> Generator[E | Sleep, Any, R]:
    """Run a flow until it raises nothing that passes."""
    for tried in count(1):
        try:
            return (yield from attempt())
        except (Timeout, Unavailable, Throttled) as error:
            if error.permanent or tried == policy.tries:
                raise
        yield Sleep(policy.pause_after(tried))
    raise AssertionError("unreachable")
