"""What a commit-layer generator may ask of its driver: store requests, several of them at once, and a pause.

A generator yields an ``Effect`` and receives a reply: a store ``Reply`` for a request, a tuple of replies for
``All``, None for ``Sleep``. It never touches a socket, a file or a clock itself, so a blocking driver, an async
driver and the simulator run exactly the same code.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from msgspec import Struct

from ..stores.base import Request


class All(Struct, frozen=True):
    """Several store requests, in any order or at the same time; answered by a tuple in this order."""

    requests: tuple[Request, ...]


class Sleep(Struct, frozen=True):
    """Let time pass."""

    seconds: float


Effect = Request | All | Sleep
T = TypeVar("T")
Flow = Generator[Effect, Any, T]
