"""Every interleaving of a few clients over a few commits, with the adversary's moves.

The clients run the real commit flow on a store in which each request is one indivisible step. At every step the
explorer may let any client take its next step, and, as long as its allowance lasts, do harm instead:

    lose     the request takes effect, its reply is lost
    drop     the request has no effect and no reply
    repeat   a write that was sent before takes effect once more, however late
    crash    the client takes no further step
    freeze   all stand still, until every lease is over

Generators cannot be copied, so each path is run again from the beginning (entropy depends on the client alone,
so a path is its list of choices). Two paths that lead to the same objects and the same replies for everybody have
the same future, and only one of them is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from msgspec import Struct

from osqueue.bulk.writer import BulkPlan, StagedJobs, StagerFlows
from osqueue.commit.effects import All, Effect, Flow, QueueFlow, Sleep
from osqueue.commit.protocol import commit
from osqueue.core.job_ops import ClaimJobs, CompleteJobs, Completion, EnqueueJobs, JobSpec
from osqueue.core.ops import Op
from osqueue.errors import OsqueueError, Timeout
from osqueue.objects.layout import root_of
from osqueue.stores.base import Delete, Failed, Put, PutIfAbsent, PutIfMatch, StoreReply, StoreRequest

from . import answers
from .conditions import ANNOUNCING, PUBLISHING
from .invariants import Invariants
from .ledger import ClientCall, Ledger, Violation, WatchedWriter, watched_reductions
from .loaders import WatchedBulks
from .loads import ATTACHING, BulkLoad, BulkLoads
from .machine import EPOCH_MS, VirtualMachine
from .places import FINISHED
from .tight import limited
from .truth import Truth

QUEUE, BATCH = "x", "b"
ROOT = root_of(QUEUE, 0)
LEASE_SECONDS = 1_000.0
STEPS_MAX = 80  # of one path; a longer one is cut off
_LOST = Failed(Timeout("explored: no reply"))


class Scenario(Struct, frozen=True):
    """Who does what, and how much harm may come to them."""

    name: str
    clients: tuple[tuple[tuple[Op, ...], ...], ...]  # of each client: its calls, one after the other
    limits: dict[str, int] = {}
    lose: int = 1
    drop: int = 0
    repeat: int = 1
    crash: int = 0
    clones: tuple[int, ...] = ()  # clients that are copies of the first one, identity and all
    started: bool = True  # a head exists already
    runs: int = 0  # of one batch, each with a bulk of its own: they come after the other clients
    jobs: tuple[JobSpec, ...] = ()  # that wait in the beginning
    workers: int = 0  # who claim twice, and complete what they get
    freeze: int = 0  # how often all stand still, until every lease is over


class Findings(Struct):
    """What an exploration came to."""

    paths: int = 0
    states: int = 0
    whole: bool = False  # nothing was left to explore
    violation: str = ""
    path: tuple[str, ...] = ()  # the moves that led to it


class _Clock:
    now = 0.0


class PathPlayer:
    """One client: where its program stands."""

    def __init__(self, flow: Generator[Any, Any, None]) -> None:
        self.flow = flow
        self.alive = True
        self.heard = 0  # everything it was told so far, as one number: what it does next follows from that
        self.wish: Effect | None = None
        self.go(None)

    def go(self, reply: Any) -> None:
        try:
            effect: Any = self.flow.send(reply)
            while isinstance(effect, Sleep):
                effect = self.flow.send(None)
            self.wish = effect
        except StopIteration:
            self.alive = False
            self.wish = None

    def hear(self, reply: Any) -> None:
        told = reply if isinstance(reply, tuple) else (reply,)
        self.heard = hash((self.heard, *(0 if isinstance(each, Failed) else hash(each) for each in told)))
        self.go(reply)


class ScenarioPath:
    """One run of a scenario along given choices."""

    step_seconds = 1.0

    def __init__(self, scenario: Scenario) -> None:
        self.clock = _Clock()
        self.truth = Truth(self.clock)
        self.ledger = Ledger()
        self.loads = BulkLoads(self.truth)
        self.invariants = Invariants(ROOT, self.truth, self.ledger, on_bulk=self.loads.join)
        self.left = {name: getattr(scenario, name) for name in ("lose", "drop", "repeat", "crash", "freeze")}
        self.sent: list[StoreRequest] = []  # writes the adversary may repeat
        self.scenario = scenario
        self.players: list[PathPlayer] = []

    def begin(self) -> None:
        first: WatchedWriter | None = None
        if self.scenario.started:
            self._alone(WatchedWriter(ROOT, "x", self._machine("starter"), self._time))
        for at, calls in enumerate(self.scenario.clients):
            writer = WatchedWriter(ROOT, "x", self._machine(f"c{at}"), self._time)
            if first is None:
                first = writer
                if self.scenario.clones:
                    self._alone(writer)  # it has spoken before it is copied
            elif at in self.scenario.clones:
                writer.env, writer.n, writer.head = first.env, first.n, first.head
                self.ledger.copied.add(first.env)
            self.players.append(PathPlayer(self._program(f"c{at}", writer, calls)))
        for at in range(self.scenario.runs):
            self.players.append(PathPlayer(self._batch(f"run{at}")))
        if self.scenario.jobs:
            self._alone(WatchedWriter(ROOT, "x", self._machine("producer"), self._time), *self.scenario.jobs)
        for at in range(self.scenario.workers):
            self.players.append(PathPlayer(self._work(f"worker{at}", 2)))

    def _machine(self, name: str) -> VirtualMachine:
        return VirtualMachine(self.clock, name, "explore")

    def _time(self) -> int:
        return EPOCH_MS + int(self.clock.now * 1000)

    def _alone(self, writer: WatchedWriter, *jobs: JobSpec) -> None:
        jobs = jobs or (JobSpec(writer.machine.bits(64).to_bytes(16, "big"), b""),)
        player = PathPlayer(self._program("start", writer, ((EnqueueJobs(jobs),),)))
        while player.wish is not None:
            player.hear(self._perform(player.wish))

    def _program(self, name: str, writer: WatchedWriter, calls: Sequence[tuple[Op, ...]]) -> Flow[None]:
        for ops in calls:
            yield from self._call(name, writer, ops)

    def _call(self, name: str, writer: WatchedWriter, ops: tuple[Op, ...]) -> Flow[ClientCall]:
        call = ClientCall(name, ops, self.clock.now, identities=[])
        self.ledger.calls.append(call)
        writer.call = call
        try:
            call.answer = yield from commit(writer, ops, writer.machine.monotonic() + 1e9)
        except OsqueueError as error:
            call.error = error
        call.ended = self.clock.now
        answers.judge(self.ledger, self.invariants.library, call)
        return call

    def _work(self, name: str, turns: int) -> Flow[None]:
        writer = WatchedWriter(ROOT, "x", self._machine(name), self._time)
        for _ in range(turns):
            call = yield from self._call(name, writer, _CLAIM)
            for lease in call.answer.outcomes[0].leases if call.answer else ():
                done = Completion(lease.job.key, lease.token)
                yield from self._call(name, writer, (CompleteJobs((done,)),))

    def _batch(self, name: str) -> QueueFlow[None]:
        """One run of the batch: its bulk is staged already."""
        machine = self._machine(name)
        load = self.loads.begin(name, BATCH)
        state = self.invariants.state
        staging = StagerFlows(machine, BulkPlan(QUEUE, self._time(), (state.seq if state else 0,)), 0)
        keys = staging.keys(2)
        self._whole(staging.add([JobSpec(key, b"") for key in keys]))
        self.loads.count(load, 0, keys)
        load.fate = ATTACHING
        staged: StagedJobs = self._whole(staging.finish())
        return self._attach(WatchedBulks(QUEUE, machine, self._time), load, staged)

    def _attach(self, bulks: WatchedBulks, load: BulkLoad, staged: StagedJobs) -> QueueFlow[None]:
        try:
            self.loads.attached(load, (yield from bulks.attach([staged], BATCH)))
        except OsqueueError as error:
            self.loads.failed(load, error)

    def _whole(self, flow: QueueFlow[Any]) -> Any:
        reply = None
        while True:
            try:
                effect: Any = flow.send(reply)
            except StopIteration as stop:
                return stop.value
            reply = None if isinstance(effect, Sleep) else self._perform(effect)

    def end(self) -> None:
        """Nobody takes a further step. Another run of the batch finishes it, whatever befell the others.

        So does another worker with the jobs that are left.
        """
        if self.scenario.workers:
            self.clock.now += LEASE_SECONDS
            self._whole(self._work("last", len(self.scenario.jobs)))
            if left := [
                each for each in self.invariants.found.values() if not each.state.startswith(FINISHED)
            ]:
                raise Violation(f"{len(left)} jobs wait, and nobody can start them")
        if self.scenario.runs:
            told = self.loads.told.copy()
            self._whole(self._batch("last"))
            if not (self.loads.told - told).keys() & {"attached", "repeated"} or self.loads.open():
                raise Violation(f"the batch cannot be finished: {self.loads.told - told}")

    # ── Moves ────────────────────────────────────────────────────────────────
    def moves(self) -> list[tuple[str, int]]:
        """What may happen next, the harmless first."""
        waiting = [at for at, player in enumerate(self.players) if player.wish is not None]
        found = [("step", at) for at in waiting]
        if not waiting:
            return []
        for kind in ("lose", "drop", "crash"):
            if self.left[kind]:
                found += [
                    (kind, at) for at in waiting if kind != "lose" or self._writes(self.players[at].wish)
                ]
        if self.left["freeze"]:
            found.append(("freeze", 0))
        if self.left["repeat"]:
            found += [("repeat", at) for at in range(len(self.sent))]
        return found

    def make(self, kind: str, at: int) -> None:
        """Let one of them happen."""
        self.clock.now += self.step_seconds
        if kind in self.left:
            self.left[kind] -= 1
        if kind == "freeze":
            self.clock.now += LEASE_SECONDS
            return
        if kind == "repeat":
            self.truth.perform(self.sent[at])
            return
        player = self.players[at]
        assert player.wish is not None
        self._remember(player.wish)
        if kind == "crash":
            player.alive, player.wish = False, None
        elif kind == "drop":
            player.hear(self._failed(player.wish))
        else:
            reply = self._perform(player.wish)
            player.hear(self._failed(player.wish) if kind == "lose" else reply)

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, All):
            return tuple(self.truth.perform(request) for request in effect.requests)
        assert not isinstance(effect, Sleep)
        return self.truth.perform(effect)

    def _failed(self, effect: Effect) -> StoreReply | tuple[StoreReply, ...]:
        return tuple(_LOST for _ in effect.requests) if isinstance(effect, All) else _LOST

    def _remember(self, effect: Effect) -> None:
        requests = effect.requests if isinstance(effect, All) else (effect,)
        for request in requests:
            if isinstance(request, Put | PutIfMatch | PutIfAbsent) and request not in self.sent:
                self.sent.append(request)

    def _writes(self, effect: Effect | None) -> bool:
        requests = effect.requests if isinstance(effect, All) else (effect,)
        return any(isinstance(request, Put | PutIfMatch | PutIfAbsent | Delete) for request in requests)

    def state(self) -> int:
        """Equal for two moments with the same future."""
        told = tuple((player.heard, player.wish is None) for player in self.players)
        return hash((self.truth.fingerprint(), told, tuple(self.left.values()), len(self.sent)))


def explore(
    scenario: Scenario,
    paths_max: int = 1_000_000,
    *,
    rows: bool = True,
    begin: Callable[[Scenario], ScenarioPath] = ScenarioPath,
) -> Findings:
    """Follow every path, depth first, until one violates something or none is left.

    Without ``rows`` a session row may be dropped anyhow: only what comes of it counts.
    """
    findings = Findings()
    seen: set[int] = set()
    choices: list[int] = []
    with limited({**ANNOUNCING, **scenario.limits}):
        while findings.paths < paths_max:
            findings.paths += 1
            path = begin(scenario)
            path.invariants.rows = rows
            widths: list[int] = []
            moves: list[str] = []
            with watched_reductions(path.ledger):
                try:
                    _follow(path, choices, widths, moves, seen)
                except Violation as violation:
                    findings.violation, findings.path = str(violation), tuple(moves)
                    break
            del choices[len(widths) :]
            while choices and choices[-1] + 1 >= widths[len(choices) - 1]:
                choices.pop()
            if not choices:
                findings.whole = True
                break
            choices[-1] += 1
    findings.states = len(seen)
    return findings


def _follow(
    path: ScenarioPath, choices: list[int], widths: list[int], moves: list[str], seen: set[int]
) -> None:
    """Run one path: along the choices made, then always the first one, until its end or a known state."""
    path.begin()
    for step in range(STEPS_MAX):
        options = path.moves()
        if not options:
            path.end()
            return
        if step >= len(choices):
            state = path.state()
            if state in seen:
                return
            seen.add(state)
            choices.append(0)
        widths.append(len(options))
        kind, at = options[choices[step]]
        moves.append(f"{kind} {at}")
        path.make(kind, at)


# ── Scenarios ────────────────────────────────────────────────────────────────
def _job(number: int) -> tuple[Op, ...]:
    return (EnqueueJobs((JobSpec(number.to_bytes(16, "big"), b""),)),)


def _of(number: int, group: str) -> JobSpec:
    return JobSpec(number.to_bytes(16, "big"), b"", group=group, max_attempts=20)


# Room for one session row, and none is too young to be dropped: every other writer's commit drops one.
FORGETFUL = {"SESSIONS_BYTES_MAX": 100, "SESSION_IDLE_MS_MIN": 0}
TO_PUBLISH = PUBLISHING | {"SWAPS_BEFORE_PUBLISHING": 1}
CROWDED = {"SESSIONS_BYTES_MAX": 150}  # the same, but each row is kept for as long as its writer may ask
_CLAIM: tuple[Op, ...] = (ClaimJobs(1, "w", int(LEASE_SECONDS * 1000)),)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("two enqueue", ((_job(1),), (_job(2),)), lose=1, repeat=1),
        Scenario("two publish", ((_job(1),), (_job(2),)), TO_PUBLISH, lose=1, repeat=1),
        Scenario(
            "two publish, and rows are dropped",
            ((_job(1),), (_job(2),)),
            FORGETFUL | TO_PUBLISH,
            lose=1,
            repeat=1,
        ),
        Scenario("two create", ((_job(1),), (_job(2),)), lose=1, repeat=1, started=False),
        Scenario("two claim one", ((_CLAIM,), (_CLAIM,)), lose=1, repeat=1, crash=1),
        Scenario("rows are dropped", ((_job(1),), (_job(2),)), FORGETFUL, lose=1, drop=1, repeat=1),
        Scenario("rows are dropped, twice", ((_job(1), _job(3)), (_job(2),)), FORGETFUL, lose=1, repeat=1),
        Scenario("no room for rows", ((_job(1),), (_job(2),)), CROWDED, drop=1, started=False),
        Scenario("a clone", ((_job(1),), (_job(2),)), lose=1, repeat=1, clones=(1,)),
        Scenario(
            "a clone, and rows are dropped",
            ((_job(1),), (_job(2),), (_job(3),)),
            FORGETFUL,
            lose=1,
            repeat=0,
            clones=(1,),
        ),
        Scenario("two runs of a batch", (), lose=1, drop=0, repeat=0, crash=1, runs=2),
        Scenario("two runs of a batch, and a write comes late", (), lose=0, repeat=1, crash=0, runs=2),
        Scenario(
            "two groups and a freeze",
            (),
            lose=0,
            repeat=0,
            freeze=1,
            started=False,
            jobs=(_of(1, "a"), _of(2, "a"), _of(3, "b")),
            workers=2,
        ),
        Scenario("a batch and an enqueue", ((_job(1),),), lose=1, repeat=0, crash=1, runs=1),
    )
}
