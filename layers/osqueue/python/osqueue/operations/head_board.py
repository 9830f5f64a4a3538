"""Who in this process waits for news of one shard: one of them looks at the head for all, at one pace.

A head that any Queue object of the process reads or writes passes by the *board* of its shard, and wakes those for
whom it has news. For the commits of other processes the least patient of those who wait looks at the head:

    quick looks   while somebody here has lately been given what they waited for, or has just come to wait
    slow looks    otherwise: each pause twice as long as the last one, up to the longest
    looks in turn at a head at rest, while this process reads the news of the store (``news_board``)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakMethod

from msgspec import Struct

from .. import forks
from ..core.claim_search import has_claimable, is_idle, opens_ms
from ..core.state import State
from ..core.timers import next_due_ms
from ..errors import OsqueueError
from ..stores.base import Hinted, LookPace, Told, never_hinted

log = logging.getLogger("osqueue.waiting")

Wake = Callable[[], object]

ACTIVE_SECONDS = 11.0  # for which looks stay quick after there was something
OVERDUE_SECONDS = 1.0  # after which another one looks: whoever was to do so has been stopped, or hangs
JITTER_SHARE = 0.25  # of a pause, at most, by which it is longer, so that processes do not look all at once
TIMER_SECONDS = 1.0  # between two comparisons of the clocks: one of them may be set
DUE_AGAIN_SECONDS = 1.0  # between two claims of something due that the first one did not find
HINTED_SECONDS = 1.0  # between two looks while the store sends a hint for each new head
DISTRUST_SECONDS = 600.0  # without reliance on hints after a missed one
REST_SECONDS = 15.0  # without another version, after which a head is at rest
NEVER, NEVER_BEFORE = float("inf"), float("-inf")


_NO_VERSION = object()  # differs from every version


class Pace(Struct, frozen=True):
    """The pauses of one who waits, in seconds."""

    quick: float
    slow: float
    spread: float = 0.0  # claims of what becomes due are that much late, at most
    hinted: float = HINTED_SECONDS  # while the store sends hints


def pace_of(looks: LookPace, poll: float) -> Pace:
    """The pace for somebody who wants pauses of ``poll`` seconds at most.

    Where a look costs money its quick pauses are a share of that, too, so that ``poll`` bounds both.
    """
    spread, hinted = looks.quick if looks.spread is None else looks.spread, min(HINTED_SECONDS, poll)
    if looks.slow is not None:
        return Pace(min(looks.quick, poll), min(looks.slow, poll), spread, hinted)
    return Pace(min(poll, looks.quick * max(1.0, poll)), poll, spread, hinted)


class SeenHead(Struct, frozen=True):
    """The head of a shard, as somebody saw it."""

    version: str
    state: State


class HeadWaiter:
    """One who waits at the heads of one shard or several."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.news = False  # since it last looked around
        self._wake: Wake | None = None

    @contextmanager
    def waking(self, wake: Wake) -> Iterator[None]:
        """Have ``wake`` called, from any thread, once there is news; at once if there is some already."""
        self._wake = wake  # first this, then the question; who tells does it the other way round
        try:
            if self.news:
                wake()
            yield
        finally:
            self._wake = None

    def tell(self) -> None:
        """There is news: go on. Raises nothing: whoever tells has other things to do."""
        self.news = True
        wake = self._wake
        if wake is not None:
            try:
                wake()
            except RuntimeError:  # its event loop was closed
                self._wake = None


class HeadListener(HeadWaiter):
    """One who waits for what the newest heads may promise."""

    def __init__(self, pace: Pace) -> None:
        super().__init__(pace)
        self.ready = False  # has it been promised something?
        self.stopped = False

    def stop(self) -> None:
        """Wait no more, from any thread."""
        self.stopped = True
        self.tell()

    def hears(self, root: str, state: State) -> bool:
        """Does this newest head of a shard promise it something that it has not heard of?"""
        raise NotImplementedError


class EventWaiter(HeadListener):
    """One who waits for transitions behind those that it has read."""

    def __init__(self, pace: Pace, positions: Mapping[str, tuple[int, int]]) -> None:
        super().__init__(pace)
        self._positions = positions  # by shard: the epoch, and the position of the next transition

    def hears(self, root: str, state: State) -> bool:
        epoch, position = self._positions.get(root, (state.epoch, 0))
        if state.epoch == epoch and state.log.end <= position:  # it may be older than what was read
            return False
        self.ready = True
        return True


