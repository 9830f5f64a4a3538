"""Limits of a queue over its shards: an operator who changes them, and what all shards together may run and start.

No shard asks another: each has its share. So nobody is asked here either what a share is, nor what a shard believes of
the others. From the moment on when the operator is told that all of them know of a limit, no more run than it says, but
for what ran in a shard above its share just then and still does; and in no window more start than the rate allows.
Times are those of the heads: each shard keeps its part of the bound by its own, so all of them keep it together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from osqueue.commit.effects import Flow
from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.state import PROCESSING, State
from osqueue.errors import Throttled, Timeout, Unavailable
from osqueue.model.settings import Kind

from .ledger import RecordedReduction, Violation

if TYPE_CHECKING:
    from .clients import Client

LIMITED = "mail"  # the kind that has limits of its own
CHANGES = ("shards", "shard", "max_running", "rate", "burst", "kinds", "kinds_dropped")
STARTS_KNOWN = 60  # of each limit: the latest ones
Whose = str | None  # a kind, or None: the whole queue


class Limits(Struct, frozen=True):
    """What an operator wishes, of the queue or of a kind."""

    max_running: int  # 0: as many as there are
    rate: tuple[int, int] | None  # so many starts in so many seconds
    burst: int

    def arguments(self) -> dict[str, Any]:
        """As ``configure`` takes them."""
        return {"max_running": self.max_running, "rate": self.rate, "burst": self.burst}


class Known(Struct, frozen=True):
    """What all shards have been told."""

    shards: int
    limits: dict[Whose, Limits]


class AllShards:
    """What runs in each shard, and what has started in any of them since their limits were changed."""

    def __init__(self) -> None:
        self.shards = 1  # that the queue has grown to, or is to grow to
        self._known: Known | None = None  # None: not all know the same, or nobody knows whether they do
        self._changing = False
        self._running: dict[int, Counter[Whose]] = {}
        self._above: dict[tuple[Whose, int], int] = {}  # what runs in a shard above its share
        self._starts: dict[Whose, list[int]] = {}  # ms, in order

    # ── The operator ─────────────────────────────────────────────────────────
    def steer(self, clients: Sequence[Client], pause_seconds: float) -> Flow[None]:
        """Give the queue one shard after the other, and limits again and again. ``clients``: one of each shard."""
        first = clients[0]
        first.peers = clients
        dice = first.dice
        while True:
            shards = self.shards = min(len(clients), self.shards + dice.choice((0, 1)))
            limits: dict[Whose, Limits] = {
                whose: Limits(
                    dice.choice((0, shards, shards + 1, shards + 1, shards + 2)),
                    dice.choice((None, None, (1, 1), (2, 5))),
                    dice.choice((1, 4)),
                )
                for whose in (None, LIMITED)
            }
            self._known, self._changing = None, True
            try:
                yield from first.run(
                    first.flows.configure(
                        shards=shards,
                        kinds={LIMITED: Kind(**limits[LIMITED].arguments())},
                        **limits[None].arguments(),
                    )
                )
            except (Timeout, Unavailable, Throttled):  # who was told what?
                yield from first.pause(1.0)
                continue
            self._begin(Known(shards, limits))
            yield from first.pause(4 * pause_seconds)

    def _begin(self, known: Known) -> None:
        self._known, self._changing = known, False
        self._starts = {whose: [] for whose in known.limits}
        self._above = {
            (whose, at): self._above_its_share(known, whose, at)
            for whose in known.limits
            for at in range(known.shards)
        }

    # ── What is committed ────────────────────────────────────────────────────
    def commit(self, shard: int, state: State, batch: RecordedReduction) -> None:
        """A shard has a new head."""
        running = Counter[Whose](lease.job.kind for lease in state.leases.values())
        running[None] = running.total()
        self._running[shard] = running
        if not self._changing and any(map(_changes_limits, batch.requests)):
            self._known = None  # it was late, or it is the end of the run
        known = self._known
        if known is None or shard >= known.shards:
            return
        started = [each.kind for each in batch.reduction.events if each.target == PROCESSING]
        for whose, limits in known.limits.items():
            above = self._above_its_share(known, whose, shard)
            self._above[whose, shard] = min(self._above[whose, shard], above)
            self._check_running(known, whose, limits.max_running)
            fresh = sum(whose in (None, kind) for kind in started)
            if limits.rate is not None and fresh:
                self._check_starts(known, whose, limits.rate, limits.burst, [state.now_ms] * fresh)

    def _above_its_share(self, known: Known, whose: Whose, shard: int) -> int:
        share, rest = divmod(known.limits[whose].max_running, known.shards)
        return max(0, self._running.get(shard, Counter())[whose] - share - (shard < rest))

    def _check_running(self, known: Known, whose: Whose, limit: int) -> None:
        total = sum(self._running.get(at, Counter())[whose] for at in range(known.shards))
        above = sum(self._above[whose, at] for at in range(known.shards))
        if limit and total > limit + above:
            raise Violation(
                f"{total} jobs{_of(whose)} run in all shards, {limit} may, {above} ran above that"
            )

    def _check_starts(
        self, known: Known, whose: Whose, rate: tuple[int, int], burst: int, fresh: Sequence[int]
    ) -> None:
        """Heads do not agree on the time, so what started now need not be the latest."""
        log = self._starts[whose] = sorted([*self._starts[whose], *fresh])[-STARTS_KNOWN:]
        starts, period_ms = rate[0], rate[1] * 1000
        for at, first in enumerate(log):
            for count, last in enumerate(log[at:], 1):
                if (count - max(burst, known.shards)) * period_ms > (last - first) * starts:
                    raise Violation(
                        f"{count} jobs{_of(whose)} started in all shards in {last - first} ms, {starts} may in"
                        f" {period_ms} ms, and {burst} at once"
                    )


def _of(whose: Whose) -> str:
    return "" if whose is None else f" of kind {whose!r}"


def _changes_limits(request: Any) -> bool:
    return any(
        isinstance(op, ChangeSettings) and any(getattr(op, name) not in (None, ()) for name in CHANGES)
        for op in request.ops
    )
