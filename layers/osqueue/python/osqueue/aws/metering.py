"""What a consumer's commits are counted as: what the deployment's functions count, under the deployment's name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..aws_calls import WAKES_VARIABLE
from ..clock import MACHINE, Machine
from ..metering.lines import print_lines
from ..metering.store import MeteredStore
from ..queue.options import QueueOptions
from ..stores.base import Store


class ConsumerMeter:
    """Counts for a deployment what is committed to ``store``, and prints it when an invocation ends."""

    def __init__(self, store: Store, service: str, machine: Machine = MACHINE) -> None:
        self.store = MeteredStore(store, machine)
        self._service = service
        self._machine = machine

    def options(self, bus: str | None) -> QueueOptions:
        """Who is told of what a queue commits, each counted: the event bus, where there is one, and consumers."""
        options: QueueOptions = {}
        if bus:
            from ..metering.bus import metered_bus

            options["sinks"] = [metered_bus(bus)]
        if os.environ.get(WAKES_VARIABLE):
            from ..metering.wakes import metered_waker

            options["waker"] = metered_waker()
        return options

    @contextmanager
    def invocation(self, queue: str, request_id: str) -> Iterator[None]:
        """A new invocation for this queue. One that does nothing prints nothing, nor does one that is killed."""
        with self.store.invocation() as counts:
            try:
                yield
            finally:
                if not counts.is_empty:
                    told = {"queue": queue, "requestId": request_id}
                    print_lines(counts, self._service, self._machine.now_ms(), told)
