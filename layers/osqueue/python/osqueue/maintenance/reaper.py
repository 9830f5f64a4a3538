"""One reaper pass over a queue: timers, announcements of dead writers, archive, tables, backups and garbage.

Each shard in turn:

    sweep     leases that ended, jobs that are due, dead letters over their TTL; announced requests nobody applied;
              finished jobs leave the head
    archive   tables whose records the archive does not have: parts are written, then the commit that says so
    merge     tables of like size become one
    forget    tables of which nothing has to be remembered: first the clients' ids are freed, then the rows go
    backup    a copy of the head, once an hour
    collect   objects that nobody refers to

and, with the first backup of an hour, some of the ids whose jobs were never enqueued (``orphan_ids``) and some of the
batches that are known no longer (``bulk.receipts``), and the entries of workers that are lost (``worker_registry``).

Every step is a committed fact or repeats harmlessly, so passes may run at once, overlap, and die anywhere. What goes
wrong in one step stops no other; the first error is raised when the pass is over.

A pass over many shards of a slow store may be stopped before its end. So a long pass notes, every few seconds, behind
which shard the next pass begins. Each shard has its turn, also after one that takes a whole pass for itself. The note
decides the order and nothing else, so it may be lost, late or wrong.

    <root of the first shard>turn       the number of a shard, in digits
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..bulk import receipts
from ..clock import Machine
from ..commit.effects import All, QueueEffect, QueueFlow, Submit
from ..commit.publications import PUBLICATION_KEPT_MS
from ..core.intents import intents_prefix, writer_of_publication
from ..core.ops import Code
from ..core.queue_ops import RunTimers
from ..core.state import State
from ..errors import NotFound, OsqueueError, Unavailable
from ..model.reports import ReapReport
from ..objects import backups, segments, worker_registry
from ..objects.layout import read_state, root_of, unavailable
from ..stores.base import Delete, Found, Get, List, Listed, Put
from . import garbage_collection, orphan_ids
from .compaction import STEPS_MAX, ClockFlow, StageFactory, TableCompaction

__all__ = ["STEPS_MAX", "Reaper"]

SWEEPS_MAX = 25  # commits of one pass that let go of dead letters, some seconds; the next pass goes on
NOTE_SECONDS = 10.0  # of a pass, between its notes of where the next one begins
NOTE_BYTES_MAX = 8

T = TypeVar("T")


def place_of_turn(queue: str) -> str:
    """The key of the note that says where the next pass begins."""
    return f"{root_of(queue, 0)}turn"


class Reaper(TableCompaction):
    """One pass over one queue."""

    def __init__(self, queue: str, machine: Machine, clock: ClockFlow, stage: StageFactory) -> None:
        super().__init__(queue, clock, stage)
        self.machine = machine
        self._noted = machine.monotonic()  # when the latest note was written, or the pass began

    def run(self, shards: int) -> QueueFlow[ReapReport]:
        """Look after every shard. Raises the first trouble once all is done that can be."""
        total = ReapReport()
        first = (yield from self._try(self._turn(), 0)) if shards > 1 else 0
        for at in range(first, first + shards):
            step = self._shard(at % shards)
            if shards > 1:
                step = self._noting((at + 1) % shards, step)
            total += yield from self._try(step, ReapReport())
        if self.troubles:
            raise self.troubles[0]
        return total

    def _turn(self) -> QueueFlow[int]:
        """The shard that a long pass noted for the next one to begin with."""
        note = yield Get(place_of_turn(self.queue), start=0, length=NOTE_BYTES_MAX)
        return int(note.body) if isinstance(note, Found) and note.body.isdigit() else 0

    def _noting(self, following: int, step: QueueFlow[T]) -> QueueFlow[T]:
        """Take a step; if the pass lasts, note that the next one begins behind it."""
        reply: Any = None
        go_on: Callable[[Any], QueueEffect] = step.send
        while True:
            try:
                effect = go_on(reply)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            go_on = step.send
            try:
                if self.machine.monotonic() - self._noted >= NOTE_SECONDS:
                    self._noted = self.machine.monotonic()
                    yield Put(place_of_turn(self.queue), b"%d" % following)
                reply = yield effect
            except OsqueueError as error:
                go_on, reply = step.throw, error

    def _try(self, step: QueueFlow[T], otherwise: T) -> QueueFlow[T]:
        """Take a step, and keep its error for the end."""
        try:
            return (yield from step)
        except OsqueueError as error:
            self.troubles.append(error)
            return otherwise

    def _shard(self, shard: int) -> QueueFlow[ReapReport]:
        before = yield from read_state(self.queue, shard)
        if before is None:
            copies = yield from backups.saved(self.queue, shard)
            if not all(map(backups.is_purge, copies)):  # a purge leaves its list also where nothing ever was
                raise Unavailable(
                    f"the head of {self.queue}/{shard} is missing, and the shard was in use. 'osqueue doctor ADDRESS"
                    f" {self.queue} --restore --shard {shard}' puts it back: at once, before anybody enqueues."
                )
            return ReapReport()
        total = yield from self._try(self._sweep(shard, before), ReapReport())
        state = yield from self.state_of(shard)
        yield from self._try(self._stuck(shard, state), None)
        for step in (self.archive, self.merge, self.forget):
            done, state = yield from self._try(step(shard, state), (ReapReport(), state))
            total += done
        saved = yield from self._try(self._save(shard, state), False)
        collected = yield from self._try(garbage_collection.collect(self.queue, shard, state), 0)
        freed = 0
        if saved and not shard:
            now = yield from self.clock(shard, state)
            freed = yield from self._try(orphan_ids.sweep(self.queue, now), 0)
            yield from self._try(receipts.forget(self.queue, now), 0)
            yield from self._try(worker_registry.forget(self.queue, now), 0)
        return total + ReapReport(saved=int(saved), collected=collected, freed=freed)

    # ── Steps ────────────────────────────────────────────────────────────────
    def _sweep(self, shard: int, before: State) -> QueueFlow[ReapReport]:
        place = intents_prefix(root_of(self.queue, shard))
        listed = yield List(place)
        if not isinstance(listed, Listed):
            raise unavailable(listed, "the list of announced requests")
        published = [key for key in listed.keys if writer_of_publication(key[len(place) :]) is not None]
        if published:
            yield from self._forget_publications(published, (yield from self.clock(shard, before)))
        announced = len(listed.keys) - len(published)
        total = ReapReport(combined=announced)
        look = announced > 0
        for _ in range(SWEEPS_MAX):
            answer = yield Submit(shard, (RunTimers(flush=True),), look=look)
            (code, expired), (_, promoted) = answer.outcomes[0].runs
            total += ReapReport(expired=expired, promoted=promoted)
            if code != Code.RETRY:
                break
            look = False
        return total

    def _forget_publications(self, published: Sequence[str], now: int) -> QueueFlow[None]:
        """Delete publications that are old: they hold payloads, and a commit might apply one much later.

        A writer that still waits publishes again.
        """
        replies = yield All(tuple(Get(key, length=0) for key in published))
        old = [
            key
            for key, reply in zip(published, replies, strict=True)
            if isinstance(reply, Found) and now - reply.modified_ms > PUBLICATION_KEPT_MS
        ]
        if old:
            yield Delete(tuple(old))

    def _stuck(self, shard: int, state: State) -> QueueFlow[None]:
        """Raise the error of a segment that is due and cannot be read: sweeps pass over it silently."""
        now = yield from self.clock(shard, state)
        spans = [span for span in state.delayed.spans if span.due_ms <= now]
        if not state.dead.ready:
            spans += state.dead.spans[:1]
        for span in spans:
            try:
                yield from segments.front(root_of(self.queue, shard), span)
            except NotFound as error:
                if (yield from self.state_of(shard)).commit == state.commit:  # else others have moved past it
                    raise segments.lost_object(error, self.queue) from error

    def _save(self, shard: int, state: State) -> QueueFlow[bool]:
        now = yield from self.clock(shard, state)
        return (yield from backups.save(self.queue, shard, now))
