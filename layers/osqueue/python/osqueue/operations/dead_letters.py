"""Dead letters: looking at them, grouping them, and queueing some of them again at a pace."""

from __future__ import annotations

from collections.abc import Iterable

from .. import limits
from ..commit.effects import QueueFlow, Sleep, Submit
from ..core.ops import RedriveJobs
from ..errors import Rejected, shown
from ..model import validation
from ..model.dead_letters import (
    DeadGroup,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroups,
    dead_letter_view,
    filter_of,
)
from ..objects.layout import read_state, root_of
from ..objects.listing import PAGE_MAX, dead_count, read_cursor, write_cursor
from ..objects.segments import read_backlog
from .settings import RedriveProgress, SettingsFlows

READ_AT_ONCE = 10_000  # dead letters, while a page or groups are gathered
RATE_MAX = 100_000.0  # jobs a second
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
    ) -> QueueFlow[tuple[list[DeadLetter], str | None]]:
        """One page of those that match, shard by shard, and the cursor of the next page."""
        which = filter_of(kinds, error, fingerprint)
        validation.whole_number(limit, "limit", 1, PAGE_MAX)
        settings = yield from self._settings()
        shard, skip = read_cursor(cursor)
        found: list[DeadLetter] = []
        while shard < settings.shards:
            state = yield from read_state(self.queue, shard)
            while state is not None:
                jobs = yield from read_backlog(root_of(self.queue, shard), state.dead, skip, READ_AT_ONCE)
                if not jobs:
                    break
                for job in jobs:
                    skip += 1
                    if which.matches(job):
                        found.append(dead_letter_view(job, settings.dead_ttl_ms))
                        if len(found) >= limit:
                            return found, write_cursor(shard, skip)
            shard, skip = shard + 1, 0
        return found, None

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
        *,
        so_far: RedriveProgress | None = None,
    ) -> QueueFlow[int]:
        """Queue dead jobs again, as ``SettingsFlows`` does: also those of one fingerprint alone, or at a rate."""
        which = filter_of(kinds, error, fingerprint)
        pace = None if rate is None else rate_of(rate)
        if not which.fingerprint and (pace is None or dry_run):
            return (yield from super().redrive(limit, kinds, error, dry_run, so_far=so_far))
        most = (
            validation.whole_number(limit, "limit", 1, limits.ITEMS_PER_CALL_MAX)
            if limit is not None
            else None
        )
        count = (yield from self._settings()).shards
        redriven = so_far or RedriveProgress()
        for shard in range(count):
            left = None if most is None else most - redriven.moved
            if left == 0:
                break
            there = yield from self._count(shard, which, left)
            if dry_run:
                redriven.moved += there
            elif there:
                yield from self._chosen(redriven, shard, most, which, pace)
        return redriven.total()

    def _count(self, shard: int, which: DeadLetterFilter, most: int | None) -> QueueFlow[int]:
        state = yield from read_state(self.queue, shard)
        count = skip = 0
        while state is not None and (most is None or count < most):
            jobs = yield from read_backlog(root_of(self.queue, shard), state.dead, skip, READ_AT_ONCE)
            if not jobs:
                break
            skip += len(jobs)
            count += sum(map(which.matches, jobs))
        return count if most is None else min(count, most)

    def _chosen(
        self,
        redriven: RedriveProgress,
        shard: int,
        most: int | None,
        which: DeadLetterFilter,
        pace: float | None,
    ) -> QueueFlow[None]:
        """Go once through the dead letters of a shard: those that match are queued, the others go to the back.

        Each commit is a step of its own: wherever it stops, every letter is dead or queued.
        """
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


def rate_of(value: object) -> float:
    """Jobs a second, checked. Raises Rejected."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0.001 <= value <= RATE_MAX:  # type: ignore[operator]
        raise Rejected(
            f"rate: {shown(value)} is not a number of jobs a second, 0.001 to {RATE_MAX:,.0f}.", field="rate"
        )
    return float(value)  # type: ignore[arg-type]
