"""Leader election: of many candidates at most one leads, agreed upon by conditional writes to one object.

The object ``elections/<name>`` says who leads, for which term, and how long the leader may be silent. A leader
beats by replacing it; a candidate that has seen it unchanged for that long takes it over. Both are a
compare-and-swap, so of several candidates one wins and the others know that they did not.

What makes it safe, whatever the machines' wall clocks say:

* A leader stops believing in itself ``MARGIN`` before anybody may take over: by its own monotonic clock, counted from
  before its last successful beat was sent.
* A candidate counts the silence on its own monotonic clock, from when it *received* the record. One that
  has not looked for a while (a Lambda, a process that starts) compares the store's time of the record with the store's
  own clock.
* Within one term ``is_leader`` never becomes true again once it was false. Each new leadership has a higher term, the
  ``fence``, by which a store of effects can refuse a leader that has been replaced and does not know yet.

Flows here yield store requests and pauses; ``blocking.Election`` and ``asynchronous.AsyncElection`` only run them.
"""

from __future__ import annotations

import functools
import zlib
from logging import getLogger
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from .. import forks, limits
from ..clock import MACHINE, Machine
from ..commit.effects import Flow, Sleep
from ..commit.retry import OBJECT
from ..errors import Damaged, NewerFormat, OsqueueError, Rejected, Timeout, shown
from ..model.validation import milliseconds, queue_name, text
from ..queue.flow_methods import FlowMethod
from ..stores.address import open_store
from ..stores.base import (
    Failed,
    Found,
    Get,
    Missing,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Store,
    StoreReply,
    Unchanged,
    Written,
)
from ..stores.counting import counted

PREFIX = "elections/"
FORMAT = 1  # of the record
HEARTBEAT_S = 3.0
STALE_AFTER_S = 10.0
STALE_AFTER_MS_MAX = limits.DAY_MS
MARGIN = 0.1  # of stale_after: for clocks that run at different speeds
BEATS_PER_STALE_MIN = 2  # one beat may get lost
MARKS_MAX = 64  # writes that a candidate knows again as its own

Standing = Literal["elected", "already_leader", "other_leader", "conflict"]
T = TypeVar("T")
log = getLogger("osqueue.election")


class ElectionRecord(Struct, frozen=True):
    """What the object says."""

    term: int  # grows by one with each new leadership, from 1
    candidate: str | None  # who leads, for people; None: nobody does
    mark: str  # random, of this write: by it a candidate knows its own, and no two records are the same bytes
    stale_after_ms: int  # how long the leader may be silent, by its own word


class _Sealed(Struct, frozen=True):
    """The object: the record, which format it has, and the CRC-32 of its bytes."""

    format: int
    crc: int = 0
    record: msgspec.Raw = msgspec.Raw(b"null")


class _Seen(Struct, frozen=True):
    """The record as this candidate last saw it."""

    record: ElectionRecord
    version: str
    since: float  # monotonic seconds: when it had this version for sure
    modified_ms: int | None  # when the store says it was written; None: written by this candidate


class _Tenure(Struct, frozen=True):
    """A leadership that a store has confirmed."""

    term: int
    until: float  # monotonic seconds: after this it counts no more
    process: int


def seal(record: ElectionRecord) -> bytes:
    """The bytes of the object."""
    inner = msgspec.json.encode(record)
    return msgspec.json.encode(_Sealed(FORMAT, zlib.crc32(inner), msgspec.Raw(inner)))


def unseal(data: bytes, key: str) -> ElectionRecord:
    """The inverse; raises Damaged or NewerFormat."""
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if sealed.format > FORMAT:
            raise NewerFormat(
                f"{key} has format {sealed.format}; this release reads {FORMAT}. Upgrade osqueue."
            )
        if sealed.format == FORMAT and zlib.crc32(sealed.record) == sealed.crc:
            return msgspec.json.decode(sealed.record, type=ElectionRecord)
    except msgspec.MsgspecError:
        pass
    raise Damaged(
        f"{key} is not what an election wrote. Nobody is elected until it is restored or removed; "
        "without it terms begin at 1 again. See docs/election.md."
    )


