"""Those who listen: every committed transition comes to them once, in order, whoever committed it, or they are told.

What a position tells is noted when it is committed. It never tells of anything else, in the head or in an object, and a
listener reads just that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from osqueue.commit.effects import Flow
from osqueue.core.event_log import object_of, rows_of
from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.state import NOT_RECORDED, State, Transition
from osqueue.errors import Damaged, Expired, NotFound, Throttled, Timeout, Unavailable
from osqueue.model.event import Event, ShardPosition, public_event
from osqueue.operations.events import EventReader

from .ledger import RecordedReduction, Violation

if TYPE_CHECKING:
    from .clients import Client

PAGES = (1, 7, 100)
PROMPT_SECONDS = 5.0  # a listener who has read within this time finds all that follows
TROUBLES = (Timeout, Unavailable, Throttled, NotFound)


class EventWatch:
    """What the positions of one shard tell."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.told: dict[int, Transition] = {}
        self.heard = 0  # events that listeners were told
        self.missed = 0  # times that one was told that something is gone

    def commit(self, before: State | None, state: State, batch: RecordedReduction) -> None:
        """A commit was made."""
        was = NOT_RECORDED if before is None else before.log
        log, events = state.log, batch.reduction.events
        if not was.until_ms > state.now_ms:
            if log.rows:
                raise Violation("transitions are recorded that nobody asked for")
            if log.until_ms and self.told and log.first <= max(self.told):
                raise Violation("a recording begins at a position that was given before")
            return
        if _grew(before, state) and not _is_recorded(batch):
            raise Violation("a shard was added that records nothing, and the queue has a listener")
        if log.end != was.end + len(events):
            raise Violation(f"{log.end - was.end} transitions were recorded of {len(events)}")
        for position, event in enumerate(events, was.end):
            if self.told.setdefault(position, event) != event:
                raise Violation("a position tells of two transitions")
        self._check(log.first, log.rows)

    def restored(self, state: State) -> None:
        """Take in the transitions that a restore recorded in its own head, such as stalled jobs."""
        for position, event in enumerate(state.log.rows, state.log.first):
            if self.told.setdefault(position, event) != event:
                raise Violation("a position tells of two transitions")

    def written(self, name: str, body: bytes) -> None:
        """An event object was written, whether or not its commit is won."""
        found = object_of(name)
        if found is None:
            raise Violation(f"{name} is no name of an event object")
        rows = rows_of(body, name)
        if found.end - found.first != len(rows):
            raise Violation(f"{name} does not hold what it says")
        self._check(found.first, rows)

    def _check(self, first: int, rows: tuple[Transition, ...]) -> None:
        if any(self.told.get(at) != row for at, row in enumerate(rows, first)):
            raise Violation("what is recorded was never committed there")

    def read(self, before: ShardPosition, after: ShardPosition, page: list[Event], gaps: bool) -> None:
        """A listener read on; ``gaps``: it wants what is there."""
        rows = [row for at, row in sorted(self.told.items()) if before.position <= at < after.position]
        if len(rows) < after.position - before.position and not gaps:
            raise Violation("a listener was told of what was never committed")
        expected = [public_event(self.queue, row) for row in rows]
        committed = [(each.job_id, each.name, each.at, each.run) for each in expected if each is not None]
        told = [(each.job_id, each.name, each.at, each.run) for each in page]
        left = iter(committed)
        if told != committed and not (gaps and all(each in left for each in told)):
            raise Violation("a listener was told something else than what was committed")
        self.heard += len(page)


def _grew(before: State | None, state: State) -> bool:
    return before is not None and state.settings.shards > before.settings.shards


def _is_recorded(batch: RecordedReduction) -> bool:
    """Return whether an operator added shards in a commit after those had begun to record."""
    return any(
        op.recorded for request in batch.requests for op in request.ops if isinstance(op, ChangeSettings)
    )


def listen(client: Client, pause_seconds: float) -> Flow[None]:
    """Read on again and again, from a cursor after a restart, from now on or from all that is kept after a gap."""
    watch, world, dice = client.invariants.events, client.world, client.dice
    reader, gaps = EventReader(client.flows, None), False
    prompt = float("-inf")  # when it was up to date
    while True:
        yield from client.pause(pause_seconds)
        began, newest = world.now, client.invariants.state
        limit = dice.choice(PAGES)
        try:
            yield from client.run(reader.begin())
            before = reader.positions[0]
            page = yield from client.run(reader.page(limit))
        except Expired:
            if world.now - prompt < PROMPT_SECONDS and not client.ledger.repaired(prompt, world.now):
                raise Violation("a listener missed what he had to find") from None
            watch.missed += 1
            gaps = dice.random() < 0.5
            reader = EventReader(client.flows, 0.0 if gaps else None)
            continue
        except (*TROUBLES, Damaged) as error:
            if isinstance(error, Damaged) and not client.ledger.repaired(began, world.now):
                raise Violation(f"a listener was told {error}") from error
            continue
        after = reader.positions[0]
        if after.epoch not in {state.epoch for state in client.ledger.current(began, world.now)}:
            raise Violation("a listener read on in a life of the shard that was over")
        watch.read(before, after, page, gaps)
        if not page:
            _complete(after, newest)
            prompt = began
        if dice.random() < 0.2:  # it is somebody else from now on, in another process
            reader, gaps = EventReader(client.flows, page[-1].cursor if page else reader.cursor), False


def _complete(after: ShardPosition, newest: State | None) -> None:
    """All that was committed when it began has been read."""
    if newest is not None and newest.epoch == after.epoch and newest.log.end > after.position:
        raise Violation("a listener was not told all that was committed")
