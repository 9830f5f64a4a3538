"""Scenes: interleavings that chance finds too seldom, played step by step with the real flows.

Each client of a scene runs until its next request fits what the scene waits for, stands still there for as long as
the scene wishes, and goes on. The invariants watch every write, as in a run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from osqueue import limits
from osqueue.bulk.receipts import FOLDER as BATCHES
from osqueue.commit.effects import All, Effect, Flow, QueueFlow, Sleep
from osqueue.commit.steps import DIRECT_MS_MAX
from osqueue.commit.writer import CLOCK
from osqueue.core.intents import intents_prefix
from osqueue.core.job_ops import ClaimJobs, CompleteJobs, Completion, EnqueueJobs, JobSpec
from osqueue.core.ops import Op
from osqueue.core.queue_ops import ChangeSettings, RunTimers
from osqueue.core.turns import SLICES
from osqueue.errors import OsqueueError
from osqueue.maintenance import orphan_ids
from osqueue.maintenance.reaper import Reaper
from osqueue.objects.archive import ROOT as ARCHIVE
from osqueue.objects.id_index import FOLDER as IDS
from osqueue.objects.layout import root_of
from osqueue.stores.base import (
    Delete,
    DeleteIfMatch,
    Get,
    Passed,
    PassTurn,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    TakeTurn,
    Turn,
)

from .clients import Client
from .conditions import TIGHT, Faults
from .invariants import Invariants
from .ledger import Ledger, Violation, WatchedWriter, watched_reductions
from .loaders import Loader
from .loads import BulkLoads
from .machine import VirtualMachine
from .program import SharedKeys
from .promises import Ask, Promises
from .tight import limited
from .truth import Truth
from .world import World

QUEUE = "scene"
ROOT = root_of(QUEUE, 0)
STEP_SECONDS = 0.01  # that every request takes
CROWD = 100  # writers
ONE_LATE = (0, 3_600_000)  # delays of a bulk's jobs: one of two is delayed
NO_ROOM = {"DELAYED_SPANS_MAX": 0}  # for delayed jobs
IN_LINE_SECONDS_MAX = 0.4  # for the turn of somebody who is alone
FORGOTTEN_SECONDS = 400.0  # by then nobody remembers a job whose result lived for a second

Wish = Callable[[Effect], bool]


class Play:
    """The store, the clock and the clients of one scene."""

    def __init__(self) -> None:
        self.world = World("scene", Faults())
        self.truth = Truth(self.world)
        self.ledger = Ledger()
        self.loads = BulkLoads(self.truth)
        self.invariants = Invariants(ROOT, self.truth, self.ledger, queue=QUEUE, on_bulk=self.loads.join)
        self.promises = Promises(QUEUE, self.ledger, self.invariants.stories)
        self.book = SharedKeys()
        self.told: list[bytes] = []  # with the turn that was passed on last, to those who left notes
        self.turn_held = False

    def actor(self, name: str) -> Actor:
        """Somebody with a process of their own."""
        machine = VirtualMachine(self.world, name, "scene")
        writer = WatchedWriter(ROOT, QUEUE, machine)
        return Actor(self, Client(self.world, self.ledger, self.invariants, self.book, name, writer))

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.world.now += seconds

    def perform(self, effect: Effect) -> Any:
        """Let a request take effect, or time pass."""
        self.later(effect.seconds if isinstance(effect, Sleep) else STEP_SECONDS)
        if isinstance(effect, Sleep):
            return None
        if isinstance(effect, PutIfMatch) and effect.yields and self.turn_held:
            return Refused()
        if isinstance(effect, TakeTurn):
            self.turn_held = True
            return Turn((), None, noted=False)
        if isinstance(effect, PassTurn):
            self.turn_held = False
            self.told = [answer for _, answer in effect.answers]
            return Passed()
        if isinstance(effect, All):
            return tuple(self.truth.perform(request) for request in effect.requests)
        return self.truth.perform(effect)


class Actor:
    """One client of a scene, and the call it is in."""

    def __init__(self, play: Play, client: Client) -> None:
        self.play = play
        self.client = client
        self.flows = client.flows
        self.call: Generator[Effect, Any, Any] | None = None
        self.pending: Effect | None = None
        self.heard: tuple[Any, ...] = ()  # the answer to the pending request, where it took effect already
        self.answer: Any = None

    # ── Calls ────────────────────────────────────────────────────────────────
    def enqueue(self, name: str, payload: str, ttl: float = 1.0, **more: Any) -> Flow[Any]:
        """A job under an id; what is answered is judged."""
        flow = self.flows.enqueue(payload, {"id": name, "result_ttl": ttl, **more})
        return self._asked(Ask(self.client.name, "enqueue", name, payload), flow)

    def result(self, name: str) -> Flow[Any]:
        """The result of a job."""
        return self._asked(Ask(self.client.name, "result", name), self.flows.result(name))

    def _asked(self, ask: Ask, flow: QueueFlow[Any]) -> Flow[Any]:
        ask.began = self.play.world.now
        try:
            ask.answer = yield from self.client.run(flow)
        except OsqueueError as error:
            ask.error = error
        ask.ended = self.play.world.now
        self.play.promises.judge(ask)
        return ask.answer if ask.error is None else ask.error

    def reap(self) -> Flow[Any]:
        """A pass of the reaper."""
        return self.client.run(
            Reaper(QUEUE, self.client.writer.machine, self.flows.moment, self.flows.stage).run(1)
        )

    def sweep(self) -> Flow[None]:
        """The sweeps of a day over the entries of ids, one after the other."""
        now = self.client.writer.machine.now_ms()
        for turn in range(SLICES + 1):
            yield from self.client.run(orphan_ids.sweep(QUEUE, now + turn * limits.HOUR_MS))

    def load(self, batch_id: str, *kinds: str, **more: Any) -> Flow[Any]:
        """A bulk with a job of each kind; what was told, so far."""
        yield from Loader(self.client, self.play.loads).load_kinds(batch_id, kinds, **more)
        return self.play.loads.told.copy()

    def resume(self, batch_id: str) -> Flow[Any]:
        """Finish a bulk."""
        yield from Loader(self.client, self.play.loads).resume(batch_id)
        return self.play.loads.told.copy()

    def fill(self, *kinds: str) -> None:
        """Let a job of each kind wait."""
        bits = self.client.writer.machine.bits
        jobs = tuple(JobSpec(bits(128).to_bytes(16, "big"), b"", kind=kind) for kind in kinds)
        self.run(self.commit(EnqueueJobs(jobs)))

    def commit(self, *ops: Op) -> Flow[Any]:
        """Operations."""
        return self.client.call(*ops)

    def work(self) -> None:
        """Claim whatever waits, and complete it."""
        leases = self.run(self.commit(ClaimJobs(10, "worker", 60_000))).answer.outcomes[0].leases
        done = tuple(Completion(lease.job.key, lease.token, b'"done"') for lease in leases)
        self.run(self.commit(CompleteJobs(done)))

    # ── Steps ────────────────────────────────────────────────────────────────
    def run(self, call: Flow[Any]) -> Any:
        """A whole call."""
        self.stop_at(call, lambda effect: False)
        return self.answer

    def stop_at(self, call: Flow[Any], wish: Wish) -> None:
        """Run a call until its next request is one the scene waits for."""
        self.call, self.pending = call, None
        self._go(None, wish)

    def stop_after(self, call: Flow[Any], wish: Wish) -> None:
        """The same, and that request takes effect; its answer is not heard yet."""
        self.stop_at(call, wish)
        assert self.pending is not None
        self.heard = (self.play.perform(self.pending),)

    def go_on(self, wish: Wish = lambda effect: False) -> Any:
        """Run the call to its end, or to the next such request."""
        assert self.pending is not None
        (reply,), self.heard = self.heard or (self.play.perform(self.pending),), ()
        self._go(reply, wish)
        return self.answer

    def _go(self, reply: Any, wish: Wish) -> None:
        assert self.call is not None
        try:
            while True:
                self.pending = self.call.send(reply)
                if any(wish(each) for each in _requests(self.pending)):
                    return
                reply = self.play.perform(self.pending)
        except StopIteration as stop:
            self.call, self.pending, self.answer = None, None, stop.value


def _requests(effect: Effect) -> tuple[Effect, ...]:
    return effect.requests if isinstance(effect, All) else (effect,)


# ── What a scene waits for ───────────────────────────────────────────────────
def head_swap(effect: Effect) -> bool:
    """A head is about to be written."""
    return isinstance(effect, PutIfMatch) and effect.key == f"{ROOT}head"


def head_read(effect: Effect) -> bool:
    """The whole head is about to be read."""
    return isinstance(effect, Get) and effect.key == f"{ROOT}head" and effect.unless is None


def intent_written(effect: Effect) -> bool:
    """A request is about to be announced."""
    return isinstance(effect, Put) and effect.key.startswith(intents_prefix(ROOT))


def part_written(effect: Effect) -> bool:
    """A part of the archive is about to be written."""
    return isinstance(effect, Put) and effect.key.startswith(ARCHIVE)


def id_taken(effect: Effect) -> bool:
    """An id is about to be given a key."""
    return isinstance(effect, PutIfAbsent) and effect.key.startswith(IDS)


def id_freed(effect: Effect) -> bool:
    """An id is about to be freed."""
    if isinstance(effect, Delete):
        return effect.keys[0].startswith(IDS)
    return isinstance(effect, DeleteIfMatch) and effect.key.startswith(IDS)


def clock_read(effect: Effect) -> bool:
    """The store is about to be asked for the time."""
    return isinstance(effect, Get) and effect.key == f"{ROOT}{CLOCK}"


def batch_written(effect: Effect) -> bool:
    """It is about to be decided what a batch is."""
    return isinstance(effect, PutIfAbsent) and effect.key.startswith(BATCHES)


def batch_changed(effect: Effect) -> bool:
    """A batch is about to be done, or removed."""
    if isinstance(effect, Delete):
        return effect.keys[0].startswith(BATCHES)
    return isinstance(effect, Put | PutIfMatch | DeleteIfMatch) and effect.key.startswith(BATCHES)


# ── The scenes ───────────────────────────────────────────────────────────────
def forgotten_meanwhile(stage: Play) -> Any:
    """A caller stands still between its two writes until its job, which another enqueued, is forgotten."""
    slow, quick, other = map(stage.actor, ("slow", "quick", "other"))
    other.run(other.commit(RunTimers(), ChangeSettings(paused=False, backoff_base_ms=7)))
    slow.stop_after(slow.enqueue("a", "slow"), id_taken)
    quick.run(quick.enqueue("a", "quick"))
    other.work()
    for _ in range(3):
        other.run(other.reap())
        stage.later(FORGOTTEN_SECONDS)
    return slow.go_on()


def freed_and_taken_over(stage: Play) -> Any:
    """A reaper stands still when it frees an id, and meanwhile another caller takes the id over."""
    caller, reaper, other = map(stage.actor, ("caller", "reaper", "other"))
    caller.run(caller.enqueue("a", "first"))
    other.work()
    other.run(other.reap())
    stage.later(FORGOTTEN_SECONDS)
    reaper.stop_at(reaper.reap(), id_freed)
    caller.run(caller.enqueue("a", "second", 600.0))
    reaper.go_on()
    return other.run(other.enqueue("a", "third"))


def late_for_its_hour(stage: Play) -> Any:
    """A reaper stands still when it writes a part, until the hour is over."""
    caller, reaper, other = map(stage.actor, ("caller", "reaper", "other"))
    caller.run(caller.enqueue("a", "first"))
    other.work()
    reaper.stop_at(reaper.reap(), part_written)
    stage.later(3_600.0)
    return reaper.go_on()


def merged_by_a_slow_reaper(stage: Play) -> Any:
    """A caller looks, and stands still; its job comes and goes into a table, which a slow reaper then rewrites."""
    slow, quick, reaper, other = map(stage.actor, ("slow", "quick", "reaper", "other"))
    other.run(other.commit(ChangeSettings(paused=False, backoff_base_ms=7)))
    reaper.run(reaper.reap())
    reaper.stop_at(reaper.reap(), head_read)  # before it sweeps
    reaper.go_on(head_read)  # and before it archives
    for wait in range(3):
        slow.run(slow.commit(ChangeSettings(backoff_base_ms=10 + wait)))
    slow.stop_at(slow.enqueue("a", "slow", 600.0), head_swap)
    quick.run(quick.enqueue("a", "quick", 600.0))
    other.work()
    other.run(other.commit(RunTimers(flush=True)))
    reaper.go_on()
    return slow.go_on()


def lives_on(stage: Play) -> Any:
    """A result's life is prolonged when its record is in a table that is too large to be merged with younger ones."""
    caller, reaper, other = map(stage.actor, ("caller", "reaper", "other"))
    for name in ("a", *"bcdefghi"):
        caller.run(caller.enqueue(name, "first", 30.0 if name == "a" else 1.0))
    other.work()
    reaper.run(reaper.reap())
    caller.run(caller.client.run(caller.flows.update_result_ttl("a", 3_000.0)))
    for _ in range(2):
        stage.later(FORGOTTEN_SECONDS)
        reaper.run(reaper.reap())
    return caller.run(caller.enqueue("a", "second"))