class ElectionBase:
    """What Election and AsyncElection share: everything but how a flow is run."""

    def __init__(
        self,
        store: Store,
        name: str,
        candidate: str | None = None,
        *,
        heartbeat: float = HEARTBEAT_S,
        stale_after: float = STALE_AFTER_S,
        machine: Machine = MACHINE,
    ) -> None:
        self.name = _election_name(name)
        self.store = counted(store)
        self.machine = machine
        self._options: dict[str, Any] = {"heartbeat": heartbeat, "stale_after": stale_after}
        self._given = candidate  # None: named after the process
        given = machine.name() if candidate is None else candidate
        self.candidate = text(given, "candidate", limits.WORKER_CHARS_MAX, 1)
        self._stale_after_ms = milliseconds(stale_after, "stale_after", 2, STALE_AFTER_MS_MAX)
        longest_ms = self._stale_after_ms // BEATS_PER_STALE_MIN
        self.heartbeat = milliseconds(heartbeat, "heartbeat", 1, longest_ms) / 1000
        self.error: OsqueueError | None = None  # why the last request that brought no answer brought none
        self._key = PREFIX + self.name
        self._lock = forks.lock()  # held for a few assignments, never for a request
        self._process = machine.process()
        self._tenure: _Tenure | None = None
        self._seen: _Seen | None = None
        self._term = 0  # the highest seen
        self._marks: tuple[str, ...] = ()  # of this candidate's latest writes, whatever became of them
        self._resigned = 0  # how often: a write under way when that happens elects nobody
        self._looked: tuple[float, int] | None = None  # both clocks of the machine at the last look

    @classmethod
    def connect(
        cls,
        address: str,
        name: str,
        candidate: str | None = None,
        *,
        heartbeat: float = HEARTBEAT_S,
        stale_after: float = STALE_AFTER_S,
    ) -> Any:
        """Take part in the election ``name`` of the store at ``address``: memory://, file:// or s3://.

        ``candidate`` is a name for people, by default host and process. ``heartbeat`` and ``stale_after`` are
        seconds; a leader's own ``stale_after`` says how long the others wait for it. Nothing is sent yet. Raises
        Rejected for an address, a name or a duration that is not valid.
        """
        checked = _election_name(name)
        return cls(open_store(address), checked, candidate, heartbeat=heartbeat, stale_after=stale_after)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as the address, the name and the options: a candidate of its own, which does not lead."""
        return functools.partial(type(self), self.store, self.name, self._given, **self._options), ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self.candidate}>"

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads now. Sends nothing: it turns false by itself when heartbeats get lost."""
        return self._current() is not None

    @property
    def fence(self) -> int | None:
        """The term while this candidate leads, else None. Give it to whatever must refuse a leader of the past."""
        tenure = self._current()
        return tenure.term if tenure else None

    @property
    def seconds_left(self) -> float:
        """How long ``is_leader`` stays true without another beat."""
        tenure = self._current()
        return max(0.0, tenure.until - self.machine.monotonic()) if tenure else 0.0

    @property
    def leader(self) -> str | None:
        """Who led when this candidate last looked: a name for people. None: nobody did, or it never looked."""
        return self._seen.record.candidate if self._seen else None

    def close(self) -> None:
        """Release connections. The object may be used again. Does not resign."""
        self.store.close()

    def _current(self) -> _Tenure | None:
        tenure = self._tenure
        if tenure is None or tenure.process != self.machine.process():
            return None
        return tenure if self.machine.monotonic() < tenure.until else None

    # ── Flows ────────────────────────────────────────────────────────────────
    def _campaign(self) -> Flow[Standing]:
        """Take one step: read the record, and write it once if it is this candidate's turn.

        Returns ``elected`` (leads from now on), ``already_leader`` (leads on: this was a beat), ``other_leader``, or
        ``conflict`` (somebody else was faster, or the store gave no timely answer, see ``error``: step again). Raises
        Damaged or NewerFormat for a record that cannot be read, and what only a change can mend, like a missing bucket.
        """
        return self._step(None)

    def _resign(self) -> Flow[bool]:
        """Stop leading at once, and give the leadership up, so that another candidate need not wait.

        True when the record does not name this candidate any more; False when the store did not say so, and the
        leadership runs out by itself. Raises as ``campaign`` does.
        """
        self._check_process()
        with self._lock:
            self._resigned += 1
            self._tenure = None
        for turn in range(OBJECT.tries):
            if turn:
                yield Sleep(OBJECT.pause_after(turn, self.machine))
            looked = yield from self._look()
            if not looked:
                continue
            seen = self._seen
            if seen is None or not self._is_mine(seen.record):
                return True
            record = ElectionRecord(seen.record.term, None, self._new_mark(), self._stale_after_ms)
            reply = yield PutIfMatch(self._key, seal(record), seen.version)
            if self._take_note(reply, record):
                return True
        return False

    campaign = FlowMethod(_campaign)
    resign = FlowMethod(_resign)

    def _await_leadership(self, timeout: float | None) -> Flow[int]:
        """Campaign until elected, and return the fence. Raises Timeout after ``timeout`` seconds."""
        began = self.machine.monotonic()
        while True:
            yield from self._campaign()
            fence = self.fence
            if fence is not None:
                log.info("%s leads %s, term %d", self.candidate, self.name, fence)
                return fence
            pause = self.heartbeat * (0.75 + 0.5 * self.machine.uniform())
            if timeout is not None and self.machine.monotonic() - began + pause > timeout:
                raise Timeout(
                    f"{self.candidate} was not elected for {self.name} within {timeout:g} s. Try again."
                )
            yield Sleep(pause)

    def _keep_leading(self, term: int) -> Flow[None]:
        """Beat until this leadership is over."""
        pause = self.heartbeat
        while True:
            yield Sleep(pause)
            if self.fence != term:
                break
            standing: Standing = "conflict"
            try:
                standing = yield from self._step(term)
            except OsqueueError as error:
                self.error = error
            if standing == "conflict" and self.fence == term:
                log.warning("a beat of %s for %s did not get through", self.candidate, self.name)
            pause = self.heartbeat if standing == "already_leader" else self.heartbeat / 4
        log.info("%s leads %s no more, term %d", self.candidate, self.name, term)

    def _step_down(self) -> Flow[None]:
        """Resign, and let the leadership run out by itself where that fails."""
        try:
            done = yield from self._resign()
        except OsqueueError as error:
            self.error, done = error, False
        if not done:
            log.warning("%s could not give up %s: it stays unled for a while", self.candidate, self.name)

    # ── One step ─────────────────────────────────────────────────────────────
    def _step(self, only: int | None) -> Flow[Standing]:
        """One step; with ``only``, a beat of that term and never a new leadership."""
        self._check_process()
        resigned = self._resigned
        seldom = self._looks_seldom()
        if not (yield from self._look()):
            return "conflict"
        seen, leading = self._seen, self.fence
        others = seen is not None and seen.record.candidate is not None and not self._is_mine(seen.record)
        if seen is not None and others and not (yield from self._is_stale(seen, seldom)):
            return "other_leader"
        if only is not None and only != leading:
            return "conflict"  # that leadership ended meanwhile
        term = self._term + 1 if leading is None else leading
        record = ElectionRecord(term, self.candidate, self._new_mark(), self._stale_after_ms)
        began = self.machine.monotonic()
        if seen is None:
            reply = yield PutIfAbsent(self._key, seal(record))
        else:
            reply = yield PutIfMatch(self._key, seal(record), seen.version)
        beat = leading is not None
        if not self._take_note(reply, record) or not self._begin(term, began, resigned, beat):
            return "conflict"
        return "already_leader" if beat else "elected"

    def _look(self) -> Flow[bool]:
        """Read the record; False when the store gave no answer. A leadership that is not in it is over.

        Another candidate's record counts only once it would survive a power cut.
        """
        known = self._seen
        reply = yield Get(self._key, unless=known.version if known else None, flushed=True)
        now = self.machine.monotonic()
        if isinstance(reply, Found):
            record = unseal(reply.body, self._key)
            if known is None or known.version != reply.version:
                self._seen = _Seen(record, reply.version, now, reply.modified_ms)
            self._term = max(self._term, record.term)
        elif isinstance(reply, Missing):
            self._seen = None
        elif not isinstance(reply, Unchanged):
            self._complain(reply)
            return False
        self._looked = (now, self.machine.now_ms())
        seen = self._seen
        if seen is None or not self._is_mine(seen.record) or seen.record.candidate is None:
            self._tenure = None
        return True

    def _is_stale(self, seen: _Seen, seldom: bool) -> Flow[bool]:
        """Whether the leader has been silent for its own ``stale_after``."""
        allowed_ms = seen.record.stale_after_ms
        if (self.machine.monotonic() - seen.since) * 1000 >= allowed_ms:
            return True
        if not seldom or seen.modified_ms is None:
            return False
        clock_ms = self.store.clock_ms()
        if clock_ms is None:  # the store only tells when something was written
            beside = f"{self._key}.clock"
            reply = yield Put(beside, b"", durable=False)
            if isinstance(reply, Written):
                reply = yield Get(beside)
            if not isinstance(reply, Found):
                self._complain(reply)
                return False
            clock_ms = reply.modified_ms
        return clock_ms - seen.modified_ms >= allowed_ms + self.store.clock_tick_ms

    def _looks_seldom(self) -> bool:
        """Has it been so long since the last look that counting from it would find no leader stale?

        The wall clock is only asked as well because the monotonic one of a frozen process may stand still; it
        decides whom to ask for the time, and never what the time is.
        """
        if self._looked is None:
            return True
        monotonic, wall_ms = self._looked
        passed_ms = max((self.machine.monotonic() - monotonic) * 1000, self.machine.now_ms() - wall_ms)
        return passed_ms >= self._stale_after_ms

    # ── What became of a write ───────────────────────────────────────────────
    def _new_mark(self) -> str:
        mark = f"{self.machine.bits(128):032x}"
        with self._lock:  # before it is sent: the answer may get lost
            self._marks = (*self._marks, mark)[-MARKS_MAX:]
        return mark

    def _is_mine(self, record: ElectionRecord) -> bool:
        return record.mark in self._marks

    def _take_note(self, reply: StoreReply, record: ElectionRecord) -> bool:
        """Learn from the answer to a write; was it written?"""
        if isinstance(reply, Written):
            self._seen = _Seen(record, reply.version, self.machine.monotonic(), None)
            self._term = max(self._term, record.term)
            return True
        if not isinstance(reply, Refused):
            self._complain(reply)
        return False

    def _begin(self, term: int, began: float, resigned: int, beat: bool) -> bool:
        """Lead, for a while from ``began``; False when that is over already or was given up meanwhile."""
        until = began + self._stale_after_ms / 1000 * (1 - MARGIN)
        with self._lock:
            held = self._current()
            if resigned != self._resigned or self.machine.monotonic() >= until:
                return False
            if held is None:
                if beat:
                    return False  # the answer came too late: what was false may not become true again
            elif term < held.term:
                return False
            elif term == held.term:
                until = max(until, held.until)
            self._tenure = _Tenure(term, until, self._process)
        return True

    def _complain(self, reply: StoreReply) -> None:
        if isinstance(reply, Failed):
            self.error = reply.error
            if reply.error.permanent:
                raise reply.error  # trying again would hide it

    def _check_process(self) -> None:
        """After a fork: the parent leads, not the child."""
        if self.machine.process() != self._process:
            self._process = self.machine.process()
            self._lock = forks.lock()
            self._tenure = self._seen = self._looked = None
            self._marks = ()


def _election_name(value: Any) -> str:
    try:
        return queue_name(value)
    except Rejected:
        raise Rejected(
            f"name: {shown(value)} is not the name of an election. Use 1 to 64 of a-z, 0-9 and '-', beginning with a "
            "letter or digit.",
            field="name",
        ) from None
