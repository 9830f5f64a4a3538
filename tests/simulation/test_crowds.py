"""More writers at once than the head can remember: each is served or turned away, at once and for good."""

from __future__ import annotations

from collections import Counter

from osqueue import limits
from osqueue.commit.effects import Flow
from osqueue.commit.protocol import commit
from osqueue.commit.steps import RequestRefused
from osqueue.core.encoding import decode_head
from osqueue.core.intents import intents_prefix, parse_intent_key
from osqueue.core.job_ops import CompleteJobs, Completion, EnqueueJobs, JobSpec
from osqueue.core.ops import Op, nonce_digest
from osqueue.core.queue_ops import RunTimers
from osqueue.core.reduce import applicable
from osqueue.core.state import State, Transition
from osqueue.errors import OsqueueError, Throttled
from osqueue.objects.layout import root_of
from simulation.conditions import ANNOUNCING, S3, Faults
from simulation.invariants import Invariants
from simulation.ledger import Ledger, WatchedWriter, watched_reductions
from simulation.machine import VirtualMachine
from simulation.network import Network
from simulation.tight import limited
from simulation.truth import Truth
from simulation.world import Process, World

ROOT = root_of("crowd", 0)
SECONDS = 25.0


class Crowd:
    """Writers who all speak at the same moment, each of them once."""

    def __init__(self) -> None:
        self.world = World("crowd", Faults())
        self.truth = Truth(self.world)
        self.network = Network(self.world, self.truth, S3)
        self.ledger = Ledger()
        self.invariants = Invariants(ROOT, self.truth, self.ledger, queue="crowd")
        self.told: Counter[str] = Counter()
        self.waited: list[float] = []  # seconds of those who were turned away
        self.events: list[Transition] = []  # as the writers were told them
        self.all: list[WatchedWriter] = []

    def speak(self, *ops: Op, writer: WatchedWriter | None = None, look: bool = False) -> None:
        if writer is None:
            machine = VirtualMachine(self.world, f"w{len(self.all)}", 1)
            writer = WatchedWriter(ROOT, "crowd", machine)
            self.all.append(writer)
        Process(self.world, self.network.send, self._flow(writer, ops, look)).start(
            self.world.chance.random() / 100
        )

    def _flow(self, writer: WatchedWriter, ops: tuple[Op, ...], look: bool) -> Flow[None]:
        began = self.world.now
        try:
            answer = yield from commit(writer, ops, writer.machine.monotonic() + SECONDS, look)
            self.told[answer.outcomes[0].code.name] += 1
            self.events.extend(answer.events)
        except OsqueueError as error:
            self.events.extend(error.events if isinstance(error, RequestRefused) else ())
            self.told["Throttled" if isinstance(error, Throttled) else type(error).__name__] += 1
            self.waited.append(self.world.now - began)

    def run(self) -> None:
        with watched_reductions(self.ledger):
            self.world.run(lambda: False, 600.0)

    @property
    def state(self) -> State:
        return decode_head(self.truth.read(f"{ROOT}head") or b"")


def enqueue(at: int) -> EnqueueJobs:
    return EnqueueJobs((JobSpec(at.to_bytes(16, "big"), b"1"),))


def test_those_without_room_are_turned_away_at_once_and_nobody_waits_for_the_deadline() -> None:
    with limited({"SESSIONS_BYTES_MAX": 3_000}):
        crowd = Crowd()
        for at in range(64):
            crowd.speak(enqueue(at))
        crowd.run()
        rows = len(crowd.state.sessions)
    assert 20 < rows < 50
    assert crowd.told == {"QUEUED": rows, "Throttled": 64 - rows}
    assert max(crowd.waited) < SECONDS / 5
    assert crowd.network.requests["List"] < 4 * 64
    assert len(crowd.invariants.accepted) == rows


