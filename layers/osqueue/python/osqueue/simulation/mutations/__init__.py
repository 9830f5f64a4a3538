"""The code with one safety check removed. If the simulator did not catch these, its silence would mean nothing."""

from __future__ import annotations

from . import afterlife, bulks, commits, repairs
from .control import Control

CONTROLS: tuple[Control, ...] = (*commits.CONTROLS, *afterlife.CONTROLS, *bulks.CONTROLS, *repairs.CONTROLS)
