"""What a store's refusals and failures leave behind, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from osqueue.commit.deadline import Deadline
from osqueue.commit.effects import Flow, Pause
from osqueue.commit.retry import Tries
from osqueue.commit.writer import ShardWriter
from osqueue.errors import OsqueueError
from osqueue.stores.base import Failed

from .control import Control, in_runs, patched


def refusals_remembered() -> AbstractContextManager[None]:
    """A writer remembers why its last read of the head failed, and its next commits raise that without a request."""
    real_read, real_in_time = ShardWriter.read_head, Deadline.in_time
    remembered: dict[int, OsqueueError] = {}

    def read_head(self: ShardWriter, *looks: Any) -> Flow[Any]:
        found = yield from real_read(self, *looks)
        remembered.pop(id(self), None)
        if isinstance(found, Failed):
            remembered[id(self)] = found.error
        return found

    def in_time(self: Deadline, seconds: float = 0.0) -> None:
        complaint = remembered.get(id(self.writer))
        if complaint is not None and complaint.permanent and not self.sent:
            raise complaint
        real_in_time(self, seconds)

    return patched((ShardWriter, "read_head", read_head), (Deadline, "in_time", in_time))


def tries_counted() -> AbstractContextManager[None]:
    """What a call needs is tried as often as its policy allows, whatever time the call has."""

    def again(self: Any) -> Flow[bool]:
        self._failed += 1
        if self._failed >= self._policy.tries:
            return False
        yield Pause(self._policy.pause_after(self._failed))
        return True

    return patched((Tries, "again", again))


CONTROLS = (
    Control("a refusal ends with its call", refusals_remembered, (in_runs("refusals", "was refused, and"),)),
    Control("a call tries as long as it may", tries_counted, (in_runs("throttled", "gave up with"),)),
)
