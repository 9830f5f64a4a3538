"""A queue's push consumers as callers name them: functions that are invoked when jobs wait. See ``core.consumers``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict

from .. import limits
from ..core.settings import ConsumerSettings
from ..errors import Rejected, shown
from .fields import DescribedField, described_fields
from .validation import text


def _read_consumer_kinds(setting: DescribedField, value: Any) -> tuple[str, ...] | None:
    """The kinds of a consumer."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise Rejected(
            f"{setting.name}: {shown(value)} is no list of kinds. Leave it out for all.", field="kinds"
        )
    if len(value) > limits.CONSUMER_KINDS_MAX:
        raise Rejected(f"{setting.name}: name {limits.CONSUMER_KINDS_MAX} kinds at most.", field="kinds")
    return tuple(sorted({text(each, setting.name, limits.KIND_CHARS_MAX) for each in value}))


class Consumer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function that is invoked when jobs of a queue wait."""

    target: Annotated[
        str,
        Meta(
            description="What is invoked: the ARN of a Lambda function, a version or an alias, or its name.",
            min_length=1,
            max_length=limits.CONSUMER_TARGET_CHARS_MAX,
        ),
    ]
    kinds: (
        Annotated[
            tuple[str, ...],
            Meta(
                description="Only jobs of these kinds. None: of all.",
                min_length=1,
                max_length=limits.CONSUMER_KINDS_MAX,
                extra={"read": _read_consumer_kinds, "told": lambda kinds: kinds and list(kinds)},
            ),
        ]
        | None
    ) = None
    batch: Annotated[
        int, Meta(description="How many jobs it claims at once.", ge=1, le=limits.CLAIM_LIMIT_MAX)
    ] = limits.CONSUMER_BATCH_DEFAULT
    max_concurrency: Annotated[
        int,
        Meta(
            description="How many invocations may be at work at once, over all shards.",
            ge=1,
            le=limits.CONSUMER_CONCURRENCY_MAX,
        ),
    ] = limits.CONSUMER_CONCURRENCY_DEFAULT
    window: Annotated[
        float,
        Meta(
            description="For how long fewer jobs than a batch wait for others.",
            ge=0,
            le=limits.CONSUMER_WINDOW_MS_MAX / 1000,
        ),
    ] = 0
    lease: Annotated[
        float,
        Meta(
            description="For how long its jobs are its own without a heartbeat.",
            ge=limits.LEASE_MS_MIN / 1000,
            le=limits.LEASE_MS_MAX / 1000,
        ),
    ] = limits.LEASE_MS_DEFAULT / 1000


def read_consumers(
    setting: DescribedField, value: Any
) -> tuple[tuple[ConsumerSettings, ...], tuple[str, ...]]:
    """Consumers as rows, and those that are detached. Raises Rejected."""
    if not isinstance(value, Mapping):
        raise Rejected(
            f"consumers: {shown(value)} is no mapping of names to consumers. Write"
            " {'mailer': Consumer(target='arn:aws:lambda:…')}.",
            field="consumers",
        )
    rows, dropped = [], []
    for said, wished in value.items():
        name = text(said, "consumers", limits.CONSUMER_NAME_CHARS_MAX, 1)
        if wished is None:
            dropped.append(name)
            continue
        if isinstance(wished, Consumer):
            wished = asdict(wished)
        if not isinstance(wished, Mapping) or not isinstance(wished.get("target"), str):
            raise Rejected(
                f"consumers: {name!r}: target: what is to be invoked? Use Consumer(target=…), or None to detach it.",
                field="consumers",
            )
        rows.append(ConsumerSettings(name, **_columns(name, wished)))
    return tuple(rows), tuple(dropped)


def told_consumers(rows: Sequence[ConsumerSettings]) -> dict[str, dict[str, Any]]:
    """The inverse of ``_read_consumers``."""
    return {
        row.name: {
            name: setting.told(getattr(row, setting.column)) for name, setting in CONSUMER_SETTINGS.items()
        }
        for row in rows
    }


def _columns(name: str, wished: Mapping[str, Any]) -> dict[str, Any]:
    columns = {}
    for field, value in wished.items():
        if field not in CONSUMER_SETTINGS:
            raise Rejected(
                f"consumers: {name!r}: {field}: no such setting. Known: {', '.join(CONSUMER_SETTINGS)}.",
                field=str(field),
            )
        if value is not None:
            columns[CONSUMER_SETTINGS[field].column] = CONSUMER_SETTINGS[field].read(value)
    return columns


CONSUMER_SETTINGS = described_fields(Consumer)
