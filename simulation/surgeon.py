"""An operator whose queue has accidents: heads are damaged, clocks go wrong, jobs have to be erased; each is mended."""

from __future__ import annotations

from msgspec.structs import replace

from osqueue import limits
from osqueue.commit.effects import Flow, Sleep
from osqueue.commit.writer import HEAD
from osqueue.core.audit import spans_of
from osqueue.core.encoding import encode_head
from osqueue.core.state import State
from osqueue.errors import (
    Conflict,
    Damaged,
    NotFound,
    OsqueueError,
    Throttled,
    Timeout,
    Unavailable,
    Unknown,
)
from osqueue.maintenance.doctor import fix_clock
from osqueue.maintenance.head_restore import Restorer
from osqueue.model.keys import job_id
from osqueue.objects.backups import folder_of, is_hourly, name_of
from osqueue.stores.base import Delete, Put

from . import secrecy
from .clients import Client
from .ledger import Repair, Violation
from .lives import DAMAGE
from .truth import Truth

TROUBLES = (Conflict, Damaged, NotFound, Throttled, Timeout, Unavailable, Unknown)
RECENT_KEYS = 60  # the jobs that are worth purging: others are mostly forgotten
AHEAD_MS = (2 * limits.CLOCK_AHEAD_MS_MAX, 5 * limits.CLOCK_AHEAD_MS_MAX)  # of a clock that goes wrong


