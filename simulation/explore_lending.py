"""Every interleaving of two claimers over two shards under one limiter that has one slot to lend."""

from __future__ import annotations

from typing import Any

from osqueue.commit.effects import Flow
from osqueue.core.job_ops import EnqueueJobs, JobSpec
from osqueue.core.lending import life_us

from .conditions import Clients, Profile
from .explore import Findings, PathPlayer, Scenario, ScenarioPath, explore
from .ledger import Violation
from .lending import TROUBLES, Claimer, LendingRun
from .world import World

SHARDS = 2
INTERVAL_SECONDS = 10_000.0  # of the limiter: it has one slot for as long as anybody plays

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("two shards and one slot", (), lose=1, repeat=0, crash=1),
        Scenario("two shards, one slot, and a write comes late", (), lose=0, repeat=1),
    )
}


class LendingPath(ScenarioPath):
    """One run along given choices; ``LendingRun`` judges each write."""

    step_seconds = 0.001  # a claim that takes for long is given up

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        run = self.run = LendingRun(0, Profile("explored", clients=Clients(shards=SHARDS, skew_ms_max=0)))
        run.interval, run.burst, run.tells_time = INTERVAL_SECONDS, 1, True
        run.interval_us = round(INTERVAL_SECONDS * 1e6)
        run.life_us = life_us(run.interval_us, 1)
        run.ledger = self.ledger
        self.truth = run.truth
        self.clock: World = run.world  # type: ignore[assignment]

    def begin(self) -> None:
        """The limiter is there, and in each shard a job waits."""
        operator = Claimer(self.run, "operator")
        self._whole(operator.begin())
        for shard in range(SHARDS):
            job = JobSpec(operator.key(shard), b"1")
            self._whole(operator.perform(operator.submit(shard, EnqueueJobs((job,)))))
        self.players += [PathPlayer(self._claim(Claimer(self.run, f"claimer{at}"))) for at in range(2)]

    def _claim(self, claimer: Claimer) -> Flow[Any]:
        try:
            return (yield from claimer.perform(claimer.flows.claim(1, claimer.name)))
        except TROUBLES:
            return None

    def end(self) -> None:
        """A slot may be lost with its claimer; there is never another one."""
        harmed = {name: getattr(self.scenario, name) for name in self.left} != self.left
        if self.run.started > 1 or (self.run.started < 1 and not harmed):
            raise Violation(f"{self.run.started} jobs started, and there was one slot")


def explore_lending(name: str) -> Findings:
    """Follow every path of one of these scenarios."""
    return explore(SCENARIOS[name], begin=LendingPath)
