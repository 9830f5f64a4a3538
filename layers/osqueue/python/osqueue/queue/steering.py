"""Steering a queue: pauses and settings."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack

from ..commit.effects import QueueFlow
from .flow_methods import FlowMethod
from .options import SettingArguments, pausing


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

    pause = FlowMethod(_pause)
    resume = FlowMethod(_resume)
    configure = FlowMethod(_configure)
