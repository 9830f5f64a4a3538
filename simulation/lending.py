"""A limiter that shards share, in virtual time: claimers on machines that stand still and whose clocks are wrong.

Each commit of a shard is compared with the one before it: what was deposited had been reserved, and once; each start
used up a slot whose moment had come and whose life was not over; each further unit of a job did, or is owed. Over all
shards the starts of every window keep within the bound of ``core.lending``, by the times of their heads, and some time
after a pause nothing starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from functools import partial
from typing import Any

from msgspec.structs import replace

from osqueue.commit import protocol
from osqueue.commit.effects import Flow, QueueFlow, Sleep, Submit
from osqueue.commit.pacer_writer import PacerWriter
from osqueue.commit.writer import ShardWriter
from osqueue.core.encoding import decode_head
from osqueue.core.job_ops import ClaimJobs, CompleteJobs, Completion, EnqueueJobs, JobSpec
from osqueue.core.lending import AHEAD_US, SECOND_US, life_us, runs_of
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangePacer, ChangeSettings, ReserveSlots
from osqueue.core.rows import LentRun
from osqueue.core.state import NO_PACER, PROCESSING, PacerRow, State, waiting
from osqueue.errors import NotFound, OsqueueError, Throttled, Timeout, Unavailable
from osqueue.model.codecs import JSON, Codec
from osqueue.objects.layout import root_of, root_of_pacer
from osqueue.operations.claims import ClaimFlows
from osqueue.operations.context import Writers
from osqueue.operations.pacer_access import StoreAccess
from osqueue.stores.base import StoreRequest

from .conditions import Profile
from .ledger import Ledger, RecordedReduction, Violation
from .machine import VirtualMachine, source
from .network import Network
from .truth import Truth
from .world import Process, World

QUEUE, NAMES = "sim", ("api", "web")
NAME = NAMES[0]  # of the limiter in the beginning
INTERVALS = (0.05, 0.3, 2.0)
BURSTS = (1, 1, 5)
UNITS = (1, 1, 2, 6)  # of jobs, in runs where they have some
JOBS_LOW, JOBS_MORE = 10, 20
RUN_SECONDS = 240.0
TROUBLES = (Timeout, Unavailable, Throttled, NotFound)
Slot = tuple[int, int]  # its epoch, and its moment


class Claimer:
    """One process that claims."""

    def __init__(self, run: LendingRun, name: str) -> None:
        self.run, self.name = run, name
        self.dice = source(run.world.seed, name)
        clients = run.profile.clients
        skew_ms = self.dice.choice((0, self.dice.randint(-clients.skew_ms_max, clients.skew_ms_max)))
        drift = self.dice.choice((-1, 0, 1)) * clients.drift_max
        self.machine = VirtualMachine(run.world, name, run.world.seed, skew_ms, drift)
        self.writers = Writers(self._writer)
        self.flows = ClaimFlows(QUEUE, Codec(JSON), self.machine, self.writers, object())
        self.limiters = {
            name: StoreAccess(name, self.machine, partial(self._limiter_writer, name))
            for name in NAMES[: clients.limiters]
        }

    def _writer(self, place: int | str) -> ShardWriter:
        if isinstance(place, str):
            return PacerWriter(root_of_pacer(place), place, self.machine, self.run.clock_ms)
        return ShardWriter(root_of(QUEUE, place), QUEUE, self.machine, self.run.clock_ms)

    def _limiter_writer(self, name: str) -> PacerWriter:
        writer = self.writers[name]
        assert isinstance(writer, PacerWriter)
        return writer

    def perform(self, flow: QueueFlow[Any], place: int | str | None = None) -> Flow[Any]:
        """Run one of the library's flows, whose commits go to their heads, or to one; raises what it raises."""
        reply: Any = None
        go_on: Any = flow.send
        while True:
            try:
                effect = go_on(reply)
            except StopIteration as stop:
                return stop.value
            go_on = flow.send
            if not isinstance(effect, Submit):
                reply = yield effect
                continue
            deadline = self.machine.monotonic() + self.dice.choice((2.0, 25.0, 25.0))
            writer = self.writers[effect.shard if place is None else place]
            try:
                reply = yield from protocol.commit(writer, effect.ops, deadline)
            except OsqueueError as error:
                go_on, reply = flow.throw, error

    def submit(self, shard: int, *ops: Any) -> QueueFlow[Any]:
        """One commit."""
        return (yield Submit(shard, ops))

    def work(self) -> Generator[Any, Any, None]:
        """Fill a shard, claim, complete; stand still now and then."""
        while True:
            yield Sleep(self.dice.choice((0.0, 0.02, 0.3, 1.0)))
            try:
                yield from self.fill()
                claimed = yield from self.perform(self.flows.claim(self.dice.choice((1, 3, 10)), self.name))
                self.run.asked[claimed.reason or "granted"] += 1
                for each in claimed.leases:
                    done = Completion(each.lease.job.key, each.lease.token)
                    yield from self.perform(self.submit(each.lease.job.key[15], CompleteJobs((done,))))
            except TROUBLES as error:
                self.run.asked[type(error).__name__] += 1
                yield Sleep(self.dice.random())

    def fill(self) -> Flow[None]:
        """See to it that jobs wait, in the first shard more than elsewhere."""
        shard = self.dice.choice((0, 0, self.dice.randrange(self.run.count)))
        head = self.writers[shard].head
        if head is not None and sum(waiting(lane.backlog) for lane in head.state.lanes) > JOBS_LOW:
            return
        jobs = [JobSpec(self.key(shard), b"1") for _ in range(JOBS_MORE)]
        if self.run.profile.clients.units:
            jobs = [replace(job, units=self.dice.choice(UNITS)) for job in jobs]
        yield from self.perform(self.submit(shard, EnqueueJobs(tuple(jobs))))

    def key(self, shard: int) -> bytes:
        """Of a new job."""
        chance = 1 << 63 | self.machine.bits(64) >> 10 << 8 | shard
        return self.machine.now_ms().to_bytes(6, "big") + b"\x70\0" + chance.to_bytes(8, "big")

    def begin(self) -> Generator[Any, Any, None]:
        """Create the limiters and the queue, however often it takes."""
        for name, limiter in self.limiters.items():
            yield from self.insist(
                lambda made=limiter: made.create(self.run.interval, self.run.burst, "keep"), name
            )
        yield from self.change(NAME)

    def change(self, name: str) -> Flow[None]:
        """Let all shards have this limiter."""
        for shard in range(self.run.count):
            op = ChangeSettings(shards=self.run.count, limiter=name, shard=shard)
            yield from self.insist(lambda at=shard, change=op: self.submit(at, change))

    def insist(self, make: Any, place: str | None = None) -> Flow[None]:
        """Until it is certain."""
        while True:
            try:
                yield from self.perform(make(), place)
                return
            except TROUBLES:
                yield Sleep(0.1)

    def steer(self) -> Generator[Any, Any, None]:
        """Pause the limiter, resume it, seldom reset it."""
        yield from self.begin()
        while True:
            yield Sleep(self.dice.expovariate(1 / 25.0))
            if len(self.limiters) > 1:
                yield from self.change(self.dice.choice(NAMES))
            try:
                yield from self.perform(self.limiters[NAME].pause(True), NAME)
                yield Sleep(self.dice.choice((0.5, 4.0, 15.0)))
                yield from self.perform(self.limiters[NAME].pause(False), NAME)
                if self.dice.random() < 0.3:
                    again = self.limiters[NAME].create(self.run.interval, self.run.burst, "reset")
                    yield from self.perform(again, NAME)
            except TROUBLES as error:
                self.run.asked[f"operator: {type(error).__name__}"] += 1


