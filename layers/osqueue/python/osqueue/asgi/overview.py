"""All queues as they are now, for however many pages are open: one loop in the process looks, and every page is told.

A look costs requests to the store, so there is an allowance of them a minute. It goes to the queues that pages show,
then to those that move, then to those not seen for longest: with more queues each is looked at less often. What this
process commits itself is known at no request (``heads``).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import quote

import msgspec
from msgspec import Struct

from ..clock import Machine
from ..contract.operations import BY_NAME, QUEUES_MAX
from ..core.budgets import budgets
from ..core.state import State
from ..server.app import ApiRequest, ApiResponse
from .heads import HeadMemory

TICK_S = 1.0
LOOKS_A_MINUTE = 15.0  # requests to the store of the loop; what pages ask for themselves comes on top
SAVED_MAX = 4.0  # of the allowance, for later
NAMES_S = 60.0  # between two lists of the queues
LOOK_S_MIN = 2.5  # between two looks at one queue
SHOWN, MOVING = 12.0, 4.0  # how much sooner it is the turn of a queue that a page shows, or that moved lately
PARTS_S = 60.0  # between two looks into a queue behind an API
WORKERS_S = 30.0  # between two looks at the workers of a queue that a page shows; longer where there are many
WORKERS_A_MINUTE = 5.0  # requests of these looks, beside the others: a list, and a read for each worker
SAMPLE_S = 5.0
SAMPLES_MAX = 360  # half an hour
RATE_S = 60.0  # over which rates are taken, or over two looks where they lie further apart
SPARK_POINTS = 40
RUNNING_MAX = 100  # jobs in workers' hands that a page of a queue shows
PARTS = {  # of the page of a queue, beside the statistics
    "flow": "flow",
    "groups": "groups?limit=100",
    "schedules": "schedules",
    "running": f"jobs?state=processing&limit={RUNNING_MAX}",
}
WAITING = ("queued", "scheduled", "failing")
REFUSING = {
    each.name for each in budgets(State(b"", 0)) if each.refuses
}  # parts of a head that may be too full

log = logging.getLogger("osqueue.serve")


class Answers(Protocol):
    """What answers requests of the API."""

    machine: Machine

    async def answer(self, request: ApiRequest) -> ApiResponse: ...


class Sample(Struct, frozen=True, array_like=True):
    """A queue at a moment."""

    at: float  # Unix seconds
    waiting: int
    running: int
    dead: int
    enqueued: int  # since the beginning, as the next ones
    completed: int
    troubled: int  # attempts that failed or stalled


class QueueTrend:
    """What is known of one queue."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stats: dict[str, Any] = {}
        self.error: str | None = None
        self.seen = float("-inf")  # monotonic seconds
        self.moved = float("-inf")
        self.change = -1  # the memory's count when it was last seen
        self.number = 0  # of the last news; a page that was told of this one has seen all
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self.hurried = False
        self.parts: dict[str, Any] = {}
        self.parts_at = float("-inf")
        self.parts_number = 0
        self.workers_at = float("-inf")

    def see(self, stats: dict[str, Any], now: float, at: float) -> bool:
        """Take in statistics. Says whether something is other than before."""
        error = stats.get("error")
        self.seen = now
        self.hurried = False
        if error is not None:
            self.error = str(error.get("message", error))
            return True
        sample = _sample(stats, at)
        moved = (
            not self.samples
            or msgspec.structs.astuple(sample)[1:] != msgspec.structs.astuple(self.samples[-1])[1:]
        )
        if moved and self.samples:
            self.moved = now
        if len(self.samples) > 1 and sample.at - self.samples[-2].at < SAMPLE_S:
            self.samples.pop()
        self.samples.append(sample)
        self.stats, self.error = stats, None
        return True

    @property
    def cost(self) -> int:
        """Requests that a look takes at least."""
        return int(self.stats.get("shards", 1))

    @property
    def workers(self) -> int:
        """How many workers there were at the last look at them."""
        return len(self.parts.get("workers", {}).get("workers", ()))

    def row(self) -> dict[str, Any]:
        """The line of it in the list of queues."""
        stats = self.stats
        told = {name: stats.get(name) for name in ROW if name in stats}
        counters = stats.get("counters", {})
        return {
            "queue": self.name,
            **told,
            "counters": counters,
            "max_running": stats.get("settings", {}).get("max_running"),
            "fullest": max(
                (each for each in stats.get("budgets", {}).items() if each[0] in REFUSING),
                key=lambda each: each[1],
                default=None,
            ),
            "rates": self._rates(),
            "spark": self._spark(),
            "error": self.error,
            "seen": self.samples[-1].at if self.samples else None,
        }

    def _rates(self) -> dict[str, float] | None:
        """Jobs a second; None where there was one look."""
        if len(self.samples) < 2:
            return None
        last = self.samples[-1]
        first = next((each for each in self.samples if last.at - each.at <= RATE_S), last)
        if first is last:
            first = self.samples[-2]
        seconds = max(last.at - first.at, 0.5)
        return {
            "in": max(0, last.enqueued - first.enqueued) / seconds,
            "out": max(0, last.completed - first.completed) / seconds,
            "troubled": max(0, last.troubled - first.troubled) / seconds,
        }

    def _spark(self) -> list[list[float]]:
        """Depth and completions a second, at a few moments."""
        taken = list(self.samples)
        step = max(1, -(-len(taken) // SPARK_POINTS))
        thin = taken[::-1][::step][::-1]
        return [
            [round(each.at, 1), each.waiting, round((each.completed - before.completed) / gap, 3)]
            for before, each in itertools.pairwise(thin)
            if (gap := max(each.at - before.at, 0.5))
        ]


ROW = (
    *("shards", "paused", "paused_until", *WAITING, "processing", "failed", "finished", "oldest_seconds"),
    *("commits", "head_bytes"),
)


def _sample(stats: Mapping[str, Any], at: float) -> Sample:
    counters = stats["counters"]  # empty where there is no head yet

    def so_far(*names: str) -> int:
        return sum(counters.get(name, 0) for name in names)

    return Sample(
        at,
        sum(stats[name] for name in WAITING),
        stats["processing"],
        stats["failed"],
        so_far("enqueued"),
        so_far("completed"),
        so_far("retried", "stalled", "failed"),
    )


class Overview:
    """The loop, and those it tells."""

    def __init__(
        self,
        view: Answers,
        memory: HeadMemory | None,
        counts: Callable[[], Mapping[str, int]],
        dollars: Callable[[], float] | None,
    ) -> None:
        self._view = view
        self._memory = memory
        self._counts = counts
        self._dollars = dollars  # that they have cost; None: nothing, or nobody here knows what
        self.machine = view.machine
        self.trends: dict[str, QueueTrend] = {}
        self.shown: dict[str, int] = {}  # queues by how many pages show them
        self.trouble: str | None = None
        self.number = 0
        self.closing = False
        self.listed = False  # are all queues known by name?
        self._pages = 0
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._listed = float("-inf")
        self._allowance = SAVED_MAX
        self._bill: deque[tuple[float, dict[str, int], float]] = deque()

    # ── Pages come and go ────────────────────────────────────────────────────
    def come(self, queue: str | None) -> None:
        """A page opens, on a queue or on the list."""
        self._pages += 1
        if queue:
            self.shown[queue] = self.shown.get(queue, 0) + 1
        if self._task is None or self._task.done():
            if self._memory is not None:
                self._memory.begin()
            self._listed = float("-inf")
            self._task = asyncio.create_task(self._run())

    def go(self, queue: str | None) -> None:
        """It closes. After the last one nothing is looked at any more."""
        self._pages -= 1
        if queue:
            left = self.shown.get(queue, 1) - 1
            self.shown[queue] = left
            if left <= 0:
                del self.shown[queue]
        if self._pages == 0:
            self._rest()

    def close(self) -> None:
        """The process is to end: all pages are left."""
        self.closing = True
        self._rest()
        self._tell()

    def hurry(self, queue: str) -> None:
        """This queue was changed: it is looked at next, whatever the allowance."""
        trend = self.trends.get(queue)
        if trend is not None:
            trend.hurried = True

    async def news(self, seconds: float) -> None:
        """Wait until there may be something new."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)

    def _rest(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._memory is not None:
            self._memory.end()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # ── The loop ─────────────────────────────────────────────────────────────
    async def _run(self) -> None:
        self._bill.clear()
        self._count()
        while True:
            began = self.machine.monotonic()
            try:
                await self._look()
            except Exception:
                log.exception("the dashboard's look failed")
            self._tell()
            await asyncio.sleep(max(0.1, TICK_S - (self.machine.monotonic() - began)))

    async def _look(self) -> None:
        now = self.machine.monotonic()
        if now - self._listed >= self._names_s() or self._has_heard_of_others():
            self._listed = now
            await self._list()
        self._allowance = min(max(SAVED_MAX, self._dearest()), self._allowance + LOOKS_A_MINUTE / 60 * TICK_S)
        trend = self._next(now)
        if trend is not None and (trend.hurried or self._allowance >= self._price(trend)):
            self._allowance -= self._price(trend)
            if self._memory is not None:
                self._memory.forget(trend.name)
            await self._refresh(trend)
        if self._memory is not None:
            for each in self.trends.values():
                if self._memory.changes.get(each.name, 0) != each.change:
                    await self._refresh(each)
        self._count()

    def _has_heard_of_others(self) -> bool:
        """Has this process used a queue that is not in the list?"""
        return self._memory is not None and any(name not in self.trends for name in self._memory.changes)

    def _price(self, trend: QueueTrend) -> float:
        if self._memory is not None:
            return trend.cost
        parts = len(PARTS) if trend.name in self.shown and self._parts_due(trend) else 0
        return (1 + parts) * (trend.cost + 1)

    def _parts_due(self, trend: QueueTrend) -> bool:
        """Behind an API each part is a call; from memory they come with the heads."""
        late = self.machine.monotonic() - trend.parts_at >= PARTS_S
        return self._memory is not None or trend.hurried or late

    def _workers_due(self, trend: QueueTrend) -> bool:
        """They say once a minute how they are, and what they hold comes with the heads."""
        requests = (1 + trend.workers) * max(1, len(self.shown))
        pause = max(WORKERS_S, requests * 60 / WORKERS_A_MINUTE)
        return self.machine.monotonic() - trend.workers_at >= pause

    def _dearest(self) -> float:
        return max(map(self._price, self.trends.values()), default=1)

    def _names_s(self) -> float:
        if self._memory is not None:
            return NAMES_S
        return max(NAMES_S, sum(each.cost + 1 for each in self.trends.values()) * 120 / LOOKS_A_MINUTE)

    def _next(self, now: float) -> QueueTrend | None:
        """Whose turn it is."""

        def urgency(trend: QueueTrend) -> float:
            age = now - trend.seen
            if trend.hurried:
                return float("inf")
            if age < LOOK_S_MIN:
                return 0.0
            moving = MOVING if now - trend.moved < RATE_S else 1.0
            return age * (SHOWN if trend.name in self.shown else moving)

        found = max(self.trends.values(), key=urgency, default=None)
        return found if found is not None and urgency(found) > 0 else None

    async def _list(self) -> None:
        """The names, and the statistics of those that are new."""
        cursor: str | None = ""
        there: set[str] = set()
        while cursor is not None:
            query = [("limit", str(QUEUES_MAX)), *([("cursor", cursor)] if cursor else [])]
            page = await self._ask(BY_NAME["list_queues"].path, query)
            if page is None:
                return
            for stats in page["queues"]:
                there.add(stats["queue"])
                trend = self.trends.setdefault(stats["queue"], QueueTrend(stats["queue"]))
                if self._memory is None or trend.seen == float("-inf") or trend.error:
                    self._see(trend, stats)
            cursor = page.get("cursor")
        self.listed = True
        if self._memory is not None:
            for name in self._memory.changes.keys() - there:  # it is no queue any more, or none yet
                del self._memory.changes[name]
        for name in [name for name in self.trends if name not in there]:
            del self.trends[name]
            self.number += 1

    async def _refresh(self, trend: QueueTrend) -> None:
        path = BY_NAME["stats"].path.format(queue=quote(trend.name, safe=""))
        parts_due = self._parts_due(trend)
        stats = await self._ask(path)
        if stats is None:
            trend.seen, trend.hurried = self.machine.monotonic(), False
            return
        self._see(trend, stats)
        if trend.name in self.shown and parts_due:
            await self.look_into(trend)
        trend.parts_number = self.number

    async def look_into(self, trend: QueueTrend) -> None:
        """What a page of this queue shows beside the statistics."""
        path = BY_NAME["stats"].path.format(queue=quote(trend.name, safe=""))
        for part, where in PARTS.items():
            rest, _, query = where.partition("?")
            pairs = [
                (name, value) for name, _, value in (each.partition("=") for each in query.split("&")) if name
            ]
            told = await self._ask(f"{path}/{rest}", pairs)
            if told is not None:
                trend.parts[part] = told
        if self._workers_due(trend):
            trend.workers_at = self.machine.monotonic()
            told = await self._ask(f"{path}/workers")
            if told is not None:
                trend.parts["workers"] = told
        trend.parts_at = self.machine.monotonic()
        self.number += 1
        trend.parts_number = self.number

    def _see(self, trend: QueueTrend, stats: dict[str, Any]) -> None:
        if self._memory is not None:
            trend.change = self._memory.changes.get(trend.name, 0)
        if trend.see(stats, self.machine.monotonic(), self.machine.now_ms() / 1000):
            self.number += 1
            trend.number = self.number

    async def _ask(self, path: str, query: list[tuple[str, str]] | None = None) -> Any:
        """An answer of the API; None where there is none, which is said to the pages."""
        response = await self._view.answer(ApiRequest("GET", path, query or ()))
        told = msgspec.json.decode(response.body) if response.body else None
        if response.status == 200:
            self.trouble = None
            return told
        if response.code != "not_found":
            error = told.get("error", {}) if isinstance(told, dict) else {}
            self.trouble = str(error.get("message", f"the API answers {response.status}."))
        return None

    # ── What it costs ────────────────────────────────────────────────────────
    def _count(self) -> None:
        now = self.machine.monotonic()
        self._bill.append((now, dict(self._counts()), 0.0 if self._dollars is None else self._dollars()))
        while len(self._bill) > 2 and now - self._bill[1][0] >= RATE_S:
            self._bill.popleft()

    def bill(self) -> dict[str, Any] | None:
        """Requests a minute of this process, and dollars a day; None before anything was counted."""
        if len(self._bill) < 2:
            return None
        (began, before, paid), (ended, after, due) = self._bill[0], self._bill[-1]
        made = {kind: count - before.get(kind, 0) for kind, count in after.items()}
        # The first minute is not stretched: what opening a page takes, comes once.
        minutes = max(ended - began, RATE_S) / 60
        told: dict[str, Any] = {
            "of": "API" if self._memory is None else "store",
            "per_minute": {kind: count / minutes for kind, count in made.items()},
        }
        if self._dollars is not None:
            told["dollars_a_day"] = (due - paid) / minutes * 60 * 24
        return told
