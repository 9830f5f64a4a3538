"""The flows of operators, over an API. Imported at first use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ..clock import Machine
from ..commit.effects import Sleep
from ..contract.admin_schemas import (
    CancelMany,
    DeadGroups,
    DeadLetters,
    Page,
    Purge,
    QueueGroups,
    Queues,
    Redrive,
    Redriven,
    Settings,
    Workers,
)
from ..contract.functions import BY_NAME, GATEWAY_TIMEOUT_S
from ..contract.schemas import Cancelled, Jobs, JobState
from ..core.state import STATES
from ..errors import NotFound, OsqueueError
from ..model import validation
from ..model.codecs import JSON, Codec
from ..model.dead_letters import DeadGroup, DeadLetterDetails, filter_of
from ..model.explain import Story
from ..model.included import INCLUDES_DEAD, include_of
from ..model.job import Job
from ..model.job_filter import job_filter_of
from ..model.keys import job_id
from ..model.reports import CancelledMany, FlowUsage, Purged, QueueGroup, ReapReport
from ..model.settings import change_of
from ..model.worker import WorkerStatus
from ..objects import archive
from ..objects.listing import PAGE_MAX
from ..operations.dead_letters import PACE_SECONDS, rate_of, redrive_limit
from ..operations.purge import names_of
from ..operations.settings import cancel_of
from .batches import RemoteBatches
from .call import ApiClient, RemoteFlow
from .content import details
from .schedules import RemoteSchedules

CURSOR_CHARS_MAX = 1_000  # more than any page returns
PURGED_AT_ONCE = 50  # jobs in one call: each takes a dozen requests to the store
REDRIVEN_AT_ONCE = 10_000  # dead letters in one call


class RemoteAdmin(RemoteSchedules, RemoteBatches):
    """Listing, cancel, settings, schedules, dead letters, stories, purge, upkeep, the archive."""

    def cancel(self, text: str) -> RemoteFlow[str]:
        """Cancel a waiting job, ask the worker of a running one."""
        try:
            found: Cancelled = yield from self.ask("cancel", job=validation.job_name(text))
        except NotFound:
            return "not_found"
        return found.status

    def cancel_many(
        self,
        kinds: Iterable[str] | None = None,
        group: str | None = None,
        enqueued_before: datetime | float | None = None,
        dry_run: bool = False,
        batch: str | None = None,
    ) -> RemoteFlow[CancelledMany]:
        """Cancel all that match and wait, and ask those that run; or only count them."""
        op = cancel_of(kinds, group, enqueued_before, batch)
        body = CancelMany(
            kinds=None if op.kinds is None else list(op.kinds),
            group=op.group,
            enqueued_before=op.before_ms / 1000 if op.before_ms else None,
            dry_run=bool(dry_run),
            batch=job_id(op.batch) if op.batch else None,
        )
        found: CancelledMany = yield from self._once("cancel_many", body)
        return found

    def run_now(self, text: str) -> RemoteFlow[str]:
        """Let a delayed job be claimable at once; answers its state, "not_found" where there is no such job."""
        try:
            found: JobState = yield from self.ask("run_now", job=validation.job_name(text))
        except NotFound:
            return "not_found"
        return found.state

    def jobs(
        self, state: str | None = None, limit: int = 100, cursor: str | None = None, **wished: Any
    ) -> RemoteFlow[tuple[list[Job], str | None]]:
        """One page of live jobs and the cursor of the next."""
        if state is not None:
            validation.word(state, "state", STATES)
        most = validation.whole_number(limit, "limit", 1, PAGE_MAX)
        which = job_filter_of(self.machine.now_ms(), **wished)
        query = [
            ("state", state),
            ("limit", most),
            ("cursor", None if cursor is None else validation.text(cursor, "cursor", CURSOR_CHARS_MAX)),
            ("id", which.id),
            ("group", which.group),
            ("batch", which.batch),
            *(("header", name if value is None else f"{name}={value}") for name, value in which.headers),
            ("worker", which.worker or None),
            ("older_than", wished.get("older_than")),
            *_matching(which.kinds, ""),
        ]
        page: Jobs = yield from self.ask("list_jobs", query=query)
        return page.jobs, page.cursor

    def stats(self) -> RemoteFlow[dict[str, Any]]:
        """Numbers over all shards."""
        found: dict[str, Any] = yield from self.ask("stats")
        return found

    def flow(self) -> RemoteFlow[FlowUsage]:
        """All limits of the queue, and what is used of them."""
        found: FlowUsage = yield from self.ask("flow")
        return found

    def groups(self, limit: int = 100) -> RemoteFlow[list[QueueGroup]]:
        """Groups that run, or that something holds: those that are held first, then by name."""
        validation.whole_number(limit, "limit", 1, PAGE_MAX)
        found: QueueGroups = yield from self.ask("groups", query=[("limit", limit)])
        return found.groups

    def workers(self) -> RemoteFlow[list[WorkerStatus]]:
        """All workers that are registered or hold leases, as far as one answer has room for them."""
        found: Workers = yield from self.ask("list_workers")
        return found.workers

    def configure(self, **wished: Any) -> RemoteFlow[None]:
        """Change settings on every shard; answers when all have them."""
        change_of(wished)
        settings = {name: validation.seconds(value) for name, value in wished.items()}
        yield from self.ask("configure", body=Settings(**settings))

    def configure_group(self, group: str, wished: Mapping[str, Any]) -> RemoteFlow[None]:
        """Change what one group has of its own. Raises Rejected, Throttled."""
        yield from self.configure(groups={group: wished})  # in the body: not every group fits into a path

    def story(self, text: str) -> RemoteFlow[Story]:
        """The story of a job, by job id or by the client's own id. Raises NotFound."""
        found: Story = yield from self.ask("story", job=validation.job_name(text))
        return found

    def purge(self, jobs: str | Iterable[str], dead_only: bool = False) -> RemoteFlow[Purged]:
        """Erase jobs, by either id; with ``dead_only`` dead letters alone. Raises Conflict, NotFound."""
        names = [validation.job_name(each) for each in names_of(jobs)]
        total = Purged(())
        for start in range(0, len(names), PURGED_AT_ONCE):
            some = Purge(jobs=names[start : start + PURGED_AT_ONCE], dead_only=dead_only)
            total += yield from self._once("purge", some)
        return total

    def reap(self) -> RemoteFlow[ReapReport]:
        """One pass of upkeep. Behind a gateway one that takes longer than 30 seconds goes on, and is not heard of."""
        seconds = max(self.timeout, BY_NAME["reaper"].timeout_s)
        report: ReapReport = yield from self.ask("reap", seconds=seconds)
        return report

    def history(self, since: datetime | float | None, until: datetime | float | None) -> RemotePager:
        """Goes through the archive, page by page."""
        return RemotePager(self, since, until)

    # ── Dead letters ─────────────────────────────────────────────────────────
    def dead_letters(
        self,
        limit: int = 100,
        cursor: str | None = None,
        kinds: Iterable[str] | None = None,
        error: str | None = None,
        fingerprint: str | None = None,
        include: str | Iterable[str] = (),
    ) -> RemoteFlow[tuple[list[DeadLetterDetails], str | None]]:
        """One page of those that match, and the cursor of the next page."""
        which = filter_of(kinds, error, fingerprint)
        query: list[tuple[str, object]] = [
            ("limit", validation.whole_number(limit, "limit", 1, PAGE_MAX)),
            ("cursor", None if cursor is None else validation.text(cursor, "cursor", CURSOR_CHARS_MAX)),
            ("fingerprint", which.fingerprint or None),
            ("include", ",".join(include_of(include, INCLUDES_DEAD)) or None),
            *_matching(which.kinds, which.error),
        ]
        page: DeadLetters = yield from self.ask("dead_letters", query=query)
        return [details(DeadLetterDetails, self.codec, each) for each in page.jobs], page.cursor

    def dead_letter_groups(
        self, kinds: Iterable[str] | None = None, error: str | None = None
    ) -> RemoteFlow[list[DeadGroup]]:
        """All that match, by the error they died of."""
        which = filter_of(kinds, error, None)
        query = _matching(which.kinds, which.error)
        found: DeadGroups = yield from self.ask("dead_letter_groups", query=query)
        return found.groups

    def redrive(
        self,
        limit: int | None = None,
        kinds: Iterable[str] | None = None,
        error: str | None = None,
        dry_run: bool = False,
        fingerprint: str | None = None,
        rate: float | None = None,
        jobs: Iterable[str] | None = None,
    ) -> RemoteFlow[int]:
        """Queue dead jobs again, the oldest first; at a pace, which is kept from here by calls with a limit."""
        which = filter_of(kinds, error, fingerprint)
        most = redrive_limit(limit)
        pace = None if rate is None else rate_of(rate)
        at_once = REDRIVEN_AT_ONCE if pace is None else max(1, int(pace * PACE_SECONDS))
        names = None if jobs is None else [validation.job_name(each) for each in jobs]
        moved = 0
        while True:
            began = self.machine.monotonic()
            left = None if most is None else most - moved
            asked = Redrive(
                limit=left if dry_run else min(at_once, at_once if left is None else left),
                kinds=None if which.kinds is None else list(which.kinds),
                error=which.error or None,
                fingerprint=which.fingerprint or None,
                jobs=names,
                dry_run=bool(dry_run),
            )
            try:
                done: Redriven = yield from self._once("redrive", asked)
            except OsqueueError as failure:
                if moved:
                    failure.message = f"{moved:,} jobs were queued again; then: {failure.message}"
                    failure.args = (failure.message,)
                raise
            moved += done.jobs
            if dry_run or not done.more or moved == most:
                return moved
            wait = 0.0 if pace is None else done.jobs / pace - (self.machine.monotonic() - began)
            if wait > 0:
                yield Sleep(wait)

    def _once(self, operation: str, body: Any) -> RemoteFlow[Any]:
        """A call that may take its function's whole time, and is not repeated: so its answer is waited for."""
        return (yield from self.ask(operation, body=body, seconds=max(self.timeout, GATEWAY_TIMEOUT_S)))