def died_between_its_writes(stage: Play) -> Any:
    """A caller dies once its id is registered; the next one's job is accepted, and runs."""
    dying, caller, other = map(stage.actor, ("dying", "caller", "other"))
    other.run(other.commit(ChangeSettings(paused=False, backoff_base_ms=7)))
    dying.stop_at(dying.enqueue("a", "dying"), head_swap)
    found = caller.run(caller.enqueue("a", "second", 600.0))
    assert found.status == "queued"
    other.work()
    return caller.run(caller.result("a"))


def swept_while_another_helps(stage: Play) -> Any:
    """A caller is about to enqueue under the key of one that died long ago, when the entry is swept."""
    dying, helper, reaper, other = map(stage.actor, ("dying", "helper", "reaper", "other"))
    other.run(other.commit(RunTimers(), ChangeSettings(paused=False, backoff_base_ms=7)))
    dying.stop_after(dying.enqueue("a", "dying"), id_taken)
    stage.later(2 * limits.EXPIRED_KNOWN_MS / 1000)
    helper.stop_at(helper.enqueue("a", "helper", 600.0), head_swap)
    reaper.run(reaper.sweep())
    other.run(other.enqueue("a", "other", 600.0))
    return helper.go_on()


def refused_and_resumed(stage: Play) -> Any:
    """A bulk is refused; before its run removes it, another has found it, and by now there is room."""
    slow, quick, other = map(stage.actor, ("slow", "quick", "other"))
    other.run(other.commit(RunTimers(), ChangeSettings(paused=False, backoff_base_ms=7)))
    slow.stop_after(slow.load("b", "x", "y", delays_ms=ONE_LATE), batch_written)
    with limited(NO_ROOM):
        slow.go_on(batch_changed)
    quick.stop_at(quick.resume("b"), batch_changed)
    slow.go_on()
    quick.go_on()
    return other.run(other.load("b", "x", "y", delays_ms=ONE_LATE))


