"""Push consumers: functions that are invoked when jobs wait, instead of workers that ask.

A *ticket* is a right to claim for a consumer. The commit that leaves more work waiting than there are tickets for
grants some, and whoever made that commit invokes the consumer once for each: a *wake*. The first claim under a ticket
takes it up, the later ones go on with it, and a claim that finds nothing gives it back in the same commit. Every step
is a step of the head: a claim that gives a ticket back either comes before an enqueue, which then finds no ticket and
grants one, or after it, and then it finds the job. So wakes are hints, which may be lost, late or doubled: who comes
without a ticket claims nothing, and a ticket that nobody takes up is fired again, ever more rarely.

    granted ──▶ fired ──claim under it──▶ held ──claim that finds jobs, heartbeat──▶ held
                  │  ▲                     │
                  └──┘ again, while        ├── claim that finds none, or wants none ──▶ gone
                       jobs wait           └── nobody is heard of until its lease ends ──▶ gone

What waits is judged as a claim would judge it. Where limits, closed groups or a pause keep all of it back nothing is
granted. Now and then that is only an estimate, so the commit of a claim that found nothing grants no more than has come
since that claim: no wake goes round in circles. A writer that cannot invoke functions grants nothing. The next one that
can does, or the reaper.

Each shard has its share of a consumer's tickets, as of every limit, so together they are never more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from .claim_search import has_claimable
from .draft import Draft
from .gate import ENDLESS, gate_of
from .job_ops import ClaimJobs, TicketUse
from .ops import Code, Outcome, outcome
from .pauses import ENDLESS_MS
from .queue_ops import KeepTicket
from .rates import share_of
from .rows import Ticket
from .settings import ConsumerSettings, QueueSettings
from .state import MIXED, Lane, State, waiting

FIRES_PER_COMMIT = 4  # wakes of one consumer: each brings a commit of its own, which may grant as many
FIRE_AGAIN_MS = (
    2 * limits.SECOND_MS
)  # after which a ticket that nobody took up is fired again, doubled each time
FIRED_MS_MIN = limits.MINUTE_MS  # for which such a ticket is good, at least
DOUBTFUL_TRIES = 3  # after so many in vain only one ticket at a time is tried

Tickets = tuple[Ticket, ...]


class Wake(Struct, frozen=True):
    """A consumer to be invoked once, for a ticket that a commit granted or fires again."""

    shard: int
    consumer: str
    target: str  # what is invoked
    ticket: int
    tries: int = 0  # how often it was fired before
    at_ms: int = 0  # head time of that commit


def most_of(consumer: ConsumerSettings, settings: QueueSettings) -> int:
    """How many tickets of a consumer this shard may have out."""
    return min(share_of(consumer.max_concurrency, settings), limits.TICKETS_MAX)


# ── Claims under a ticket ────────────────────────────────────────────────────
def take_up(draft: Draft, use: TicketUse, lease_ms: int) -> bool:
    """Let a claim be made under a ticket. False: it is another's, or there is no room for one more.

    A ticket that is not known was void already, and its wake late: it is as good as a new one.
    """
    consumer = next((each for each in draft.settings.consumers if each.name == use.consumer), None)
    if consumer is None:
        return False
    rows = draft.tickets.get(use.consumer, ())
    at = next((at for at, row in enumerate(rows) if row.id == use.ticket), len(rows))
    if at >= most_of(consumer, draft.settings):  # there may be more of them than there may be since then
        if at < len(rows) and rows[at].holder == use.holder:
            _keep(draft, use.consumer, [row for row in rows if row.id != use.ticket])
        return False
    if at < len(rows) and rows[at].holder not in (0, use.holder):
        return False
    row = Ticket(use.ticket, draft.now, draft.latest + lease_ms, holder=use.holder)
    _keep(draft, use.consumer, (*rows[:at], row, *rows[at + 1 :]))
    return True


def settle_claim(draft: Draft, op: ClaimJobs, use: TicketUse, answer: Outcome) -> Outcome:
    """Give the ticket of a claim back that found nothing, or wanted nothing; the claim's answer.

    RETRY: there may be more to find, and the ticket is kept. So it is, with the milliseconds to wait, where its holder
    is the only one, and willing to wait that long for what is about to start. A holder that still works on jobs keeps
    it, too: it counts as one that is at work until it is done with them.
    """
    if answer.leases:
        return answer
    if op.limit and (draft.needs or answer.code == Code.RETRY):
        return _RETRY
    if op.limit:
        _found_nothing(draft, use)
    if op.limit and use.busy:
        return answer
    rows = draft.tickets.get(use.consumer, ())
    wait_ms = _until_more(draft, answer)
    alone = not any(row.holder for row in rows if row.id != use.ticket)
    if op.limit and alone and 0 < wait_ms <= use.nap_ms:
        return Outcome(((int(Code.RETRY), wait_ms),))
    _keep(draft, use.consumer, [row for row in rows if row.id != use.ticket])
    return answer


def _found_nothing(draft: Draft, use: TicketUse) -> None:
    """Note what seems to wait all the same, by what claims look at in the middle of a reduction."""
    consumer = next(each for each in draft.settings.consumers if each.name == use.consumer)
    seen = State(
        commit=b"",
        epoch=draft.state.epoch,
        now_ms=draft.now,
        lanes=tuple([Lane(*place, lane.freeze()) for place, lane in draft.lanes.items() if lane]),
        leases=draft.leases,
        leases_bytes=draft.leases_bytes,
        settings=draft.settings,
        holds=draft.holds,
        starts=draft.starts,
    )
    draft.sated[use.consumer] = startable(seen, consumer)


_RETRY = Outcome(((int(Code.RETRY), 0),))


def _until_more(draft: Draft, answer: Outcome) -> int:
    """In how many milliseconds a claim may find something by the time alone; 0: nobody knows."""
    # What this very commit made due is for the next one to find.
    waits = [max(1, job.due_ms - draft.now) for job in draft.delayed[:1]]
    if answer.count and answer.code != Code.NO_SLOTS:  # which tells how many jobs lack one
        waits.append(answer.count)
    return min(waits, default=0)


def keep_ticket(draft: Draft, op: KeepTicket) -> Outcome:
    """Hold a ticket for another while, as a heartbeat does a lease."""
    rows = draft.tickets.get(op.use.consumer, ())
    for row in rows:
        if row.id == op.use.ticket and row.holder == op.use.holder:
            kept = replace(row, until_ms=max(row.until_ms, draft.latest + op.lease_ms))
            _keep(draft, op.use.consumer, [kept if each is row else each for each in rows])
            return outcome([Code.OK])
    return outcome([Code.TICKET_LOST])


def _keep(draft: Draft, consumer: str, rows: Sequence[Ticket]) -> None:
    draft.tickets = with_rows(draft.tickets, consumer, rows)
    draft.changed = True


def with_rows(tickets: Mapping[str, Tickets], consumer: str, rows: Sequence[Ticket]) -> dict[str, Tickets]:
    """All tickets, with these of one consumer."""
    others = {name: each for name, each in tickets.items() if name != consumer}
    return {**others, consumer: tuple(rows)} if rows else others


# ── What time and settings do ────────────────────────────────────────────────
def next_end_ms(tickets: Mapping[str, Tickets]) -> int:
    """When the next ticket is void."""
    return min([row.until_ms for rows in tickets.values() for row in rows], default=ENDLESS_MS)


def end_tickets(draft: Draft) -> None:
    """Drop those that are void."""
    left = {
        name: kept
        for name, rows in draft.tickets.items()
        if (kept := tuple([row for row in rows if row.until_ms > draft.now]))
    }
    if left != draft.tickets:
        draft.tickets = left
        draft.changed = True


# ── Granting ─────────────────────────────────────────────────────────────────
def settle(draft: Draft, state: State) -> tuple[State, tuple[Wake, ...]]:
    """The end of a reduction: the next state with tickets for what waits in it, and the wakes that come of them."""
    if not draft.context.wakes:
        return state, ()
    tickets, wakes = granted(state, draft.sated)
    return (replace(state, tickets=tickets) if wakes else state), wakes


def granted(state: State, sated: Mapping[str, int]) -> tuple[dict[str, Tickets], tuple[Wake, ...]]:
    """The tickets of a state once what waits in it has some, and the wakes that come of them.

    ``sated``: how many seemed to wait when a claim of a consumer found nothing, in this commit.
    """
    tickets, wakes = state.tickets, []
    for consumer in state.settings.consumers:
        rows = tickets.get(consumer.name, ())
        jobs = startable(state, consumer)
        if jobs <= sated.get(consumer.name, 0):
            continue
        after = (*_fired_again(rows, state.now_ms), *_new_ones(state, consumer, rows, jobs))
        known = {row.id: row for row in rows}
        fired = [row for row in after if row.fired_ms == state.now_ms and row != known.get(row.id)]
        if fired:
            tickets = with_rows(tickets, consumer.name, after)
            wakes += [
                Wake(state.settings.shard, consumer.name, consumer.target, row.id, row.tries, state.now_ms)
                for row in fired
            ]
    return dict(tickets), tuple(wakes)


def startable(state: State, consumer: ConsumerSettings) -> int:
    """How many jobs a consumer's claims might start now, as far as the head tells; some where nobody knows how many."""
    kinds = consumer.kinds
    if not has_claimable(state, kinds):
        return 0
    gate = gate_of(state.settings, state.leases, state.starts, state.now_ms)
    jobs = 0
    for lane in state.lanes:
        if kinds is None or lane.kind in (MIXED, *kinds):
            room = ENDLESS if gate is None or lane.kind == MIXED else gate.room_for(lane.kind)
            jobs += min(waiting(lane.backlog), room)
    return min(jobs, ENDLESS if gate is None else gate.most_otherwise)


