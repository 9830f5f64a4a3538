"""Schedules of a queue: jobs that are made again and again, by the clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from ..commit.effects import QueueFlow
from .flow_methods import FlowMethod

if TYPE_CHECKING:
    from ..model.follow_ups import Next
    from ..model.job import Enqueued
    from ..model.schedule import Schedule


class ScheduledJobOptions(TypedDict, total=False):
    """The options of ``enqueue`` that each job of a schedule can have."""

    kind: str | None
    priority: int | None
    max_attempts: int | None
    result_ttl: float | timedelta | None
    run_within: float | timedelta | None
    start_within: float | timedelta | None
    units: int | None
    headers: dict[str, str] | None
    then: Sequence[Next | Mapping[str, Any]] | None


class QueueSchedules:
    """The part of a queue object that keeps schedules."""

    if TYPE_CHECKING:

        @property
        def _steering(self) -> Any: ...

    def _schedule(
        self,
        name: str,
        cron: str | None = None,
        payload: Any = None,
        *,
        tz: str = "UTC",
        every: float | timedelta | None = None,
        missed: Literal["once", "all", "skip"] = "once",
        overlap: Literal["allow", "skip", "queue"] = "allow",
        **options: Unpack[ScheduledJobOptions],
    ) -> QueueFlow[Schedule]:
        """Enqueue a job at each tick of a crontab line, from now on; add the schedule, or change it.

        ``cron`` has five fields, as "0 3 * * *", meant in the time zone ``tz``; ``every`` seconds, 60 at least, is
        instead of it. The options are those of ``enqueue``. Ticks while nobody used the queue make one job ("once", for
        the latest of them), one each ("all", 100 at most) or none ("skip"). While a job of the schedule waits or runs,
        a tick makes another one ("allow"), none ("skip"), or one when that has ended ("queue"). The same words again
        change nothing. Raises Rejected, Throttled (no room for more schedules), Timeout, Unavailable.
        """
        flow: QueueFlow[Schedule] = self._steering.schedule(
            name, cron, payload, tz, every, missed, overlap, options
        )
        return flow

    def _schedules(self) -> QueueFlow[list[Schedule]]:
        """The schedules of the queue, by name."""
        flow: QueueFlow[list[Schedule]] = self._steering.schedules()
        return flow

    def _unschedule(self, name: str) -> QueueFlow[bool]:
        """Remove a schedule; False where there was none. Its jobs stay."""
        flow: QueueFlow[bool] = self._steering.unschedule(name)
        return flow

    def _run_schedule(self, name: str) -> QueueFlow[Enqueued]:
        """Make a job of a schedule now, beside its ticks, and whatever its overlap says. Raises NotFound, Throttled."""
        flow: QueueFlow[Enqueued] = self._steering.run_schedule(name)
        return flow

    def _pause_schedule(self, name: str) -> QueueFlow[Schedule]:
        """Let a schedule rest: no tick makes a job, and none of them is made up for. Raises NotFound."""
        flow: QueueFlow[Schedule] = self._steering.pause_schedule(name, True)
        return flow

    def _resume_schedule(self, name: str) -> QueueFlow[Schedule]:
        """Let a schedule go on, from its next tick. Raises NotFound."""
        flow: QueueFlow[Schedule] = self._steering.pause_schedule(name, False)
        return flow

    schedule = FlowMethod(_schedule)
    schedules = FlowMethod(_schedules)
    unschedule = FlowMethod(_unschedule)
    run_schedule = FlowMethod(_run_schedule)
    pause_schedule = FlowMethod(_pause_schedule)
    resume_schedule = FlowMethod(_resume_schedule)
