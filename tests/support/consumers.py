"""Consumers over a queue in memory: wakes are kept until a test delivers them."""

from __future__ import annotations

from typing import Any

from osqueue import Queue
from osqueue.aws import ConsumerFunction
from osqueue.aws_calls.wakes import WakeEvent
from osqueue.stores.memory import MemoryStore
from osqueue.testing.clock import Clock
from osqueue.testing.consumers import InvocationContext, LocalWaker
from osqueue.worker.outcomes import Tally

STATES = {"scheduled", "queued", "processing", "failing", "completed", "failed", "cancelled"}


class Consumed:
    """A queue, and who is invoked for it: each invocation with a queue object of its own, as in Lambda."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock)
        self.waker = LocalWaker()
        self.q = self.opened()
        self.q.configure(consumers={"mailer": {"target": "arn:mailer", **settings}})

    def opened(self) -> Queue[Any]:
        """Another process's queue object."""
        return Queue(self.store, "emails", waker=self.waker, machine=self.clock)

    @property
    def wakes(self) -> list[WakeEvent]:
        return list(self.waker.wakes)

    def next_wake(self) -> WakeEvent:
        return self.waker.wakes.popleft()

    def deliver(
        self,
        handler: ConsumerFunction,
        wake: WakeEvent | None = None,
        seconds: float = 900,
        queue: Any = None,
    ) -> Tally:
        """One invocation, for the wake that waits longest or this one."""
        context = InvocationContext(self.clock, seconds)
        return handler.work(queue or self.opened(), wake or self.next_wake(), context)

    def tickets(self) -> list[tuple[int, int]]:
        """Each ticket and its holder, as the head has them."""
        q = self.opened()
        state = q._run(q._flows.state_seen(0))
        return [(row.id, row.holder) for row in state.tickets.get("mailer", ())]

    def states(self) -> dict[str, int]:
        """How many jobs are in which state."""
        stats = self.q.stats()
        return {name: stats[name] for name in STATES if stats[name]}
