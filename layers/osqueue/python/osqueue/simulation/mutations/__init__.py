"""The code with one safety check removed. If the simulator did not catch these, its silence would mean nothing."""

from __future__ import annotations

from . import afterlife, bulks, commits, leading, repeats, shared
from .control import Control

CONTROLS: tuple[Control, ...] = (
    *commits.CONTROLS,
    *afterlife.CONTROLS,
    *bulks.CONTROLS,
    *shared.CONTROLS,
    *repeats.CONTROLS,
    *leading.CONTROLS,
)
