"""A queue's settings, each written once: its meaning, its unit and its bounds.

What else knows of them is made from this table: the checks and their words, the request of the API and its schema,
the options of the command line, what ``stats`` tells, and the reference in ``docs/api.md``. The rows stand in ``core``,
which knows nobody: ``QueueSettings`` with the defaults, and ``ChangeSettings``. Tests compare both with the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from .. import limits
from ..core.queue_ops import AS_THE_QUEUE, ChangeSettings, GroupChange
from ..core.settings import GroupSettings, KindSettings, QueueSettings
from ..errors import Rejected, shown
from .consumer import Consumer, read_consumers, told_consumers
from .fields import DescribedField, described_fields, moment
from .option_types import MaxAttempts, Priority, ResultTtl, RunWithin, StartWithin
from .validation import is_queue_name, milliseconds, moment_ms, plain_text, seconds, text, whole_number, word

BackoffBase = Annotated[
    float,
    Meta(
        description="The longest wait after the first failure; doubled at each.",
        ge=1 / 1000,
        le=limits.DAY_MS / 1000,
    ),
]
BackoffCap = Annotated[
    float, Meta(description="The longest wait before a retry.", ge=1 / 1000, le=limits.DELAY_MS_MAX / 1000)
]


MaxRunning = Annotated[
    int,
    Meta(
        description="How many jobs may run at once, over all shards; the others wait. 0: no limit.",
        ge=0,
        le=limits.RUNNING_MAX,
    ),
]


def _read_end(setting: DescribedField, value: Any) -> int:
    """When a pause ends: a time, or what is told of one."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise Rejected(
                f"{setting.name}: {shown(value)} is no time. Pass an aware datetime, or Unix seconds.",
                field=setting.name,
            ) from None
    return moment_ms(value, setting.name, limits.AT_MS_MAX)


def _told_end(value: int) -> str | None:
    if not value:
        return None
    return moment(value).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _read_length(setting: DescribedField, value: Any) -> int:
    """How long a pause is: rows call a time from now on negative."""
    return -milliseconds(seconds(value), setting.name, 1, limits.DELAY_MS_MAX)


def _read_rate(setting: DescribedField, value: Any) -> tuple[int, int]:
    """So many starts in so many seconds."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise Rejected(
            f"{setting.name}: {shown(value)} is no pair of jobs and seconds. Write (100, 60) for 100 jobs a minute.",
            field=setting.name,
        )
    starts = whole_number(value[0], setting.name, 1, limits.RATE_STARTS_MAX)
    return starts, milliseconds(seconds(value[1]), setting.name, 1, limits.RATE_MS_MAX)


def _told_rate(value: Sequence[int]) -> list[float] | None:
    starts, period_ms = value
    return [starts, period_ms / 1000] if starts else None


Rate = Annotated[
    tuple[int, float],
    Meta(
        description="How many jobs may start in how many seconds, over all shards; the others wait. None: no limit.",
        extra={"read": _read_rate, "told": _told_rate},
    ),
]
Burst = Annotated[
    int,
    Meta(
        description="How many of them may start at once, after a rest. 0: those of one second, one at least.",
        ge=0,
        le=limits.RATE_BURST_MAX,
    ),
]
GroupRate = Annotated[
    tuple[int, float],
    Meta(
        description="How many jobs of each group may start in how many seconds; the others wait. None: no limit.",
        extra={"read": _read_rate, "told": _told_rate},
    ),
]
GroupBurst = Annotated[
    int,
    Meta(
        description="How many of a group may start at once, after a rest. 0: those of one second, one at least.",
        ge=0,
        le=limits.RATE_BURST_MAX,
    ),
]
PausedUntil = Annotated[
    float,
    Meta(
        description="When the pause ends by itself; none: it lasts until somebody ends it.",
        ge=0,
        le=limits.AT_MS_MAX / 1000,
        extra={"read": _read_end, "told": _told_end},
    ),
]
PausedFor = Annotated[
    float,
    Meta(
        description="The same, from now on.",
        ge=1 / 1000,
        le=limits.DELAY_MS_MAX / 1000,
        extra={"column": "paused_until_ms", "read": _read_length, "wish": True},
    ),
]


class Kind(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds for jobs of one kind that do not say it themselves; None: it is as the queue says again."""

    priority: Priority | UnsetType | None = UNSET
    max_attempts: MaxAttempts | UnsetType | None = UNSET
    result_ttl: ResultTtl | UnsetType | None = UNSET
    run_within: RunWithin | UnsetType | None = UNSET
    start_within: StartWithin | UnsetType | None = UNSET
    backoff_base: BackoffBase | UnsetType | None = UNSET
    backoff_cap: BackoffCap | UnsetType | None = UNSET
    max_running: MaxRunning | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    burst: Burst | UnsetType | None = UNSET
    paused: Annotated[bool, Meta(description="Whether claims get no jobs.")] | None = None
    paused_until: datetime | PausedUntil | None = None
    paused_for: PausedFor | None = None