class WorkWaiter(HeadListener):
    """A caller that waits for jobs to claim.

    A head that promised jobs before a claim began promises them no more once the claim has found none. A claim that
    began before the promise does not end it: another writer may carry out the claim, then enqueue a job in one commit.
    """

    def __init__(self, pace: Pace, kinds: Sequence[str] | None = None) -> None:
        super().__init__(pace)
        self.kinds = kinds
        self.empty = 0  # claims in a row that found nothing
        self.closed_until = NEVER_BEFORE  # monotonic seconds: no head has to be looked at before
        self.again_at = (
            NEVER  # monotonic seconds: by then it claims again, whatever heads promise, and not before
        )
        self.limited = False  # were there jobs, at its last claim, that may not start?
        self._heads: dict[str, bytes] = {}  # commits that promised a job, or the end of all, by shard
        self._tried: dict[str, bytes] = {}  # the commits that promised one before the latest claim began
        self._timers: dict[str, Timer] = {}  # by shard

    def begin_claim(self) -> None:
        """Note that a claim begins."""
        self._tried = self._heads.copy()

    def hears(self, root: str, state: State) -> bool:
        """Does this newest head of a shard promise a job; or none, to one who has met a limit and thinks they wait?"""
        if self._tried.get(root) == state.commit:
            return False
        if not has_claimable(state, self.kinds) and not (self.limited and is_idle(state, self.kinds)):
            return False
        self._heads[root] = state.commit
        self.ready = True
        return True

    def timer(self, root: str, state: State, now: float) -> Timer | None:
        """Return the timer of this head; None when it is not set, or the clocks have to be compared again."""
        timer = self._timers.get(root)
        return timer if timer is not None and timer.commit == state.commit and now < timer.until else None

    def set_timer(self, root: str, state: State, now_ms: int, now: float, chance: float) -> Timer:
        """Set the timer of this head: when a claim may find what time makes due. ``now_ms``: the store's clock.

        ``chance``, from 0 to 1, spreads the claims of several processes. The clock is compared again when the timer
        ends, so no claim comes too early and is made a second time.
        """
        times = [at for at in (next_due_ms(state), opens_ms(state, self.kinds)) if at is not None]
        due_ms = min(times, default=None)
        at, tried = NEVER, NEVER_BEFORE
        if due_ms is not None:
            known = self._timers.get(root)
            left_ms = due_ms - now_ms
            if due_ms <= state.now_ms:  # by a head that is ahead of this clock, perhaps
                left_ms = min(0, left_ms)
            if left_ms > 0 or known is None or known.due_ms != due_ms:
                at = now + left_ms / 1000 + chance * self.pace.spread  # a claim before that came too early
            else:  # a claim since then has found nothing
                tried = known.tried
                at = max(now, tried + max(DUE_AGAIN_SECONDS, self.pace.slow))
        timer = self._timers[root] = Timer(state.commit, due_ms, at, min(at, now + TIMER_SECONDS), tried)
        return timer

    def try_due(self, timer: Timer, now: float) -> None:
        """Let a claim search for jobs that are due now."""
        timer.tried = now
        self.ready = True


class Timer(Struct):
    """What becomes due next by one head of a shard, as one waiter knows it."""

    commit: bytes
    due_ms: int | None
    at: float  # monotonic seconds when a claim may find it
    until: float  # monotonic seconds when the clocks are compared again
    tried: float  # monotonic seconds of the claim that it led to


class NewsReader(Protocol):
    """What reads the news of a store for the boards of its heads."""

    @property
    def heads(self) -> int: ...
    def covers(self, since: float, now: float) -> bool: ...


def hint_of(board: HeadBoard) -> Told:
    """What a store calls with a new version of a board's head, as long as the board is there."""
    reference = WeakMethod(board.hint)

    def told(version: str) -> bool:
        hint = reference()
        if hint is None:
            return False
        hint(version)
        return True

    return told


