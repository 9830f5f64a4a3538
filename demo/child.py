"""How a child process hears that it is over: its standard input ends, because the parent closed it or is gone."""

from __future__ import annotations

import select
import sys


def told_to_stop(wait_s: float = 0.0) -> bool:
    """Is it over? Waits up to ``wait_s`` seconds for the news, so that it is the child's way to sleep, too."""
    readable, _, _ = select.select([sys.stdin], [], [], max(0.0, wait_s))
    return bool(readable)
