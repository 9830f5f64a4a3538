"""What all flows of one queue share: its names, its serialiser, its writers, and how many shards it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from ..clock import Machine
from ..commit.effects import HeadPlace, QueueFlow, Submit
from ..commit.news import News
from ..commit.retry import OBJECT, ask, before_commit
from ..commit.writer import ShardWriter
from ..core.queue_ops import ChangeSettings
from ..core.state import State
from ..model.codecs import Codec
from ..objects.layout import register, unavailable
from ..objects.staging import StagingArea
from ..stores.base import Listen, LookPace, Refused, Store, Written


class Writers(dict[HeadPlace, ShardWriter]):
    """The writers of a queue's shards and of its limiter, made as they are needed, one for each."""

    def __init__(self, make: Callable[[Any], ShardWriter]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, shard: HeadPlace) -> ShardWriter:
        return self.setdefault(shard, self._make(shard))  # one step, so two threads get the same one


class FlowContext:
    """One queue, embedded. Holds what does not change; the state is in the store."""

    def __init__(
        self,
        queue: str,
        codec: Codec,
        machine: Machine,
        writers: Writers,
        place: object = None,
        look_pace: LookPace = Store.look_pace,
        listen: Listen | None = None,
        news: News | None = None,
    ) -> None:
        self.queue = queue
        self.codec = codec
        self.machine = machine
        self.writers = writers
        self.place = place  # distinguishes the store from others of this process
        self.look_pace = look_pace  # how often to look at a head
        self.listen = listen  # where the store can tell of a new one
        self.news = news  # where commits report the ends of rests
        # The boards that it tells, and in which process.
        self._hearing: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._dealt = 0  # how many times a shard was picked for new jobs
        self.closing = False  # does the process end? Then whoever waits is answered as if the time were over
        self._registered: int | None = None  # the epoch of the first head that the queue was registered for

    def shards(self, *, will_write: bool = False) -> QueueFlow[int]:
        """Return how many shards the queue has, by the head of the first as this process last saw it.

        ``will_write`` states that a commit on that shard most likely follows.
        """
        if will_write:
            self.writers[0].will_write = True
        return self.shards_seen() or (yield from self.state_seen(0)).settings.shards

    def group_shards(self) -> QueueFlow[int]:
        """Over how many shards groups are spread. It is fixed by whoever asks first, and never changes."""
        while not (count := (yield from self.state_seen(0)).settings.group_shards):
            shards = yield from self.shards()
            yield from self.known_queue()
            yield Submit(0, (ChangeSettings(group_shards=shards),))
        return count

    def state_seen(self, shard: int) -> QueueFlow[State]:
        """The shard's state as this process last saw it; an empty submit sees to it that it has."""
        writer = self.writers[shard]
        while (head := writer.head) is None:
            yield Submit(shard, ())
        return head.state

    @property
    def known(self) -> bool:
        """Is the queue registered? One that was removed and begins again has another epoch, and has to be again."""
        head = self.writers[0].head
        return head is not None and head.state.epoch == self._registered

    def known_queue(self) -> QueueFlow[None]:
        """Register the queue by name before its first head is written."""
        if self.known:
            return
        first = yield from self.state_seen(0)
        if first.seq == 0:
            reply = yield from ask(register(self.queue), OBJECT)
            if not isinstance(reply, Written | Refused):
                raise before_commit(unavailable(reply, "room for the queue's registration"))
        self._registered = first.epoch

    def shards_seen(self) -> int:
        """The same without a request: 0 when this process has not seen the queue yet."""
        head = self.writers[0].head
        return 0 if head is None else head.state.settings.shards

    def next_of(self, shards: int) -> int:
        """New jobs go to the shards in turn."""
        self._dealt += 1
        return self._dealt % shards

    def stage(self, shard: int) -> QueueFlow[StagingArea]:
        """A place for staged objects, born with the head this process knows."""
        seen = yield from self.state_seen(shard)
        return StagingArea(self.writers[shard].root, seen.seq, self.machine)
