"""Push consumers in a run: wakes that are lost, late or doubled, invocations that claim under tickets, what must hold.

A commit's wakes are sent by the client that made it, once it knows that it did. One that dies in between sends none,
and not every client can. At any time no more tickets are out than there may be, each has one holder, and where jobs
wait a ticket is on its way, or all there may be are at work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from osqueue import limits
from osqueue.commit.effects import Flow, Sleep
from osqueue.core.consumers import Wake, most_of
from osqueue.core.job_ops import (
    ClaimJobs,
    CompleteJobs,
    Completion,
    ExtendLeases,
    FailedAttempt,
    FailJobs,
    LeaseBeat,
    TicketUse,
)
from osqueue.core.ops import Code, Op, Outcome
from osqueue.core.queue_ops import ChangeSettings, KeepTicket
from osqueue.core.settings import ConsumerSettings
from osqueue.core.state import QUEUED, LeaseRecord, State, is_late

from .ledger import RecordedReduction, Violation
from .places import JobPlace

if TYPE_CHECKING:
    from .clients import Client
    from .run import Run

LEASE_MS = 20_000
NAP_MS = 2_000
LOST, DOUBLED, LATE = 0.1, 0.1, 0.05  # shares of wakes
LATE_SECONDS_MAX = 90.0
WAKE_SECONDS = 0.1
TURNS_MAX = 12  # of one invocation, whose time is then over
WAKERS = 0.7  # share of clients that can invoke functions


def some_consumers(dice: Random, kinds: Iterable[str]) -> ChangeSettings:
    """An operator's word on them: attached, changed, or one of them detached."""
    names = {"all": None, "mail": ("mail",)}
    rows = [
        ConsumerSettings(
            name,
            f"arn:{name}",
            only,
            batch=dice.choice((1, 3, 8)),
            max_concurrency=dice.choice((1, 2, 5)),
            window_ms=dice.choice((0, 0, 1_500)),
            lease_ms=LEASE_MS,
        )
        for name, only in names.items()
        if dice.random() < 0.8
    ]
    dropped = tuple(name for name in names if name not in {row.name for row in rows} and dice.random() < 0.3)
    return ChangeSettings(consumers=tuple(rows), consumers_dropped=dropped)


def attach(client: Client, pause_seconds: float) -> Flow[None]:
    """Keep consumers, and change one's mind about them."""
    while True:
        yield from client.call(some_consumers(client.dice, client.kinds))
        yield from client.pause(20 * pause_seconds)


