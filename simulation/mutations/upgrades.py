"""Two releases that share a queue, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager

from .. import releases
from .control import Control, in_runs, patched


def newer_heads_read() -> AbstractContextManager[None]:
    """The older release reads the newer format as if it were its own."""
    return patched((releases, "OLDER", releases.NEWER))


def used_at_once() -> AbstractContextManager[None]:
    """The newer release keeps what is new before it writes the newer format."""
    return patched((releases, "USED_FROM", 1))


CONTROLS: tuple[Control, ...] = (
    Control("newer formats are left alone", newer_heads_read, (in_runs("upgrade", "was erased"),)),
    Control("new fields in a new format", used_at_once, (in_runs("upgrade", "was erased"),)),
)
