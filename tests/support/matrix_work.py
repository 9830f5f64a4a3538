"""The entries of the fault matrix that work on jobs: the worker and the consumer function."""

from __future__ import annotations

import logging
import queue as queues
import threading
from collections import Counter
from typing import Any

from osqueue import Queue, limits
from osqueue.aws import consumer
from osqueue.clock import MACHINE
from osqueue.errors import Unavailable
from osqueue.testing.consumers import InvocationContext, LocalConsumers, LocalWaker
from osqueue.worker.loop import Worker
from tests.support.matrix_entry import NAME, PASSES_MAX, TIMEOUT_S, Entry
from tests.support.patience import PATIENCE

IDLE = "the payload of no job"
BUSY = "too busy to answer"
STARVED = "that the call had left"  # the short time-out ended the turn before the fault's own error
TURNS_MAX = 8  # of a worker after a fault: on a machine that is busy, a short time-out ends some of them


class WorkerEntry(Entry):
    """The worker: it runs the whole time, and goes on by itself.

    A fault comes before it has claimed anything, then while it has a job in hand, and at last while it is idle.
    """

    name = "worker"
    covers = ("queue.opening",)
    real_time = True

    def begin(self) -> None:
        q: Queue[Any] = Queue(self.place.open(MACHINE), NAME, timeout=0.4)
        self.done: Counter[str] = Counter()
        self.heard: queues.SimpleQueue[str] = queues.SimpleQueue()  # payloads, and errors as they are logged
        self.logs = [_Heard(self.heard, each) for each in ("osqueue.worker", "osqueue.waiting")]
        self.held: dict[str, threading.Event] = {}  # by payload: lets the handler go on

        @q.handler
        def work(job: Any) -> None:
            if job.payload in self.held:
                self.heard.put(f"held {job.payload}")
                self.held[job.payload].wait()
            self.done[job.payload] += 1
            self.heard.put(job.payload)

        self.worker = Worker(q, signals=False, poll=0.02, lease=1)
        self.thread: threading.Thread | None = None

    def prepare(self) -> None:
        """During a call, let the worker have a job in hand, whose ending it has to report."""
        if self.moment != "during a call":
            return self.forget()
        payload = f"held {len(self.held)}"
        self.held[payload] = threading.Event()
        self.send(payload)
        while self.heard.get(timeout=PATIENCE) != f"held {payload}":
            pass

    def call(self, payload: str) -> None:
        if self.moment == "after calls" and self.place.switch.fault not in self.place.kind.reads_pass:
            self.wait({IDLE})
        self.send(payload)
        for event in self.held.values():
            event.set()
        self.wait({payload})
        if (
            self.moment != "during a call"
        ):  # the rival carried out the claim, so only the ending meets the fault
            self.wait({IDLE})

    def middle(self, requests: int) -> int:
        return 1  # another writer has committed since the claim: the ending takes several

    def send(self, payload: str) -> None:
        """Enqueue a job for the worker, which begins with the first one."""
        with self.place.switch.aside():
            self.rival.enqueue(payload, max_attempts=limits.ATTEMPTS_MAX)  # on a busy machine leases end, too
        self.acknowledged.append(payload)
        if self.thread is None:
            self.thread = threading.Thread(target=self.worker.run, daemon=True)
            self.thread.start()

    def wait(self, wanted: set[str]) -> None:
        """Wait until jobs are done. Raises what the worker logs meanwhile."""
        while not wanted <= self.done.keys():
            text = self.heard.get(timeout=PATIENCE)
            if BUSY in text:  # the turn waited for a heartbeat, which meets the fault and reports it later
                continue
            if (
                STARVED in text and self.place.switch.fault != "hung"
            ):  # this machine was slow; a later turn reports
                continue
            if text.startswith(_Heard.MARK):
                raise Unavailable(text.removeprefix(_Heard.MARK))

    def recover(self, payload: str) -> None:
        """See the worker go on by itself, within a few turns."""
        self.forget()
        self.send(payload)
        for event in self.held.values():
            event.set()
        for turn in range(TURNS_MAX):
            try:
                return self.wait({payload})
            except Unavailable:
                if turn + 1 == TURNS_MAX:
                    raise

    def forget(self) -> None:
        """Drop what was logged so far."""
        while not self.heard.empty():
            self.heard.get()

    def check(self) -> None:
        self.wait(set(self.acknowledged))
        end = MACHINE.monotonic() + PATIENCE
        # An ending that got lost lets a job run again when its lease has ended.
        while self.completed() < len(self.acknowledged) and MACHINE.monotonic() < end:
            MACHINE.sleep(0.2)
        self.stop()
        assert self.completed() == len(self.acknowledged)

    def stop(self) -> None:
        self.worker.stop()
        if self.thread is not None:
            self.thread.join(30)
            assert not self.thread.is_alive(), "the worker does not end"

    def close(self) -> None:
        for event in self.held.values():  # a test that failed leaves handlers that wait
            event.set()
        self.stop()
        for log in self.logs:
            log.close()
        super().close()


