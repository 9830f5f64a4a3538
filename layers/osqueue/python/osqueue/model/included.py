"""What a caller may ask for beside a job: its payload, its result, the traceback of its last failure.

They are read on request alone: a payload may be large, and lie in an object of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from ..errors import Rejected, shown
from .fields import meaning
from .job import Job
from .validation import word

PAYLOAD = "payload"
TRACEBACK = "traceback"
RESULT = "result"
INCLUDES = (PAYLOAD, TRACEBACK, RESULT)
INCLUDES_DEAD = (PAYLOAD, TRACEBACK)  # a dead letter has no result


class JobDetails(Job, frozen=True, repr_omit_defaults=True):
    """A job with what was asked for beside it. ``UNSET`` is what was not, or what ``left_out`` names."""

    payload: Annotated[Any, meaning("What enqueue was given.")] = UNSET
    traceback: (
        Annotated[str, meaning("The end of the traceback of the latest failure; None: there is none.")]
        | UnsetType
        | None
    ) = UNSET
    result: Annotated[Any, meaning("Completed: what the job answered.")] = UNSET
    left_out: (
        Annotated[dict[str, str], meaning("What was asked for and cannot be given, by name, and why.")]
        | UnsetType
    ) = UNSET


def include_of(value: str | Iterable[str] | None, known: tuple[str, ...] = INCLUDES) -> tuple[str, ...]:
    """What a caller asks for: names, or a text of names with commas. Raises Rejected."""
    if value is None or isinstance(value, str):
        names = value.split(",") if value else []
    elif isinstance(value, Iterable):
        names = list(value)
    else:
        raise Rejected(
            f"include: {shown(value)} is not a list of names. Known: {', '.join(known)}.", field="include"
        )
    wanted = {word(name, "include", known) for name in names}
    return tuple(name for name in known if name in wanted)
