"""Loops that make a pass over the queues, and what they report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from osqueue.election.upkeep import ReapRow, Told, keep_up
from osqueue.errors import OsqueueError, Unavailable


class Elected:
    """An election that is always won."""

    is_leader = True
    heartbeat = 1.0

    @contextlib.contextmanager
    def lead(self, timeout: float) -> Iterator[None]:
        yield


class Passes:
    """Makes passes that succeed or fail as listed. It is also the event that ends the loop after the last one."""

    def __init__(self, succeed: list[bool]) -> None:
        self.left = succeed

    def __call__(self) -> list[Told]:
        if not self.left.pop(0):
            raise Unavailable("no listing")
        return []

    def is_set(self) -> bool:
        return not self.left

    def wait(self, timeout: float) -> bool:
        return self.is_set()


def test_a_trouble_of_each_pass_is_reported_once_until_a_pass_succeeds() -> None:
    reported: list[OsqueueError] = []
    passes = Passes([False, False, False, True, False, False])
    rows: list[ReapRow | OsqueueError] = []
    election: Any = Elected()
    keep_up(election, passes, 1.0, passes, lambda _, row: rows.append(row), reported.append)
    assert len(reported) == 2
    assert rows == []
