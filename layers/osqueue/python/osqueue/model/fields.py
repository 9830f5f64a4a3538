"""Structs whose annotations tell all there is to know of a field: its meaning, its bounds, how it is checked.

A caller's float is a number of seconds, a datetime a moment: rows keep both in milliseconds. Of a ``Meta``'s ``extra``
is read: "column", the row's name of a field where it is another one; "check", which looks once more at text that keeps
its bounds; "read" and "told", its inverse, for values of a form of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct
from msgspec.structs import fields as struct_fields

from ..errors import Rejected
from .validation import milliseconds, moment_ms, seconds, text, whole_number

TIMES = (float, datetime)


class DescribedField(Struct, frozen=True):
    """One field."""

    name: str
    type: type  # of its values: str, int, bool, float for seconds, datetime, dict of texts
    about: Meta  # its meaning and its bounds
    default: Any
    column: str  # as rows call it
    optional: bool  # None stands for the default

    def read(self, value: Any) -> Any:
        """A caller's value as a row keeps it. Raises Rejected."""
        read = (self.about.extra or {}).get("read") or _READERS[self.type]
        return read(self, value)

    def told(self, value: Any) -> Any:
        """The inverse: what a row keeps as callers see it."""
        told = (self.about.extra or {}).get("told")
        if told is not None:
            return told(value)
        return value / 1000 if self.type in TIMES else value

    def seen(self, value: Any) -> Any:
        """The same of a view: a time is a datetime, and what is not there is None."""
        if self.optional and not value:
            return None
        return moment(value) if self.type is datetime else value


def meaning(text: str, column: str | None = None) -> Meta:
    """The description of a field of a view, and the row's name of it."""
    return Meta(description=text, extra={"column": column} if column else None)


def moment(ms: int) -> datetime:
    """A stored time as an aware datetime, UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def _read_text(field: DescribedField, value: Any) -> str:
    about = field.about
    found = text(value, field.name, about.max_length or 0, about.min_length or 0)
    check = (about.extra or {}).get("check")
    if check is not None:
        check(found)
    return found


def _read_whole(field: DescribedField, value: Any) -> int:
    return whole_number(value, field.name, int(field.about.ge or 0), int(field.about.le or 0))


def _read_flag(field: DescribedField, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Rejected(f"{field.name}: it is True or False.", field=field.name)
    return value


def _read_seconds(field: DescribedField, value: Any) -> int:
    value = seconds(value)
    least, most = field.about.ge or 0, field.about.le or 0
    return milliseconds(value, field.name, round(least * 1000), round(most * 1000))


def _read_moment(field: DescribedField, value: Any) -> int:
    return moment_ms(value, field.name, round((field.about.le or 0) * 1000))


_READERS: dict[type, Callable[[DescribedField, Any], Any]] = {
    str: _read_text,
    int: _read_whole,
    bool: _read_flag,
    float: _read_seconds,
    datetime: _read_moment,
}


@cache
def described_fields(struct: type[Struct]) -> Mapping[str, DescribedField]:
    """The fields of a struct that have a description, by name and in order."""
    hints = get_type_hints(struct, include_extras=True)
    found = {}
    for field in struct_fields(struct):
        hint = hints[field.name]
        members = (hint,) if hasattr(hint, "__metadata__") else get_args(hint)
        bounded = next((each for each in members if hasattr(each, "__metadata__")), None)
        if bounded is None:
            continue
        kind = datetime if datetime in members else get_origin(bounded.__origin__) or bounded.__origin__
        about = bounded.__metadata__[0]
        column = (about.extra or {}).get(
            "column", f"{field.name.removesuffix('_at')}_ms" if kind in TIMES else field.name
        )
        found[field.name] = DescribedField(
            field.name, kind, about, field.default, column, NoneType in members
        )
    return found


@cache
def _shared(view: type[Struct], row: type[Struct]) -> list[DescribedField]:
    return [each for each in described_fields(view).values() if each.column in row.__struct_fields__]


def seen_in(view: type[Struct], row: Struct) -> dict[str, Any]:
    """Those fields of a view that a row has a column of, as callers see them."""
    return {field.name: field.seen(getattr(row, field.column)) for field in _shared(view, type(row))}