# ── Wakes and invocations ────────────────────────────────────────────────────
class Deliveries:
    """Sends wakes, as badly as such things are sent."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.invoked = 0

    def send(self, wakes: Iterable[Wake]) -> None:
        """Invoke each: perhaps not, perhaps twice, perhaps late."""
        world = self.run.world
        for wake in wakes:
            if world.happens("wake lost", LOST):
                continue
            for _ in range(2 if world.happens("wake twice", DOUBLED) else 1):
                late = world.chance.random() * LATE_SECONDS_MAX if world.happens("wake late", LATE) else 0.0
                self._invoke(wake, late + WAKE_SECONDS * world.chance.random())

    def _invoke(self, wake: Wake, after: float) -> None:
        self.invoked += 1
        self.run.invoke(f"consumer{self.invoked}", lambda client: consume(client, wake), after)


def consume(client: Client, wake: Wake) -> Flow[None]:
    """One invocation: take the ticket up, work, say what became of a batch and claim the next in one commit."""
    row = next((each for each in _attached(client) if each.name == wake.consumer), None)
    if row is None:
        return
    use = TicketUse(wake.consumer, wake.ticket, client.machine.bits(64), NAP_MS)
    endings: tuple[Op, ...] = ()
    for turn in range(TURNS_MAX + 1):
        limit = row.batch if turn < TURNS_MAX else 0
        claim = ClaimJobs(limit, client.name, LEASE_MS, row.kinds, use=use)
        call = yield from client.call(*endings, claim)
        if call.answer is None:
            return
        answer = call.answer.outcomes[-1]
        endings = ()
        if answer.runs and answer.runs[-1][0] == Code.RETRY and not answer.leases:
            yield Sleep(answer.runs[-1][1] / 1000 + 0.01)
        elif not answer.leases:
            return
        else:
            endings = yield from _work(client, use, answer.leases)


def _attached(client: Client) -> tuple[ConsumerSettings, ...]:
    state = client.invariants.state
    return () if state is None else state.settings.consumers


def _work(client: Client, use: TicketUse, leases: tuple[LeaseRecord, ...]) -> Flow[tuple[Op, ...]]:
    yield from client.pause(0.5)
    if client.dice.random() < 0.2:  # one has ended, and the others go on
        first, *rest = leases
        ended = CompleteJobs((Completion(first.job.key, first.token, b'"done"'),))
        claim = ClaimJobs(1, client.name, LEASE_MS, use=replace(use, busy=True))
        call = yield from client.call(ended, claim)
        more = () if call.answer is None else call.answer.outcomes[1].leases
        leases = (*rest, *more)
    if leases and client.dice.random() < 0.2:
        held = tuple([LeaseBeat(each.job.key, each.token) for each in leases])
        call = yield from client.call(ExtendLeases(held), KeepTicket(use, LEASE_MS))
        if call.answer is not None and call.answer.outcomes[1].code == Code.TICKET_LOST:
            return ()
    done, failed = [], []
    for lease in leases:
        if client.dice.random() < 0.1:
            failed.append(FailedAttempt(lease.job.key, lease.token, "no"))
        else:
            done.append(Completion(lease.job.key, lease.token, b'"done"'))
    return tuple(
        op for op, items in ((CompleteJobs(tuple(done)), done), (FailJobs(tuple(failed)), failed)) if items
    )


# ── What must hold ───────────────────────────────────────────────────────────
def check(
    before: State | None, state: State, batch: RecordedReduction, found: Mapping[bytes, JobPlace]
) -> None:
    """A commit was made; ``found`` are the places of all jobs after it."""
    known = {} if before is None else before.tickets
    free, used = set(_given_back(batch)), set(_used(batch))
    for name, rows in state.tickets.items():
        row = _row(state, name)
        if row is None:
            raise Violation(f"tickets of {name} are out, and it is not attached")
        most = max(most_of(row, state.settings), len(known.get(name, ())))
        if len({each.id for each in rows}) > most:
            raise Violation(f"{len(rows)} tickets of {name} are out, {most} may be")
        if len({each.id for each in rows}) != len(rows):
            raise Violation(f"a ticket of {name} is there twice")
        if any(each.until_ms <= state.now_ms for each in rows):
            raise Violation(f"a ticket of {name} is void, and stands")
        holders = {
            each.id: each.holder
            for each in known.get(name, ())
            if each.until_ms > state.now_ms and (name, each.id, each.holder) not in free
        }
        for each in rows:
            if holders.get(each.id, 0) not in (0, each.holder):
                raise Violation(f"a ticket of {name} went from one holder to another")
            if each not in known.get(name, ()) and each.holder and (name, each.id, each.holder) not in used:
                raise Violation(f"a ticket of {name} was extended by another than its holder")
    _claims(state, batch)
    _fired(known, state, batch)
    if batch.wakes and not _met_damage(batch):
        _nobody_waits(state, found)


def holds_ticket(state: State, use: TicketUse) -> bool:
    """Does somebody hold a ticket by this head?"""
    rows = state.tickets.get(use.consumer, ())
    return any((each.id, each.holder) == (use.ticket, use.holder) for each in rows)


def ticket_is_lost(state: State, op: ClaimJobs) -> bool:
    """Is a claim under its ticket refused by this head, and changes nothing?"""
    assert op.use is not None
    row, rows = _row(state, op.use.consumer), state.tickets.get(op.use.consumer, ())
    if row is None:
        return True
    holders = {each.id: each.holder for each in rows}
    if op.use.ticket in holders:
        return holders[op.use.ticket] != op.use.holder
    return len(rows) >= most_of(row, state.settings)


def _row(state: State, name: str) -> ConsumerSettings | None:
    return next((each for each in state.settings.consumers if each.name == name), None)


def _claims(state: State, batch: RecordedReduction) -> None:
    """Check that a holder of granted jobs holds its ticket, and that one that found nothing gave it back.

    A holder whose claim timed out makes the next one, and one commit may apply both. The state after the commit shows
    only what the last of them left.
    """
    for op, use, answer in _last_claims(batch):
        held = holds_ticket(state, use)
        detached = _row(state, use.consumer) is None
        again, lost = _is_kept(use, answer), _is_lost(answer)
        if use.busy and op.limit and not (held or lost or detached):
            raise Violation("a ticket is gone, and its holder has jobs in hand")
        if answer.leases and not held and not detached:
            raise Violation("jobs were granted under a ticket that somebody else holds")
        if not answer.leases and not again and held:
            raise Violation("a claim found nothing, and its ticket is out")


def _is_kept(use: TicketUse, answer: Outcome) -> bool:
    """Return whether a claim that found nothing keeps its ticket: its holder is at work, or is to come again."""
    return use.busy or (bool(answer.runs) and answer.runs[-1][0] == Code.RETRY)


def _is_lost(answer: Outcome) -> bool:
    return bool(answer.runs) and answer.runs[0][0] == Code.TICKET_LOST


def _given_back(batch: RecordedReduction) -> Iterable[tuple[str, int, int]]:
    """Return the tickets that their holders gave back in a commit, each with its consumer and that holder."""
    for _, use, answer in _last_claims(batch):
        if not answer.leases and (_is_lost(answer) or not _is_kept(use, answer)):
            yield use.consumer, use.ticket, use.holder


def _used(batch: RecordedReduction) -> Iterable[tuple[str, int, int]]:
    """Return the tickets that a commit's operations name, each with its consumer and the holder that sent them."""
    for request in batch.requests:
        for op in request.ops if request.identity in batch.reduction.outcomes else ():
            if isinstance(op, ClaimJobs | KeepTicket) and op.use is not None:
                yield op.use.consumer, op.use.ticket, op.use.holder


