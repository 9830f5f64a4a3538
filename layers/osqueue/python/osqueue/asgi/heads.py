"""What a process knows of its queues without asking: the heads that it read or wrote last, as bytes.

The dashboard looks at queues through ``RecentHeads``: a look costs a request only where nothing is remembered. What
this process commits itself, it knows at no request.
"""

from __future__ import annotations

from collections import OrderedDict

from ..clock import MACHINE, Machine
from ..commit.writer import HEAD
from ..stores.base import (
    Found,
    Get,
    PutIfAbsent,
    PutIfMatch,
    Store,
    StoreReply,
    StoreRequest,
    Unchanged,
    Written,
)
from ..stores.wrapped import WrappedStore

HEADS_MAX = 2_000  # remembered; then the one that was not used for longest is forgotten
HEAD_PARTS = 4  # in the key of a head: ``<hash>/<queue>/<shard>/head``


def queue_of(key: str) -> str | None:
    """The queue whose head this key names; None where it names something else."""
    parts = key.split("/")
    return parts[1] if len(parts) == HEAD_PARTS and parts[-1] == HEAD else None


class HeadMemory(WrappedStore):
    """A store that remembers the heads that pass, while somebody looks."""

    def __init__(self, inner: Store, machine: Machine = MACHINE) -> None:
        super().__init__(inner)
        self._machine = machine
        self.heads: OrderedDict[str, Found] = OrderedDict()
        self.changes: dict[str, int] = {}  # by queue: how often one of its heads was another than before
        self._looked_at = False

    def begin(self) -> None:
        """Somebody looks."""
        self._looked_at = True

    def end(self) -> None:
        """Nobody does any more."""
        self._looked_at = False
        self.heads.clear()

    def forget(self, queue: str) -> None:
        """Have the next look read the heads of this queue."""
        for key in [key for key in self.heads if queue_of(key) == queue]:
            del self.heads[key]

    def perform(self, request: StoreRequest) -> StoreReply:
        return self._heard(request, self.inner.perform(request))

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self._heard(request, await self.inner.perform_async(request))

    def _heard(self, request: StoreRequest, reply: StoreReply) -> StoreReply:
        if not self._looked_at:
            return reply
        if isinstance(reply, Found) and isinstance(request, Get) and request.start is None:
            self._remember(request.key, reply)
        elif isinstance(reply, Written) and isinstance(request, PutIfMatch | PutIfAbsent):
            self._remember(request.key, Found(request.body, reply.version, self._machine.now_ms()))
        return reply

    def _remember(self, key: str, head: Found) -> None:
        queue = queue_of(key)
        if queue is None:
            return
        before = self.heads.get(key)
        self.heads[key] = head
        self.heads.move_to_end(key)
        if before is None or before.version != head.version:
            self.changes[queue] = self.changes.get(queue, 0) + 1
        if len(self.heads) > HEADS_MAX:
            self.heads.popitem(last=False)


class RecentHeads(WrappedStore):
    """The same store for those who look: heads come from memory, and the rest, from below."""

    def __init__(self, inner: Store, memory: HeadMemory) -> None:
        super().__init__(inner)
        self._memory = memory

    def perform(self, request: StoreRequest) -> StoreReply:
        return self._remembered(request) or self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self._remembered(request) or await self.inner.perform_async(request)

    def close(self) -> None:
        """What lies below is not ours."""

    def _remembered(self, request: StoreRequest) -> StoreReply | None:
        if not isinstance(request, Get) or request.start is not None:
            return None
        head = self._memory.heads.get(request.key)
        if head is None:
            return None
        return Unchanged() if request.unless == head.version else head
