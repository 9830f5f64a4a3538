"""What a job, a follow-up or a kind may be told alike: each value's meaning, its unit and its bounds, written once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from .. import limits
from ..errors import Rejected, shown
from .fields import DescribedField
from .validation import plain_text


def _read_headers(option: DescribedField, value: Any) -> tuple[tuple[str, str], ...] | None:
    name, most = option.name, option.about.max_length or 0
    if not isinstance(value, Mapping) or len(value) > most:
        raise Rejected(
            f"{name}: {shown(value)} is no mapping of up to {most} names to short texts.", field=name
        )
    found = []
    for key, each in value.items():
        if (
            not isinstance(key, str)
            or not 1 <= len(key) <= limits.HEADER_NAME_CHARS_MAX
            or not (key.isascii() and key.isprintable())
        ):
            raise Rejected(
                f"{name}: {shown(key)} is no name. Use 1 to {limits.HEADER_NAME_CHARS_MAX} printable ASCII characters.",
                field=name,
            )
        if not isinstance(each, str) or len(each) > limits.HEADER_VALUE_CHARS_MAX or not each.isprintable():
            raise Rejected(
                f"{name}: the value of {shown(key)} is not 0 to {limits.HEADER_VALUE_CHARS_MAX} printable characters."
                " Put longer data into the payload.",
                field=name,
            )
        found.append((plain_text(key), plain_text(each)))
    size = sum(len(key) + len(each.encode()) for key, each in found)
    if size > limits.HEADERS_BYTES_MAX:
        raise Rejected(
            f"{name}: {size:,} bytes of names and values; the most is {limits.HEADERS_BYTES_MAX:,}. Put longer data"
            " into the payload.",
            field=name,
        )
    return tuple(found) or None


Kind = Annotated[
    str,
    Meta(
        description="What sort of job it is. A claim may ask for some kinds only.",
        max_length=limits.KIND_CHARS_MAX,
    ),
]
Group = Annotated[
    str,
    Meta(
        description="A key of yours: jobs of one group run in order, one at a time, or so many at once as the"
        " queue says.",
        min_length=1,
        max_length=limits.GROUP_CHARS_MAX,
    ),
]
Delay = Annotated[
    float,
    Meta(description="Not before this long from now.", ge=0, le=limits.DELAY_MS_MAX / 1000),
]
Priority = Annotated[
    int,
    Meta(
        description="How urgent it is: lower runs first. Left out, its kind or its queue says it, or it is"
        f" {limits.PRIORITY_DEFAULT}.",
        ge=0,
        le=limits.PRIORITY_MAX,
    ),
]
Units = Annotated[
    int,
    Meta(
        description="As how many starts of a rate each of its starts counts. Left out, it is 1.",
        ge=1,
        le=limits.JOB_UNITS_MAX,
    ),
]
MaxAttempts = Annotated[
    int,
    Meta(
        description="How often it is tried. Left out, its kind or its queue says it, or it is"
        f" {limits.ATTEMPTS_DEFAULT}.",
        ge=1,
        le=limits.ATTEMPTS_MAX,
    ),
]
ResultTtl = Annotated[
    float,
    Meta(
        description="How long its result is kept. Left out, its kind or its queue says it, or it is an hour.",
        ge=1 / 1000,
        le=limits.RESULT_TTL_MS_MAX / 1000,
    ),
]
RunWithin = Annotated[
    float,
    Meta(
        description="How long one attempt may run, whatever its worker says; it has failed then. 0: no limit.",
        ge=0,
        le=limits.DELAY_MS_MAX / 1000,
    ),
]
StartWithin = Annotated[
    float,
    Meta(
        description="No attempt starts later than this after its enqueue, or after its delay: then it is cancelled."
        " 0: no deadline.",
        ge=0,
        le=limits.DELAY_MS_MAX / 1000,
    ),
]
Headers = Annotated[
    dict[
        Annotated[
            str,
            Meta(min_length=1, max_length=limits.HEADER_NAME_CHARS_MAX, pattern=r"^[\x20-\x7e]*$"),
        ],
        Annotated[str, Meta(max_length=limits.HEADER_VALUE_CHARS_MAX)],
    ],
    Meta(
        description="Short strings carried with the job and never interpreted: trace context, tenant, origin.",
        max_length=limits.HEADERS_MAX,
        extra={"read": _read_headers},
    ),
]
