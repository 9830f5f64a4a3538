"""The code with one safety check removed. If the simulator did not catch these, its silence would mean nothing."""

from __future__ import annotations

from . import (
    afterlife,
    announcing,
    backlog,
    bulks,
    clocks,
    collecting,
    commits,
    crowds,
    entries,
    leading,
    power,
    purges,
    repairs,
    repeats,
    runs,
    shared,
    steering,
    upgrades,
    upkeep,
)
from .control import Control

THEMES = (
    afterlife,
    announcing,
    backlog,
    bulks,
    clocks,
    collecting,
    commits,
    crowds,
    entries,
    leading,
    power,
    purges,
    repairs,
    repeats,
    runs,
    shared,
    steering,
    upgrades,
    upkeep,
)
CONTROLS: tuple[Control, ...] = tuple(control for theme in THEMES for control in theme.CONTROLS)