def _read_kinds(setting: DescribedField, value: Any) -> tuple[list[KindSettings], list[str]]:
    """Kinds as rows, and those that are dropped. Raises Rejected."""
    if not isinstance(value, Mapping):
        raise Rejected(
            f"kinds: {shown(value)} is no mapping of kinds to their settings. Write {{'mail': Kind(max_attempts=5)}}.",
            field="kinds",
        )
    rows, dropped = [], []
    for name, wished in value.items():
        kind = text(name, "kinds", limits.KIND_CHARS_MAX)
        if wished is None:
            dropped.append(kind)
            continue
        if isinstance(wished, Kind):
            wished = asdict(wished)
        if not isinstance(wished, Mapping):
            raise Rejected(
                f"kinds: the settings of {kind!r} are {shown(wished)}. Use Kind(…), or None to drop them.",
                field="kinds",
            )
        columns = _columns(wished, KIND_SETTINGS, _OF_KINDS, f"kinds: {kind!r}: ")
        rows.append(KindSettings(kind, **columns))
    return rows, dropped


def _told_kinds(rows: Sequence[KindSettings]) -> dict[str, dict[str, Any]]:
    """The inverse of ``_read_kinds``: what differs from the queue, by kind."""
    return {
        row.kind: {
            name: setting.told(value)
            for name, setting in KIND_SETTINGS.items()
            if name in TOLD and (value := getattr(row, setting.column)) is not None
        }
        for row in rows
    }


GroupRunning = Annotated[
    int,
    Meta(
        description="How many of its jobs may run at once. 1: one by one, in order. 0: no limit.",
        ge=0,
        le=limits.RUNNING_MAX,
    ),
]


