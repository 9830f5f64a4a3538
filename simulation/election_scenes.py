"""Scenes of elections: candidates who stand still, fork, resign and hear nothing at the most delicate moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from osqueue.commit.effects import Effect, Flow, Sleep
from osqueue.election.base import ElectionBase
from osqueue.errors import Unavailable
from osqueue.stores.base import Delete, Failed, Get, Put, PutIfAbsent, PutIfMatch

from .conditions import Faults
from .elections import KEY, NAME, Candidate, Clocked, Elections
from .ledger import Violation
from .machine import VirtualMachine
from .profile import PROFILES

STALE_SECONDS = 10.0
STEP_SECONDS = 0.01  # that every request takes
NO_ANSWER = Failed(Unavailable("no answer"))

Wish = Callable[[Effect], bool]


class _Machine(VirtualMachine):
    """A machine on which processes fork."""

    pid = 1

    def process(self) -> int:
        return self.pid


class Stage:
    """The store, the time, and who believes to lead."""

    def __init__(self) -> None:
        self.run = Elections(0, PROFILES["election"])
        self.run.world.faults = Faults()

    def candidate(self, name: str, stale_after: float = STALE_SECONDS) -> Candidate:
        """Somebody who stands for election."""
        made = Candidate(self.run, name)
        machine = _Machine(self.run.world, name, "scene")
        made.election = ElectionBase(
            Clocked(None), NAME, name, heartbeat=1.0, stale_after=stale_after, machine=machine
        )
        self.run.candidates[made] = []
        return made

    def fork(self, parent: Candidate, name: str) -> Candidate:
        """The child of a process, which has a copy of everything."""
        child = self.candidate(name)
        child.election = object.__new__(type(parent.election))
        child.election.__dict__.update(parent.election.__dict__)
        child.election.machine = machine = _Machine(self.run.world, parent.name, "scene")
        machine.pid = 2
        return child

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.run.world.now += seconds
        self.run.check()

    def call(self, flow: Flow[Any]) -> Any:
        """A whole call."""
        step = Candidacy(self, flow)
        step.go_on()
        return step.answer


class Candidacy:
    """A call under way."""

    def __init__(self, stage: Stage, flow: Flow[Any]) -> None:
        self.stage = stage
        self.flow = flow
        self.pending: Effect | None = None
        self.heard: Any = None  # the answer to the pending request, where it took effect already
        self.answer: Any = None

    def stop_at(self, wish: Wish) -> Candidacy:
        """Go on until the next request is one the scene waits for."""
        reply = None
        if self.pending is not None:
            reply, self.heard = self.heard or self._perform(self.pending), None
        try:
            while True:
                self.pending = self.flow.send(reply)
                self.stage.run.check()
                if wish(self.pending):
                    return self
                reply = self._perform(self.pending)
        except StopIteration as stop:
            self.pending, self.answer = None, stop.value
        self.stage.run.check()
        return self

    def go_on(self) -> Any:
        """Go on to the end."""
        return self.stop_at(lambda effect: False).answer

    def take_effect(self) -> None:
        """The request takes effect now, and its answer is heard later."""
        assert self.pending is not None
        self.heard = self._perform(self.pending)

    def _perform(self, effect: Effect) -> Any:
        self.stage.later(effect.seconds if isinstance(effect, Sleep) else STEP_SECONDS)
        return None if isinstance(effect, Sleep) else self.stage.run.truth.perform(effect)  # type: ignore[arg-type]


def record_written(effect: Effect) -> bool:
    """The record is about to be written."""
    return isinstance(effect, PutIfAbsent | PutIfMatch)


def record_read(effect: Effect) -> bool:
    """The record is about to be read."""
    return isinstance(effect, Get) and effect.key == KEY


def clock_written(effect: Effect) -> bool:
    """The store is about to be asked for the time."""
    return isinstance(effect, Put)


# ── The scenes ───────────────────────────────────────────────────────────────
def elected_at_once(stage: Stage) -> Any:
    """Two see that nobody leads, and both write the record."""
    ada, bob = stage.candidate("ada"), stage.candidate("bob")
    slow = Candidacy(stage, bob.election._campaign()).stop_at(record_written)
    stage.call(ada.election._campaign())
    return slow.go_on()


def perhaps_elected(stage: Stage) -> Any:
    """A candidate writes the record, which fails; another one is elected."""
    ada, bob = stage.candidate("ada"), stage.candidate("bob")
    lost = Candidacy(stage, bob.election._campaign()).stop_at(record_written)
    lost.heard = NO_ANSWER
    lost.go_on()
    return stage.call(ada.election._campaign())


def told_of_another_leader(stage: Stage) -> Any:
    """An operator removes the record, somebody is elected, and the leader of the past looks."""
    ada, bob = stage.candidate("ada"), stage.candidate("bob")
    stage.call(ada.election._campaign())
    stage.run.truth.perform(Delete((KEY,)))
    del stage.run.candidates[ada]  # for now two lead: that is the operator's doing
    stage.run.leaders.clear()  # and terms begin at 1 again
    stage.call(bob.election._campaign())
    told = stage.call(ada.election._campaign())
    if ada.election.is_leader:
        raise Violation(f"ada leads on, though it answered {told}")
    return told


def beaten_too_late(stage: Stage) -> Any:
    """A beat stands still before it looks, until its leadership is over."""
    ada = stage.candidate("ada")
    stage.call(ada.election._campaign())
    beats = Candidacy(stage, ada.election._keep_leading(1)).stop_at(record_read)
    stage.later(STALE_SECONDS)
    beats.go_on()
    if ada.election.fence is not None:
        raise Violation(f"a beat of term 1 began term {ada.election.fence}")
    return ada.election.fence


def answered_in_the_next_term(stage: Stage) -> Any:
    """A beat is answered when the same candidate has been elected anew."""
    ada = stage.candidate("ada")
    stage.call(ada.election._campaign())
    stage.later(0.85 * STALE_SECONDS)
    beat = Candidacy(stage, ada.election._campaign()).stop_at(record_written)
    beat.take_effect()
    stage.later(0.1 * STALE_SECONDS)
    stage.call(ada.election._campaign())
    beat.go_on()
    return ada.election.fence


def forked(stage: Stage) -> Any:
    """A leader forks, and its child stands for election."""
    parent = stage.candidate("parent")
    stage.call(parent.election._campaign())
    child = stage.fork(parent, "child")
    stage.run.check()
    return stage.call(child.election._campaign())


def no_time_told(stage: Stage) -> Any:
    """A candidate comes, sees a leader, and the store does not tell what time it is."""
    ada, bob = stage.candidate("ada"), stage.candidate("bob")
    stage.call(ada.election._campaign())
    asked = Candidacy(stage, bob.election._campaign()).stop_at(clock_written)
    asked.heard = NO_ANSWER
    return asked.go_on()


def patience_of_its_own(stage: Stage) -> Any:
    """A leader may be silent for longer than a candidate would be."""
    ada, bob = stage.candidate("ada", 20.0), stage.candidate("bob", 4.0)
    stage.call(ada.election._campaign())
    stage.call(bob.election._campaign())
    stage.later(5.0)
    return stage.call(bob.election._campaign())


def beating(stage: Stage) -> Any:
    """A leader beats, and a candidate looks each time."""
    ada, bob = stage.candidate("ada"), stage.candidate("bob")
    for _ in range(4):
        stage.call(ada.election._campaign())
        stage.call(bob.election._campaign())
        stage.later(0.4 * STALE_SECONDS)
    return stage.call(bob.election._campaign())


def resigned_by_another(stage: Stage) -> Any:
    """Somebody who does not lead resigns, and another one stands for election."""
    ada, bob, eve = map(stage.candidate, ("ada", "bob", "eve"))
    stage.call(ada.election._campaign())
    stage.call(bob.election._resign())
    return stage.call(eve.election._campaign())


SCENES: dict[str, Callable[[Stage], Any]] = {
    "elected at once": elected_at_once,
    "perhaps elected": perhaps_elected,
    "told of another leader": told_of_another_leader,
    "beaten too late": beaten_too_late,
    "answered in the next term": answered_in_the_next_term,
    "forked": forked,
    "no time told": no_time_told,
    "patience of its own": patience_of_its_own,
    "beating": beating,
    "resigned by another": resigned_by_another,
}


def play(name: str) -> Any:
    """Play a scene; what it answers. A violation is raised."""
    return SCENES[name](Stage())
