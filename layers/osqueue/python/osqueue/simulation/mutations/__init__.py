"""The code with one safety check removed. If the simulator did not catch these, its silence would mean nothing."""

from __future__ import annotations

from . import afterlife, backlog, bulks, commits, runs
from .control import Control

CONTROLS: tuple[Control, ...] = (
    *commits.CONTROLS,
    *afterlife.CONTROLS,
    *bulks.CONTROLS,
    *backlog.CONTROLS,
    *runs.CONTROLS,
)