def test_a_burst_takes_the_room_of_an_earlier_one_that_is_idle() -> None:
    with limited({"SESSIONS_BYTES_KEPT": 1_000, "SESSIONS_BYTES_MAX": 5_000}):
        crowd = Crowd()
        for at in range(40):
            crowd.speak(enqueue(at))
        crowd.run()
        assert len(crowd.state.sessions) == 40
        crowd.world.now += limits.SESSION_IDLE_MS_MIN / 1000 + 1
        for at in range(40, 80):
            crowd.speak(enqueue(at))
        crowd.run()
        assert crowd.told == {"QUEUED": 80}
        assert len(crowd.state.sessions) == 40
        assert crowd.state.floor > 0


def test_a_writer_whose_answer_does_not_fit_its_row_is_turned_away_as_well() -> None:
    with limited({"SESSIONS_BYTES_MAX": 3_000}):
        crowd = Crowd()
        first = WatchedWriter(ROOT, "crowd", VirtualMachine(crowd.world, "first", 1))
        crowd.speak(enqueue(1), writer=first)
        crowd.run()
        for at in range(2, 50):
            crowd.speak(enqueue(at))
        many = CompleteJobs(tuple(Completion(at.to_bytes(16, "big"), "none") for at in range(800)))
        crowd.speak(enqueue(99), many, writer=first)
        crowd.run()
    assert crowd.told["Timeout"] == 0
    assert crowd.told["Throttled"] >= 1
    assert (99).to_bytes(16, "big") not in crowd.invariants.accepted


def test_where_nobody_can_be_told_any_more_the_rest_waits_with_pauses() -> None:
    with limited({"SESSIONS_BYTES_MAX": 1_000, "TURNED_AWAY_MAX": 4}):
        crowd = Crowd()
        for at in range(32):
            crowd.speak(enqueue(at))
        crowd.run()
    assert crowd.told["Timeout"] > 0
    assert crowd.network.requests["List"] < 32 * 40  # in 25 seconds each


def test_who_was_turned_away_is_so_for_good_once_the_refusal_is_forgotten() -> None:
    with limited({"SESSIONS_BYTES_MAX": 1_000}):
        crowd = Crowd()
        for at in range(32):
            crowd.speak(enqueue(at))
        crowd.run()
        refused = [
            request
            for batch in crowd.ledger.batches.values()
            for request in batch.requests
            if any(nonce_digest(request.nonce) in each.marks for each in crowd.state.refusals)
        ]
        crowd.world.now += limits.SESSION_IDLE_MS_MIN / 1000 + 60
        crowd.speak(enqueue(1_000))
        crowd.run()
        state = crowd.state
    assert refused
    assert state.refusals == ()
    assert not any(applicable(state, request) for request in refused)


def test_announcements_that_were_turned_away_stand_in_nobodys_way() -> None:
    with limited({**ANNOUNCING, "SESSIONS_BYTES_MAX": 1_000}):
        crowd = Crowd()
        crowd.speak(enqueue(1_000))
        crowd.run()  # the head has a secret now, so that keys tell a mark in the nonce's place
        for at in range(32):
            crowd.speak(enqueue(at))
        crowd.run()
        first = next(writer for writer in crowd.all if writer.env in crowd.state.sessions)
        crowd.speak(RunTimers(), writer=first, look=True)
        crowd.run()
    assert crowd.told["Throttled"] > 10
    marks = frozenset().union(*(each.marks for each in crowd.state.refusals))
    names = [
        parse_intent_key(key.removeprefix(intents_prefix(ROOT)))
        for key in crowd.truth.keys(intents_prefix(ROOT))
    ]
    assert marks
    assert marks.isdisjoint(name.request.nonce for name in names if name is not None)


def test_the_events_of_a_commit_that_turned_its_own_writer_away_are_told() -> None:
    with limited({"SESSIONS_BYTES_MAX": 700}):
        crowd = Crowd()
        for at in range(40):
            crowd.speak(enqueue(at))
        crowd.run()
    assert Counter(event.key for event in crowd.events) == Counter(crowd.invariants.accepted)


def test_a_crowd_that_fits_is_served() -> None:
    crowd = Crowd()
    for at in range(64):
        crowd.speak(enqueue(at))
    crowd.run()
    assert crowd.told == {"QUEUED": 64}
