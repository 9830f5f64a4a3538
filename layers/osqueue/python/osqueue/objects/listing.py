"""Looking at a queue: a page of jobs, the numbers, dead letters. All from committed state; nothing here changes it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from ..commit.effects import QueueFlow, together
from ..core import state as stored
from ..core.ageing import since_ms
from ..core.budgets import budgets
from ..core.encoding import encode_head
from ..core.pauses import without_ended
from ..core.settings import QueueSettings
from ..core.state import FAILED, PROCESSING, QUEUED, SCHEDULED, STATES, Span, State
from ..errors import Rejected
from ..model.dead_letters import DeadLetterFilter
from ..model.job import Job, finished_view, job_view, lease_view
from ..model.job_filter import JobFilter, JobPage
from ..model.keys import drawn_ms
from ..model.settings import NESTED, settings_view, told_groups
from ..model.validation import whole_number, word
from .layout import read_state, root_of
from .segments import by_bytes, children, segment_jobs, segments_of
from .segments import page as segment_page

PAGE_MAX = 1_000
PASSED_MAX = 20_000  # jobs that one page looks at
SEGMENTS_MAX = 32  # that it reads
EVERY = JobFilter()


def waiting_spans(state: State) -> list[Span]:
    """Every top-level span that holds queued or delayed jobs."""
    spans = [span for lane in state.lanes for span in lane.backlog.spans]
    return [*spans, *state.delayed.spans]


# ── Pages ────────────────────────────────────────────────────────────────────
def page(
    queue: str,
    shards: Iterable[int],
    wanted: str | None,
    limit: int,
    cursor: str | None,
    which: JobFilter = EVERY,
) -> QueueFlow[JobPage]:
    """Jobs by shard, then processing, queued in order, delayed, failed, finished.

    A page that has passed ``PASSED_MAX`` jobs ends, or read ``SEGMENTS_MAX`` segments, however few of them match. The
    cursor counts positions. A queue that moves between two pages may show a job twice or not at all; a page itself is
    one committed state.
    """
    if wanted is not None:
        word(wanted, "state", STATES)
    whole_number(limit, "limit", 1, PAGE_MAX)
    begin, skip = read_cursor(cursor)
    here = _Page(wanted, which, limit)
    for shard in shards:
        if shard < begin:
            continue
        state = yield from read_state(queue, shard)
        if state is not None:
            before, start = here.passed, skip if shard == begin else 0
            yield from here.fill(root_of(queue, shard), state, start)
            if here.full:
                return JobPage(here.found, write_cursor(shard, start + here.passed - before), here.passed)
    return JobPage(here.found, None, here.passed)


class _Page:
    """One page being filled: ``skip`` positions of a shard still to pass over, ``passed`` in all since."""

    def __init__(self, wanted: str | None, which: JobFilter, limit: int) -> None:
        self.found: list[Job] = []
        self.wanted = wanted
        self.which = which
        self.limit = limit
        every = which == EVERY and wanted not in (
            SCHEDULED,
            stored.FAILING,
        )  # does every job of a segment match?
        self.at_once = limit if every else PASSED_MAX  # jobs of a segment that are read
        self.root = ""
        self.skip = 0
        self.passed = 0
        self.segments = 0  # read

    @property
    def full(self) -> bool:
        """Does the page end here?"""
        return len(self.found) >= self.limit or self.passed >= PASSED_MAX or self.segments >= SEGMENTS_MAX

    def fill(self, root: str, state: State, skip: int) -> QueueFlow[None]:
        """Take a shard's jobs, section by section, and count the positions that are passed."""
        self.root, self.skip = root, skip
        wanted = self.wanted
        if wanted in (None, PROCESSING):
            self.take([lease_view(lease) for lease in state.leases.values()])
        if self.which.worker:  # which jobs have that run alone
            return
        if wanted in (None, QUEUED):
            for lane in state.lanes:
                yield from self.backlog(state, lane.backlog, QUEUED)
        if wanted in (None, SCHEDULED, stored.FAILING):
            self.take([job_view(stored.delayed_state(job), job) for job in state.delayed.jobs])
            yield from self.spans(state, state.delayed.spans, stored.delayed_state)
        if wanted in (None, FAILED):
            yield from self.backlog(state, state.dead, FAILED)
        if wanted in (None, stored.COMPLETED, stored.CANCELLED):
            self.take([finished_view(row) for row in state.finished if row.mark != stored.ARCHIVE_ONLY])

    def backlog(self, state: State, backlog: stored.Backlog, place: str) -> QueueFlow[None]:
        self.take([job_view(place, job) for job in backlog.ready])
        yield from self.spans(state, backlog.spans, lambda job: place)
        self.take([job_view(place, job) for job in backlog.tail])

    def take(self, jobs: Sequence[Job]) -> None:
        for job in jobs[self.skip :]:
            if self.full:
                return
            self.passed += 1
            if self.wanted in (None, job.state) and self.which.matches(job):
                self.found.append(job)
        self.skip = max(0, self.skip - len(jobs))

    def spans(
        self, state: State, spans: Sequence[Span], state_of: Callable[[stored.JobRecord], str]
    ) -> QueueFlow[None]:
        left = list(reversed(spans))
        while left and not self.full:
            span = left.pop()
            if self.skip >= span.count:
                self.skip -= span.count
            elif span.level:
                left.extend(reversed((yield from children(self.root, span))))
            else:
                yield from self.segment(state, span, state_of)

    def segment(
        self, state: State, span: Span, state_of: Callable[[stored.JobRecord], str]
    ) -> QueueFlow[None]:
        while self.skip < span.count and not self.full:
            jobs = yield from segment_page(self.root, span, self.skip, self.at_once)
            self.segments += 1
            for job in jobs:
                if len(self.found) >= self.limit or self.passed >= PASSED_MAX:
                    return
                self.passed += 1
                view = job_view(state_of(job), job)
                gone = job.key in state.tombstones
                if not gone and self.wanted in (None, view.state) and self.which.matches(view):
                    self.found.append(view)
            self.skip += len(jobs) or span.count
        self.skip = 0


