"""One seed from its first request to the last: clients, faults, checks, drain, accounting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from uuid import UUID

from osqueue.commit.effects import Flow
from osqueue.core.archive_record import decode_part
from osqueue.core.job_ops import AttachSpans, ClaimJobs, EnqueueJobs, ReplaceJobs
from osqueue.core.ops import Code, Op
from osqueue.election import base
from osqueue.errors import OsqueueError
from osqueue.objects import archive, id_index
from osqueue.objects.layout import root_of

from . import answers
from .all_shards import AllShards
from .callers import Caller
from .clients import Client
from .conditions import Faults, Profile
from .consuming import WAKERS, Deliveries, attach
from .crews import Crew, SharedWriter, TaskCrew, ThreadCrew, watched_flights
from .elections import Elections
from .fibers import Host, ThreadedMachine, virtual_threads
from .invariants import Invariants
from .ledger import ClientCall, Ledger, Violation, WatchedWriter, watched_reductions
from .lending import LendingRun
from .listening import listen
from .lives import watched_repairs
from .loaders import Loader, grow
from .loads import BulkLoads
from .machine import VirtualMachine, source
from .mass_cancels import cancel_many
from .merging import merge_spans
from .pacers import PacerRun
from .payloads import archive_them
from .program import KINDS, Outdated, SharedKeys
from .promises import Promises
from .releases import ReleaseInUse, both_read
from .remotes import Remotes
from .report import RunReport
from .resting import run_resting
from .schedules import keep_schedules, remove_all
from .shelves import Record
from .surgeon import Surgeon
from .tight import limited
from .two_stores import place_of
from .world import Process, Program, World

QUEUE = "sim"
WORK_SECONDS_MAX = 4 * 3600.0  # of virtual time for the workload
DRAIN_SECONDS_MAX = 12 * 3600.0
CLONES_MAX = 6
PASSED_OVER_MAX = 30  # commits that may leave out a call, where nothing fails


def simulate(seed: int, profile: Profile) -> RunReport:
    """One run. A violation ends it and stands in the report."""
    if profile.clients.candidates:
        return _elect(seed, profile)
    if profile.clients.paced:
        return _pace(seed, profile)
    if profile.clients.borrowers:
        return _lend(seed, profile)
    if profile.clients.resting:
        return run_resting(seed, profile)
    releases = both_read() if profile.clients.upgrade else nullcontext()
    with limited(profile.limits), releases, virtual_threads(), watched_flights():
        run = Run(seed, profile)
        with watched_reductions(run.ledger), watched_repairs(run.ledger):
            try:
                run.work()
                run.drain()
                run.account()
            except Violation as violation:
                run.report.violation = str(violation)
            finally:
                run.end()
        return run.finished()


def _elect(seed: int, profile: Profile) -> RunReport:
    """A run of candidates in an election."""
    elections = Elections(seed, profile)
    report = RunReport(profile.name, seed, faults=elections.world.injected, asked=elections.steps)
    base.log.disabled, before = True, base.log.disabled  # every lost beat would be told
    try:
        elections.work()
    except Violation as violation:
        report.violation = str(violation)
    finally:
        base.log.disabled = before
    report.hours, report.terms = elections.world.now / 3600, len(elections.leaders)
    return report


def _pace(seed: int, profile: Profile) -> RunReport:
    """A run of callers of a pacer."""
    run = PacerRun(seed, profile)
    report = RunReport(profile.name, seed, faults=run.world.injected, asked=run.asked)
    with watched_reductions(run.ledger):
        try:
            run.work()
        except Violation as violation:
            report.violation = str(violation)
    report.hours, report.slots = run.world.now / 3600, len(run.used)
    report.commits = run.commits
    return report


def _lend(seed: int, profile: Profile) -> RunReport:
    """A run of those who claim under one limiter."""
    run = LendingRun(seed, profile)
    report = RunReport(profile.name, seed, faults=run.world.injected, asked=run.asked)
    with watched_reductions(run.ledger):
        try:
            run.work()
        except Violation as violation:
            report.violation = str(violation)
    report.hours, report.slots = run.world.now / 3600, run.started
    report.commits = run.commits
    return report


class Run:
    """Everything of one run."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self.profile = profile
        self.report = RunReport(profile.name, seed)
        self.world = World(f"{profile.name}/{seed}", profile.faults)
        self.truth, self.network = place_of(self.world, profile, seed)
        self.world.now = profile.begin_seconds
        self.loads = BulkLoads(self.truth)
        self.together = AllShards()
        self.shards = [self._watched(shard) for shard in range(profile.clients.shards)]
        self.invariants = self.shards[0]
        self.ledger = self.invariants.ledger
        for each in self.shards:
            each.ledger.batches = self.ledger.batches  # a commit's id tells its shard
        self.promises = Promises(QUEUE, self.ledger, self.invariants.stories)
        self.book = SharedKeys()
        self.processes: list[Process] = []
        self.hosts: list[Host] = []
        self.clones = self.forks = 0
        self.clean = not profile.clients.surgeons  # is nothing left of purged jobs?
        self.reopened: set[int] = set()  # shards in which the last client has committed
        self.dice = source(seed, "run")
        remotes, servers = profile.clients.remotes, profile.clients.servers
        self.remotes = Remotes(self, remotes, servers) if remotes else None
        self.deliveries = Deliveries(self)
        self.switch_seconds = 60.0  # when the newer release of an upgrade writes its format

    def _watched(self, shard: int) -> Invariants:
        return Invariants(
            root_of(QUEUE, shard),
            self.truth,
            Ledger(PASSED_OVER_MAX if self.profile.ordered else 0),
            queue=QUEUE,
            ordered=self.profile.ordered,
            shard=shard,
            on_bulk=self.loads.join,
            on_commit=self.together.commit,
        )

    # ── Clients ──────────────────────────────────────────────────────────────
    def machine(self, name: str, kind: type[VirtualMachine] = VirtualMachine) -> VirtualMachine:
        """A machine whose clocks are wrong."""
        clients = self.profile.clients
        skew_ms = self.dice.randint(-clients.skew_ms_max, clients.skew_ms_max)
        drift = self.dice.uniform(-clients.drift_max, clients.drift_max)
        return kind(self.world, name, self.world.seed, skew_ms, drift)

    def writer(self, name: str, shard: int) -> WatchedWriter:
        writer = WatchedWriter(root_of(QUEUE, shard), QUEUE, self.machine(name))
        latency = self.profile.latency
        writer.turns, writer.swap_gap_s, writer.tick_ms = (
            self.profile.turns,
            latency.swap_gap_s,
            latency.tick_ms,
        )
        return writer

    def client(self, name: str, shard: int = 0) -> Client:
        """A client of one shard."""
        invariants, writer = self.shards[shard], self.writer(name, shard)
        client = Client(self.world, invariants.ledger, invariants, self.book, name, writer, shard)
        clients = self.profile.clients
        # What follows a job has a copy of its result.
        client.secrets = clients.surgeons > 0 and not clients.follows
        client.restarts = clients.restarts
        if clients.attachers and self.dice.random() < WAKERS:
            client.can_wake(self.deliveries.send)
        return client

    def invoke(self, name: str, role: Callable[[Client], Flow[None]], after: float) -> None:
        """A function is invoked. Should it die, nobody takes its place."""
        client = self.client(name)
        client.can_wake(self.deliveries.send)
        program = self._program(client, role, newer=False)
        process = Process(self.world, self.network.send, program, machine=client.machine)
        self.processes.append(process)
        process.start(after)

    def start(self, client: Client, role: Callable[[Client], Flow[None]], *, newer: bool) -> None:
        """Set a client to work. Should it die, another takes its place."""
        name = client.name

        def died() -> None:
            heir = self.client(f"{name}+", client.shard)
            heir.produces = client.produces
            self.start(heir, role, newer=newer)

        process = Process(
            self.world,
            self.network.send,
            self._program(client, role, newer),
            machine=client.machine,
            stage=lambda: self._release(newer),
            died=died,
        )
        self.processes.append(process)
        process.start(self.world.chance.random() * 2)

    def _program(self, client: Client, role: Callable[[Client], Flow[None]], newer: bool) -> Program:
        """A role, with a copy of the client made on the way now and then."""
        flow = role(client)
        reply = None
        while True:
            try:
                effect = flow.send(reply)
            except (StopIteration, Outdated):
                self.book.producing -= client.produces
                return
            reply = yield effect
            if self.clones < CLONES_MAX and self.world.faults.clone / 4 > self.world.chance.random():
                self.clones += 1
                self.world.injected["clone"] += 1
                self.start(client.clone(), lambda twin: twin.work(1.0), newer=newer)

    def _release(self, newer: bool) -> AbstractContextManager[None]:
        if not self.profile.clients.upgrade:
            return nullcontext()
        switched = self.world.now > self.switch_seconds and self.world.chance.random() < 0.5
        return ReleaseInUse(newer, newer and switched)

    # ── The course of a run ──────────────────────────────────────────────────
    def work(self) -> None:
        """The workload, until the producers are done or the time is up."""
        clients = self.profile.clients
        pause = clients.pause_seconds
        roles: list[tuple[str, int, Callable[[Client], Flow[None]]]] = [
            ("producer", clients.producers, lambda each: each.produce(clients.rounds, pause)),
            ("bulk", clients.bulk, lambda each: each.bulk(clients.rounds, pause)),
            ("worker", clients.workers, lambda each: each.work(pause, clients.large_results)),
            ("canceller", clients.cancellers, lambda each: each.cancel(pause)),
            ("operator", clients.operators, lambda each: each.operate(pause)),
            ("reaper", clients.reapers, lambda each: each.reap(clients.reap_seconds)),
            ("listener", clients.listeners, lambda each: listen(each, pause)),
            ("caller", clients.callers, lambda each: self.caller(each).program(clients.rounds, pause)),
            ("loader", clients.loaders, lambda each: self.loader(each).program(clients.rounds, pause)),
            ("limiter", bool(clients.time_limits), lambda each: each.limit_kinds(pause)),
            ("attacher", clients.attachers, lambda each: attach(each, pause)),
            ("scheduler", clients.schedulers, lambda each: keep_schedules(each, pause)),
            ("mass canceller", clients.mass_cancellers, lambda each: cancel_many(each, pause)),
            ("archivist", clients.archive_payloads, lambda each: archive_them(each, pause)),
            ("merger", clients.mergers, lambda each: merge_spans(each, pause)),
            ("surgeon", clients.surgeons, lambda each: self.surgeon(each).program(10 * pause)),
        ]
        producing = ("producer", "bulk", "caller", "loader")
        self.book.producing = sum(count for role, count, _ in roles if role in producing)
        for role, count, program in roles:
            for at in range(count):
                newer = clients.upgrade and at % 2 == 0
                client = self.client(f"{role}{at}")
                client.produces = role in producing
                client.time_limits = clients.time_limits
                client.throttles = clients.throttles
                client.units = clients.units
                client.uniques = clients.uniques
                client.invariants.stories.rules = bool(clients.uniques or clients.restarts)
                client.kinds = self.kinds
                client.groups = clients.groups
                client.fair = clients.fair
                client.policies = clients.policies
                client.follows = clients.follows
                client.reruns = clients.reruns
                self.start(client, program, newer=newer)
        others = {"worker": "worker", "reaper": "reaper"}
        others |= {"worker too": "worker", "producer": "producer"} if clients.steered else {}
        for shard in range(1, clients.shards):
            for name, role in others.items():
                program = next(each for other, _, each in roles if other == role)
                client = self.client(f"{name}.{shard}", shard)
                client.produces = role in producing
                self.book.producing += client.produces
                self.start(client, program, newer=False)
        if clients.shards > 1:
            growers = [self.client(f"grower.{shard}", shard) for shard in range(clients.shards)]
            change = self.together.steer if clients.steered else grow
            self.start(growers[0], lambda each: change(growers, 10 * pause), newer=False)
        for at in range(clients.crews):
            self.book.producing += 1
            turns = clients.rounds * clients.threads
            self.crew(f"crew{at}", TaskCrew if at % 2 else ThreadCrew, turns).begin()
        if self.remotes is not None:
            self.book.producing += clients.remotes
            self.remotes.begin()
        self.world.run(lambda: self.book.producing <= 0, WORK_SECONDS_MAX)

    def crew(self, name: str, kind: type[Crew], turns: int) -> Crew:
        """A process of several callers."""
        host = Host(self.world, self.network.send)
        writer = SharedWriter(root_of(QUEUE, 0), QUEUE, self.machine(name, ThreadedMachine))
        writer.turns = self.profile.turns
        return kind(self, name, turns, writer, host)

    def end(self) -> None:
        """Nobody lives on."""
        for host in self.hosts:
            host.kill()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of the jobs of this run."""
        return (*KINDS, *(f"k{at}" for at in range(2, self.profile.clients.kinds)))

    def caller(self, client: Client) -> Caller:
        """Somebody who uses ids."""
        return Caller(client, self.promises, self.profile.clients.names)

    def loader(self, client: Client) -> Loader:
        """Somebody who loads bulks."""
        return Loader(client, self.loads)

    def surgeon(self, client: Client) -> Surgeon:
        """Somebody who mends the queue, and erases jobs."""
        return Surgeon(client, self.truth)

    def drain(self) -> None:
        """No more faults; one last client finishes everything. What is still on its way arrives meanwhile."""
        self.world.faults = Faults()
        for process in self.processes:
            process.kill()
        self.end()
        newer = self.profile.clients.upgrade
        for shard in range(len(self.shards)):
            client = self.client(f"drain.{shard}" if shard else "drain", shard)
            client.kinds, client.groups = self.kinds, self.profile.clients.groups
            self.start(client, self._end, newer=newer)
        if not self.world.run(self._over, DRAIN_SECONDS_MAX):
            raise Violation("the queue could not be drained")
        for process in self.processes[-len(self.shards) :]:
            process.kill()
        self.world.run(lambda: False, DRAIN_SECONDS_MAX)
        if not self._done():  # a segment that was staged late is garbage for the next pass
            raise Violation("a request that came late changed a drained queue")

    def _end(self, client: Client) -> Flow[None]:
        """No id is blocked by what befell its callers; then everything is finished, archived and forgotten."""
        if self.profile.clients.surgeons:
            yield from self.surgeon(client).mend()
        if self.profile.clients.callers:
            caller = self.caller(client)
            for name in caller.names:
                ask = yield from caller.enqueue_under(name)
                if ask.error is not None:
                    raise Violation(f"{name} cannot be used any more: {ask.error}")
        if not client.shard and self.profile.clients.loaders:
            while left := self.loads.open():
                for batch_id in left:
                    yield from self.loader(client).resume(batch_id)
                yield from client.work_once()
        if self.profile.clients.schedulers and not client.shard:
            yield from remove_all(client)
        yield from client.reopen()
        self.reopened.add(client.shard)
        yield from client.drain(lambda: self._empty(client.shard))
        if self.profile.clients.loaders:
            yield from client.tick(lambda: not self.shards[client.shard].leftovers())
        if self.profile.clients.surgeons:
            yield from self.surgeon(client).clean()
            yield from client.tick(self.surgeon(client).secret)
            self.clean = True

    def _over(self) -> bool:
        """Return whether everything is done, archived, forgotten and collected.

        The head that a dead client has sent may still arrive, until the last client has written another one.
        """
        if len(self.reopened) < len(self.shards):
            return False
        if self.profile.clients.loaders and any(each.leftovers() for each in self.shards):
            return False
        return self.clean and self._done()

    def _done(self) -> bool:
        return not self.loads.open() and all(self._empty(shard) for shard in range(len(self.shards)))

    def _empty(self, shard: int) -> bool:
        invariants = self.shards[shard]
        state = invariants.state
        if state is None or invariants.found or state.finished or state.tombstones:
            return False
        return not state.tables and not self.truth.keys(id_index.FOLDER)

    # ── Accounting ───────────────────────────────────────────────────────────
    def account(self) -> None:
        """Every job that was promised ended exactly once; none ended that was refused; the archive has them all."""
        ends = sum((each.over for each in self.shards), Counter[bytes]())
        promised, refused, possible = self._promises()
        self.report.jobs = len(ends)
        promised |= self.shards[0].ticked
        purged = set().union(*(each.purged for each in self.shards))
        unknown = purged.union(*(each.lost_jobs for each in self.shards))
        if lost := promised - ends.keys() - unknown:
            raise Violation(f"{len(lost)} jobs were lost")
        if doubled := [key for key, times in ends.items() if times > 1]:
            raise Violation(f"{len(doubled)} jobs ended twice")
        if unexpected := ends.keys() & (refused - promised - possible):
            raise Violation(f"{len(unexpected)} jobs were refused and ended all the same")
        if strange := ends.keys() - promised - possible:
            raise Violation(f"{len(strange)} jobs came from nowhere")
        for each in self.shards:
            each.flow.cancels.end(each.state, frozenset(each.over))
        records = self._records()
        self.report.records = records.total()
        ended = sum((each.ended for each in self.shards), Counter[Record]())
        if missing := Counter({each: n for each, n in (ended - records).items() if each[0] not in purged}):
            raise Violation(f"invariant 10: {missing.total()} endings are in no archive part")
        if surplus := Counter({each: n for each, n in (records - ended).items() if each[0] not in purged}):
            raise Violation(f"invariant 10: the archive tells of {surplus.total()} endings too many")

    def _records(self) -> Counter[Record]:
        """What a reader of the archive finds, part by part."""
        seen, found = archive.RecordDeduplicator(), Counter[Record]()
        for name in self.truth.keys(archive.ROOT):
            data = self.truth.read(name)
            assert data is not None
            for each in seen.fresh(name, decode_part(data, name)):
                found[(UUID(each.job_id).bytes, each.run, each.state)] += 1
        return found

    def _promises(self) -> tuple[set[bytes], set[bytes], set[bytes]]:
        """The keys of jobs that were acknowledged, refused, and neither."""
        promised, refused, possible = self.loads.account()
        if self.remotes is not None:
            told, there = self.remotes.account()
            promised, possible = promised | told, possible | there
        for call in self._calls():
            for at, op in enumerate(call.ops):
                keys = self._keys(op)
                if call.answer is None:
                    error = call.error if isinstance(call.error, OsqueueError) else None
                    (refused if answers.promised(error) else possible).update(keys)
                    continue
                outcome = call.answer.outcomes[at]
                many = isinstance(op, EnqueueJobs | ReplaceJobs)
                codes = outcome.codes if many else [outcome.code]
                for position, key in enumerate(keys):
                    code = codes[position] if many else codes[0]
                    (promised if code in (Code.QUEUED, Code.SCHEDULED) else refused).add(key)
        return promised, refused, possible

    def _calls(self) -> list[ClientCall]:
        return [call for each in self.shards for call in each.ledger.calls]

    def _keys(self, op: Op) -> list[bytes]:
        match op:
            case EnqueueJobs():
                return [job.key for job in op.jobs]
            case ReplaceJobs():
                return [item.new.key for item in op.items]
            case AttachSpans():
                return [key for span in op.spans for key in self.invariants.attached.get(span.name, ())]
            case _:
                return []

    def finished(self) -> RunReport:
        """The report, with its sums."""
        report = self.report
        report.commits = sum(len(each.ledger.commits) for each in self.shards)
        report.hours = (self.world.now - self.profile.begin_seconds) / 3600
        report.calls = len(self._calls())
        report.unheard = sum(call.answer is None for call in self._calls())
        report.loads = self.loads.told
        report.bulks = sum(load.whole for load in self.loads.all if load.keys)
        report.passes = self.book.passes
        report.asked = self.book.asked
        report.ids = sum(map(len, self.invariants.stories.named.values()))
        report.freed = self.invariants.stories.freed
        report.told = sum(each.events.heard for each in self.shards)
        report.waits = sum(n for name, n in report.asked.items() if name.startswith("enqueue_and_wait"))
        report.faults = self.world.injected
        report.errors = Counter(type(call.error).__name__ for call in self._calls() if call.error)
        for each in self.shards:
            report.protocol += each.ledger.kinds()
            for batch in each.ledger.committed():
                report.events.update(event.cause for event in batch.reduction.events)
        for applied in (one for each in self.shards for one in each.ledger.applied.values()):
            for op, outcome in zip(applied.request.ops, applied.outcomes, strict=True):
                for code, count in outcome.runs:
                    items = count if code == Code.GRANTED or not isinstance(op, ClaimJobs) else 1  # or a time
                    report.codes[f"{type(op).__name__} {Code(code).name}"] += items
        return report
