"""Scenes of few writers, which publish where they collide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from osqueue.commit.effects import Flow
from osqueue.core.job_ops import EnqueueJobs, JobSpec
from osqueue.core.queue_ops import ChangeBatch, ChangeSettings
from osqueue.core.rows import BatchRow

from .conditions import PUBLISHING
from .scenes import STEP_SECONDS, Actor, Play, head_swap, intent_written
from .tight import limited

BATCH = b"b" * 16


def refused_by_the_own_head(stage: Play) -> Any:
    """A writer that leads enqueues a job of a batch, which another opened since its last commit."""
    leader, other = map(stage.actor, ("leader", "other"))
    base_ms = iter(range(7, 99))

    def change(actor: Actor, look: bool = False) -> Flow[Any]:
        return actor.client.call(ChangeSettings(backoff_base_ms=next(base_ms)), look=look)

    other.run(change(other))
    leader.run(change(leader))
    other.stop_at(change(other), head_swap)
    leader.run(change(leader))
    other.go_on(intent_written)
    other.go_on(lambda effect: True)
    leader.run(change(leader, look=True))  # of both: from here on they collide
    writer = leader.client.writer
    with limited(PUBLISHING):
        writer.publications.look_seconds = writer.commit_seconds  # so it looks beside its swaps
        leader.run(change(leader))
        leader.run(change(leader))
        writer.commit_seconds = 1.0  # a slow store: what was read beside the swap still counts
        other.run(other.commit(ChangeBatch(BATCH, BatchRow(name="b"))))
        stage.later(STEP_SECONDS)
        leader.run(leader.commit(EnqueueJobs((JobSpec(BATCH, b"", batch=BATCH),))))
    return leader.answer.answer.outcomes[0].codes[0]


SCENES: dict[str, Callable[[Play], Any]] = {"refused by the own head": refused_by_the_own_head}