def announced_and_gone(stage: Play) -> Any:
    """A writer announces its request and is gone; another one commits without a pause, and nobody else is there."""
    slow, quick = map(stage.actor, ("slow", "quick"))
    quick.run(quick.commit(ChangeSettings(backoff_base_ms=7)))
    slow.stop_at(slow.commit(ChangeSettings(paused=True)), head_swap)
    quick.run(quick.commit(ChangeSettings(backoff_base_ms=8)))
    slow.go_on(intent_written)
    slow.go_on(lambda effect: True)
    for turn in range(3 * DIRECT_MS_MAX // int(STEP_SECONDS * 1000)):
        quick.run(quick.commit(ChangeSettings(backoff_base_ms=10 + turn)))
    state = stage.invariants.state
    return state is not None and state.settings.paused


def the_crowd_has_gone(stage: Play) -> Any:
    """A crowd announces its requests and is gone once they are in; the next one draws lots with nobody."""
    with limited({"SESSIONS_BYTES_MAX": limits.SESSIONS_BYTES_MAX + CROWD * 100}):
        return _alone_after(stage)


def _alone_after(stage: Play) -> Any:
    last = stage.actor("last")
    last.run(last.commit(ChangeSettings(backoff_base_ms=7)))
    crowd = [stage.actor(f"one of {at}") for at in range(CROWD)]
    for one in crowd:
        one.stop_at(one.commit(RunTimers(flush=True), ChangeSettings(backoff_base_ms=9)), head_swap)
    last.run(last.commit(ChangeSettings(backoff_base_ms=8)))
    for one in crowd:
        one.go_on(intent_written)
        one.go_on(lambda effect: True)
    last.run(last.client.call(ChangeSettings(backoff_base_ms=10), look=True))
    began = stage.world.now
    last.run(last.commit(ChangeSettings(backoff_base_ms=11)))
    if (seconds := stage.world.now - began) > IN_LINE_SECONDS_MAX:
        raise Violation(f"invariant 9: a writer stood in line for {seconds:.1f} s, and nobody was before it")
    return seconds


# ── Cancelled jobs in segments ───────────────────────────────────────────────
def waiting(actor: Actor, count: int, delay_ms: int = 0) -> list[bytes]:
    """Let jobs wait, so many that most lie in segments; the keys of those, the oldest first."""
    bits = actor.client.writer.machine.bits
    for at in range(count):
        key = at.to_bytes(8, "big") + bits(64).to_bytes(8, "big")
        new = JobSpec(key, b"x" * 40, delay_ms=delay_ms + at if delay_ms else 0)
        actor.run(actor.commit(EnqueueJobs((new,))))
    return segmented(actor)


def segmented(actor: Actor) -> list[bytes]:
    """The keys of the jobs that wait in segments, in the order of their keys."""
    watch = actor.play.invariants
    state = watch.state
    assert state is not None
    spans = [*(span for lane in state.lanes for span in lane.backlog.spans), *state.delayed.spans]
    return sorted(job.key for span in spans for job in watch.library.jobs(span))


def cancelled(actor: Actor, *keys: bytes) -> None:
    """Cancel jobs in their segments."""
    for key in keys:
        actor.run(actor.client.cancel_in_segment(key))


def settled_by_two(stage: Play) -> Any:
    """Two settle one segment: what the slow one makes of it lacks what the quick one has taken out."""
    slow, quick, other = map(stage.actor, ("slow", "quick", "other"))
    with limited({"SETTLED_AT_ONCE": 1, "TAIL_BYTES_MAX": 2_000}):
        keys = waiting(other, 40)
        cancelled(other, keys[0])
        slow.stop_at(slow.client.rewrite(), head_swap)
        cancelled(other, keys[1])  # of the same segment, and younger: it is settled first
        quick.run(quick.client.rewrite())
        slow.go_on()
        slow.run(slow.client.rewrite())
    return [keys.index(key) for key in segmented(other)][:1]


def settled_once_passed(stage: Play) -> Any:
    """A job is about to be settled, when the front passes it."""
    slow, worker, other = map(stage.actor, ("slow", "worker", "other"))
    with limited({"TAIL_BYTES_MAX": 2_000, "LEASES_BYTES_MAX": 10_000}):
        keys = waiting(other, 40)
        cancelled(other, keys[0])
        slow.stop_at(slow.client.rewrite(), head_swap)
        while keys[0] in segmented(other):
            worker.run(worker.commit(ClaimJobs(1, "worker", 60_000)))
        slow.go_on()
    return slow.client.ledger.commits[-1].state.tombstones


def merged_with_cancelled_ones(stage: Play) -> Any:
    """Segments of delayed jobs are merged: of one a job was cancelled just now, of another one long ago."""
    other = stage.actor("other")
    with limited({"DELAYED_SPANS_SOFT": 100}):
        keys = waiting(other, 60, 600_000)
        cancelled(other, keys[0], keys[-1])
        with limited({"SETTLED_AT_ONCE": 1}):
            other.run(other.client.rewrite())
    for _ in range(40):
        other.run(other.commit(RunTimers()))
    return sorted(set(segmented(other)) ^ set(keys)) == [keys[0], keys[-1]]


def due_with_cancelled_ones(stage: Play) -> Any:
    """Delayed jobs become due: of one segment a job was cancelled just now, of another one long ago."""
    other = stage.actor("other")
    with limited({"SETTLED_AT_ONCE": 1, "DELAYED_SPANS_SOFT": 100}):
        keys = waiting(other, 30, 600_000)
        cancelled(other, keys[0], keys[-2])
        other.run(other.client.rewrite())
        stage.later(700.0)
        for _ in range(30):
            other.run(other.commit(RunTimers()))
    state = other.client.ledger.commits[-1].state
    return state.delayed.spans, sorted({keys[0], keys[-2]} & set(segmented(other)))


def play(scene: Callable[[Play], Any]) -> Any:
    """Play a scene; what it answers. A violation is raised."""
    with limited(TIGHT):
        stage = Play()
        with watched_reductions(stage.ledger):
            return scene(stage)


SCENES: dict[str, Callable[[Play], Any]] = {
    "forgotten meanwhile": forgotten_meanwhile,
    "freed and taken over": freed_and_taken_over,
    "late for its hour": late_for_its_hour,
    "merged by a slow reaper": merged_by_a_slow_reaper,
    "lives on": lives_on,
    "died between its writes": died_between_its_writes,
    "swept while another helps": swept_while_another_helps,
    "refused and resumed": refused_and_resumed,
    "announced and gone": announced_and_gone,
    "the crowd has gone": the_crowd_has_gone,
    "settled by two": settled_by_two,
    "settled once passed": settled_once_passed,
    "merged with cancelled ones": merged_with_cancelled_ones,
    "due with cancelled ones": due_with_cancelled_ones,
}
