"""What a push consumer says: it claims under its ticket, in the shard that granted it, and keeps it meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..commit.effects import QueueFlow, Submit
from ..core.job_ops import ClaimJobs, TicketUse
from ..core.ops import Code, Outcome
from ..core.queue_ops import KeepTicket
from ..core.settings import ConsumerSettings
from ..errors import Damaged
from .claims import LIMITED, UNREADABLE_TEXT, ClaimFlows, ClaimResult, FoundLeases, why_empty

SOON = "soon"  # the reason of an empty claim after which its holder is to wait and claim again
TICKET_LOST = "ticket_lost"  # the reason of one whose ticket is another's, or gone


class HeldTicket(Struct, frozen=True):
    """A right to claim in one shard."""

    shard: int
    use: TicketUse


def consumer_settings(flows: ClaimFlows, shard: int, name: str) -> QueueFlow[ConsumerSettings | None]:
    """How a consumer is attached, as this process last saw it; None: it is not."""
    known = flows.writers[shard].head is not None
    state = yield from flows.state_seen(shard)
    while True:
        found = next((each for each in state.settings.consumers if each.name == name), None)
        if found is not None or not known:
            return found
        yield Submit(shard, ())  # it may have been attached since
        state, known = (yield from flows.state_seen(shard)), False


def claim_under(
    flows: ClaimFlows,
    ticket: HeldTicket,
    limit: int,
    worker: str,
    lease_ms: int,
    kinds: Sequence[str] | None,
) -> QueueFlow[ClaimResult]:
    """Lease up to ``limit`` jobs under a ticket; 0 gives it back. Raises Damaged.

    Where there are none it is given back as well, unless its holder is busy, or the reason is SOON: then
    ``retry_after`` says for how long to wait.
    """
    shard = ticket.shard
    op = ClaimJobs(limit, worker, lease_ms, None if kinds is None else tuple(kinds), use=ticket.use)
    asked = flows.machine.monotonic()
    outcome = yield from flows.claim_in(shard, op)
    if limit and outcome.code in LIMITED and flows.limiter_of(shard):
        from .lending import Borrower  # few queues have a limiter

        # The ticket has been given back by the claim that lacked slots. The next one takes it up anew.
        borrower = Borrower(flows.queue, flows.writers, flows.claim_in)
        outcome = yield from borrower.claim(shard, op, outcome)
    if outcome.leases:
        return ClaimResult((yield from flows.granted(FoundLeases(shard, outcome.leases, asked))))
    if outcome.code == Code.RETRY or _is_next(flows, ticket, outcome):
        return ClaimResult((), SOON, outcome.count / 1000)
    if outcome.code == Code.TICKET_LOST:
        return ClaimResult((), TICKET_LOST)
    if outcome.code == Code.UNREADABLE:
        raise Damaged(UNREADABLE_TEXT)
    return why_empty([(outcome.code, outcome.count)])


def _is_next(flows: ClaimFlows, ticket: HeldTicket, outcome: Outcome) -> bool:
    """Does the limiter have a slot soon, and is nobody else at work who would use it?"""
    head = flows.writers[ticket.shard].head
    if outcome.code != Code.NO_SLOTS or not 0 < outcome.count <= ticket.use.nap_ms or head is None:
        return False
    rows = head.state.tickets.get(ticket.use.consumer, ())
    return not any(row.holder for row in rows if row.id != ticket.use.ticket)


def keep_ticket(ticket: HeldTicket, lease_ms: int) -> QueueFlow[bool]:
    """Hold a ticket for another while; answers whether it still was the holder's."""
    answer = yield Submit(ticket.shard, (KeepTicket(ticket.use, lease_ms),))
    return bool(answer.outcomes[0].code == Code.OK)
