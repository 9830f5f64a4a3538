"""Who in this process waits for which job: woken by commits made here, and told by looks that all of them share.

A job that ends stands in the head for at least one commit, so a board that sees every head misses none. Where it
missed some, one waiter looks through the tables and dead letters that are new since, for all who wait: how often the
process asks the store does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from .. import forks
from ..commit.news import News
from ..core.state import ARCHIVE_ONLY, CANCELLED, COMPLETED, FAILED, Span, State, TableRef
from ..errors import Damaged, NewerFormat, NotFound, OsqueueError
from ..objects.lookup import JobLocation, find_in_head
from .head_board import HeadBoard, HeadWaiter, Pace

if TYPE_CHECKING:  # loaded where a process waits
    from .news_board import NewsBoard

OVER = (COMPLETED, FAILED, CANCELLED)
SEARCH_SECONDS_MAX = 10.0  # whoever searches for longer has been interrupted: another may
REST_SECONDS = 1.0  # after a search that failed
READS_AT_ONCE = 16
NAMES_KEPT_MAX = 2_000  # names that are remembered
FOREVER = float("inf")


class JobWaiter(HeadWaiter):
    """One caller who waits for one job."""

    def __init__(self, key: bytes, pace: Pace, since: int, until: float) -> None:
        super().__init__(pace)
        self.key = key
        self.since = since  # the board's looks when it came; it trusts only what is seen later
        self.until = until
        self.found: JobLocation | None = None  # the job, once it is over
        self.settled = False  # the job is in no object that the board has read or need not read
        self.run = -1  # of the failure that it looked for in the segments


class StoreSearch:
    """One look through objects outside the head, for all who wait."""

    def __init__(
        self,
        state: State,
        unread: frozenset[str],
        known: frozenset[str],
        lost: set[str],
        late: list[JobWaiter],
        old: list[JobWaiter],
    ) -> None:
        self.known = known if not late else frozenset()  # read before; now below an index, perhaps
        self.unread = unread  # what the board has not read yet: of interest to everybody
        self.late = late  # of whom nothing is known: to them everything is of interest
        self.old = old
        self.found: dict[bytes, JobLocation] = {}
        self.whole = False  # it came to its end
        self.gone: set[str] = set()  # merged away meanwhile, or lost
        self.failed: set[str] = set()  # the store gave no answer
        self.complaint: OsqueueError | None = None
        places: list[TableRef | Span] = [*reversed(state.tables), *state.dead.spans]
        self._objects = [each for each in places if each.name not in lost]

    def batches(self) -> Iterator[list[tuple[TableRef | Span, list[bytes]]]]:
        """What to read, the newest first, some at a time: each with the keys to look for in it."""
        batch: list[tuple[TableRef | Span, list[bytes]]] = []
        for each in self._objects:
            waiters = (*self.late, *self.old) if each.name in self.unread else self.late
            keys = {one.key for one in waiters if each.first <= one.key <= each.last} - self.found.keys()
            if keys:
                batch.append((each, sorted(keys)))
            if len(batch) == READS_AT_ONCE:
                yield batch
                batch = []
        if batch:
            yield batch

    def note(self, name: str, answer: dict[bytes, JobLocation] | OsqueueError) -> None:
        """What an object held, or why it could not be read. What is damaged once is damaged for good."""
        if isinstance(answer, dict):
            self.found = answer | self.found
            return
        self.complaint = answer
        if isinstance(answer, NotFound):
            self.gone.add(name)
        elif not isinstance(answer, Damaged | NewerFormat):
            self.failed.add(name)


class CompletionBoard(HeadBoard):
    """The board of one shard, and what those of its waiters have to know who wait for jobs."""

    def start_afresh(self) -> None:
        self._waiters: dict[bytes, list[JobWaiter]] = {}
        super().start_afresh()

    def _forget(self) -> None:
        super()._forget()
        self._names: frozenset[str] = frozenset()  # tables, and segments of dead letters, of that state
        self._forget_objects()

    def _forget_objects(self) -> None:
        self.damage: OsqueueError | None = None  # why something that may tell of a job cannot be read
        self._read: frozenset[str] = frozenset()  # objects that hold no job of a settled waiter
        self._past: frozenset[str] = frozenset()  # such objects that the head named once
        self._missed: dict[str, float] = {}  # objects that were gone, by the look at which; EVER: lost
        self._search: StoreSearch | None = None  # under way
        self._search_again = float("-inf")  # monotonic seconds from when on there may be another

    @contextmanager
    def joined(self, key: bytes, pace: Pace, now: float, until: float) -> Iterator[JobWaiter]:
        """While somebody waits for a job, at most until a time on the monotonic clock."""
        with self._lock:
            waiter = JobWaiter(key, pace, self.looks, until)
            self._waiters.setdefault(key, []).append(waiter)
        try:
            with self.present(waiter, now, quick=True):
                yield waiter
        finally:
            with self._lock:
                left = [each for each in self._waiters.get(key, ()) if each is not waiter]
                if left:
                    self._waiters[key] = left
                else:
                    self._waiters.pop(key, None)
                if not self._waiters:
                    self._forget_objects()

    @property
    def tells_of_jobs(self) -> bool:
        """Does anybody wait for a job? What they are told has to outlast a power cut."""
        return bool(self._waiters)

    # ── Heads ────────────────────────────────────────────────────────────────
    def _seen(self, state: State, newest: bool) -> Iterable[HeadWaiter]:
        told = super()._seen(state, newest)
        return [*told, *self._ends_seen(state, newest)] if self._waiters else told

    def _ends_seen(self, state: State, newest: bool) -> Iterator[JobWaiter]:
        waited = self._waiters.keys()
        ends = {
            job.key: JobLocation(FAILED, job)
            for job in (*state.dead.ready, *state.dead.tail)
            if job.key in waited
        }
        echoes: dict[bytes, int] = {}
        for row in state.finished:
            if row.key not in waited:
                continue
            if row.mark == ARCHIVE_ONLY:
                echoes[row.key] = row.job.run
            else:
                ends[row.key] = JobLocation(row.state, row.job, row=row)
        news = {key for key, location in ends.items() if self._tell(key, location, newest)}
        if newest:
            news |= {key for key, run in echoes.items() if key not in ends and self._unsettle(key, run)}
        for key in news:
            yield from self._waiters[key]

    def after_look(self) -> None:
        """Somebody has looked: those go on who may have to search outside the head for their job."""
        with self._lock:
            waiters = [each for waiters in self._waiters.values() for each in waiters]
            told = [each for each in waiters if not each.settled]
            if not told and not self._names <= self._read:
                told = waiters[:1]
        for waiter in told:
            waiter.tell()

    def _take(self, state: State, version: str) -> bool:
        known = self.state
        same = known is not None and known.epoch == state.epoch
        if known is not None and same and state.seq < known.seq:
            return False
        if known is None or known.commit != state.commit:
            names = frozenset(
                [table.name for table in state.tables] + [span.name for span in state.dead.spans]
            )
            follows = known is not None and same and state.seq == known.seq + 1
            past = self._read | (self._past if len(self._past) < NAMES_KEPT_MAX else frozenset())
            # No job has ended unseen between two heads in a row, so nothing new has to be read.
            self._read = names if follows and self._names <= self._read else past & names
            self._past = past - names
            self._missed = {name: at for name, at in self._missed.items() if name in names}
            self._names = names
        return super()._take(state, version)

    def _tell(self, key: bytes, location: JobLocation, newest: bool) -> bool:
        """A job is over. That it failed may have been undone since, so only the newest head tells that."""
        if location.state == FAILED and not newest:
            return False
        for waiter in self._waiters[key]:
            waiter.found = waiter.found or location
        return True

    def _unsettle(self, key: bytes, run: int) -> bool:
        """A job failed, and went to a segment with the same commit."""
        late = [waiter for waiter in self._waiters[key] if waiter.run != run]
        for waiter in late:
            waiter.run, waiter.settled = run, False
        return bool(late)

    # ── What lies outside the head ───────────────────────────────────────────
    def begin(self, waiter: JobWaiter, now: float) -> StoreSearch | None:
        """What has to be read for this one and all others, unless somebody is at it. It must be ended."""
        with self._lock:
            state = self.state
            if state is None or waiter.found is not None or now < self._search_again:
                return None
            if waiter.settled and self._names <= self._read:
                return None
            if self.looks in self._missed.values():
                return None  # a newer head tells where it went
            late: list[JobWaiter] = []
            old: list[JobWaiter] = []
            found: set[bytes] = set()
            for each in [each for waiters in self._waiters.values() for each in waiters]:
                if each.found is not None or each.until < now or each.since == self.looks:
                    continue
                if each.settled:
                    old.append(each)
                    continue
                location = find_in_head(state, each.key)
                if location is None:
                    late.append(each)
                elif (location := location.at(state)).state in OVER:
                    each.found = location
                    found.add(each.key)
                else:
                    each.settled = True
            lost = {name for name, at in self._missed.items() if at == FOREVER}
            if not old:
                self._read = self._names - lost
            unread = self._names - self._read - lost
            search = None
            if late or (old and unread):
                search = self._search = StoreSearch(state, unread, self._past, lost, late, old)
                self._search_again = now + SEARCH_SECONDS_MAX
            told = [each for key in found for each in self._waiters[key]]
        for each in told:
            each.tell()
        return search

    def end(self, search: StoreSearch, now: float) -> None:
        """Take in what a search found."""
        with self._lock:
            told = [waiter for waiter in (*search.late, *search.old) if waiter.key in search.found]
            for waiter in told:
                waiter.found = waiter.found or search.found[waiter.key]
            if self._search is search:
                self._search = None
                self.damage = search.complaint or self.damage
                again = self._note_missed(search.gone) or bool(search.failed) or not search.whole
                self._search_again = now + REST_SECONDS if again else float("-inf")
                if search.whole:
                    self._read |= search.unread - search.gone - search.failed
                if not again:
                    for waiter in search.late:
                        waiter.settled = True
        for waiter in told:
            waiter.tell()

    def _note_missed(self, names: Iterable[str]) -> bool:
        """Objects that were not there. Is any of them worth another try, at a newer head?"""
        for name in names:
            before = self._missed.get(name, self.looks)
            self._missed[name] = (
                FOREVER if before < self.looks else self.looks
            )  # a newer head named it all the same
        return any(self._missed[name] != FOREVER for name in names)


class _Boards:
    """The boards of this process, for as long as a Queue object uses them."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._boards: WeakValueDictionary[tuple[object, str], CompletionBoard] = WeakValueDictionary()
        self._news: WeakValueDictionary[object, NewsBoard] = WeakValueDictionary()  # by store
        forks.at_beginning(self._start_afresh)

    def of(self, place: object, root: str) -> CompletionBoard:
        with self._lock:
            board = self._boards.get((place, root))
            if board is None:
                board = self._boards[place, root] = CompletionBoard(root)
            return board

    def news_of(self, place: object, news: News) -> NewsBoard:
        from .news_board import NewsBoard  # where a process waits: a function that answers at once does not

        with self._lock:
            board = self._news.get(place)
            if board is None or board.read is not news:
                board = self._news[place] = NewsBoard(news)
            return board

    def _start_afresh(self) -> None:
        """Begin again in a fork's child: the threads that wait are the parent's."""
        for board in [*self._boards.values(), *self._news.values()]:
            board.start_afresh()


_BOARDS = _Boards()


def board_of(place: object, root: str) -> CompletionBoard:
    """The board of one shard of one store, the same for every Queue object of the process."""
    return _BOARDS.of(place, root)


def news_board_of(place: object, news: News) -> NewsBoard:
    """Return where all Queue objects of this process read the news of one store."""
    return _BOARDS.news_of(place, news)
