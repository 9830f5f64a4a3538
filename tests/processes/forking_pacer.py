"""A program that reserves two slots, forks, and uses them in parent and child: ``forking_pacer.py ADDRESS HOW``.

``HOW`` is that of ``forking.py``. The child tries to give the second slot back and starts by the first one. Then the
parent starts. Each prints the number of the slot by which it started.
"""

from __future__ import annotations

import os
import signal
import sys

from forking import FORKS, HANG_S

from osqueue import Pacer


def main(address: str, how: str) -> None:
    """Reserve, fork, and start in both processes."""
    signal.alarm(HANG_S)
    pacer = Pacer.connect(address, "stripe", grace=HANG_S)
    pacer.create(interval=0.05, burst=1_000)
    first, second = pacer.reserve(), pacer.reserve()
    pid = FORKS[how]()
    if pid == 0:
        signal.alarm(HANG_S)
        given = second.give_back()
        first.wait()
        print(f"given back: {given}, started by {first.number}", flush=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    first.wait()
    print(f"started by {first.number}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