class RemotePager:
    """Goes through a queue's archive over an API: each record once, in the order of the archive."""

    def __init__(
        self, calling: ApiClient, since: datetime | float | None, until: datetime | float | None
    ) -> None:
        self._calling = calling
        first, last = archive.window(since, until)
        self._window = [(name, _seconds(ms)) for name, ms in (("since", first), ("until", last))]
        self._cursor: str | None = None
        self._over = False
        self._seen = archive.RecordDeduplicator()

    def page(self) -> RemoteFlow[list[Job] | None]:
        """The jobs of the next page; None at the end."""
        if self._over:
            return None
        query = [*self._window, ("cursor", self._cursor)]
        page: Page = yield from self._calling.ask("history", query=query)
        self._cursor, self._over = page.cursor, page.cursor is None
        return list(self._seen.fresh(page.part, page.jobs))


class RemoteQueues(ApiClient):
    """The queues of an API."""

    def __init__(self, machine: Machine, timeout: float) -> None:
        super().__init__("", Codec(JSON), machine, timeout)

    def queues(self) -> RemoteFlow[list[dict[str, Any]]]:
        """The statistics of every queue there is; of one that cannot be read its name and an ``error``."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page: Queues = yield from self.ask("list_queues", query=[("cursor", cursor)])
            found.extend(page.queues)
            cursor = page.cursor
            if cursor is None:
                return found


def _matching(kinds: Sequence[str] | None, error: str) -> list[tuple[str, object]]:
    return [("error", error or None), *(("kind", kind) for kind in kinds or ())]


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
