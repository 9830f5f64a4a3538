"""Two releases that share a queue, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager

from msgspec.structs import replace

from osqueue.core.draft import Draft
from osqueue.core.state import State

from .. import releases
from .control import Control, in_runs, patched


def newer_heads_read() -> AbstractContextManager[None]:
    """The older release reads the newer format as if it were its own."""
    return patched((releases, "OLDER", releases.NEWER))


def used_at_once() -> AbstractContextManager[None]:
    """The newer release keeps what is new before it writes the newer format."""
    return patched((releases, "USED_FROM", 1))


def format_forgotten() -> AbstractContextManager[None]:
    """A commit that uses nothing new gives the head its oldest format again."""
    freeze = releases._freeze

    def lowered(self: Draft, load: int, listed: bool) -> State:
        return replace(freeze(self, load, listed), format=1)

    return patched((releases, "_freeze", lowered))


CONTROLS: tuple[Control, ...] = (
    Control("newer formats are left alone", newer_heads_read, (in_runs("upgrade", "was erased"),)),
    Control("new fields in a new format", used_at_once, (in_runs("upgrade", "was erased"),)),
    Control("a head keeps its format", format_forgotten, (in_runs("upgrade", "was erased"),)),
)
