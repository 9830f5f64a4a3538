"""A queue's settings, each written once: its meaning, its unit and its bounds.

What else knows of them is made from this table: the checks and their words, the request of the API and its schema,
the options of the command line, what ``stats`` tells, and the reference in ``docs/api.md``. The rows stand in ``core``,
which knows nobody: ``QueueSettings`` with the defaults, and ``ChangeSettings``. Tests compare both with the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from .. import limits
from ..core.ops import ChangeSettings
from ..core.state import QueueSettings
from ..errors import Rejected
from .fields import described_fields


class WishedSettings(Struct, frozen=True, kw_only=True):
    """What an operator may change while the queue runs; None leaves it as it is."""

    paused: Annotated[bool, Meta(description="Whether claims get no jobs.")] | None = None
    backoff_base: (
        Annotated[
            float,
            Meta(
                description="The longest wait after the first failure; doubled at each.",
                ge=1 / 1000,
                le=limits.DAY_MS / 1000,
            ),
        ]
        | None
    ) = None
    backoff_cap: (
        Annotated[
            float,
            Meta(description="The longest wait before a retry.", ge=1 / 1000, le=limits.DELAY_MS_MAX / 1000),
        ]
        | None
    ) = None
    dead_ttl: (
        Annotated[
            float,
            Meta(
                description="How long dead letters are kept.",
                ge=limits.MINUTE_MS / 1000,
                le=limits.DELAY_MS_MAX / 1000,
            ),
        ]
        | None
    ) = None
    shards: (
        Annotated[
            int,
            Meta(
                description="Over how many heads the queue is spread; can only grow.",
                ge=1,
                le=limits.SHARDS_MAX,
            ),
        ]
        | None
    ) = None


SETTINGS = described_fields(WishedSettings)
NESTED = [
    name for name in SETTINGS if name not in ("paused", "shards")
]  # which statistics tell beside the states


def change_of(wished: Mapping[str, Any]) -> ChangeSettings:
    """Settings as callers name them, checked. Raises Rejected."""
    columns: dict[str, Any] = {}
    for name, value in wished.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise Rejected(f"{name}: no such setting. Known: {', '.join(sorted(SETTINGS))}.", field=name)
        columns[setting.column] = setting.read(value)
    return ChangeSettings(**columns)


def settings_view(settings: QueueSettings) -> dict[str, Any]:
    """All settings as callers see them, by name."""
    return {name: setting.told(getattr(settings, setting.column)) for name, setting in SETTINGS.items()}


DEFAULTS = settings_view(QueueSettings())
