"""Requests to AWS without its SDK, whose clients take longer to make than a small function has to start."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from ..errors import Rejected, shown

if TYPE_CHECKING:
    from .wakes import LambdaWaker

WAKES_VARIABLE = (
    "OSQUEUE_WAKES"  # "lambda": this process may invoke the consumers that its commits wake, and does
)


def waker_of_environment() -> LambdaWaker | None:
    """What invokes consumers for this process; None: nothing does. Raises Rejected."""
    wished = os.environ.get(WAKES_VARIABLE)
    if not wished:
        return None
    if wished != "lambda":
        raise Rejected(
            f"{WAKES_VARIABLE}: {shown(wished)} is no way to wake; it is 'lambda', or not set.",
            field=WAKES_VARIABLE,
        )
    return _shared()


@functools.cache
def _shared() -> LambdaWaker:
    """One for a process: its queues share the connections."""
    from .wakes import LambdaWaker

    return LambdaWaker()
