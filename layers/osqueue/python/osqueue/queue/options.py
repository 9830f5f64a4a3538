"""What ``connect``, ``run`` and ``configure`` take, by name: for type checkers, which run no code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from .. import limits
from ..errors import Rejected
from ..model import validation

if TYPE_CHECKING:  # loaded where they are used
    from ..events import Sink
    from ..model.codecs import Serializer
    from ..model.consumer import Consumer
    from ..model.settings import Group, Kind
    from ..worker.loop import Worker
    from .events import Waker


class QueueOptions(TypedDict, total=False):
    """The options of ``connect``, but for the type of payloads."""

    serializer: str | Serializer
    result_serializer: str | Serializer | None
    timeout: float
    sinks: Iterable[Sink]
    waker: Waker | None
    window: float


class WorkerOptions(TypedDict, total=False):
    """The options of ``run``: those of ``osqueue.worker.loop.Worker``, which says what each means."""

    concurrency: int
    name: str | None
    lease: float
    poll: float
    drain: float
    until_empty: bool
    signals: bool
    traceback: bool


class SettingArguments(TypedDict, total=False):
    """The options of ``configure``: the settings of ``osqueue.model.settings``."""

    priority: int | None
    max_attempts: int | None
    result_ttl: float | timedelta | None
    run_within: float | timedelta | None
    start_within: float | timedelta | None
    backoff_base: float | timedelta | None
    backoff_cap: float | timedelta | None
    max_running: int | None
    rate: tuple[int, float] | None
    burst: int | None
    paused: bool | None
    paused_until: datetime | float | None
    paused_for: float | timedelta | None
    dead_ttl: float | timedelta | None
    group_running: int | None
    group_rate: tuple[int, float] | None
    group_burst: int | None
    group_on_failure: str | None
    group_on_dead: str | None
    group_shards: int | None
    groups: Mapping[str, Group | Mapping[str, Any]] | None
    fair: bool | None
    archive_payloads: bool | None
    limiter: str | None
    ageing: float | timedelta | None
    shards: int | None
    kinds: Mapping[str, Kind | Mapping[str, Any] | None] | None
    consumers: Mapping[str, Consumer | Mapping[str, Any] | None] | None


class JobFilterArguments(TypedDict, total=False):
    """Which jobs ``jobs`` is about; None: whatever they are like."""

    kinds: Iterable[str] | None
    id: str | None
    group: str | None
    batch: str | None
    headers: Mapping[str, str | None] | None
    worker: str | None
    older_than: float | None


class GroupArguments(TypedDict, total=False):
    """The options of ``configure_group``; None: as the queue says."""

    running: int | None
    rate: tuple[int, float] | None
    burst: int | None


def pausing(
    paused: bool,
    kind: str | None,
    for_: float | timedelta | None = None,
    until: datetime | float | None = None,
    group: str | None = None,
) -> dict[str, Any]:
    """Return the settings that pause or resume a queue, one kind of its jobs, or a group. Raises Rejected."""
    if for_ is not None and until is not None:
        raise Rejected("until: a pause has one end. Give for_ or until, not both.", field="until")
    if group is not None:
        validation.text(group, "group", limits.GROUP_CHARS_MAX, 1)
        for name, value in (("kind", kind), ("for_", for_), ("until", until)):
            if value is not None:
                raise Rejected(f"{name}: a group is paused by itself, until it is resumed.", field=name)
        return {"groups": {group: {"paused": paused}}}
    wished: dict[str, Any] = {"paused": paused}
    if for_ is not None:
        length_ms = validation.milliseconds(validation.seconds(for_), "for_", 1, limits.DELAY_MS_MAX)
        wished["paused_for"] = length_ms / 1000
    if until is not None:
        wished["paused_until"] = validation.moment_ms(until, "until", limits.AT_MS_MAX) / 1000
    return wished if kind is None else {"kinds": {validation.kind(kind): wished}}


def worker_class() -> type[Worker]:
    """What ``run`` passes its options on to."""
    from ..worker.loop import Worker

    return Worker
