"""Whether a head surely has nothing to claim, told without a claim."""

from __future__ import annotations

import random

import pytest

from osqueue.core.claim_search import has_claimable, is_idle
from osqueue.core.job_ops import ClaimJobs, CompleteJobs, Completion, EnqueueJobs
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeSettings
from tests.support.shard import Shard

KINDS = ("", "a", "b", "c")


@pytest.mark.parametrize("seed", range(20))
def test_what_is_called_idle_is_answered_that_it_is_empty(seed: int) -> None:
    """Whatever was done before, with limits, pauses, groups and many kinds."""
    chance = random.Random(seed)
    shard = Shard(seed=seed)
    idle = 0
    for _ in range(300):
        step = chance.random()
        if step < 0.15:
            kinds = KINDS if seed % 2 else [f"k{number}" for number in range(30)]
            group = chance.choice(["", "", "g"])
            shard.apply(EnqueueJobs((shard.new(kind=chance.choice(kinds), group=group),)))
        elif step < 0.3:
            shard.apply(ChangeSettings(max_running=chance.choice([0, 1, 2]), paused=chance.random() < 0.2))
        elif step < 0.55 and shard.state.leases:
            held = chance.choice(list(shard.state.leases.values()))
            shard.apply(CompleteJobs((Completion(held.job.key, held.token),)))
        shard.now += chance.choice([0, 10, 1_000])
        asked = chance.choice([None, ("a",), ("b", "c"), ("k3",)])
        called_idle = is_idle(shard.state, asked)
        assert not (called_idle and has_claimable(shard.state, asked))
        (outcome,) = shard.apply(ClaimJobs(1, "w", 30_000, asked))
        if called_idle:
            idle += 1
            assert (outcome.code, outcome.leases) == (Code.EMPTY, ())
    assert idle