class _Heard(logging.Handler):
    """Errors that a worker or a consumer logs while it goes on."""

    MARK = "logged: "

    def __init__(self, heard: queues.SimpleQueue[str], logger: str) -> None:
        super().__init__(logging.WARNING)
        self.heard = heard
        self.logger = logging.getLogger(logger)
        self.logger.addHandler(self)

    def close(self) -> None:
        self.logger.removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "cannot be reached" in text:
            self.heard.put(self.MARK + text)


class ConsumerEntry(Entry):
    """A consumer function: after an error the reaper's passes let it be invoked again."""

    name = "consumer"
    covers = ("aws.function",)

    def begin(self) -> None:
        self.done: Counter[str] = Counter()

        @consumer
        def work(job: Any) -> None:
            self.done[job.payload] += 1

        self.function = work
        self.heard: queues.SimpleQueue[str] = queues.SimpleQueue()  # errors as they are logged
        self.kept: Any = None  # the wake of an invocation that failed
        self.log = _Heard(self.heard, "osqueue.consumers")
        self.waker = LocalWaker()
        store = self.place.open(self.machine)
        self.q: Queue[Any] = Queue(store, NAME, machine=self.machine, timeout=TIMEOUT_S, waker=self.waker)
        self.rival = Queue(self.rival.store, NAME, machine=self.machine, waker=self.waker)
        self.local = LocalConsumers({"mailer": work}, self.rival, self.waker)
        self.rival.configure(consumers={"mailer": {"target": "test:mailer", "lease": 1}})

    def prepare(self) -> None:
        """The job of the call is another writer's."""

    def call(self, payload: str) -> None:
        with self.place.switch.aside():
            self.rival.enqueue(payload)
        self.acknowledged.append(payload)
        self.deliver({payload})

    def deliver(self, wanted: set[str]) -> None:
        """Invoke the consumer for each wake, and let the reaper pass, until jobs are done."""
        for _ in range(PASSES_MAX):
            while (wake := self.kept or self.local.next_wake()) is not None:
                self.kept = wake  # until an invocation has ended well: a late delivery works, too
                self.function.work(self.q, wake, InvocationContext(self.machine, 1.0))
                errors = [self.heard.get() for _ in range(self.heard.qsize())]
                if errors:
                    raise Unavailable(errors[-1])
                self.kept = None
            if wanted <= self.done.keys():
                return
            self.place.pass_time(1.0)
            with self.place.switch.aside():
                self.local.tick()
        raise AssertionError("no consumer was invoked for the job")

    def check(self) -> None:
        self.deliver(set(self.acknowledged))
        for _ in range(PASSES_MAX):  # an ending that got lost lets a job run again when its lease has ended
            if self.completed() == len(self.acknowledged):
                break
            self.place.pass_time(1.0)
            self.local.tick()
            self.deliver(set())
        assert self.completed() == len(self.acknowledged)

    def close(self) -> None:
        self.log.close()
        self.q.close()
        super().close()
