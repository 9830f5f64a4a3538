"""A queue as the server keeps it between requests: contents pass through it unread, answers have a size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..contract.content import PassThroughCodec
from ..contract.route import QUEUES
from ..lazy import lazy
from ..queue.base import QueueBase
from ..queue.blocking import Queue
from .answers import ANSWER_BYTES_MAX, INCLUDED_BYTES_MAX
from .flows import ServerFlows
from .transfers import Transfers

if TYPE_CHECKING:
    from ..operations.admin import AdminFlows


class ServedQueue(QueueBase[Any, Any]):
    """What is the same of queues whose requests block and of those whose requests are awaited."""

    flows: ServerFlows
    presigns: bool  # do callers reach the store itself?

    def _opened(self, place: Any) -> ServerFlows:
        self.codec = PassThroughCodec()
        self.flows = ServerFlows(
            self.name, self.codec, self.machine, self._writers, place.place, place.look_pace, place.listen
        )
        self.flows.answer_bytes = ANSWER_BYTES_MAX
        self.flows.transfers = Transfers(self.store, self.machine, self.presigns)
        self.flows.page_bytes = self.flows.content_bytes_max = INCLUDED_BYTES_MAX
        return self.flows

    @lazy
    def steering(self) -> AdminFlows:
        """The flows of operators."""
        from ..operations.admin import AdminFlows

        flows = AdminFlows(self.name, self.codec, self.machine, self._writers, self.store.place)
        flows.page_bytes = flows.content_bytes_max = INCLUDED_BYTES_MAX
        flows.search = f"history(since=TIME) of a Queue, or GET {QUEUES}/{self.name}/history?since=TIME,"
        return flows


class BlockingServedQueue(ServedQueue, Queue[Any]):
    """One for threads, as a function has it: no more passes through a function than Lambda takes."""

    presigns = True
