"""The demo's last part: a queue that no worker polls. Its consumer is invoked, and one of them is killed."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from msgspec import Struct

from demo import letters
from osqueue import Queue
from osqueue.devstack import Stack

QUEUE = "letters"
JOBS = 200
BATCH, MOST = 10, 4
LEASE_S = 1.0  # so nobody waits long for what a killed one held
SCHEDULE_S = 0.5  # between two calls of the reaper
STUCK_S = 30.0
LOOK_S = 0.01


class PushResult(Struct, frozen=True):
    """What came of it."""

    jobs: int
    first_s: float  # from the call to the first job's end, with nobody awake
    all_s: float  # until the last one's
    processes: int  # that ran some
    twice: int  # jobs that ran again, since one was killed while it had them
    killed: bool
    lost: int

    def line(self) -> str:
        """For people."""
        again = f", {self.twice} of them twice" if self.twice else ""
        return (
            f"And with no worker at all: {self.jobs} letters ran in {self.processes} invoked processes{again}, the"
            f" first after {self.first_s * 1000:,.0f} ms, all in {self.all_s:.1f} s"
            f"{', although one was killed' if self.killed else ''}. {self.lost or 'None'} lost."
        )


def push(folder: Path) -> PushResult:
    """Run letters through a stack with a consumer. The folder has to be new."""
    notes = folder / "letters"
    notes.mkdir(parents=True)
    with Stack(
        f"file://{folder / 'store'}",
        consumers=[f"{QUEUE}={letters.__file__}"],
        variables={letters.PLACE: str(notes)},
        processes=MOST,
        schedule_seconds=SCHEDULE_S,
    ) as stack:
        queue: Queue[int] = Queue.connect(stack.url, QUEUE)
        (consumer,) = stack.consumers
        wished = {"batch": BATCH, "max_concurrency": MOST, "lease": LEASE_S}
        target = queue.stats()["settings"]["consumers"][consumer.name]["target"]
        queue.configure(consumers={consumer.name: {"target": target, **wished}})
        began = time.monotonic()
        queue.enqueue_many([{"payload": number} for number in range(JOBS)])
        first_s, killed = 0.0, False
        while (done := queue.stats()["counters"]["completed"]) < JOBS:
            first_s = first_s or (time.monotonic() - began if done else 0.0)
            if done and not killed:
                killed = stack.crash(consumer.spec.name) is not None
            if time.monotonic() - began > STUCK_S:
                break
            time.sleep(LOOK_S)
        all_s = time.monotonic() - began
    files = list(notes.iterdir())
    ran = Counter(line for file in files for line in file.read_text().split())
    twice = sum(count > 1 for count in ran.values())
    return PushResult(JOBS, first_s or all_s, all_s, len(files), twice, killed, JOBS - done)
