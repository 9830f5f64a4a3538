"""The reaper process: a pass over the queue about every second, so that what finishes reaches the archive.

python -m demo.reaper PLAN
"""

from __future__ import annotations

import sys

from demo.child import told_to_stop
from demo.journal import Journal, JournalEntry
from demo.plan import QUEUE, ReplayPlan, load
from osqueue import Queue

NAME = "reaper"
PAUSE_S = 1.0  # between two passes


def reap(plan: ReplayPlan) -> None:
    """Reap until told to stop."""
    queue: Queue[object] = Queue.connect(plan.address, QUEUE)
    with Journal(plan.journal(NAME)) as journal:
        while not told_to_stop(PAUSE_S):
            queue.reap()
            journal.write(JournalEntry(requests=queue.requests, reaps=1))


if __name__ == "__main__":
    reap(load(sys.argv[1]))
