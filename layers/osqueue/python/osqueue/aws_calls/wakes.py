"""Invokes the consumers that commits wake: asynchronously, by requests of its own."""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from urllib.parse import quote

import msgspec
from msgspec import Struct

from .. import forks
from ..clock import MACHINE, Machine
from ..core.consumers import Wake
from ..errors import OsqueueError, Rejected, Unavailable, pass_on_interruption, shown
from ..model.fields import moment
from .caller import AwsCaller
from .eventbridge import error_code

AT_ONCE_MAX = 4
ACCEPTED = 202

_ARN = re.compile(r"arn:[\w-]+:lambda:([\w-]+):")

log = logging.getLogger("osqueue.consumers")


class WakeEvent(Struct, frozen=True):
    """What a consumer is invoked with. It names a right to claim and holds no job."""

    queue: str
    consumer: str
    shard: int
    ticket: int
    fired_at: datetime


class _Envelope(Struct, frozen=True):
    osqueue: WakeEvent


def encoded(queue: str, wake: Wake) -> bytes:
    """The event of a wake, as JSON."""
    told = WakeEvent(queue, wake.consumer, wake.shard, wake.ticket, moment(wake.at_ms))
    return msgspec.json.encode(_Envelope(told))


def wake_of(event: object) -> WakeEvent:
    """The wake that an event tells of. Raises Rejected for any other event."""
    try:
        return msgspec.convert(event, _Envelope, strict=True).osqueue
    except msgspec.ValidationError as error:
        raise Rejected(
            f"event: {shown(event)} is no wake of a queue ({error}). This function is a consumer: osqueue invokes it"
            " when jobs wait, with {'osqueue': {'queue', 'consumer', 'shard', 'ticket', 'fired_at'}}. Attach it to a"
            " queue: osqueue queue consumers ADDRESS QUEUE --attach NAME --target ARN.",
            field="event",
        ) from None


class LambdaWaker:
    """Invokes consumers that are Lambda functions. A wake that fails is counted: its ticket is fired again.

    ``sent`` and ``failed`` count wakes, ``last_error`` is the text of the latest failure. Credentials and the region
    come from the environment; a target's ARN tells its own region.
    """

    def __init__(self, machine: Machine = MACHINE) -> None:
        self.sent = 0
        self.failed = 0
        self.last_error: str | None = None
        self._machine = machine
        self._lock = forks.lock()
        self._callers: dict[str | None, AwsCaller] = {}  # by region
        self._failing = False

    def wake(self, queue: str, wakes: Sequence[Wake]) -> int:
        """Invoke each, up to four at once, and wait until Lambda has answered. Raises nothing.

        Answers how many it did not accept.
        """
        left, failures = deque(wakes), deque[str]()
        helpers = [
            threading.Thread(target=self._fire_all, args=(queue, left, failures), daemon=True)
            for _ in range(min(len(wakes), AT_ONCE_MAX) - 1)
        ]
        for helper in helpers:
            helper.start()
        self._fire_all(queue, left, failures)
        # A function's process is frozen once it has answered, with whatever it was doing.
        for helper in helpers:
            helper.join()
        return len(failures)

    def _fire_all(self, queue: str, left: deque[Wake], failures: deque[str]) -> None:
        while True:
            try:
                wake = left.popleft()
            except IndexError:
                return
            failure: str | None = None
            try:
                self._fire(queue, wake)
            except OsqueueError as error:
                failure = error.message
            except Exception as error:  # noqa: BLE001 - a wake is a hint: whatever is wrong, the commit is done
                pass_on_interruption(error)
                failure = type(error).__name__
            if failure is not None:
                failures.append(failure)
            self._count(failure)

    def _fire(self, queue: str, wake: Wake) -> None:
        path = f"/2015-03-31/functions/{quote(wake.target, safe='')}/invocations"
        headers = {"x-amz-invocation-type": "Event", "content-type": "application/json"}
        answer = self._caller(wake.target).post(path, headers, encoded(queue, wake))
        if answer.status != ACCEPTED:
            told = error_code(answer.body)
            raise Unavailable(
                f"Lambda refused to invoke {wake.target} ({answer.status} {told})".rstrip(" )") + ")"
            )

    def _caller(self, target: str) -> AwsCaller:
        found = _ARN.match(target)
        region = found[1] if found else None
        with self._lock:
            if region not in self._callers:
                self._callers[region] = AwsCaller("lambda", region, machine=self._machine)
            return self._callers[region]

    def _count(self, failure: str | None) -> None:
        with self._lock:
            self.sent += failure is None
            self.failed += failure is not None
            self.last_error = failure or self.last_error
            changed, self._failing = self._failing != (failure is not None), failure is not None
        if changed and failure is not None:  # once, not for every commit until somebody mends it
            log.warning("wakes fail (%s); they are counted, and fired again", failure)
        elif changed:
            log.info("wakes are accepted again")
