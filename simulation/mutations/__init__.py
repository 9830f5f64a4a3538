"""The code with one safety check removed. If the simulator did not catch these, its silence would mean nothing."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from .control import Control

_MACHINERY = "control"  # what a control is; every other module here is a theme

THEMES: tuple[ModuleType, ...] = tuple(
    import_module(f"{__name__}.{module.name}")
    for module in iter_modules(__path__)
    if module.name != _MACHINERY
)
CONTROLS: tuple[Control, ...] = tuple(control for theme in THEMES for control in theme.CONTROLS)
