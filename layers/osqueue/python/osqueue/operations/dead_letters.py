"""Dead letters: looking at them, grouping them, and queueing some of them again at a pace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from msgspec.structs import asdict, replace

from .. import limits
from ..commit.effects import QueueFlow, Sleep, Submit
from ..core.ops import Code, Outcome
from ..core.queue_ops import RedriveJobs
from ..core.state import FAILED
from ..errors import Damaged, Rejected, Throttled, Timeout, shown
from ..model import validation
from ..model.dead_letters import (
    DeadGroup,
    DeadLetterDetails,
    DeadLetterFilter,
    DeadLetterGroups,
    dead_letter_view,
    filter_of,
)
from ..model.included import INCLUDES_DEAD, include_of
from ..objects.layout import read_state, root_of
from ..objects.listing import PAGE_MAX, count_dead, dead_count, read_cursor, write_cursor
from ..objects.lookup import JobLocation
from ..objects.segments import read_backlog
from .include import bytes_asked
from .settings import SettingsFlows

READ_AT_ONCE = 10_000  # dead letters, while a page or groups are gathered
RATE_MAX = 100_000.0  # jobs a second
REDRIVE_TRIES = 20  # of one commit of a redrive, when others change the dead letters meanwhile
PACE_SECONDS = 1.0  # of jobs in one commit of a redrive that has a rate


class DeadLetterFlows(SettingsFlows):
    """The flows about dead letters."""

    def dead_letters(
        self,
        limit: int = 100,
        cursor: str | None = None,
        kinds: Iterable[str] | None = None,
        error: str | None = None,
        fingerprint: str | None = None,
        include: str | Iterable[str] = (),
    ) -> QueueFlow[tuple[list[DeadLetterDetails], str | None]]:
        """One page of those that match, shard by shard, and the cursor of the next page.

        With contents it ends where ``page_bytes`` has no room for the next one's.
        """
        which = filter_of(kinds, error, fingerprint)
        wanted = include_of(include, INCLUDES_DEAD)
        validation.whole_number(limit, "limit", 1, PAGE_MAX)
        settings = yield from self._settings()
        shard, skip = read_cursor(cursor)
        found: list[tuple[int, JobLocation]] = []
        room = self.page_bytes
        following: str | None = None
        while shard < settings.shards and following is None:
            state = yield from read_state(self.queue, shard)
            while state is not None and following is None:
                jobs = yield from read_backlog(root_of(self.queue, shard), state.dead, skip, READ_AT_ONCE)
                if not jobs:
                    break
                for job in jobs:
                    if which.matches(job):
                        location = JobLocation(FAILED, job)
                        room -= bytes_asked(location, wanted)
                        if room < 0 and found:
                            following = write_cursor(shard, skip)
                            break
                        found.append((shard, location))
                    skip += 1
                    if len(found) >= limit:
                        following = write_cursor(shard, skip)
                        break
            shard, skip = shard + 1, 0
        return (yield from self._letters(found, settings.dead_ttl_ms, wanted)), following

    def _letters(
        self, found: Sequence[tuple[int, JobLocation]], dead_ttl_ms: int, include: Sequence[str]
    ) -> QueueFlow[list[DeadLetterDetails]]:
        letters: list[DeadLetterDetails] = []
        for shard, group in groupby(found, itemgetter(0)):
            here = [location for _, location in group]
            more = yield from self.included(shard, here, include)
            letters += [
                DeadLetterDetails(**asdict(dead_letter_view(each.job, dead_ttl_ms)), **fields)
                for each, fields in zip(here, more, strict=True)
            ]
        return letters

    def dead_letter_groups(
        self, kinds: Iterable[str] | None = None, error: str | None = None
    ) -> QueueFlow[list[DeadGroup]]:
        """All that match, by the error they died of."""
        which = filter_of(kinds, error, None)
        settings = yield from self._settings()
        groups = DeadLetterGroups()
        for shard in range(settings.shards):
            state = yield from read_state(self.queue, shard)
            skip = 0
            while state is not None:
                jobs = yield from read_backlog(root_of(self.queue, shard), state.dead, skip, READ_AT_ONCE)
                if not jobs:
                    break
                skip += len(jobs)
                for job in jobs:
                    if which.matches(job):
                        groups.add(dead_letter_view(job, settings.dead_ttl_ms))
        return groups.found()

    # ── Redrive ──────────────────────────────────────────────────────────────
    def redrive(
        self,
        limit: int | None = None,
        kinds: Iterable[str] | None = None,
        error: str | None = None,
        dry_run: bool = False,
        fingerprint: str | None = None,
        rate: float | None = None,
        jobs: Iterable[str] | None = None,
        *,
        so_far: RedriveProgress | None = None,
    ) -> QueueFlow[int]:
        """Queue dead jobs again, the oldest first; answers how many (or how many it would be).

        Each commit is a step of its own: wherever it stops, every letter is dead or queued. Goes on with ``so_far``,
        if given: it holds what was done also where an error ends it.
        """
        which = filter_of(kinds, error, fingerprint)
        if jobs is not None:
            there = yield from self._locate_many([validation.job_name(each) for each in jobs])
            which = replace(which, keys=frozenset(each.key for each in there.values()))
        pace = None if rate is None else rate_of(rate)
        most = redrive_limit(limit)
        # The state machine can tell kinds and errors. By fingerprint, by job or at a pace they are chosen here.
        chosen = bool(which.fingerprint) or which.keys is not None or pace is not None
        count = (yield from self._settings()).shards
        redriven = so_far or RedriveProgress()
        for shard in range(count):
            left = None if most is None else most - redriven.moved
            if left == 0:
                break
            if dry_run:
                redriven.moved += yield from count_dead(self.queue, shard, which, left)
            elif not chosen:
                yield from self._redrive(redriven, shard, most, which)
            elif (yield from count_dead(self.queue, shard, which, left)):
                yield from self._redrive_chosen(redriven, shard, most, which, pace)
        return redriven.moved

    def _redrive(
        self, redriven: RedriveProgress, shard: int, most: int | None, which: DeadLetterFilter
    ) -> QueueFlow[None]:
        """Go once through the dead letters of a shard: those that match are queued, the others go to the back."""
        state = yield from read_state(self.queue, shard)
        scan = 0 if state is None else dead_count(state)
        while scan > 0 and (most is None or redriven.moved < most):
            chunk = min(limits.ITEMS_PER_REQUEST_MAX, scan)
            room = chunk if most is None else min(chunk, most - redriven.moved)
            answer = yield Submit(shard, (RedriveJobs(room, chunk, which.kinds, which.error),))
            scan -= redriven.add(answer.outcomes[0])
            if answer.outcomes[0].runs[1] == (Code.EMPTY, 0):
                break  # others have taken the rest

    def _redrive_chosen(
        self,
        redriven: RedriveProgress,
        shard: int,
        most: int | None,
        which: DeadLetterFilter,
        pace: float | None,
    ) -> QueueFlow[None]:
        """The same with keys that were chosen from what was read, a second's share of ``pace`` in one commit."""
        root = root_of(self.queue, shard)
        scan: int | None = None
        while scan != 0 and (most is None or redriven.moved < most):
            began = self.machine.monotonic()
            state = yield from read_state(self.queue, shard)
            if state is None:
                break
            scan = dead_count(state) if scan is None else scan
            jobs = yield from read_backlog(root, state.dead, 0, min(scan, limits.ITEMS_PER_REQUEST_MAX))
            if not jobs:
                break
            room = len(jobs) if most is None else most - redriven.moved
            if pace is not None:
                room = min(room, max(1, int(pace * PACE_SECONDS)))
            keys = [job.key for job in jobs if which.matches(job)][:room]
            if len(keys) == room:  # what lies behind the last of them is for the next commit
                last = next(at for at, job in enumerate(jobs) if job.key == keys[-1])
                jobs = jobs[: last + 1]
            op = RedriveJobs(len(jobs), len(jobs), keys=tuple(keys), first=jobs[0].key)
            before = redriven.moved
            answer = yield Submit(shard, (op,))
            scan -= redriven.add(answer.outcomes[0])
            again = redriven.moved - before
            if pace is not None and again and scan and (most is None or redriven.moved < most):
                wait = again / pace - (self.machine.monotonic() - began)
                if wait > 0:
                    yield Sleep(wait)


