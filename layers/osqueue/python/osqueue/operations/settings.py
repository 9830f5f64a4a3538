"""Looking at a queue and steering it: listing, cancel, settings, dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import limits
from ..commit.effects import QueueFlow, Submit
from ..core.ops import CancelJob, ChangeSettings, Code, Op, Outcome, RedriveJobs
from ..core.state import FAILED, QueueSettings
from ..errors import Damaged, Rejected, Throttled, Timeout
from ..model import validation
from ..model.job import Job
from ..model.keys import shard_of
from ..model.settings import change_of
from ..objects import listing, segment_rewrite
from ..objects.layout import read_state, root_of
from .results import ResultFlows

CANCEL_TRIES = 20  # looks for a job that moves while it is being cancelled
REDRIVE_TRIES = 20  # of one commit of a redrive, when others change the dead letters meanwhile


class SettingsFlows(ResultFlows):
    """The flows of operators."""

    def cancel(self, text: str) -> QueueFlow[str]:
        """Cancel a waiting job, ask the worker of a running one."""
        for _ in range(CANCEL_TRIES):
            found = yield from self.locate(text)
            if found is None:
                return "not_found"
            shard, at = shard_of(found.key), found.sighting
            if at.row is not None and not at.expired((yield from self.moment(shard, found.state))):
                return at.state if at.state != FAILED else "not_found"
            if at.row is not None or at.state == FAILED:
                return "not_found"
            op = CancelJob(found.key)
            settled: tuple[Op, ...] = ()
            if at.place is not None:
                if segment_rewrite.many_tombstones(found.state):
                    stage = yield from self.stage(shard)
                    settled = yield from segment_rewrite.settle_tombstones(
                        root_of(self.queue, shard), found.state, stage
                    )
                    if settled and segment_rewrite.tombstones_full(found.state):  # first there has to be some
                        yield Submit(shard, settled)
                        continue
                place = at.place  # the reducer cannot see it there: this is the evidence
                op = CancelJob(found.key, place.job, place.top.name, place.offset, place.index, place.vector)
            answer = yield Submit(shard, (op, *settled))
            code = answer.outcomes[0].code
            if code not in (Code.NOT_FOUND, Code.RETRY):
                return str(code.name.lower())
        raise Throttled("the queue moves too fast to cancel this job just now. Repeat it.")

    def jobs(
        self, state: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> QueueFlow[tuple[list[Job], str | None]]:
        """One page of live jobs and the cursor of the next."""
        count = (yield from self._settings()).shards
        return (yield from listing.page(self.queue, count, state, limit, cursor))

    def stats(self) -> QueueFlow[dict[str, Any]]:
        """Numbers over all shards."""
        count = (yield from self._settings()).shards
        states = []
        for shard in range(count):
            found = yield from read_state(self.queue, shard)
            if found is not None:
                states.append(found)
        return listing.statistics(self.queue, states, self.machine.now_ms())

    def configure(self, **wished: Any) -> QueueFlow[None]:
        """Change settings on every shard; answers when all have them."""
        op = change_of(wished)
        yield from self.known_queue()
        settings = yield from self._settings()
        if op.shards is not None and op.shards < settings.shards:
            raise Rejected(
                f"shards: the queue has {settings.shards}; their number can only grow, or jobs would be out of reach.",
                field="shards",
            )
        done = 0
        while done < max(
            settings.shards, op.shards or 1
        ):  # again, if somebody else has made it grow meanwhile
            count = done = max(settings.shards, op.shards or 1)
            # The first shard last: it tells everybody how many there are. New ones get all settings there are.
            for shard in reversed(range(count)):
                new = shard >= settings.shards
                yield Submit(shard, (_copy(settings), op) if new else (op,))
            settings = yield from self._settings()

    def _settings(self) -> QueueFlow[QueueSettings]:
        """The queue's settings as they are now."""
        state = yield from read_state(self.queue, 0)
        return state.settings if state is not None else QueueSettings()

    def redrive(
        self,
        limit: int | None = None,
        kinds: Iterable[str] | None = None,
        error: str | None = None,
        dry_run: bool = False,
        *,
        so_far: RedriveProgress | None = None,
    ) -> QueueFlow[int]:
        """Queue dead jobs again, the oldest first; answers how many (or how many it would be).

        Goes on with ``so_far``, if given: it holds what was done also where an error ends it.
        """
        most = (
            validation.whole_number(limit, "limit", 1, limits.ITEMS_PER_CALL_MAX)
            if limit is not None
            else None
        )
        wanted = validation.kinds(kinds)
        part = "" if error is None else validation.text(error, "error", limits.ERROR_CHARS_MAX)
        count = (yield from self._settings()).shards
        redriven = so_far or RedriveProgress()
        for shard in range(count):
            left = None if most is None else most - redriven.moved
            if left == 0:
                break
            if dry_run:
                redriven.moved += yield from listing.count_dead(self.queue, shard, wanted, part, left)
            else:
                yield from self._redrive(redriven, shard, most, wanted, part)
        return redriven.total()

    def _redrive(
        self,
        redriven: RedriveProgress,
        shard: int,
        most: int | None,
        kinds: tuple[str, ...] | None,
        error: str,
    ) -> QueueFlow[None]:
        """Go once through the dead letters of a shard: those that match are queued, the others go to the back."""
        state = yield from read_state(self.queue, shard)
        scan = 0 if state is None else listing.dead_count(state)
        while scan > 0 and (most is None or redriven.moved < most):
            chunk = min(limits.ITEMS_PER_REQUEST_MAX, scan)
            room = chunk if most is None else min(chunk, most - redriven.moved)
            answer = yield Submit(shard, (RedriveJobs(room, chunk, kinds, error),))
            scan -= redriven.add(answer.outcomes[0])
            if answer.outcomes[0].runs[1] == (Code.EMPTY, 0):
                break  # others have taken the rest


class RedriveProgress:
    """What the commits of one redrive brought so far."""

    def __init__(self) -> None:
        self.moved = 0
        self._tries = 0  # in a row that got nowhere
        self._crowded = False

    def add(self, outcome: Outcome) -> int:
        """One more commit; how many letters it looked at.

        Raises Damaged where it cannot go on; Throttled, or Timeout once it has moved some, where others get in its way.
        """
        (code, moved), (end, looked) = outcome.runs
        self.moved += moved
        self._crowded |= code == Code.LANES
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

    def total(self) -> int:
        """How many were queued again. Raises Throttled when there would have been some, and a lane for none."""
        if self._crowded and not self.moved:
            raise Throttled(
                f"kind: jobs of {limits.LANES_MAX} different (priority, kind) pairs are waiting already, and the dead"
                " letters are of others. Wait until some of them are empty, then redrive again."
            )
        return self.moved


def _copy(settings: QueueSettings) -> ChangeSettings:
    return ChangeSettings(**{field: getattr(settings, field) for field in ChangeSettings.__struct_fields__})
