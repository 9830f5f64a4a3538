"""The pace of a replay: which jobs have come due, in the log's time, compressed.

All producers of a replay count from the same moment. They look at the clock at the same times, too, so that what
two of them have to send at the same moment, they do send at the same moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from demo.child import told_to_stop
from demo.swf import SwfJob

TICK_S = 0.1  # how long arrivals gather
GROUP_MAX = 500

Moments = Sequence[tuple[float, SwfJob]]  # seconds after the beginning, in order


def groups(moments: Moments, began: float) -> Iterator[list[SwfJob]]:
    """The jobs as they come due, a tick's worth at a time; ends early when the process is told to stop.

    ``began`` is a time of the monotonic clock, which the processes of a machine share.
    """
    at = 0
    while at < len(moments):
        elapsed = time.monotonic() - began
        upto = arrived(moments, at, elapsed)
        if upto > at:
            yield [job for _, job in moments[at:upto]]
            at = upto
            if upto < len(moments) and moments[upto][0] <= elapsed:
                continue  # more than one group is due
        if told_to_stop(TICK_S - (time.monotonic() - began) % TICK_S):
            return


def arrived(moments: Moments, start: int, elapsed: float) -> int:
    """Up to which job the log has come, in one group's reach of ``start``."""
    end = start
    while end < len(moments) and end - start < GROUP_MAX and moments[end][0] <= elapsed:
        end += 1
    return end