def _last_claims(batch: RecordedReduction) -> Iterable[tuple[ClaimJobs, TicketUse, Outcome]]:
    """Return the last claim that a commit applied of each holder of a ticket, with its outcome."""
    requests = {request.identity: request for request in batch.requests}
    last: dict[tuple[str, int, int], tuple[ClaimJobs, TicketUse, Outcome]] = {}
    for identity, outcomes in batch.reduction.outcomes.items():  # in the order in which they were applied
        for op, answer in zip(requests[identity].ops, outcomes, strict=True):
            if isinstance(op, ClaimJobs) and op.use is not None:
                last[op.use.consumer, op.use.ticket, op.use.holder] = (op, op.use, answer)
    return last.values()


def _fired(known: Mapping[str, Any], state: State, batch: RecordedReduction) -> None:
    """A commit fires what its state grants, and nothing else."""
    granted = {
        (name, each.id, each.tries)
        for name, rows in state.tickets.items()
        for each in rows
        if not each.holder and each not in known.get(name, ())
    }
    told = {(each.consumer, each.ticket, each.tries) for each in batch.reduction.wakes}
    if granted != told:
        raise Violation(f"a commit granted {sorted(granted)}, and fires {sorted(told)}")
    if granted and not batch.wakes:
        raise Violation("tickets were granted by somebody who cannot invoke anybody")


def _met_damage(batch: RecordedReduction) -> bool:
    """Return whether a claim could not read the next jobs: then none of them can start before they are mended."""
    found = chain.from_iterable(batch.reduction.outcomes.values())
    return any(code == Code.UNREADABLE for outcome in found for code, _ in outcome.runs)


def _nobody_waits(state: State, found: Mapping[bytes, JobPlace]) -> None:
    """Where jobs wait that may start, a ticket is on its way to them, or all there may be are out."""
    if state.settings.paused or state.leases_bytes >= limits.LEASES_BYTES_MAX:
        return
    shut = {row.kind for row in state.settings.kinds if row.paused}
    waiting = [
        place.job
        for place in found.values()
        if place.state == QUEUED and place.job.kind not in shut and not is_late(place.job, state.now_ms)
    ]
    for row in state.settings.consumers:
        jobs = [job for job in waiting if row.kinds is None or job.kind in row.kinds]
        due = jobs and (len(jobs) >= row.batch or not row.window_ms)
        out = state.tickets.get(row.name, ())
        if due and len(out) < most_of(row, state.settings) and all(each.holder for each in out):
            raise Violation(f"{len(jobs)} jobs wait, and {row.name} has not been woken")