class Surgeon:
    """Accidents and repairs of one shard, one at a time."""

    def __init__(self, client: Client, truth: Truth) -> None:
        self.client = client
        self.truth = truth
        self.dice = client.dice
        self.inv = client.invariants
        self.ledger = client.ledger
        self.folder = folder_of(self.inv.queue, self.inv.shard)

    def program(self, pause_seconds: float) -> Flow[None]:
        """One thing after the other."""
        while True:
            yield from self.client.pause(pause_seconds)
            yield from self.mend()
            if self.inv.state is None:
                continue
            roll = self.dice.random()
            if roll < 0.3:
                self.copy()
            elif roll < 0.65:
                yield from self.purge()
            elif roll < 0.8 and self.copies():
                self.damage()
                yield from self.client.pause(pause_seconds / 2)
            elif roll < 0.9 and self.copies():
                yield from self.restore(force=True)
            elif roll < 0.97 or not self.lose_vectors():
                self.poison()
                yield from self.client.pause(pause_seconds / 2)
            else:
                yield from self.client.pause(pause_seconds / 2)

    def mend(self) -> Flow[None]:
        """Restore a head that cannot be read, or names what cannot be, and set a clock that is wrong."""
        while self.ledger.lost:
            yield from self.restore(force=False)
            yield Sleep(1.0)
        while any(self.inv.root + name in self.truth.damaged for name in self.inv.names):
            yield from self.restore(force=True, wished=HEAD)
            yield Sleep(1.0)
        state = self.inv.state
        while state is not None and state.now_ms - self.truth.clock_ms() > limits.CLOCK_AHEAD_MS_MAX:
            machine = self.client.writer.machine
            try:
                yield from fix_clock(self.inv.queue, self.inv.shard, machine, self.truth.clock_ms)
                self.note("clocks repaired")
            except TROUBLES as error:
                self.note(f"clock: {type(error).__name__}")
            yield Sleep(1.0)
            state = self.inv.state

    def note(self, what: str) -> None:
        """Count something that was done, or went wrong."""
        self.client.book.asked[what] += 1

    # ── Accidents ────────────────────────────────────────────────────────────
    def copies(self) -> list[str]:
        """The copies of the head that are there."""
        return [name for name in self.truth.keys(self.folder) if is_hourly(name)]

    def copy(self) -> None:
        """Copy the head, more often than a reaper does."""
        data = self.truth.read(self.inv.root + HEAD)
        if data is not None and not self.ledger.lost:
            now = self.truth.clock_ms()
            name = f"{name_of(self.inv.queue, self.inv.shard, now)}-{now // 1000 % 3600:04d}"
            self.truth.perform(Put(name, data))
            self.note("heads copied")

    def damage(self) -> None:
        """Let the head be cut short."""
        self.truth.perform(Put(self.inv.root + HEAD, DAMAGE))
        self.note("heads damaged")

    def lose_vectors(self, state: State | None = None) -> bool:
        """Let the deletion vectors that a head itself names be damaged. Were there any?"""
        state = state or self.inv.state
        assert state is not None
        spans = [span for span in spans_of(state) if span.vector is not None]
        for span in spans:
            assert span.vector is not None
            self.inv.unmarked |= self.inv.library.taken_out(span)
            self.inv.library.broken.add(span.vector.name)
            self.truth.damaged.add(self.inv.root + span.vector.name)
            self.note("vectors damaged")
        return bool(spans)

    def poison(self) -> None:
        """Let a writer commit whose clock is minutes ahead."""
        state = self.inv.state
        assert state is not None
        ahead = self.truth.clock_ms() + self.dice.randint(*AHEAD_MS)
        commit = self.dice.getrandbits(128).to_bytes(16, "big")
        after = replace(state, commit=commit, seq=state.seq + 1, now_ms=max(ahead, state.now_ms))
        self.ledger.repairs[commit] = Repair("poison", state, after)
        head = self.inv.root + HEAD
        self.truth.swap(head, encode_head(after))
        self.note("clocks gone wrong")

    # ── Repairs ──────────────────────────────────────────────────────────────
    def restore(self, *, force: bool, wished: str | None = None) -> Flow[None]:
        """Put the head back from the newest copy, or from any."""
        if wished is None:
            wished = self.dice.choice(["", "", *self.copies()])
        machine = self.client.writer.machine
        restorer = Restorer(self.inv.queue, self.inv.shard, machine, self.truth.clock_ms())
        try:
            yield from restorer.run(wished, force=force)
        except TROUBLES as error:
            self.note(f"restore: {type(error).__name__}")
            return
        self.note("heads restored")

    def purge(self) -> Flow[None]:
        """Erase a job, wherever it is."""
        recent = [key for key in self.client.book.keys[-RECENT_KEYS:] if key in self.inv.accepted]
        if recent:
            yield from self.erase(self.dice.choice(recent))

    def erase(self, key: bytes) -> Flow[bool]:
        """Purge one job; was it done?"""
        self.inv.purged.add(key)
        if self.inv.state is not None:
            self.inv._references(self.inv.state, self.inv.found)  # its contents may go from now on
        yield from self.discard()
        if not self.is_told(key):
            self.inv.adrift.add(key)
        try:
            done = yield from self.client.run(self.client.flows.purge(job_id(key)))
        except TROUBLES as error:
            self.note(f"purge: {type(error).__name__}")
            return False
        except OsqueueError as error:
            raise Violation(f"a purge was told {type(error).__name__}: {error}") from error
        if done.left:
            self.note("purge: something is left")
            return False
        self.inv.erased.add(key)
        if self.is_told(key):
            raise Violation(f"{key.hex()} was purged, and the queue still knows it")
        secrecy.check(self.inv, key)
        self.note("jobs purged")
        return True

    def is_told(self, key: bytes) -> bool:
        """Does the head, or what it leads to, tell of a job?"""
        return key in self.inv.found or any(row.key == key for leaf in self.inv.leaves for row in leaf.rows)

    def discard(self) -> Flow[None]:
        """Delete copies of damaged heads, which no purge can search: not before there is a younger copy of a head."""
        damaged = [name for name in self.truth.keys(self.folder) if self.truth.read(name) == DAMAGE]
        if damaged and not self.ledger.lost:
            self.copy()
            yield Delete(tuple(damaged))

    def clean(self) -> Flow[None]:
        """Purge everything again that was, as records may have been written since; then nothing is left anywhere."""
        for key in sorted(self.inv.erased):
            while not (yield from self.erase(key)):
                yield Sleep(5.0)

    def secret(self) -> bool:
        """Can nothing of what was purged be read any more, in any object?"""
        return not any(secrecy.found(self.inv, self.truth.keys(""), key) for key in self.inv.erased)
