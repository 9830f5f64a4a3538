"""The code with one safety check removed. If the simulator did not catch these, its silence would mean nothing."""

from __future__ import annotations

from . import afterlife, announcing, bulks, clocks, commits, crowds
from .control import Control

CONTROLS: tuple[Control, ...] = (
    *commits.CONTROLS,
    *announcing.CONTROLS,
    *crowds.CONTROLS,
    *clocks.CONTROLS,
    *afterlife.CONTROLS,
    *bulks.CONTROLS,
)
