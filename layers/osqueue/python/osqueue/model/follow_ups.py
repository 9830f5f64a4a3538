"""What is to come when a job completes, or when a batch is over: jobs that do not exist yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct

from .. import limits
from ..core.encoding import encode
from ..core.follow_ups import JSON as WRITTEN_IN
from ..core.follow_ups import encode_follow_ups, follow_ups_of
from ..core.job_ops import JobSpec
from ..errors import Rejected, shown
from .codecs import JSON, Codec
from .fields import DescribedField, described_fields
from .option_types import (
    Delay,
    Group,
    Headers,
    Kind,
    MaxAttempts,
    Priority,
    ResultTtl,
    RunWithin,
    StartWithin,
    Units,
)

_JSON = Codec(JSON)
_SILENT = JobSpec(b"", b"")  # a job that says nothing
_decode_spec = msgspec.msgpack.Decoder(JobSpec).decode


class _What(Struct, frozen=True):
    kind: Kind | None = None
    # JSON, whatever the queue's serialiser is. Left out: the result of the job before, or what is told of a batch.
    payload: Any = UNSET


class Next(_What, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job that comes later: ``Next("notify", {"to": "ada"})``. The options are those of ``enqueue``."""

    group: Group | None = None
    priority: Priority | None = None
    delay: Delay | None = None
    max_attempts: MaxAttempts | None = None
    result_ttl: ResultTtl | None = None
    run_within: RunWithin | None = None
    start_within: StartWithin | None = None
    units: Units | None = None
    headers: Headers | None = None
    then: (
        Annotated[
            list[Next],
            Meta(
                description="What comes when that one completes.",
                max_length=limits.FOLLOW_UPS_MAX,
                extra={"read": read_then, "told": told_then},
            ),
        ]
        | None
    ) = None

    if TYPE_CHECKING:  # durations may be timedeltas, and follow-ups mappings

        def __init__(
            self,
            kind: str | None = None,
            payload: Any = ...,
            *,
            group: str | None = None,
            priority: int | None = None,
            delay: float | timedelta | None = None,
            max_attempts: int | None = None,
            result_ttl: float | timedelta | None = None,
            run_within: float | timedelta | None = None,
            start_within: float | timedelta | None = None,
            units: int | None = None,
            headers: Mapping[str, str] | None = None,
            then: Sequence[Next | Mapping[str, Any]] | None = None,
        ) -> None: ...


def read_then(option: DescribedField, value: Any) -> bytes:
    """A caller's follow-ups, each a ``Next`` or a mapping of its fields, as a job keeps them. Raises Rejected."""
    name = option.name
    if isinstance(value, Mapping) and not value:
        raise Rejected(
            f"{name}: an empty mapping is not a follow-up. Write {{'kind': 'report'}} or Next('report'), or leave it"
            " out.",
            field=name,
        )
    if isinstance(value, Next | Mapping):
        value = [value]
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str | bytes)
        or len(value) > limits.FOLLOW_UPS_MAX
    ):
        raise Rejected(
            f"{name}: {shown(value)} is no list of up to {limits.FOLLOW_UPS_MAX} Next(…). For more, let one of them"
            " enqueue the others.",
            field=name,
        )
    specs = []
    for at, each in enumerate(value):
        try:
            specs.append(spec_of(each))
        except Rejected as error:
            place = f"{name}[{at}]"
            raise Rejected(f"{place}.{error.message}", field=f"{place}.{error.field}") from error
    then = encode_follow_ups(tuple(specs))
    if len(then) > limits.FOLLOW_UPS_BYTES_MAX:
        raise Rejected(
            f"{name}: {len(then):,} bytes in all; the most is {limits.FOLLOW_UPS_BYTES_MAX:,}, for they are kept with"
            " the job. Let its result carry the data: they are given it.",
            field=name,
        )
    if depth_of(then) > limits.FOLLOW_UPS_DEPTH_MAX:
        raise Rejected(
            f"{name}: one inside the other, deeper than {limits.FOLLOW_UPS_DEPTH_MAX}. Let a later one enqueue the"
            " rest.",
            field=name,
        )
    return then


def depth_of(then: bytes) -> int:
    """How many jobs follow one another."""
    return max((1 + depth_of(spec.then) for spec in follow_ups_of(then)), default=0)


def spec_of(value: Any) -> JobSpec:
    """One follow-up as a job or a batch keeps it. Raises Rejected."""
    given = _fields(value)
    columns = {}
    for name, field in described_fields(Next).items():
        if (said := given.get(name)) is not None:
            columns[field.column] = field.read(said)
    payload = given.get("payload", UNSET)
    if payload is UNSET:
        return JobSpec(b"", b"", "", **columns)
    return JobSpec(b"", _JSON.encode(payload, "payload"), WRITTEN_IN, **columns)


def _fields(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Next):
        return {name: getattr(value, name) for name in Next.__struct_fields__}
    if not isinstance(value, Mapping):
        raise Rejected(f"kind: {shown(value)} is no Next(…), nor a mapping of its fields.", field="kind")
    for name in value:
        if name not in Next.__struct_fields__:
            told = name if isinstance(name, str) and name.isprintable() else shown(name)
            raise Rejected(
                f"{told}: no such field of a follow-up. Known: {', '.join(Next.__struct_fields__)}.",
                field=told,
            )
    return value


def encoded_next(value: Any, name: str) -> bytes:
    """One follow-up of a batch, as its row keeps it; b"": none. Raises Rejected."""
    if value is None:
        return b""
    try:
        found = encode(spec_of(value))
    except Rejected as error:
        raise Rejected(f"{name}.{error.message}", field=f"{name}.{error.field}") from error
    if len(found) > limits.FOLLOW_UPS_BYTES_MAX:
        raise Rejected(
            f"{name}: {len(found):,} bytes; the most is {limits.FOLLOW_UPS_BYTES_MAX:,}.", field=name
        )
    return found


def next_of(spec: JobSpec) -> Next:
    """The inverse of ``spec_of``."""
    said: dict[str, Any] = {
        name: field.told(value) if field.type is not dict else dict(value)
        for name, field in described_fields(Next).items()
        if (value := getattr(spec, field.column)) != getattr(_SILENT, field.column)
    }
    if spec.codec:
        assert isinstance(spec.payload, bytes)
        said["payload"] = msgspec.json.decode(spec.payload)
    return Next(**said)


def told_then(then: bytes) -> list[Next]:
    """The inverse of ``read_then``."""
    return list(map(next_of, follow_ups_of(then)))


def told_next(encoded: bytes) -> Next | None:
    """The inverse of ``encoded_next``."""
    return next_of(_decode_spec(encoded)) if encoded else None
