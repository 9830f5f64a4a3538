"""Elections in virtual time: candidates who freeze, die, resign and hear nothing, on machines whose clocks are wrong.

After every event it is looked who believes to lead, by the candidate's own clocks: never two at once, and never a term
a second time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

from osqueue.commit.effects import Sleep
from osqueue.election.base import PREFIX, ElectionBase, unseal
from osqueue.stores.base import Put, StoreReply, StoreRequest
from osqueue.stores.wrapped import PerformingStore

from .conditions import Faults, Profile
from .ledger import Violation
from .machine import VirtualMachine, source
from .network import Network
from .truth import Truth
from .world import Process, World

NAME = "sim"
KEY = PREFIX + NAME
NAMES = ("ada", "bob")  # what candidates are called: two of one name are still two
STALE_SECONDS = (3.0, 10.0)
BEATS_PER_STALE = (2, 3, 10, 50)
RUN_SECONDS = 2_000.0
ELECTED_SECONDS_MAX = 60.0  # after which somebody leads, when nothing fails
Program = Generator[Any, Any, None]


class Clocked(PerformingStore):
    """What a candidate knows of its store: whether it tells the time. Its requests go through the world."""

    def __init__(self, clock_ms: Callable[[], int] | None) -> None:
        self._clock_ms = clock_ms

    def clock_ms(self) -> int | None:
        return None if self._clock_ms is None else self._clock_ms()

    def perform(self, request: StoreRequest) -> StoreReply:
        raise AssertionError("flows are run by the world")

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        raise AssertionError("flows are run by the world")


class Candidate:
    """One process, and what it believed so far."""

    def __init__(self, run: Elections, name: str) -> None:
        self.run = run
        self.name = name
        self.dice = source(run.world.seed, name)
        clients = run.profile.clients
        skew_ms = self.dice.randint(-clients.skew_ms_max, clients.skew_ms_max)
        drift = self.dice.choice((-1, 0, 1)) * clients.drift_max
        machine = VirtualMachine(run.world, name, run.world.seed, skew_ms, drift)
        stale = self.dice.choice(STALE_SECONDS)
        self.election = ElectionBase(
            Clocked(run.truth.clock_ms if run.tells_time else None),
            NAME,
            self.dice.choice(NAMES),
            heartbeat=stale / self.dice.choice(BEATS_PER_STALE),
            stale_after=stale,
            machine=machine,
        )
        self.term: int | None = None  # that it believes to lead in
        self.over: set[int] = set()  # terms that it does not lead any more

    def program(self) -> Program:
        """Stand for election for as long as the process lives, in one of two ways."""
        return self.stay() if self.dice.random() < 0.6 else self.visit()

    def stay(self) -> Program:
        """Wait to be elected, lead while beats are sent beside, and resign now and then."""
        while True:
            term = yield from self.election._await_leadership(None)
            self.run.start(self, self.election._keep_leading(term))
            yield from _pause(self.dice.choice((5.0, 60.0, 300.0)))
            if self.election.fence == term and self.dice.random() < 0.5:
                yield from self.election._step_down()
                if self.election.fence == term:
                    raise Violation(f"{self.name} leads term {term} on, though it resigned")
            while self.election.is_leader:
                yield from _pause(1.0)

    def visit(self) -> Program:
        """One step each time, as from a cron, with pauses longer than anybody may be silent."""
        while True:
            self.run.steps[(yield from self.election._campaign())] += 1
            if self.election.is_leader and self.dice.random() < 0.3:
                yield from self.election._resign()
            yield from _pause(self.dice.choice((0.5, 2.0, 12.0, 40.0)))


def _pause(mean_seconds: float) -> Program:
    yield Sleep(mean_seconds)


class Elections:
    """One run."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self.profile = profile
        self.world = World(f"{profile.name}/{seed}", profile.faults)
        self.truth = Truth(self.world)
        self.truth.watchers.append(self.watch)
        self.network = Network(self.world, self.truth, profile.latency)
        self.tells_time = self.world.chance.random() < 0.3
        self.candidates: dict[Candidate, list[Process]] = {}
        self.steps: Counter[str] = Counter()
        self.writes = 0
        self.record_term = 0
        self.leaders: dict[int, Candidate] = {}  # who led, by term
        self.count = 0

    def work(self) -> None:
        """Let them stand against each other; then nothing fails any more, and somebody leads."""
        for _ in range(self.profile.clients.candidates):
            self.enter()
        self.world.run(self.check, RUN_SECONDS)
        self.world.faults = Faults()
        for processes in self.candidates.values():
            for process in processes:
                process.kill()
        self.candidates.clear()
        last = self.enter(lambda each: each.stay())
        if not self.world.run(lambda: self.check() or last.election.is_leader, ELECTED_SECONDS_MAX):
            raise Violation("nobody is elected, although nothing fails")

    def enter(self, program: Callable[[Candidate], Program] = Candidate.program) -> Candidate:
        """A process begins."""
        self.count += 1
        candidate = Candidate(self, f"candidate{self.count}")
        self.candidates[candidate] = []
        self.start(candidate, program(candidate))
        return candidate

    def start(self, candidate: Candidate, program: Any) -> None:
        """Something that a process does, besides what it does already."""

        def died() -> None:
            for process in self.candidates.pop(candidate, ()):
                process.kill()
            self.enter()

        process = Process(self.world, self.network.send, program, died=died)
        self.candidates[candidate].append(process)
        process.start(candidate.dice.random() * 0.1)

    # ── What is checked ──────────────────────────────────────────────────────
    def watch(self, request: StoreRequest, key: str, body: bytes) -> None:
        """A write took effect."""
        if key != KEY:
            return
        self.writes += 1
        if isinstance(request, Put):
            raise Violation("the record was written without a condition")
        term = unseal(body, key).term
        if term < self.record_term:
            raise Violation(f"the record went back from term {self.record_term} to {term}")
        self.record_term = term

    def check(self) -> bool:
        """Who leads now? False, so that the run goes on."""
        leading = [each for each in self.candidates if self._looked_at(each)]
        if len(leading) > 1:
            names = " and ".join(f"{each.name} (term {each.term})" for each in leading)
            raise Violation(f"two lead at once: {names}")
        return False

    def _looked_at(self, candidate: Candidate) -> bool:
        term = candidate.election.fence
        if term != candidate.term:
            if candidate.term is not None:
                candidate.over.add(candidate.term)
            if term is not None:
                self._begins(candidate, term)
            candidate.term = term
        return term is not None

    def _begins(self, candidate: Candidate, term: int) -> None:
        if term in candidate.over:
            raise Violation(f"{candidate.name} leads term {term} again, after it was over")
        if term in self.leaders:
            raise Violation(f"term {term} was led by {self.leaders[term].name} before {candidate.name}")
        if self.leaders and term < max(self.leaders):
            raise Violation(f"term {term} begins after term {max(self.leaders)}")
        self.leaders[term] = candidate
