"""What callers pass in, checked field by field: each error names the field, what is wrong and what is right."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any

from msgspec import Struct

from .. import limits
from ..errors import Rejected, shown

QUEUE_NAME = r"[a-z0-9][a-z0-9-]{0,63}"
_QUEUE_NAME = re.compile(QUEUE_NAME)


def is_queue_name(name: str) -> bool:
    """Could this be a queue's name?"""
    return _QUEUE_NAME.fullmatch(name) is not None


def queue_name(value: Any) -> str:
    """A queue's name."""
    if not isinstance(value, str) or not _QUEUE_NAME.fullmatch(value):
        raise Rejected(
            f"queue: {shown(value)} is not a queue name. Use 1 to 64 of a-z, 0-9 and '-', beginning with a letter or"
            " digit.",
            field="queue",
        )
    return plain_text(value)


def items(value: Any) -> list[Any]:
    """The items of enqueue_many: few enough for one call."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise Rejected(
            f"jobs: {type(value).__name__} is no list of jobs. Pass a list of mappings, each with a 'payload'.",
            field="jobs",
        )
    found = value if isinstance(value, list) else list(value)
    if len(found) > limits.ITEMS_PER_CALL_MAX:
        raise Rejected(
            f"jobs: {len(found):,} in one call; the most is {limits.ITEMS_PER_CALL_MAX:,}. Send them in several.",
            field="jobs",
        )
    return found


def job_name(value: Any) -> str:
    """The name of a job in a call: a job id, or a client's own id."""
    return text(value, "job_id", limits.ID_CHARS_MAX, 1)


def whole_number(value: Any, field: str, least: int, most: int) -> int:
    """A whole number in a range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Rejected(
            f"{field}: {shown(value)} is not a whole number from {least} to {most:,}.", field=field
        )
    return int(value)


def milliseconds(value: Any, field: str, least_ms: int, most_ms: int) -> int:
    """A duration in seconds, as milliseconds."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Compared before it is rounded: infinity, NaN and what no float can hold fall out here.
    if not number or not least_ms - 0.5 <= value * 1000 <= most_ms + 0.5:
        raise Rejected(
            f"{field}: {shown(value)} is not a number of seconds from {least_ms / 1000:g} to {most_ms / 1000:,.0f}.",
            field=field,
        )
    found: int = round(value * 1000)
    return min(max(found, least_ms), most_ms)


def microseconds(value: Any, field: str, least_ms: int, most_ms: int) -> int:
    """A duration in seconds, or a timedelta, as microseconds: for what is too fine for milliseconds."""
    value = seconds(value)
    milliseconds(value, field, least_ms, most_ms)
    found: int = round(value * 1_000_000)
    return min(max(found, least_ms * 1000), most_ms * 1000)


def seconds(value: Any) -> Any:
    """A duration as a number of seconds, where it is a timedelta; anything else as it is."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def thousandths(value: Any, field: str) -> int:
    """A fraction from 0 to 1, rounded down."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1:
        raise Rejected(
            f"{field}: {shown(value)} is no number from 0 to 1, such as 0.4 for 40 %.", field=field
        )
    return int(value * 1000)


def text(value: Any, field: str, most: int, least: int = 0) -> str:
    """Printable text of bounded length."""
    if not isinstance(value, str) or not least <= len(value) <= most or not value.isprintable():
        raise Rejected(f"{field}: {shown(value)} is not {least} to {most} printable characters.", field=field)
    return plain_text(value)


def plain_text(value: str) -> str:
    """Text of a type of the caller's own as plain text: nothing else can be written into a head."""
    return value if type(value) is str else str.__str__(value)


def flag(value: Any, field: str) -> bool:
    """Return True or False. Raises Rejected for any other value."""
    if not isinstance(value, bool):
        raise Rejected(f"{field}: it is True or False, not {shown(value)}.", field=field)
    return value


def word(value: Any, field: str, words: Collection[str]) -> str:
    """Return a value that is one of the words. Raises Rejected."""
    if not isinstance(value, str) or value not in words:
        raise Rejected(f"{field}: {shown(value)} is none of {', '.join(words)}.", field=field)
    return plain_text(value)


