"""A program that opens a queue, forks, and uses it in parent and children: ``forking.py ADDRESS HOW CHILDREN``.

``HOW`` is "hooks" (``os.fork``, as gunicorn forks) or "none" (``fork`` of the C library, as uWSGI forks). At the fork
another thread of the parent holds every lock of the library. Prints how many jobs were enqueued and completed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from osqueue import Queue, forks

HANG_S = 120  # seconds after which a process ends itself
CALLS, LARGE = 3, 3  # of each process: enqueues, and items of the last one

Fork = Callable[[], int]
# With PyDLL the calling thread keeps the interpreter's lock, as a server in C does.
FORKS: dict[str, Fork] = {"hooks": os.fork, "none": ctypes.PyDLL(None).fork}


def use(q: Queue[Any], name: str) -> None:
    """Make one call of each kind, and work on a job."""
    ids = [q.enqueue(f"{name} {at}", id=f"{name}-{at}").job_id for at in range(CALLS)]
    assert len(set(ids)) == CALLS
    q.stats()
    (lease,) = q.claim(wait=60)
    lease.complete({"by": name})
    assert q.result(lease.job_id) == {"by": name}
    # Several large payloads are written at once, by threads of the library.
    done = q.enqueue_many([{"payload": name * 2_000, "id": f"{name}-large-{at}"} for at in range(LARGE)])
    assert [each.status for each in done] == ["queued"] * LARGE, done


def in_child(q: Queue[Any], name: str) -> None:
    """Use the queue and end this process: with exit code 1 after any error."""
    try:
        use(q, name)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    sys.exit(0)


def hold_locks(held: threading.Event, over: threading.Event) -> None:
    """Hold every lock of the library from another thread."""
    with ExitStack() as locks:
        for each in set(forks._LOCKS):
            locks.enter_context(each)
        held.set()
        over.wait()


def main(address: str, how: str, children: int) -> None:
    """Fork and wait for all."""
    signal.alarm(HANG_S)
    q: Queue[Any] = Queue.connect(address, "mail")
    use(q, "before")
    held, over = threading.Event(), threading.Event()
    holder = threading.Thread(target=hold_locks, args=(held, over), daemon=True)
    holder.start()
    held.wait()
    pids = []
    for at in range(children):
        pid = FORKS[how]()
        if pid == 0:
            signal.alarm(HANG_S)
            in_child(q, f"child{at}")
        pids.append(pid)
    over.set()
    holder.join()
    use(q, "parent")
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert codes == [0] * children, codes
    use(q, "after")
    counters = q.stats()["counters"]
    print(counters["enqueued"], counters["completed"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
