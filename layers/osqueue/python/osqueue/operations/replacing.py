"""Letting jobs take the places of some that wait under the same ids, in one commit of their shard."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from .. import limits
from ..commit.effects import QueueFlow, Submit
from ..core.job_ops import CancelJob, JobSpec, ReplaceJobs, Replacement
from ..core.ops import Code, Op
from ..core.state import State
from ..objects import segment_rewrite
from ..objects.layout import root_of
from ..objects.staging import wipe_refused
from .context import FlowContext

_TAKEN = (Code.QUEUED, Code.SCHEDULED)  # of any other the commit refers to nothing


def tombstones_settled(flows: FlowContext, shard: int, state: State) -> QueueFlow[bool]:
    """Make room for cancelled jobs in segments where there is none; True: the head has moved on, look again."""
    if not segment_rewrite.tombstones_full(state):
        return False
    stage = yield from flows.stage(shard)
    settled = yield from segment_rewrite.settle_tombstones(root_of(flows.queue, shard), state, stage)
    if settled:
        yield Submit(shard, settled)
    return bool(settled)


def replace_jobs(
    flows: FlowContext, shard: int, state: State, items: Sequence[tuple[CancelJob, JobSpec]]
) -> QueueFlow[list[Code]]:
    """What became of each. ``state`` is the one in which the old jobs were seen; RETRY: look again."""
    settled: tuple[Op, ...] = ()
    if any(old.span for old, _ in items) and segment_rewrite.many_tombstones(state):
        stage = yield from flows.stage(shard)
        settled = yield from segment_rewrite.settle_tombstones(root_of(flows.queue, shard), state, stage)
        if settled and segment_rewrite.tombstones_full(state):  # first there has to be some room
            yield Submit(shard, settled)
            return [Code.RETRY] * len(items)
    news = [new for _, new in items]
    if any(len(new.payload) > limits.INLINE_BYTES_MAX for new in news):  # type: ignore[arg-type]
        stage = yield from flows.stage(shard)
        staged = yield from stage.bodies([new.payload for new in news])  # type: ignore[misc]
        news = [replace(new, payload=payload) for new, payload in zip(news, staged, strict=True)]
    pairs = [Replacement(old, new) for (old, _), new in zip(items, news, strict=True)]
    answer = yield Submit(shard, (ReplaceJobs(tuple(pairs)), *settled))
    codes: list[Code] = answer.outcomes[0].codes
    contents = [(new.payload, code in _TAKEN) for new, code in zip(news, codes, strict=True)]
    yield from wipe_refused(flows.writers[shard].root, contents)
    return codes
