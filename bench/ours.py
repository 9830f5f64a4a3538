"""Command lines for our own workers, the counterpart of ``peer.py``."""

from __future__ import annotations

import sys


def command(*arguments: str | float) -> list[str]:
    """The command line of one of our workers, run from the repository's root."""
    return [sys.executable, "-m", "bench.our_worker", *map(str, arguments)]


def finished(*arguments: str | float) -> list[str]:
    """The same for a worker of jobs that are over."""
    return [sys.executable, "-m", "bench.finished_worker", *map(str, arguments)]


def embedded() -> list[str]:
    """The same for a worker of a crew, which is told by its orders what to do."""
    return [sys.executable, "-m", "bench.embedded_worker"]


def waiter(*arguments: str | float) -> list[str]:
    """The same for processes that wait for one another."""
    return [sys.executable, "-m", "bench.embedded_waiter", *map(str, arguments)]


def on_valkey() -> list[str]:
    """The same for a worker of a crew on a Valkey server."""
    return [sys.executable, "-m", "bench.valkey_worker"]
