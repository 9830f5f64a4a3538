"""The consumers that commits wake: how many of each queue, and how many did not hear of it."""

from __future__ import annotations

from collections.abc import Sequence

from ..aws_calls import waker_of_environment
from ..aws_calls.wakes import LambdaWaker
from ..contract import metrics
from ..core.consumers import Wake
from .store import current_counts


class MeteredWaker:
    """Invokes consumers, and counts for which queue."""

    def __init__(self, inner: LambdaWaker) -> None:
        self.inner = inner

    def wake(self, queue: str, wakes: Sequence[Wake]) -> None:
        """Invoke each once."""
        failed = self.inner.wake(queue, wakes)
        counts = current_counts()
        if counts is not None:
            mine = counts.of(queue)
            mine.add(metrics.WAKES, len(wakes))
            mine.add(metrics.WAKES_AGAIN, sum(each.tries > 0 for each in wakes))
            mine.add(metrics.WAKES_FAILED, failed)


def metered_waker() -> MeteredWaker | None:
    """What invokes consumers where the environment says so. Raises Rejected."""
    inner = waker_of_environment()
    return None if inner is None else MeteredWaker(inner)