class Group(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator may say of one group; None: it is as the queue says."""

    paused: Annotated[bool, Meta(description="Whether its jobs wait.")] | UnsetType = UNSET
    running: GroupRunning | UnsetType | None = UNSET
    rate: GroupRate | UnsetType | None = UNSET
    burst: GroupBurst | UnsetType | None = UNSET


_AS_THE_QUEUE: dict[str, Any] = {"running": AS_THE_QUEUE, "rate": (0, 0), "burst": AS_THE_QUEUE}


def _read_groups(setting: DescribedField, value: Any) -> tuple[GroupChange, ...]:
    if not isinstance(value, Mapping):
        raise Rejected(
            f"groups: {shown(value)} is no mapping of groups. Write {{'order-42': Group(paused=True)}}.",
            field="groups",
        )
    return tuple([group_change(name, wished) for name, wished in value.items()])


def group_change(name: Any, wished: Any) -> GroupChange:
    """What is to change of a group, checked. Raises Rejected."""
    group = text(name, "groups", limits.GROUP_CHARS_MAX, 1)
    said = asdict(wished) if isinstance(wished, Group) else wished
    if not isinstance(said, Mapping):
        raise Rejected(f"groups: {group!r}: write Group(paused=True), or Group(running=5).", field="groups")
    columns = {}
    for field, value in said.items():
        if field not in GROUP_SETTINGS:
            raise Rejected(
                f"groups: {group!r}: {field}: no such setting. Known: {', '.join(sorted(GROUP_SETTINGS))}.",
                field=str(field),
            )
        if value is None and field in _AS_THE_QUEUE:
            columns[field] = _AS_THE_QUEUE[field]
        elif value is not UNSET:
            columns[field] = GROUP_SETTINGS[field].read(value)
    if not columns:
        raise Rejected(
            f"groups: {group!r}: nothing to change. Known: {', '.join(GROUP_SETTINGS)}.", field="groups"
        )
    return GroupChange(group, **columns)


def told_groups(rows: Mapping[str, GroupSettings]) -> dict[str, dict[str, Any]]:
    """What single groups have of their own, by group, as callers see it."""
    return {
        group: {
            name: GROUP_SETTINGS[name].told(value)
            for name in _AS_THE_QUEUE
            if (value := getattr(row, name)) is not None
        }
        for group, row in rows.items()
    }


def _read_word(*words: str) -> Callable[[DescribedField, Any], str]:
    """One of these words."""

    def read(setting: DescribedField, value: Any) -> str:
        return word(value, setting.name, words)

    return read


GroupOnFailure = Annotated[
    str,
    Meta(
        description="What a group in order does while its job waits for a retry, or was put off: it waits too ('hold'),"
        " or its others go on ('skip').",
        max_length=8,
        pattern="^(hold|skip)$",
        extra={"read": _read_word("hold", "skip")},
    ),
]
GroupOnDead = Annotated[
    str,
    Meta(
        description="What it does when a job of it is dead: 'go_on', or 'stop' until that is redriven or the group is"
        " resumed.",
        max_length=8,
        pattern="^(go_on|stop)$",
        extra={"read": _read_word("go_on", "stop")},
    ),
]


def _read_limiter(setting: DescribedField, value: Any) -> str:
    """The name of a pacer."""
    if not isinstance(value, str) or not is_queue_name(value):
        raise Rejected(
            f"{setting.name}: {shown(value)} is not the name of a pacer. Create one: 'osqueue pacer create ADDRESS NAME"
            " --interval 1s'.",
            field=setting.name,
        )
    return plain_text(value)


class WishedSettings(Kind, frozen=True, kw_only=True):
    """What an operator may change while the queue runs; None leaves it as it is."""

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
    group_running: (
        Annotated[
            int,
            Meta(
                description="How many jobs of one group may run at once. 1: one by one, in order. 0: no limit.",
                ge=0,
                le=limits.RUNNING_MAX,
            ),
        ]
        | None
    ) = None
    group_rate: GroupRate | UnsetType | None = UNSET
    group_burst: GroupBurst | None = None
    group_on_failure: GroupOnFailure | None = None
    group_on_dead: GroupOnDead | None = None
    group_shards: (
        Annotated[
            int,
            Meta(
                description="Over how many shards groups are spread; fixed by the first job that has one.",
                ge=1,
                le=limits.SHARDS_MAX,
            ),
        ]
        | None
    ) = None
    groups: (
        Annotated[
            dict[str, Group],
            Meta(
                description="Groups to pause, to let go on, or to have limits of their own.",
                max_length=limits.GROUP_HOLDS_MAX,
                extra={"read": _read_groups, "wish": True},
            ),
        ]
        | None
    ) = None
    fair: (
        Annotated[
            bool,
            Meta(
                description="Whether groups of which the fewest jobs run go first, and take turns where as many run."
            ),
        ]
        | None
    ) = None
    archive_payloads: (
        Annotated[
            bool,
            Meta(
                description="Whether the archive gets the payloads and results of jobs that end from now on, too."
            ),
        ]
        | None
    ) = None
    limiter: (
        Annotated[
            str,
            Meta(
                description="The pacer at the same address of whose slots each start uses one up, also over several"
                " queues. None: no limiter.",
                max_length=64,
                extra={"read": _read_limiter, "told": lambda name: name or None},
            ),
        ]
        | UnsetType
        | None
    ) = UNSET
    ageing: (
        Annotated[
            float,
            Meta(
                description="After how long a job that waits counts as one priority more urgent. 0: never.",
                ge=0,
                le=limits.AGEING_MS_MAX / 1000,
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
    kinds: (
        Annotated[
            dict[str, Kind | None],
            Meta(
                description="What differs for jobs of some kinds; None lets go of what a kind had of its own.",
                max_length=limits.KINDS_MAX,
                extra={"read": _read_kinds, "told": _told_kinds},
            ),
        ]
        | None
    ) = None
    consumers: (
        Annotated[
            dict[str, Consumer | None],
            Meta(
                description="Functions that are invoked when jobs wait, by names of their own; None detaches one.",
                max_length=limits.CONSUMERS_MAX,
                extra={"read": read_consumers, "told": told_consumers},
            ),
        ]
        | None
    ) = None


ENDS = ("paused_until", "paused_for")
# Settings of which None is a value, and how rows say it.
LIFTED: dict[str, Any] = {"rate": (0, 0), "group_rate": (0, 0), "limiter": ""}
KIND_SETTINGS = described_fields(Kind)
_OF_KINDS = {name: LIFTED.get(name, AS_THE_QUEUE) for name in KIND_SETTINGS if name not in ("paused", *ENDS)}
GROUP_SETTINGS = described_fields(Group)
SETTINGS = described_fields(WishedSettings)
TOLD = [name for name, each in SETTINGS.items() if not (each.about.extra or {}).get("wish")]
NESTED = [
    name for name in TOLD if name not in ("paused", "paused_until", "shards")
]  # which statistics tell beside the states


def change_of(wished: Mapping[str, Any]) -> ChangeSettings:
    """Settings as callers name them, checked. Raises Rejected."""
    columns = _columns(wished, SETTINGS, LIFTED)
    rows, dropped = columns.pop("kinds", ((), ()))
    attached, detached = columns.pop("consumers", ((), ()))
    return ChangeSettings(
        **columns,
        kinds=tuple(rows),
        kinds_dropped=tuple(dropped),
        consumers=attached,
        consumers_dropped=detached,
    )


def said(wished: WishedSettings) -> dict[str, Any]:
    """What a request says of settings."""
    return {
        name: value
        for name, value in asdict(wished).items()
        if value is not UNSET and (value is not None or name in LIFTED)
    }


def _columns(
    wished: Mapping[str, Any],
    settings: Mapping[str, DescribedField],
    lifted: Mapping[str, Any],
    where: str = "",
) -> dict[str, Any]:
    """Wished settings by column, checked; None is what ``lifted`` says, or nothing. Raises Rejected."""
    columns = {}
    for name, value in wished.items():
        setting = settings.get(name)
        if setting is None:
            raise Rejected(
                f"{where}{name}: no such setting. Known: {', '.join(sorted(settings))}.", field=str(name)
            )
        if value is UNSET or (value is None and name not in lifted):
            continue
        if value is None:
            columns[setting.column] = lifted[name]
            continue
        if name in ENDS and (setting.column in columns or wished.get("paused") is False):
            raise Rejected(
                f"{where}{name}: a pause has one end: say paused_for, or paused_until, or paused=False.",
                field=name,
            )
        columns[setting.column] = setting.read(value)
    return columns


def settings_view(settings: QueueSettings) -> dict[str, Any]:
    """All settings as callers see them, by name."""
    return {name: SETTINGS[name].told(getattr(settings, SETTINGS[name].column)) for name in TOLD}


DEFAULTS = settings_view(QueueSettings())