def _pause_ms(row: Ticket) -> int:
    """How long after it was fired it is fired again."""
    return FIRE_AGAIN_MS << row.tries


def _fired_again(rows: Tickets, now_ms: int) -> Iterator[Ticket]:
    """All of them, those fired again that nobody came to take up."""
    for row in rows:
        if not row.holder and row.fired_ms + _pause_ms(row) <= now_ms:
            again = replace(row, fired_ms=now_ms, tries=row.tries + 1)
            yield replace(again, until_ms=now_ms + max(FIRED_MS_MIN, 2 * _pause_ms(again)))
        else:
            yield row


def _new_ones(state: State, consumer: ConsumerSettings, rows: Tickets, jobs: int) -> list[Ticket]:
    if jobs < consumer.batch and not _has_waited(state, consumer):
        return []
    fired = [row for row in rows if not row.holder]
    wanted = -(-jobs // consumer.batch)
    if rows and len(fired) == len(rows) and any(row.tries >= DOUBTFUL_TRIES for row in rows):
        wanted = 1  # perhaps it cannot start at all
    room = most_of(consumer, state.settings) - len(rows)
    count = max(0, min(room, wanted - len(fired), FIRES_PER_COMMIT))
    first = state.seq * limits.TICKETS_MAX
    return [Ticket(first + number, state.now_ms, state.now_ms + FIRED_MS_MIN) for number in range(count)]


def _has_waited(state: State, consumer: ConsumerSettings) -> bool:
    """Has some job of a consumer waited for its window?"""
    if not consumer.window_ms:
        return True
    for lane in state.lanes:
        if consumer.kinds is None or lane.kind in (MIXED, *consumer.kinds):
            first = next(iter((*lane.backlog.ready, *lane.backlog.tail)), None)
            if lane.backlog.spans or first is None:
                return True
            since = max(first.enqueued_ms, first.scheduled_ms)
            if since + consumer.window_ms <= state.now_ms:
                return True
    return False