def kind(value: Any) -> str:
    """A job's kind; None is the nameless one."""
    return "" if value is None else text(value, "kind", limits.KIND_CHARS_MAX)


def kinds(value: Any) -> tuple[str, ...] | None:
    """The kinds a claim takes; None takes all."""
    if value is None:
        return None
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise Rejected(
            f"kinds: {shown(value)} is not a list of kinds. Write ['welcome'] for one.", field="kinds"
        )
    found = tuple(sorted({kind(each) for each in value}))
    if not 1 <= len(found) <= limits.KINDS_PER_CLAIM_MAX:
        raise Rejected(
            f"kinds: name 1 to {limits.KINDS_PER_CLAIM_MAX:,} kinds, or leave it out for all.", field="kinds"
        )
    return found


def moment_ms(value: Any, field: str, most_ms: int) -> int:
    """A time, an aware datetime or Unix seconds, as milliseconds since 1970."""
    if isinstance(value, datetime):
        try:
            naive = value.utcoffset() is None
            seconds_since = value.timestamp()
        except Exception:  # noqa: BLE001 - NaT of pandas is a datetime, and so may be a class of the caller's own
            raise Rejected(
                f"{field}: {shown(value)} is not a moment. Pass an aware datetime or Unix seconds, or leave it out.",
                field=field,
            ) from None
        if naive:
            raise Rejected(
                f"{field}: the datetime has no time zone. Pass an aware one: datetime.now(UTC) + timedelta(…).",
                field=field,
            )
        value = seconds_since
    return milliseconds(value, field, 0, most_ms)


def lease_ms(value: Any) -> int:
    """A lease's length."""
    return milliseconds(value, "lease", limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)


class StoredError(Struct, frozen=True):
    """An error as stored."""

    text: str  # "Type: message", or the message alone
    type: str = ""  # the exception's class
    trace: str = ""  # the end of its traceback


def error_details(value: Any, field: str = "error") -> StoredError:
    """An exception, text, or a mapping of ``type``, ``message`` and ``traceback``; long ones are cut."""
    if isinstance(value, StoredError):
        return value
    if isinstance(value, BaseException):
        kind = type(value).__name__
        trace = _trace(value, value.__traceback__) if value.__traceback__ is not None else ""
        return _details(f"{kind}: {message_of(value)}", kind, trace)
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name not in ("type", "message", "traceback") or not isinstance(each, str):
                raise Rejected(
                    f"{field}: {shown(name)} does not belong there. It is text, or a mapping of the texts type, message"
                    " and traceback.",
                    field=field,
                )
        kind, message = value.get("type", ""), value.get("message", "")
        return _details(f"{kind}: {message}" if kind else message, kind, value.get("traceback", ""))
    if not isinstance(value, str):
        raise Rejected(f"{field}: {type(value).__name__} is neither text nor an exception.", field=field)
    return _details(value, "", "")


def raised_below(error: BaseException) -> StoredError:
    """An exception that was raised below the caller's frame, without that frame."""
    kind, below = type(error).__name__, error.__traceback__
    trace = _trace(error, below.tb_next if below is not None else None)
    return _details(f"{kind}: {message_of(error)}", kind, trace)


def message_of(error: object) -> str:
    """Return the text of an exception, or of another object, even if its own method raises."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception of the user's own may fail at anything
        return "(its message could not be made)"


def _trace(error: BaseException, frames: TracebackType | None) -> str:
    import traceback  # here, because most never need it

    try:
        return "".join(traceback.format_exception(type(error), error, frames))
    except Exception:  # noqa: BLE001 - so may this
        return ""


def _details(text: str, kind: str, trace: str) -> StoredError:
    return StoredError(
        _storable(text[: limits.ERROR_CHARS_MAX]),
        _storable(kind[: limits.ERROR_TYPE_CHARS_MAX]),
        _storable(trace[-limits.TRACE_CHARS_MAX :]),
    )


def _storable(text: str) -> str:
    """Half a surrogate pair, as in the name of a file that is no UTF-8, cannot be stored."""
    return text.encode(errors="replace").decode()


def error_text(value: Any, field: str = "error") -> str:
    """Return the text alone of an error."""
    return error_details(value, field).text