class RedriveProgress:
    """What the commits of one redrive brought so far."""

    def __init__(self) -> None:
        self.moved = 0
        self._tries = 0  # in a row that got nowhere

    def add(self, outcome: Outcome) -> int:
        """One more commit; how many letters it looked at.

        Raises Damaged where it cannot go on; Throttled, or Timeout once it has moved some, where others get in its way.
        """
        (_, moved), (end, looked) = outcome.runs
        self.moved += moved
        if end == Code.UNREADABLE:
            raise Damaged(
                f"{self.moved} jobs were queued again; the next ones lie in an object that is missing, damaged or of a"
                " newer format. See docs/operations.md."
            )
        self._tries = 0 if looked else self._tries + 1
        if self._tries >= REDRIVE_TRIES:
            raise (Timeout if self.moved else Throttled)(
                f"{self.moved} jobs were queued again; others change the dead letters at the same time. Repeat it."
            )
        return looked


def rate_of(value: object) -> float:
    """Jobs a second, checked. Raises Rejected."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0.001 <= value <= RATE_MAX:  # type: ignore[operator]
        raise Rejected(
            f"rate: {shown(value)} is not a number of jobs a second, 0.001 to {RATE_MAX:,.0f}.", field="rate"
        )
    return float(value)  # type: ignore[arg-type]


def redrive_limit(value: int | None) -> int | None:
    """The most jobs that a redrive may move, checked; None is no limit. Raises Rejected."""
    return None if value is None else validation.whole_number(value, "limit", 1, limits.ITEMS_PER_CALL_MAX)
