"""Payloads and tracebacks on request: ``--payload``, ``--traceback``, and fields that nobody should see masked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import click
import msgspec
from msgspec import UNSET, Struct

from ..model.included import PAYLOAD, TRACEBACK
from .output import Output

MASK = "[redacted]"

F = TypeVar("F", bound=Callable[..., Any])


def contents_options(function: F) -> F:
    """The options of a command that shows jobs."""
    function = click.option(
        "--redact",
        multiple=True,
        metavar="FIELD",
        help="Mask this field of the payload, wherever it stands in it; may be repeated.",
    )(function)
    function = click.option("--traceback", is_flag=True, help="Show the traceback of the last failure.")(
        function
    )
    return click.option("--payload", is_flag=True, help="Show the payload.")(function)


def include_asked(payload: bool, traceback: bool, redact: Collection[str]) -> tuple[str, ...]:
    """What the options ask for. Raises UsageError for a field to mask where no payload is shown."""
    if redact and not payload:
        raise click.UsageError("--redact masks fields of the payload: add --payload.")
    return (PAYLOAD,) * payload + (TRACEBACK,) * traceback


def fields_shown(found: Struct, redact: Collection[str]) -> dict[str, Any]:
    """A job's fields, those left out that were not asked for; with masks in the payload."""
    fields = {name: value for name, value in msgspec.structs.asdict(found).items() if value is not UNSET}
    if redact and PAYLOAD in fields:
        fields[PAYLOAD] = masked(fields[PAYLOAD], {name.casefold() for name in redact})
    return fields


def masked(value: Any, names: Collection[str]) -> Any:
    """A value with all fields of these names (in lower case) masked, at any depth."""
    if isinstance(value, Mapping):
        return {
            name: MASK if str(name).casefold() in names else masked(each, names)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [masked(each, names) for each in value]
    return value


def print_contents(output: Output, fields: Mapping[str, Any]) -> None:
    """For people: the traceback line by line, and what was asked for and cannot be given."""
    for line in (fields.get(TRACEBACK) or "").splitlines():
        output.text(line)
    for name, why in fields.get("left_out", {}).items():
        output.note(f"no {name}: {why}")
    if TRACEBACK in fields and fields[TRACEBACK] is None:
        output.note("no traceback: none is kept. The last attempt did not fail, or told none.")
