"""Purge: erase single jobs for good, for those who must.

In this order, so that a repeat of a purge that died finds what is left:

    cancel     a job that waits; one that is being worked on is refused
    note       its key, for restores: a copy that nobody refers to any more is found by them alone
    contents   payloads and results beside the head are overwritten with zeros, or deleted; the job's id is freed
    objects    segments and tables that hold the job are blanked, in the same number of bytes: they stay readable
    backups    so are the copies of heads
    state      the head, the dead letters and the tables forget the job, in one commit
    archive    its records are taken out of the parts
    uploads    what lies there for requests of the API is deleted: a job's content may be among it
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import limits
from ..commit.effects import QueueFlow
from ..commit.retry import OBJECT, ask
from ..core.state import (
    CANCELLED,
    FAILED,
    PROCESSING,
    State,
)
from ..errors import Conflict, NotFound, Rejected
from ..model import validation
from ..model.keys import is_key, job_id, key_of, shard_of
from ..model.reports import Purged
from ..objects import id_index, segments
from ..objects.layout import read_state, root_of, unavailable
from ..objects.staging import UPLOADS, UPLOADS_SHARD
from ..stores.base import Delete, Deleted, List, Listed
from .dead_letters import DeadLetterFlows
from .purge_shard import TRIES, ShardPurge, Target, changes_too_fast


class PurgeFlows(DeadLetterFlows):
    """The flow of those who must erase jobs."""

    def purge(self, jobs: str | Iterable[str], dead_only: bool = False) -> QueueFlow[Purged]:
        """Erase jobs, by job id or by clients' ids. Raises Conflict for one in processing, NotFound.

        With ``dead_only`` whatever is no dead letter (any more) is left as it is, and not among the ``jobs`` of the
        answer. That is looked at in the state of the shard from which the erasing sets out, and contents go before the
        commit that forgets their jobs. So a race remains: a job that is redriven in between may have lost its content,
        and the purge ends with Conflict or Throttled. (A letter that is blank already is redriven by nobody.)
        """
        targets = []
        for text in names_of(jobs):
            target = yield from self._target(text, dead_only)
            targets.append(target)
        total = Purged(())
        shards: dict[int, list[Target]] = {}
        for target in targets:
            shards.setdefault(shard_of(target.key), []).append(target)
        for key in dict.fromkeys(target.key for target in targets if not dead_only):
            total += Purged((job_id(key),), cancelled=(yield from self._cancelled(key)))
        for shard, group in shards.items():
            if dead_only:
                state, group = yield from self._dead(shard, group)
                total += Purged(tuple(dict.fromkeys(job_id(each.key) for each in group)))
            else:
                state = yield from read_state(self.queue, shard)
            if group:
                total += yield from ShardPurge(self, shard, group).run(state)
        yield from self._forget_uploads()
        return total

    def _forget_uploads(self) -> QueueFlow[None]:
        """Delete what was uploaded to the API for a request: jobs have copies, and nobody knows whose these are.

        Who is about to name one is told so, and uploads it again.
        """
        from ..stores.stray_keys import is_nameable  # here, because it is for purges alone

        more, after = True, ""
        while more:
            listed = yield from ask(
                List(f"{root_of(self.queue, UPLOADS_SHARD)}{UPLOADS}/", after=after), OBJECT
            )
            if not isinstance(listed, Listed):
                raise unavailable(listed, "the list of what was uploaded")
            more, after = listed.more, listed.keys[-1] if listed.keys else ""
            if keys := tuple(filter(is_nameable, listed.keys)):  # others are not the queue's
                gone = yield from ask(Delete(keys), OBJECT)
                if not isinstance(gone, Deleted):
                    raise unavailable(gone, "the deletion of what was uploaded")

    def _target(self, text: str, dead_only: bool) -> QueueFlow[Target]:
        found = yield from self.locate(text)
        if found is not None:
            if found.location.state == PROCESSING and not dead_only:
                raise _busy(text)
            return Target(found.key, None if text == job_id(found.key) else text)
        (entry,) = yield from id_index.read(self.queue, [validation.job_name(text)])
        if entry is not None:
            return Target(entry.key, text)
        if is_key(text) and shard_of(key_of(text)) < limits.SHARDS_MAX:
            return Target(key_of(text), None)
        raise NotFound(
            f"job {text}: nothing stands under this id. A job that is over is purged by its job id."
        )

    def _dead(self, shard: int, group: list[Target]) -> QueueFlow[tuple[State | None, list[Target]]]:
        """Those that are dead letters, and the state of their shard that says so."""
        for _ in range(TRIES):
            state = yield from read_state(self.queue, shard)
            if state is None:
                return None, []
            dead = {job.key for jobs in (state.dead.ready, state.dead.tail) for job in jobs}
            left = {target.key for target in group} - dead
            try:
                for span in state.dead.spans:
                    dead.update((yield from segments.find_many(root_of(self.queue, shard), span, left)))
            except NotFound:
                continue  # the head has moved on
            return state, [target for target in group if target.key in dead]
        raise changes_too_fast()

    def _cancelled(self, key: bytes) -> QueueFlow[int]:
        found = yield from self._seek(key)
        if found is None or found.location.row is not None or found.location.state == FAILED:
            return 0
        answer = yield from self.cancel(job_id(key))
        if answer == "processing":
            raise _busy(job_id(key))
        return int(answer == CANCELLED)


def _busy(text: str) -> Conflict:
    return Conflict(f"job {text} is being worked on. Cancel it, and purge it once it is over.")


def names_of(jobs: Any) -> list[str]:
    """The ids of the jobs to purge. Raises Rejected."""
    if isinstance(jobs, str):
        return [jobs]
    if not isinstance(jobs, Iterable):
        raise Rejected(f"jobs: {type(jobs).__name__} is neither an id nor a list of id_index.", field="jobs")
    names = list(dict.fromkeys(map(validation.job_name, jobs)))
    if len(names) > limits.ITEMS_PER_REQUEST_MAX:
        raise Rejected(
            f"jobs: {len(names):,} at once; the most is {limits.ITEMS_PER_REQUEST_MAX:,}.", field="jobs"
        )
    return names