class LendingRun:
    """One run."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self.profile = profile
        self.world = World(f"{profile.name}/{seed}", profile.faults)
        self.truth = Truth(self.world)
        self.truth.watchers.append(self.watch)
        self.network = Network(self.world, self.truth, profile.latency)
        self.ledger = Ledger()
        self.ledger.clock = self.truth.seconds
        chance = self.world.chance
        self.tells_time = chance.random() < 0.5  # as a folder does; else as S3
        self.count = profile.clients.shards
        self.interval, self.burst = chance.choice(INTERVALS), chance.choice(BURSTS)
        self.interval_us = round(self.interval * 1e6)
        self.life_us = life_us(self.interval_us, self.burst)
        self.asked: Counter[str] = Counter()
        self.commits = 0
        self.heads = {root_of(QUEUE, shard) + "head": shard for shard in range(self.count)}
        self.states: dict[int, State] = {}
        self.rows: dict[str, PacerRow] = {}
        self.limiters = {root_of_pacer(name) + "head": name for name in NAMES}
        self.given: Counter[Slot] = Counter()  # reserved, and not deposited yet
        self.starts: dict[
            str, list[int]
        ] = {}  # by limiter: the heads' times in µs, in order; since the last reset
        self.started = 0
        self.from_us = 0  # starts before may have used slots of another epoch
        self.still_us: int | None = None  # of a paused limiter: nothing starts from then on

    def clock_ms(self) -> int | None:
        """The store's clock, where it is told."""
        return self.truth.clock_ms() if self.tells_time else None

    def work(self) -> None:
        """Let them claim, while an operator pauses the limiter."""
        self.enter("operator", Claimer.steer)
        for at in range(self.profile.clients.borrowers):
            self.enter(f"claimer{at}", Claimer.work)
        self.world.run(lambda: False, RUN_SECONDS)

    def enter(self, name: str, program: Any) -> None:
        """A process begins; should it die, another takes its place."""
        claimer = Claimer(self, name)
        Process(
            self.world,
            self.network.send,
            program(claimer),
            machine=claimer.machine,
            died=lambda: self.enter(f"{name}+", program),
        ).start(self.world.chance.random())

    # ── What is committed ────────────────────────────────────────────────────
    def watch(self, request: StoreRequest, key: str, body: bytes) -> None:
        """A write took effect."""
        if key in self.limiters:
            state = decode_head(body)
            self.lend(self.limiters[key], state, self.ledger.batches[state.commit])
            self.commits += 1
        elif key in self.heads:
            state, shard = decode_head(body), self.heads[key]
            self.start(self.states.get(shard), state, self.ledger.batches[state.commit])
            self.states[shard] = state
            self.commits += 1

    def lend(self, name: str, state: State, batch: RecordedReduction) -> None:
        """A limiter changed."""
        before = self.rows.get(name, NO_PACER)
        for request in batch.requests:
            outcomes = batch.reduction.outcomes.get(request.identity, ())
            for op, outcome in zip(request.ops, outcomes, strict=False):
                if isinstance(op, ReserveSlots) and outcome.code == Code.RESERVED:
                    if before.paused_ms and not any(
                        isinstance(each, ChangePacer) for one in batch.requests for each in one.ops
                    ):
                        raise Violation("a paused limiter lent slots")
                    (_, count), (_, base), (start, epoch), (interval, burst) = outcome.runs
                    runs = runs_of(start, base, interval, burst, count)
                    if runs[0].at_us > start + AHEAD_US:
                        raise Violation("slots were lent for long after")
                    self.given.update(moments(epoch, runs))
        row, now_us = state.pacer, state.now_ms * 1000
        self.rows[name] = row
        if name != NAME:  # it is neither paused nor reset
            return
        settled_us = self.settled_us(now_us)
        if row.epoch != before.epoch:
            self.starts, self.from_us = {}, settled_us
        if row.paused_ms and not before.paused_ms:
            self.still_us = settled_us
        elif not row.paused_ms:
            self.still_us = None

    def settled_us(self, now_us: int) -> int:
        """When no slot is left that was reserved by now."""
        return now_us + AHEAD_US + max(SECOND_US, self.interval_us) + self.life_us

    def start(self, before: State | None, state: State, batch: RecordedReduction) -> None:
        """A shard changed."""
        if before is None or not before.settings.limiter:
            return
        now_us = state.now_ms * 1000
        limiter, lent = state.settings.limiter, state.starts.lent
        if lent is not None and lent.limiter != limiter:
            raise Violation("a shard has slots of a limiter that is not its own")
        if limiter != before.settings.limiter:
            self.starts, self.from_us = {}, self.settled_us(now_us)
        slots, owed = slots_of(before), owed_by(before)
        for request in batch.requests:
            if request.identity in batch.reduction.outcomes:
                for op in request.ops:
                    if isinstance(op, ClaimJobs) and op.lent is not None:
                        fresh = Counter(moments(op.lent.epoch, op.lent.runs))
                        if fresh - self.given:
                            raise Violation("slots were deposited that nobody had reserved, or twice")
                        self.given -= fresh
                        if op.lent.limiter not in (before.settings.limiter, limiter):
                            continue
                        slots += fresh
                        owed = owed if before.starts.lent and before.starts.lent.epoch == op.lent.epoch else 0
        after = slots_of(state)
        if after - slots:
            raise Violation("slots came from nowhere")
        gone = slots - after
        usable = sum(n for (_, at), n in gone.items() if at <= now_us < at + self.life_us)
        count = sum(event.target == PROCESSING for event in batch.reduction.events)
        if count > usable:
            raise Violation(f"{count} jobs started by {usable} slots")
        if count and limiter == NAME and self.still_us is not None and now_us >= self.still_us:
            raise Violation("a job started long after the limiter was paused")
        started = [each.key for each in batch.reduction.events if each.target == PROCESSING]
        units = sum(state.leases[key].job.units if key in state.leases else 1 for key in started)
        come = sum(n for (_, at), n in gone.items() if at <= now_us)
        if owed + units - owed_by(state) > come:
            raise Violation(f"{units} units were started by {come} slots, and {owed_by(state)} are owed")
        self.started += count
        if count and now_us >= self.from_us:
            self.note(limiter, now_us, units)

    def note(self, limiter: str, now_us: int, units: int) -> None:
        """Note units that started by slots of a limiter. Heads do not agree on the time, so it need not be the latest.

        The bound holds for each limiter: shards may use several for a while.
        """
        starts = self.starts[limiter] = sorted([*self.starts.get(limiter, []), *[now_us] * units])[-600:]
        free = self.burst + (self.count * (max(UNITS) - 1) if self.profile.clients.units else 0)
        for at, first in enumerate(starts):
            for past in range(max(at, len(starts) - 60), len(starts)):
                window = starts[past] - first
                if (past - at + 1 - free) * self.interval_us >= window + self.life_us:
                    raise Violation(f"{past - at + 1} jobs of all shards started in {window / 1000:g} ms")


def moments(epoch: int, runs: Iterable[LentRun]) -> list[Slot]:
    """The slots of some runs, one by one."""
    return [(epoch, run.at_us + at * run.interval_us) for run in runs for at in range(run.count)]


def slots_of(state: State | None) -> Counter[Slot]:
    """Those that a shard has."""
    lent = None if state is None else state.starts.lent
    return Counter() if lent is None else Counter(moments(lent.epoch, lent.runs))


def owed_by(state: State) -> int:
    """The slots that a shard lacks for units that started."""
    return 0 if state.starts.lent is None else state.starts.lent.owed
