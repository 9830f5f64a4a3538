"""Steering a queue: pauses and settings, and many jobs cancelled at once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack

from .. import limits
from ..commit.effects import QueueFlow
from ..model import validation
from .flow_methods import FlowMethod
from .options import GroupArguments, SettingArguments, pausing

if TYPE_CHECKING:  # loaded where they are used
    from ..model.reports import CancelledMany, FlowUsage, QueueGroup
    from ..model.worker import WorkerStatus


class QueueSteering:
    """The part of a queue object that changes how the queue works."""

    if TYPE_CHECKING:

        @property
        def _steering(self) -> Any: ...

    def _pause(
        self,
        kind: str | None = None,
        for_: float | timedelta | None = None,
        until: datetime | float | None = None,
        group: str | None = None,
    ) -> QueueFlow[None]:
        """Stop handing out jobs, or those of one kind, durably: until somebody resumes, for so long, or until then.

        Running jobs finish, new ones are accepted. A pause with an end ends by itself, by the store's clock. A group
        is paused until it is resumed.
        """
        flow: QueueFlow[None] = self._steering.configure(**pausing(True, kind, for_, until, group))
        return flow

    def _resume(self, kind: str | None = None, group: str | None = None) -> QueueFlow[None]:
        """Hand out jobs again, or those of one kind, or of a group: also of one that was stopped by a dead letter."""
        flow: QueueFlow[None] = self._steering.configure(**pausing(False, kind, group=group))
        return flow

    def _configure(self, /, **settings: Unpack[SettingArguments]) -> QueueFlow[None]:
        """Change settings, by name: those of ``docs/api.md``, durations in seconds. Others stay as they are."""
        flow: QueueFlow[None] = self._steering.configure(**settings)
        return flow

    def _flow(self) -> QueueFlow[FlowUsage]:
        """All limits of the queue, and what is used of them: over all shards, and by shard where there are several."""
        flow: QueueFlow[FlowUsage] = self._steering.flow()
        return flow

    def _groups(self, limit: int = 100) -> QueueFlow[list[QueueGroup]]:
        """Up to ``limit`` groups that run, or that something holds, and why: those that are held first, then by name.

        A group that neither runs nor is held is not among them. ``limit`` is 1,000 at most.
        """
        flow: QueueFlow[list[QueueGroup]] = self._steering.groups(limit)
        return flow

    def _workers(self) -> QueueFlow[list[WorkerStatus]]:
        """The workers of the queue: those that run or were lost within an hour, and who else holds leases.

        A worker says once a minute that it is there; what it holds now is told by the heads. Those that are lost come
        first, then by name. Raises Timeout, Unavailable.
        """
        flow: QueueFlow[list[WorkerStatus]] = self._steering.workers()
        return flow

    def _cancel_many(
        self,
        kinds: Iterable[str] | None = None,
        group: str | None = None,
        enqueued_before: datetime | float | None = None,
        dry_run: bool = False,
        batch: str | None = None,
    ) -> QueueFlow[CancelledMany]:
        """Cancel all jobs that wait, also delayed ones, and ask those that run. Jobs that are enqueued later stay.

        Only those of ``kinds``, of a ``group``, of a ``batch`` (its id), enqueued before a time (an aware datetime, or
        Unix seconds). No worker gets any of them from then on, however many there are. At most ``waiting`` of them lie
        deep: they say that they are ``cancelled``, and are counted and archived as such when claims or the reaper meet
        them. ``dry_run`` only counts. Raises Rejected, Throttled (too many such calls are still at work), Timeout,
        Unavailable.
        """
        validation.flag(dry_run, "dry_run")
        flow: QueueFlow[CancelledMany] = self._steering.cancel_many(
            kinds, group, enqueued_before, dry_run, batch
        )
        return flow

    def _configure_group(self, group: str, /, **settings: Unpack[GroupArguments]) -> QueueFlow[None]:
        """Let one group have limits of its own: how many of its jobs run at once, its rate, and the burst of that.

        None lets it be as the queue says again; what is left out stays as it is. `stats` tells them, in "groups".
        Raises Rejected, Throttled (200 groups of its shard have some), Timeout, Unavailable.
        """
        validation.text(group, "group", limits.GROUP_CHARS_MAX, 1)
        flow: QueueFlow[None] = self._steering.configure_group(group, settings)
        return flow

    pause = FlowMethod(_pause)
    resume = FlowMethod(_resume)
    configure = FlowMethod(_configure)
    configure_group = FlowMethod(_configure_group)
    flow = FlowMethod(_flow)
    groups = FlowMethod(_groups)
    workers = FlowMethod(_workers)
    cancel_many = FlowMethod(_cancel_many)
