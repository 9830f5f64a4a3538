"""What an invocation of a consumer says to its queue: as a worker does, under its ticket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ..commit.effects import QueueFlow, submit_together
from ..core.job_ops import TicketUse
from ..core.settings import ConsumerSettings
from ..operations.claims import ClaimResult, turn_answers
from ..operations.consumers import HeldTicket, claim_under, keep_ticket
from ..worker.job import WorkerJob
from ..worker.reporter import Answered, Ended, WorkerReporter


class TurnWish(Struct, frozen=True):
    """What is said in one commit, beside the endings."""

    limit: int | None  # so many jobs are claimed; 0: the ticket is given back; None: no claim is made
    busy: bool = False  # the ticket is kept where there are no more
    nap_ms: int = 0  # how long a job is waited for that is about to start


class TurnAnswer(Struct, frozen=True):
    """What came of it."""

    ended: list[Answered]
    claimed: ClaimResult | Exception | None  # None: no claim was made
    problem: Exception | None = None  # why the heartbeats did not get through


class TicketReporter(WorkerReporter):
    """One invocation's counter at its queue."""

    def __init__(
        self, queue: Any, name: str, settings: ConsumerSettings, shard: int, ticket: int, holder: int
    ) -> None:
        super().__init__(queue, name, settings.lease_ms / 1000)
        self.worker = name
        self._settings = settings
        self._shard = shard
        self._ticket = ticket
        self._holder = holder

    def speak(
        self, ended: Sequence[Ended], beating: Sequence[WorkerJob[Any]], wish: TurnWish
    ) -> QueueFlow[TurnAnswer]:
        """Say how jobs ended, claim more, send heartbeats for others and the ticket: all in one commit."""
        flows: list[QueueFlow[Any]] = [
            self._flows.end([self._ending(*each) for each in ended]),
            *self._claims(wish),
        ]
        turn = len(flows)
        if beating:
            flows.append(self._beat_all(beating))
            if wish.limit is None:  # a claim keeps it by itself
                flows.append(keep_ticket(self._held(wish), self._settings.lease_ms))
        found = yield from submit_together(flows)
        said, claims = turn_answers(len(ended), found[:turn])
        answers = yield from self._again_alone(ended, said)
        problem = next((each for each in found[turn:] if isinstance(each, Exception)), None)
        return TurnAnswer(answers, claims[0] if claims else None, problem)

    def _beat_all(self, jobs: Sequence[WorkerJob[Any]]) -> QueueFlow[None]:
        for job in (yield from self.beat(jobs)):
            job.lease_lost.set()

    def _claims(self, wish: TurnWish) -> list[QueueFlow[ClaimResult]]:
        if wish.limit is None:
            return []
        length, kinds = self._settings.lease_ms, self._settings.kinds
        return [claim_under(self._flows, self._held(wish), wish.limit, self.worker, length, kinds)]

    def _held(self, wish: TurnWish) -> HeldTicket:
        use = TicketUse(self._settings.name, self._ticket, self._holder, wish.nap_ms, wish.busy)
        return HeldTicket(self._shard, use)
