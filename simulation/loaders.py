"""Who loads bulks: a driver and its tasks, of which some fail and are repeated; it gives up at times, stalls, or dies.

Few batches are loaded by many runs, at once and one after the other, each with rows of its own, so that it shows whose
came in. Meanwhile the queue gets more shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

from osqueue.bulk.writer import BulkFlows, BulkPlan, StagedJobs, StagerFlows
from osqueue.commit.effects import Flow, Sleep
from osqueue.commit.writer import ShardWriter
from osqueue.core.job_ops import JobSpec
from osqueue.core.queue_ops import ChangeSettings
from osqueue.errors import OsqueueError

from .clients import Client
from .loads import ATTACHING, BulkLoad, BulkLoads

KINDS = ("", "mail", "mail", "a", "b")  # with the priorities more lanes than there is room for, at times
STALLS_SECONDS = (1.0, 20.0, 90.0, 400.0)
TASKS = (1, 2, 4, 9)


class WatchedBulks(BulkFlows):
    """Whoever checks commits wants to know their transitions."""

    def _writer(self, kind: type[ShardWriter], shard: int) -> ShardWriter:
        made = super()._writer(kind, shard)
        made.observed = True
        return made


class Loader:
    """One driver after the other, of one process."""

    def __init__(self, client: Client, loads: BulkLoads) -> None:
        self.client = client
        self.dice = client.dice
        self.loads = loads
        self.machine = client.writer.machine
        self.bulks = WatchedBulks(client.writer.queue, self.machine)

    def program(self, rounds: int, pause_seconds: float) -> Flow[None]:
        """One bulk after the other."""
        for _ in range(rounds):
            yield from self.client.pause(pause_seconds)
            yield from self.load(self.batch_id())

    def batch_id(self) -> str | None:
        """A new one, one of the latest, or none."""
        names, roll = self.loads.names, self.dice.random()
        if roll < 0.2:
            return None
        if roll < 0.5 or not names:
            names.append(f"batch-{len(names)}")
            return names[-1]
        return self.dice.choice(names[-3:])

    def load(self, batch_id: str | None) -> Flow[None]:
        """One run of a batch."""
        load = self.loads.begin(self.client.name, batch_id)
        try:
            looks = batch_id is not None and self.dice.random() < 0.5
            if batch_id and looks and (yield from self.bulks.batches.read(batch_id)) is not None:
                self.loads.attached(load, (yield from self.client.run(self.bulks.resume(batch_id))))
                return
            staged = yield from self.stage(load)
            if self.dice.random() < 0.1:
                self.loads.give_up(load)
                return
            load.fate = ATTACHING
            self.loads.attached(load, (yield from self.client.run(self.bulks.attach(staged, batch_id))))
        except OsqueueError as error:
            self.loads.failed(load, error)

    def load_kinds(
        self,
        batch_id: str,
        kinds: Sequence[str],
        *,
        tasks: int = 1,
        delays_ms: Sequence[int] = (0,),
        payload: bytes = b"",
    ) -> Flow[None]:
        """A batch of a few tasks for each shard, each with a job of each kind; their delays take turns."""
        delays = cycle(delays_ms)
        load = self.loads.begin(self.client.name, batch_id)
        plan = yield from self.bulks.plan()
        staged = []
        try:
            for shard in sorted([*range(len(plan.born))] * tasks):
                staging = StagerFlows(self.machine, plan, shard)
                keys = staging.keys(len(kinds))
                yield from staging.add(
                    [
                        JobSpec(key, payload, kind=kind, delay_ms=next(delays))
                        for key, kind in zip(keys, kinds, strict=True)
                    ]
                )
                self.loads.count(load, shard, keys)
                staged.append((yield from staging.finish()))
            load.fate = ATTACHING
            self.loads.attached(load, (yield from self.client.run(self.bulks.attach(staged, batch_id))))
        except OsqueueError as error:
            self.loads.failed(load, error)

    def resume(self, batch_id: str) -> Flow[None]:
        """Finish a batch, as whoever runs it again does."""
        load = self.loads.begin(self.client.name, batch_id)
        try:
            self.loads.attached(load, (yield from self.client.run(self.bulks.resume(batch_id))))
        except OsqueueError as error:
            self.loads.failed(load, error)

    # ── Tasks ────────────────────────────────────────────────────────────────
    def stage(self, load: BulkLoad) -> Flow[list[StagedJobs]]:
        """Let every task stage its rows; some do so twice, and some stall."""
        plan = yield from self.bulks.plan()
        staged = []
        for task in range(self.dice.choice(TASKS)):
            shard = task % len(plan.born)
            if self.dice.random() < 0.15:  # the try that fails, or the slower one of two
                yield from self.task(plan, shard)
            done, keys = yield from self.task(plan, shard)
            self.loads.count(load, shard, keys)
            staged.append(done)
            if self.dice.random() < 0.05:
                yield Sleep(self.dice.choice(STALLS_SECONDS))
        return staged

    def task(self, plan: BulkPlan, shard: int) -> Flow[tuple[StagedJobs, Sequence[bytes]]]:
        """One task's rows, some delayed, some with a payload that is staged by itself."""
        staging = StagerFlows(self.machine, plan, shard)
        keys: list[bytes] = []
        kinds = self.dice.sample(KINDS, 2)
        for _ in range(self.dice.choice((1, 2))):
            new = staging.keys(self.dice.choice((1, 5, 15)))
            jobs = [
                JobSpec(
                    key,
                    bytes(self.dice.choice((3, 20, 60, 60, 200))),
                    kind=self.dice.choice(kinds),
                    priority=self.dice.choice((3, 5)),
                    delay_ms=self.dice.choice((0, 0, 0, 5_000, 60_000)),
                    max_attempts=self.dice.choice((1, 2)),
                    result_ttl_ms=1_000,
                )
                for key in new
            ]
            yield from staging.add(jobs)
            keys += new
        return (yield from staging.finish()), keys


def grow(clients: Sequence[Client], pause_seconds: float) -> Flow[None]:
    """Give the queue one shard after the other, the first one told last, as ``configure`` does."""
    for count in range(2, len(clients) + 1):
        yield from clients[0].pause(pause_seconds)
        for client in reversed(clients[:count]):
            while (yield from client.call(ChangeSettings(shards=count))).answer is None:
                yield from client.pause(1.0)
