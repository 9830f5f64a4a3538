"""Push consumers in the test's own process: who would be invoked is called, when the test runs jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ..aws import ConsumerFunction
from ..aws_calls.wakes import WakeEvent
from ..clock import Machine
from ..commit.effects import QueueFlow, Submit
from ..core.consumers import Wake
from ..core.queue_ops import RunTimers
from ..core.state import QUEUED
from ..errors import Rejected, shown
from ..model.fields import moment
from ..worker.outcomes import Tally
from .waiting import waiting_jobs

INVOCATION_SECONDS = 900.0  # the longest that Lambda gives


class InvocationContext:
    """Lambda's context, by a machine's clock."""

    aws_request_id = "test"
    function_name = "test"

    def __init__(self, machine: Machine, seconds: float = INVOCATION_SECONDS) -> None:
        self._machine = machine
        self._end = machine.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        """Until the invocation would be stopped."""
        return max(0, round((self._end - self._machine.monotonic()) * 1000))


class LocalWaker:
    """Keeps what commits wake until it is delivered, in this process."""

    def __init__(self) -> None:
        self.wakes: deque[WakeEvent] = deque()

    def wake(self, queue: str, wakes: Sequence[Wake]) -> None:
        """Keep them."""
        for each in wakes:
            event = WakeEvent(queue, each.consumer, each.shard, each.ticket, moment(each.at_ms))
            self.wakes.append(event)


class LocalConsumers:
    """The consumers of a test by their names, and the queue object that they work with."""

    def __init__(self, functions: Mapping[str, ConsumerFunction], queue: Any, waker: LocalWaker) -> None:
        for name, function in functions.items():
            if not isinstance(function, ConsumerFunction):
                raise Rejected(
                    f"consumers: {name}: {shown(function)} is no consumer. Decorate it with osqueue.aws.consumer.",
                    field="consumers",
                )
        self.functions = dict(functions)
        self.queue = queue
        self._waker = waker
        if functions:
            queue.configure(consumers={name: {"target": f"test:{name}"} for name in functions})

    def __bool__(self) -> bool:
        return bool(self.functions)

    def next_wake(self) -> WakeEvent | None:
        """The wake that waits longest, of a consumer that is here."""
        while self._waker.wakes:
            wake = self._waker.wakes.popleft()
            if wake.consumer in self.functions and wake.queue == self.queue.name:
                return wake
        return None

    def tick(self) -> None:
        """Commit as the reaper would: what has become due is seen, and tickets are granted for it."""

        def flow() -> QueueFlow[None]:
            for shard in range((yield from self.queue._flows.shards())):
                yield Submit(shard, (RunTimers(),))

        self.queue._run(flow())

    def due_times(self) -> list[int]:
        """When what waits may be due for a consumer: jobs at their time, and those that wait for others."""

        def flow() -> QueueFlow[list[int]]:
            found: list[int] = []
            attached = (yield from self.queue._flows.state_seen(0)).settings.consumers
            for state, job in (yield from waiting_jobs(self.queue)):
                since = max(job.enqueued_ms, job.scheduled_ms)
                windows = [since + each.window_ms for each in attached if each.window_ms]
                found += windows if state == QUEUED else [job.due_ms]
            return found

        times: list[int] = self.queue._run(flow())
        return times

    def deliver(self, wake: WakeEvent, on_ended: Any = None) -> Tally:
        """Invoke a consumer, and wait for its end."""
        context = InvocationContext(self.queue.machine)
        return self.functions[wake.consumer].work(self.queue, wake, context, on_ended)
