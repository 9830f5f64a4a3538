"""What all flows of one queue share: its names, its serialiser, its writers, and how many shards it has."""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Machine
from ..commit.writer import Writer
from ..core.state import State
from ..serde import Codec
from ..shards import QueueFlow, Submit, register, unavailable
from ..staging import Stage
from ..stores.base import Refused, Written


class Writers(dict[int, Writer]):
    """The writers of a queue's shards, made as they are needed, one for each."""

    def __init__(self, make: Callable[[int], Writer]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, shard: int) -> Writer:
        return self.setdefault(shard, self._make(shard))  # one step, so two threads get the same one


class Context:
    """One queue, embedded. Holds what does not change; the state is in the store."""

    def __init__(self, queue: str, codec: Codec, machine: Machine, writers: Writers) -> None:
        self.queue = queue
        self.codec = codec
        self.machine = machine
        self.writers = writers
        self.turn = 0
        self.known = False  # the queue is registered

    def shards(self) -> QueueFlow[int]:
        """How many shards the queue has, by the head of the first as this process last saw it."""
        writer = self.writers[0]
        if writer.head is not None:
            return writer.head.state.settings.shards
        return (yield from self._seen(0)).settings.shards

    def _seen(self, shard: int) -> QueueFlow[State]:
        """The shard's state as this process last saw it; an empty submit sees to it that it has."""
        writer = self.writers[shard]
        while writer.head is None:
            yield Submit(shard, ())
        return writer.head.state

    def known_queue(self) -> QueueFlow[None]:
        """Register the queue by name before its first head is written."""
        if self.known:
            return
        if (yield from self._seen(0)).seq == 0:
            reply = yield register(self.queue)
            if not isinstance(reply, Written | Refused):
                reply = yield register(self.queue)
            if not isinstance(reply, Written | Refused):
                raise unavailable(reply, "room for the queue's registration")
        self.known = True

    def next_shard(self) -> QueueFlow[int]:
        """New jobs go to the shards in turn."""
        count = yield from self.shards()
        self.turn += 1
        return self.turn % count

    def stage(self, shard: int) -> QueueFlow[Stage]:
        """A place for staged objects, born with the head this process knows."""
        seen = yield from self._seen(shard)
        return Stage(self.writers[shard].root, seen.seq, self.machine)
