"""Push consumers, with one check removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue import limits
from osqueue.core import consumers
from osqueue.core.consumers import Tickets, Wake
from osqueue.core.draft import Draft
from osqueue.core.job_ops import ClaimJobs, TicketUse
from osqueue.core.ops import Outcome
from osqueue.core.settings import ConsumerSettings, QueueSettings
from osqueue.core.state import State

from .control import Control, in_runs, patched

PROFILE = "consumers"


def as_many_as_there_are_jobs() -> AbstractContextManager[None]:
    """A consumer may have any number of tickets out."""

    def most(consumer: ConsumerSettings, settings: QueueSettings) -> int:
        return limits.TICKETS_MAX

    return patched((consumers, "most_of", most))


def whoever_comes() -> AbstractContextManager[None]:
    """A ticket that somebody holds is taken up by the next who comes."""
    real = consumers.take_up

    def take_up(draft: Draft, use: TicketUse, lease_ms: int) -> bool:
        rows = draft.tickets.get(use.consumer, ())
        free = tuple([replace(row, holder=0) if row.id == use.ticket else row for row in rows])
        draft.tickets = consumers.with_rows(draft.tickets, use.consumer, free)
        return real(draft, use, lease_ms)

    return patched((consumers, "take_up", take_up))


def kept_for_nothing() -> AbstractContextManager[None]:
    """A claim that finds nothing keeps its ticket."""

    def settle(draft: Draft, op: ClaimJobs, use: TicketUse, answer: Outcome) -> Outcome:
        return answer

    return patched((consumers, "settle_claim", settle))


def given_back_at_work() -> AbstractContextManager[None]:
    """A claim that finds nothing gives its ticket back, also while its holder works on other jobs."""
    real = consumers.settle_claim

    def settle(draft: Draft, op: ClaimJobs, use: TicketUse, answer: Outcome) -> Outcome:
        return real(draft, op, replace(use, busy=False), answer)

    return patched((consumers, "settle_claim", settle))


def not_in_the_commit_of_an_empty_claim() -> AbstractContextManager[None]:
    """The commit of a claim that found nothing grants nothing, whatever else it brought."""
    real = consumers.granted

    def granted(state: State, sated: Mapping[str, int]) -> tuple[dict[str, Tickets], tuple[Wake, ...]]:
        return real(state, dict.fromkeys(sated, 1 << 62))

    return patched((consumers, "granted", granted))


def not_while_one_works() -> AbstractContextManager[None]:
    """Whoever is at work will come to the others."""
    real = consumers._new_ones

    def new_ones(state: State, consumer: ConsumerSettings, rows: Tickets, jobs: int) -> Sequence[Any]:
        return [] if any(row.holder for row in rows) else real(state, consumer, rows, jobs)

    return patched((consumers, "_new_ones", new_ones))


def granted_in_silence() -> AbstractContextManager[None]:
    """A commit does not tell of the tickets that it grants."""
    real = consumers.settle

    def settle(draft: Draft, state: State) -> tuple[State, tuple[Wake, ...]]:
        after, wakes = real(draft, state)
        draft.changed |= bool(wakes)
        return after, ()

    return patched((consumers, "settle", settle))


def granted_by_anybody() -> AbstractContextManager[None]:
    """Also who cannot invoke functions grants tickets."""

    def settle(draft: Draft, state: State) -> tuple[State, tuple[Wake, ...]]:
        tickets, wakes = consumers.granted(state, draft.sated)
        return (replace(state, tickets=tickets) if wakes else state), wakes

    return patched((consumers, "settle", settle))


def held_for_ever() -> AbstractContextManager[None]:
    """The ticket of a consumer that died stays out."""

    def end(draft: Draft) -> None:
        return None

    return patched((consumers, "end_tickets", end))


CONTROLS: tuple[Control, ...] = (
    Control(
        "who is at work keeps it", given_back_at_work, (in_runs(PROFILE, "its holder has jobs in hand"),)
    ),
    Control(
        "no more at once than may be", as_many_as_there_are_jobs, (in_runs(PROFILE, "are out, .* may be"),)
    ),
    Control(
        "a ticket has one holder",
        whoever_comes,
        (in_runs(PROFILE, "went from one holder to another", seed=6),),
    ),
    Control(
        "who finds nothing gives it back", kept_for_nothing, (in_runs(PROFILE, "and its ticket is out"),)
    ),
    Control(
        "what comes behind an empty claim is not missed",
        not_in_the_commit_of_an_empty_claim,
        (in_runs(PROFILE, "has not been woken"),),
    ),
    Control(
        "others are woken beside one who works",
        not_while_one_works,
        (in_runs(PROFILE, "has not been woken"),),
    ),
    Control("what is granted is fired", granted_in_silence, (in_runs(PROFILE, "a commit granted"),)),
    Control("only who can fire grants", granted_by_anybody, (in_runs(PROFILE, "cannot invoke anybody"),)),
    Control(
        "a ticket ends with its holder",
        held_for_ever,
        (in_runs(PROFILE, "is void, and stands"),),
    ),
)
