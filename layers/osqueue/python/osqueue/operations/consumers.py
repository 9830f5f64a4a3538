"""What a push consumer says: it claims under its ticket, in the shard that granted it, and keeps it meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..commit.effects import QueueFlow, Submit
from ..core.job_ops import ClaimJobs, TicketUse
from ..core.ops import Code
from ..core.queue_ops import KeepTicket
from ..core.settings import ConsumerSettings
from ..errors import Damaged
from .claims import LIMITED, UNREADABLE_TEXT, ClaimFlows, ClaimResult, why_empty

SOON = "soon"  # the reason of an empty claim that kept its ticket: something is about to start
TICKET_LOST = "ticket_lost"  # the reason of one whose ticket is another's, or gone


class HeldTicket(Struct, frozen=True):
    """A right to claim in one shard."""

    shard: int
    use: TicketUse


class ConsumerFlows(ClaimFlows):
    """The flows of workers, and those of consumers."""

    def consumer_settings(self, shard: int, name: str) -> QueueFlow[ConsumerSettings | None]:
        """How a consumer is attached, as this process last saw it; None: it is not."""
        known = self.writers[shard].head is not None
        state = yield from self.state_seen(shard)
        while True:
            found = next((each for each in state.settings.consumers if each.name == name), None)
            if found is not None or not known:
                return found
            yield Submit(shard, ())  # it may have been attached since
            state, known = (yield from self.state_seen(shard)), False

    def claim_under(
        self, ticket: HeldTicket, limit: int, worker: str, lease_ms: int, kinds: Sequence[str] | None
    ) -> QueueFlow[ClaimResult]:
        """Lease up to ``limit`` jobs under a ticket; 0 gives it back. Raises Damaged.

        Where there are none it is given back as well, unless the reason is SOON, or its holder is busy.
        """
        shard = ticket.shard
        op = ClaimJobs(limit, worker, lease_ms, None if kinds is None else tuple(kinds), use=ticket.use)
        asked = self.machine.monotonic()
        outcome = yield from self.claim_in(shard, op)
        if outcome.code in LIMITED and self.limiter_of(shard):
            from .lending import Borrower  # few queues have a limiter

            borrower = Borrower(self.queue, self.writers, self.claim_in)
            outcome = yield from borrower.claim(shard, op, outcome)
        if outcome.leases:
            return ClaimResult((yield from self.granted(shard, outcome.leases, asked)))
        if outcome.code == Code.RETRY:
            return ClaimResult((), SOON, outcome.count / 1000)
        if outcome.code == Code.TICKET_LOST:
            return ClaimResult((), TICKET_LOST)
        if outcome.code == Code.UNREADABLE:
            raise Damaged(UNREADABLE_TEXT)
        return why_empty([(outcome.code, outcome.count)])

    def keep_ticket(self, ticket: HeldTicket, lease_ms: int) -> QueueFlow[bool]:
        """Hold a ticket for another while; answers whether it still was the holder's."""
        answer = yield Submit(ticket.shard, (KeepTicket(ticket.use, lease_ms),))
        return bool(answer.outcomes[0].code == Code.OK)