class HeadBoard:
    """Those of this process who wait at the head of one shard, and the newest head they have seen."""

    def __init__(self, root: str) -> None:
        self.root = root  # the shard's prefix
        self._lock = forks.lock()
        self.start_afresh()

    def start_afresh(self) -> None:
        """At first, and in a fork's child, where those who wait are the parent's."""
        self._present: dict[HeadWaiter, None] = {}
        self._listeners: dict[HeadListener, None] = {}  # those of them whom any newer head may interest
        self._looker: HeadWaiter | None = None
        self.active = float("-inf")  # monotonic seconds when somebody here last got what they waited for
        self.pause = 0.0  # the latest one, seconds
        self.looked = float("-inf")  # monotonic seconds of the latest look at the store by any of them
        self.next_look = float("-inf")
        self.looks = 0  # how often the state below was found to be current
        self._failing = False  # a failure of looks was logged, and its end was not
        self.hinted: Hinted = never_hinted
        self.hints = 0  # number of hints received
        self._hints_at_look: int | None = None  # their number at the latest look; None: the store sent none
        self._hints_before: int | None = None  # their number at the look before
        self._missed_at: int | None = None  # their number when a look found a head without a hint
        self._distrusted_until = float("-inf")  # monotonic seconds
        self._hint_waits = False  # a hint came while no waiter was there to look
        self.news: NewsReader | None = None  # what reads the news of this head's store
        self._unchanged: object = _NO_VERSION  # the version at the latest look
        self._unchanged_since = NEVER  # monotonic seconds; before that another version was seen, or none
        self._rests = False  # is the pause until the next look one of a head at rest?
        self._forget()

    def _forget(self) -> None:
        """What was seen before the first one came is worth nothing to the next."""
        self.state: State | None = None
        self.version: str | None = None  # of that state, where it is known
        self.silence: OsqueueError | None = None  # why the latest look at the head brought no answer

    # ── Coming and going ─────────────────────────────────────────────────────
    @contextmanager
    def present(self, waiter: HeadWaiter, now: float, quick: bool = False) -> Iterator[None]:
        """While somebody waits here, who has seen the head just now. ``quick``: there will be news soon."""
        with self._lock:
            self._enter(waiter, now, quick)
        try:
            yield
        finally:
            with self._lock:
                heir = self._leave(waiter)
            if heir is not None:
                heir.tell()

    def _enter(self, waiter: HeadWaiter, now: float, quick: bool) -> None:
        if quick:
            self.active = now
        if not self._present:
            self.looked, self._rests = now, False
            # The store may begin to send hints after the waiter read the head. One quick look closes that gap.
            begin = self._is_hinted(now) and self._hints_at_look is None
            self.next_look = now + (waiter.pace.quick if begin else self._pause(waiter.pace, now))
        else:
            since = now if quick else self.looked
            if quick or not self._rests:
                self.next_look = min(self.next_look, since + self._pause(waiter.pace, now))
        self._present[waiter] = None
        if isinstance(waiter, HeadListener):
            self._listeners[waiter] = None

    def _leave(self, waiter: HeadWaiter) -> HeadWaiter | None:
        """Answers who looks from now on, if this one did."""
        self._present.pop(waiter, None)
        if isinstance(waiter, HeadListener):
            self._listeners.pop(waiter, None)
        if not self._present:
            self._looker = None
            self._forget()
        elif self._looker is waiter:
            self._looker = min(self._present, key=lambda each: each.pace.slow)
            return self._looker
        return None

    # ── Looks ────────────────────────────────────────────────────────────────
    def look_at(self, waiter: HeadWaiter, now: float) -> float:
        """When this one should look at the head, monotonic seconds, if nobody else has done so by then."""
        with self._lock:
            overdue = self.next_look + OVERDUE_SECONDS
            looker = self._looker
            if self._hint_waits:
                self._hint_waits = False
                self.next_look = min(self.next_look, self.looked + waiter.pace.quick)
            if looker is None or waiter.pace.slow < looker.pace.slow or now >= overdue:
                self._looker = looker = waiter
            return self.next_look if looker is waiter else overdue

    def looking(self, pace: Pace, now: float, chance: float) -> None:
        """Begin a look; ``chance`` from 0 to 1 makes the pause after it a little longer."""
        with self._lock:
            if self._missed_at is not None and self._missed_at == self.hints:  # no hint has come since
                self._distrusted_until = now + DISTRUST_SECONDS
            self._missed_at, self._hints_before, self._hint_waits = None, self._hints_at_look, False
            self._hints_at_look = self.hints if self._is_hinted(now) else None
            self.pause *= 2
            self.pause = self._pause(pace, now)
            self.looked = now
            self.next_look = now + self._rest_pause(pace, now) * (1 + JITTER_SHARE * chance)

    def _rest_pause(self, pace: Pace, now: float) -> float:
        """Return the pause after a look: longer than usual while the head is at rest."""
        if self._unchanged != self.version:
            self._unchanged, self._unchanged_since = self.version, now
        self._rests = False
        news = self.news
        if news is None or now - self.active < ACTIVE_SECONDS or now - self._unchanged_since < REST_SECONDS:
            return self.pause
        heads = news.heads
        self._rests = heads > 1 and news.covers(now - REST_SECONDS, now)
        return max(self.pause, pace.slow * heads) if self._rests else self.pause

    @property
    def is_awaited(self) -> bool:
        """Whether somebody in this process waits at the head."""
        return bool(self._present)

    def rouse(self) -> None:
        """Look soon, and at the usual pace: the head has changed or is about to, or no waiter reads the news."""
        with self._lock:
            looker = self._end_rest()
        if looker is not None:
            looker.tell()

    def _ended_rest(self) -> list[HeadWaiter]:
        """End the rest if the head has another version than at the latest look. Return who looks from now on."""
        if not self._rests or self.version == self._unchanged:
            return []
        looker = self._end_rest()
        return [] if looker is None else [looker]

    def _end_rest(self) -> HeadWaiter | None:
        """Return the waiter that has to look now."""
        self._unchanged, self._rests, self.pause = _NO_VERSION, False, 0.0
        looker = self._looker
        self._hint_waits = self._hint_waits or looker is None
        if looker is not None:
            self.next_look = min(self.next_look, self.looked + looker.pace.quick)
        return looker

    def found(self) -> None:
        """Note that a look found a new head. If no hint came since the look before, a hint may be lost."""
        if self._hints_before == self.hints:
            self._missed_at = self.hints

    def _is_hinted(self, now: float) -> bool:
        """Return whether hints replace quick looks."""
        return now >= self._distrusted_until and self.hinted()

    def _pause(self, pace: Pace, now: float) -> float:
        if self._is_hinted(now):
            return pace.hinted
        if now - self.active < ACTIVE_SECONDS:
            return pace.quick
        return max(pace.quick, min(self.pause, pace.slow))

    def note_failure(self, error: OsqueueError) -> None:
        """Keep why the latest look failed. Log the first failure in a row, unless the waiters raise it themselves."""
        with self._lock:
            self.silence = error
            if self._rests:
                self._end_rest()
            self._unchanged = _NO_VERSION
            begins = not self._failing and not error.permanent
            self._failing = self._failing or begins
        if begins:
            reason = f"{error.code}: {error.message}"
            log.warning("the queue cannot be reached (%s); looks at %s go on", reason, self._head)

    def _note_success(self) -> None:
        """Forget failures of looks, and log their end if their beginning was logged."""
        self.silence = None
        if self._failing:
            self._failing = False
            log.warning("the queue can be reached again: a look at %s succeeded", self._head)

    @property
    def _head(self) -> str:
        return f"the head of {self.root.rstrip('/')}"

    def hint(self, version: str) -> None:
        """The store says that the head was replaced: look as soon as a quick pause after the last look is over."""
        with self._lock:
            self.hints += 1
            looker = self._looker
            if version == self.version:
                return
            if looker is None:
                self._hint_waits = True
                return
            self.next_look = min(self.next_look, self.looked + looker.pace.quick)
        looker.tell()

    # ── Heads ────────────────────────────────────────────────────────────────
    def see(self, state: State, version: str) -> None:
        """A head passes by; wake those for whom it has news. Raises nothing: whoever committed it has succeeded."""
        if not self._present:
            return
        with self._lock:
            newest = self._take(state, version)
            if newest:
                self._note_success()
            told = [*self._seen(state, newest), *self._ended_rest()]
        for waiter in told:
            waiter.tell()

    def offer(self, waiter: HeadListener, state: State, version: str) -> None:
        """The head that one who came has seen before, perhaps some time ago."""
        with self._lock:
            looks = self.looks
            self._take(state, version)
            self.looks = looks  # it was not found to be current just now
            assert self.state is not None
            told: list[HeadWaiter] = [waiter] if waiter.hears(self.root, self.state) else []
            told += self._ended_rest()
        for each in told:
            each.tell()

    def _seen(self, state: State, newest: bool) -> Iterable[HeadWaiter]:
        """Those to tell of a head."""
        return [each for each in self._listeners if each.hears(self.root, state)] if newest else []

    def _take(self, state: State, version: str) -> bool:
        """Keep the newest head; answers whether this is it."""
        known = self.state
        if known is not None and known.epoch == state.epoch and state.seq < known.seq:
            return False
        self.state, self.version = state, version
        self.looks += 1
        return True

    def refused_since(self, moment: float) -> bool:
        """Return whether the latest look was refused for good, and was sent after a moment, in monotonic seconds.

        A refusal of an earlier look is no reason to give up: the store may allow looks again.
        """
        return self.silence is not None and self.silence.permanent and self.looked >= moment

    def confirm(self, version: str | None) -> None:
        """The store says that this version is the newest one."""
        with self._lock:
            if version == self.version:
                self.looks += 1
                self._note_success()
