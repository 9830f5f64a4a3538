"""Scenes of turns: notes that are carried out twice, late, or after their writers have done without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from osqueue.commit.effects import Effect, Flow
from osqueue.core.job_ops import ClaimJobs
from osqueue.core.queue_ops import ChangeSettings
from osqueue.stores.base import Answered, Refused, TakeTurn, Turn

from .ledger import Violation
from .scenes import Actor, Play, head_swap

BUSY_SECONDS = 2.0  # that a writer commits alone


def turn_taken(effect: Effect) -> bool:
    """Somebody is about to wait for the turn."""
    return isinstance(effect, TakeTurn)


def actors(stage: Play, *names: str) -> list[Actor]:
    """Writers who take turns, and know of others."""
    found = [stage.actor(name) for name in names]
    for at, actor in enumerate(found):
        actor.client.writer.turns = True
        actor.run(actor.commit(ChangeSettings(backoff_base_ms=7 + at)))
    return found


def wait(actor: Actor, call: Flow[Any]) -> bytes:
    """Let somebody wait for the turn; the note."""
    actor.client.writer.shared = True  # others are here
    actor.stop_at(call, turn_taken)
    assert isinstance(actor.pending, TakeTurn)
    return actor.pending.note


def given(actor: Actor, reply: Turn | Answered | Refused) -> Any:
    """What comes of waiting; the answer to the call, in the end."""
    actor.heard = (reply,)
    return actor.go_on()


def lead(actor: Actor, *notes: bytes) -> None:
    """Somebody commits in turn, and finds these notes."""
    wait(actor, actor.commit(ChangeSettings(backoff_cap_ms=60_000)))
    given(actor, Turn(notes, None, noted=False))


def claim(actor: Actor) -> Flow[Any]:
    """A claim."""
    return actor.commit(ClaimJobs(1, actor.client.name, 60_000))


def read_again_once_answered(stage: Play) -> Any:
    """A writer's turn comes and there is nothing to do; its note is read when there is."""
    waiter, other, third = actors(stage, "waiter", "other", "third")
    note = wait(waiter, claim(waiter))
    answer = given(waiter, Turn((), None, noted=True))
    other.fill("")
    lead(third, note)
    return answer.answer.outcomes[0].leases


def read_by_two(stage: Play) -> Any:
    """Two who have the turn, one after the other, read the same note; there is something to do only for the second."""
    waiter, other, third = actors(stage, "waiter", "other", "third")
    note = wait(waiter, claim(waiter))
    wait(other, claim(other))
    given(other, Turn((note,), None, noted=False))
    answer = given(waiter, Answered(stage.told[0]))
    other.fill("")
    lead(third, note)
    return answer.answer.outcomes[0].leases


def bypassed(stage: Play) -> Any:
    """Nobody passes the turn on to a writer whose note is carried out all the same."""
    waiter, other = actors(stage, "waiter", "other")
    other.fill("")
    note = wait(waiter, claim(waiter))
    lead(other, note)
    return given(waiter, Refused(noted=True)).answer.outcomes[0].leases


def answered_with_anothers(stage: Play) -> Any:
    """An answer to another request arrives at a writer that waits."""
    other, third, waiter = actors(stage, "other", "third", "waiter")
    third.fill("")
    lead(third, wait(other, claim(other)))
    answer = stage.told[0]
    wait(waiter, claim(waiter))
    return given(waiter, Answered(answer)).answer.outcomes[0].leases


def joined(stage: Play) -> Any:
    """A writer joins another, which commits without a turn as fast as it may."""
    busy, joiner = actors(stage, "busy", "joiner")
    stage.later(BUSY_SECONDS)
    for _ in range(2):  # it notes that it has met no other for a while
        busy.run(busy.commit(ChangeSettings(backoff_cap_ms=60_000)))
    joiner.client.writer.shared = True
    joiner.stop_after(joiner.commit(ChangeSettings(backoff_base_ms=9)), turn_taken)
    joiner.go_on(head_swap)
    busy.stop_at(busy.commit(ChangeSettings(backoff_cap_ms=70_000)), turn_taken)
    if busy.pending is None:
        raise Violation("a writer without the turn replaced the head before the writer that has it")
    answer = joiner.go_on()
    given(busy, Turn((), None, noted=True))
    return answer


SCENES: dict[str, Callable[[Play], Any]] = {
    "a note read once its writer is answered": read_again_once_answered,
    "a note read by two": read_by_two,
    "a note carried out too late": bypassed,
    "an answer to another's note": answered_with_anothers,
    "a writer joins a busy one": joined,
}
