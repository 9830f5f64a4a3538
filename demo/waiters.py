"""Callers who send a job and wait for its result: each is a thread of the producer process."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

import msgspec

from demo.child import told_to_stop
from demo.journal import Journal, JournalEntry, RunResult, Wait
from demo.plan import ATTEMPTS_MAX, PATIENCE_S, IdSender, Payload
from demo.swf import SwfJob
from osqueue import NotFinished, OsqueueError, Queue, WaitTimeout

LOOK_S = 0.1  # between two looks at a result that is late


class Waiters:
    """The callers of one replay."""

    def __init__(self, queue: Queue[Payload], journal: Journal) -> None:
        self.queue = queue
        self.journal = journal
        self.threads: list[threading.Thread] = []

    def send(self, job: SwfJob, caller: IdSender, timeout_s: float) -> None:
        """Send a job on behalf of a caller, who waits."""
        thread = threading.Thread(target=self._wait, args=(job, caller, timeout_s), daemon=True)
        thread.start()
        self.threads.append(thread)

    def join(self) -> None:
        """Wait until everybody has got a result, or the process is told to stop."""
        while any(thread.is_alive() for thread in self.threads) and not told_to_stop(LOOK_S):
            pass

    def _wait(self, job: SwfJob, caller: IdSender, timeout_s: float) -> None:
        late, error, found = False, "", None
        begun = time.monotonic()
        try:
            try:
                found = self.queue.enqueue_and_wait(
                    Payload(job.number, job.run_s),
                    timeout=timeout_s,
                    id=caller.id,
                    max_attempts=ATTEMPTS_MAX,
                )
            except WaitTimeout:
                late = True
                found = self._read_late(caller.id)
            result = msgspec.convert(found, RunResult)
        except (OsqueueError, msgspec.ValidationError) as failure:
            result, error = None, f"{type(failure).__name__}: {failure}"
        seconds = time.monotonic() - begun
        at_ms = round(datetime.now(UTC).timestamp() * 1000)
        wait = Wait(job.number, caller.id, seconds, at_ms, late, result, error)
        self.journal.write(JournalEntry(requests=self.queue.requests, waited=[wait]))

    def _read_late(self, client_id: str) -> object:
        """The result of a job that went on after its caller's time was up."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.queue.result(client_id)
            except NotFinished:
                if time.monotonic() > until:
                    raise
            time.sleep(LOOK_S)