def write_cursor(shard: int, skip: int) -> str:
    """A place in the order of a listing: ``skip`` positions of a shard."""
    return base64.urlsafe_b64encode(msgspec.json.encode((shard, skip))).decode()


def read_cursor(cursor: str | None) -> tuple[int, int]:
    """The inverse; None is the beginning. Raises Rejected."""
    if cursor is None:
        return 0, 0
    try:
        shard, skip = msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=tuple[int, int])
    except (msgspec.MsgspecError, binascii.Error, ValueError, TypeError):
        raise Rejected("cursor: pass the one that the last page answered, or none.", field="cursor") from None
    return max(0, shard), max(0, skip)


# ── Numbers ──────────────────────────────────────────────────────────────────
def statistics(queue: str, states: Sequence[State], now_ms: int) -> dict[str, Any]:
    """Jobs by state, the oldest waiting job's age and the counters, over all shards; the fullest shard's budgets."""
    jobs = dict.fromkeys(STATES, 0)
    counters: dict[str, int] = {}
    oldest: int | None = None
    for state in states:
        for name, count in count_states(state).items():
            jobs[name] += count
        for lane in state.lanes:
            first = _first_ms(lane.backlog)
            if first is not None:
                oldest = first if oldest is None else min(oldest, first)
        for name, value in msgspec.structs.asdict(state.counters).items():
            if not name.startswith("keysum"):
                counters[name] = counters.get(name, 0) + value
    shares: dict[str, float] = {}
    for state in states:
        for budget in budgets(state):
            shares[budget.name] = max(shares.get(budget.name, 0.0), round(budget.share, 3))
    settings = settings_view(without_ended(states[0].settings, now_ms) if states else QueueSettings())
    return {
        "queue": queue,
        "shards": settings["shards"],
        "paused": settings["paused"],
        "paused_until": settings["paused_until"],
        **jobs,
        "finished": sum(map(finished_count, states)),
        "oldest_seconds": None if oldest is None else max(0.0, (now_ms - oldest) / 1000),
        "commits": sum(state.seq for state in states),
        "head_bytes": max((len(encode_head(state)) for state in states), default=0),
        "budgets": shares,
        "counters": counters,
        "settings": {name: settings[name] for name in NESTED},
        "groups": told_groups(
            {group: row for each in states for group, row in each.settings.overrides.items()}
        ),
    }


def finished_count(state: State) -> int:
    """About how many jobs that are over a shard still knows, by the pointers to its tables alone.

    A row that is only for the archive counts there until a reap has merged it away.
    """
    return sum(row.mark != stored.ARCHIVE_ONLY for row in state.finished) + sum(
        table.count for table in state.tables
    )


def count_states(state: State) -> dict[str, int]:
    """How many jobs of one shard are in each state; of the finished ones those in the head alone."""
    jobs = dict.fromkeys(STATES, 0)
    jobs[PROCESSING] = len(state.leases)
    jobs[QUEUED] = sum(stored.waiting(lane.backlog) for lane in state.lanes)
    for job in state.delayed.jobs:
        jobs[stored.delayed_state(job)] += 1
    for span in state.delayed.spans:
        jobs[stored.FAILING] += span.failing
        jobs[SCHEDULED] += span.count - span.failing
    for key in state.tombstones:
        jobs[state.delayed_tombstones.get(key, QUEUED)] -= 1
    jobs[FAILED] = dead_count(state)
    for row in state.finished:
        if row.state in (stored.COMPLETED, stored.CANCELLED):
            jobs[row.state] += 1
    return jobs


def _first_ms(backlog: stored.Backlog) -> int | None:
    """Since when the first job waits (by its key where it lies in a segment)."""
    if backlog.ready:
        return since_ms(backlog.ready[0])
    if backlog.spans:
        return drawn_ms(backlog.spans[0].first)
    return since_ms(backlog.tail[0]) if backlog.tail else None


# ── Dead letters ─────────────────────────────────────────────────────────────
def dead_count(state: State) -> int:
    """How many dead letters a shard has."""
    return stored.waiting(state.dead)


def count_dead(queue: str, shard: int, which: DeadLetterFilter, most: int | None) -> QueueFlow[int]:
    """How many dead letters of a shard match, as far as ``most``."""
    state = yield from read_state(queue, shard)
    if state is None:
        return 0
    root = root_of(queue, shard)
    count = sum(map(which.matches, (*state.dead.ready, *state.dead.tail)))
    for group in by_bytes((yield from segments_of(root, state.dead.spans))):
        if most is not None and count >= most:
            break
        for jobs in (yield from together([segment_jobs(root, each) for each in group])):
            count += sum(map(which.matches, jobs))
    return count if most is None else min(count, most)
