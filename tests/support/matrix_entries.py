"""The entries of the fault matrix: each way into the library that uses a store, with one call that can be repeated."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from osqueue import AsyncPacer, AsyncQueue, Pacer, Queue
from osqueue.asgi.admission import Admission
from osqueue.asgi.app import ServerApp
from osqueue.asgi.readiness import LOOK_SECONDS
from osqueue.aws_lambda import Function
from osqueue.bulk.writer import BulkWriter
from osqueue.contract import functions
from osqueue.core.job_ops import JobSpec
from osqueue.election import AsyncElection, Election
from osqueue.errors import Unavailable
from osqueue.server.async_app import AsyncApi
from osqueue.stores.address import open_store
from osqueue.testing.clock import VirtualDriver
from tests.support.api_server import api_server
from tests.support.functions_at_work import Context, http
from tests.support.matrix_entry import NAME, PADDING, TIMEOUT_S, Awaiting, Entry
from tests.support.matrix_work import ConsumerEntry, WorkerEntry


# ── Queues ───────────────────────────────────────────────────────────────────
class QueueEntry(Entry):
    """``Queue``: enqueue."""

    name = "Queue"
    covers = ("queue.opening",)

    def begin(self) -> None:
        self.q: Queue[Any] = Queue(
            self.place.open(self.machine), NAME, machine=self.machine, timeout=TIMEOUT_S
        )

    def call(self, payload: str) -> None:
        self.give(payload, self.q.enqueue)

    def close(self) -> None:
        self.q.close()
        super().close()


class AsyncQueueEntry(Awaiting):
    """``AsyncQueue``: enqueue."""

    name = "AsyncQueue"
    covers = ("queue.opening",)

    def open(self) -> Any:
        return AsyncQueue(self.place.open(self.machine), NAME, machine=self.machine, timeout=TIMEOUT_S)

    def call(self, payload: str) -> None:
        self.give(payload, lambda text: self.runner.run(self.opened.enqueue(text)))


class EventsEntry(Entry):
    """``listen``: each event of the queue once, in order."""

    name = "listen"
    only_reads = True
    covers = ("queue.opening",)

    def begin(self) -> None:
        self.q: Queue[Any] = Queue(
            self.place.open(self.machine), NAME, machine=self.machine, timeout=TIMEOUT_S
        )
        self.heard: list[str] = []
        self.cursor: Any = None
        self.jobs: list[str] = []

        @self.q.on("queued")
        def hear(event: Any) -> None:
            self.heard.append(event.job_id)
            self.cursor = event.cursor

    def prepare(self) -> None:
        if self.cursor is not None:
            self.jobs.append(self.rival.enqueue("x").job_id)

    def call(self, payload: str) -> None:
        self.cursor = self.q.listen(self.cursor, wait=0, poll=0.1)

    def check(self) -> None:
        assert self.heard == self.jobs

    def close(self) -> None:
        self.q.close()
        super().close()


# ── Servers ──────────────────────────────────────────────────────────────────
LOOKS_MAX = 10  # of a load balancer, until a server has to be ready after a fault


class ServeEntry(Awaiting):
    """``osqueue serve``: its ASGI application. It is not ready while a fault lasts, and is ready again afterwards."""

    name = "serve"
    covers = ("cli.serve", "asgi.server", "server.app")

    def open(self) -> Any:
        self.patch.setattr("osqueue.queue.asynchronous.AsyncDriver", VirtualDriver)
        return ServerApp(AsyncApi(self.place.open(self.machine), machine=self.machine), Admission(None))

    def call(self, payload: str) -> None:
        try:
            self.give(payload, self.post)
        except Unavailable:
            self.check_not_ready()
            raise

    def recover(self, payload: str) -> None:
        """Be ready before any call succeeds: a load balancer sends none to a server that is not ready.

        A load balancer looks again after a look that failed. So does this: on a busy machine a sound store
        may send its reply after the short limit of the fault ``hung``.
        """
        for _ in range(LOOKS_MAX):
            status, content = self.look()
            if status == 200:
                break
        assert status == 200, f"not ready after the fault: {content}"
        self.call(payload)

    def check_not_ready(self) -> None:
        """Compare what readiness reports with the fault that is on."""
        kind, fault = self.place.kind, self.place.switch.fault
        assert fault is not None
        status, content = self.look()
        if fault in kind.lists_pass:
            assert status == 200, content
            return
        assert status == 503, "ready in spite of the fault"
        assert re.search(kind.names[fault], content["reason"]), f"it does not name the cause: {content}"
        assert kind.secret not in content["reason"], "the reason shows a secret"

    def look(self) -> tuple[int, Any]:
        """Return what `/readyz` reports once no earlier reply of the store is believed any more."""
        self.machine.sleep(LOOK_SECONDS)
        status, body = self.request("GET", "/readyz")
        return status, json.loads(body)

    def post(self, text: str) -> None:
        body = json.dumps({"payload": text}).encode()
        _raise_failure(*self.request("POST", f"/v1/queues/{NAME}/jobs", body))

    def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return the status and the body of the response to a request."""
        return self.runner.run(self.respond(method, path, body))

    async def respond(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"content-length", str(len(body)).encode())],
            "client": ("127.0.0.1", 1),
        }
        sent: list[Any] = []

        arrived = iter([{"type": "http.request", "body": body}])

        async def receive() -> Any:
            return next(arrived, None) or await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        await self.opened.asgi(scope, receive, send)
        return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


class FunctionEntry(Entry):
    """A Lambda function, which stays warm between its invocations."""

    name = "function"
    covers = ("aws_lambda.handler",)

    def begin(self) -> None:
        self.patch.setenv(functions.STORE, self.place.address)
        self.function = Function("enqueue", self.machine)

    def call(self, payload: str) -> None:
        self.give(payload, self.post)

    def post(self, text: str) -> None:
        event = http("POST", f"/v1/queues/{NAME}/jobs", json.dumps({"payload": text}))
        answer = self.function(event, Context())
        _raise_failure(answer["statusCode"], answer["body"].encode())


def _raise_failure(status: int, body: bytes) -> None:
    if status >= 400:
        error = json.loads(body)["error"]
        raise Unavailable(f"{status} {error['code']}: {error['message']}")


class RemoteEntry(Entry):
    """A queue over HTTP, whose API stands before the store."""

    name = "remote client"
    covers = ("queue.opening", "server.app")

    def begin(self) -> None:
        self.server = api_server(self.place.open(self.machine), machine=self.machine)
        self.q: Queue[Any] = Queue.connect(self.server.__enter__(), NAME, timeout=TIMEOUT_S)
        self.q.machine = self.machine

    def call(self, payload: str) -> None:
        self.give(payload, self.q.enqueue)

    def close(self) -> None:
        self.q.close()
        self.server.__exit__(None, None, None)
        super().close()


# ── Beside queues ────────────────────────────────────────────────────────────
class PacerEntry(Entry):
    """``Pacer``: reserve."""

    name = "Pacer"
    covers = ("queue.opening",)

    def begin(self) -> None:
        self.other = Pacer(open_store(self.place.direct, self.machine), NAME, machine=self.machine)
        self.other.create(interval=0.01)
        self.opened = self.open()
        self.numbers: list[int] = []

    def open(self) -> Any:
        return Pacer(self.place.open(self.machine), NAME, machine=self.machine, timeout=TIMEOUT_S)

    def prepare(self) -> None:
        self.numbers.append(self.other.reserve().number)

    def call(self, payload: str) -> None:
        self.numbers.append(self.opened.reserve().number)

    def check(self) -> None:
        assert self.numbers == sorted(set(self.numbers)), "a slot was given twice"

    def close(self) -> None:
        self.other.close()
        super().close()


class AsyncPacerEntry(PacerEntry):
    """``AsyncPacer``: reserve."""

    name = "AsyncPacer"

    def open(self) -> Any:
        self.runner = asyncio.Runner()
        made = AsyncPacer(self.place.open(self.machine), NAME, machine=self.machine, timeout=TIMEOUT_S)
        made._driver = VirtualDriver(made._driver.store, self.machine)
        return made

    def call(self, payload: str) -> None:
        self.numbers.append(self.runner.run(self.opened.reserve()).number)

    def close(self) -> None:
        self.runner.close()
        super().close()


class ElectionEntry(Entry):
    """``Election``: campaign."""

    name = "Election"
    covers = ("election.base",)
    unhurt: ClassVar = {"hung": "a folder creates an object without a lock"}

    def begin(self) -> None:
        self.opened = self.open()
        self.other = Election(open_store(self.place.direct, self.machine), NAME, "b", machine=self.machine)
        self.fences: list[int] = []

    def open(self) -> Any:
        return Election(self.place.open(self.machine), NAME, "a", machine=self.machine)

    def prepare(self) -> None:
        """Another candidate looks, and does not lead beside the leader."""
        if self.opened.is_leader:
            self.other.campaign()
        assert not (self.opened.is_leader and self.other.is_leader)
        if self.other.is_leader:
            self.fences.append(self.other.fence or 0)
            self.other.resign()

    def call(self, payload: str) -> None:
        standing = self.campaign()
        if standing == "conflict":
            raise self.opened.error or Unavailable("no error")
        self.fences.append(self.opened.fence or 0)
        assert self.opened.is_leader

    def campaign(self) -> str:
        standing: str = self.opened.campaign()
        return standing

    def check(self) -> None:
        assert self.fences == sorted(self.fences)
        assert self.fences[0] > 0

    def close(self) -> None:
        self.other.close()
        super().close()


class AsyncElectionEntry(ElectionEntry):
    """``AsyncElection``: campaign."""

    name = "AsyncElection"

    def open(self) -> Any:
        self.runner = asyncio.Runner()
        made = AsyncElection(self.place.open(self.machine), NAME, "a", machine=self.machine)
        made._driver = VirtualDriver(made._driver.store, self.machine)
        return made

    def campaign(self) -> str:
        standing: str = self.runner.run(self.opened.campaign())
        return standing

    def close(self) -> None:
        self.runner.close()
        super().close()


# ── Operators and data ───────────────────────────────────────────────────────
class ReaperEntry(Entry):
    """``osqueue reap``: each finished job comes into the archive."""

    name = "reaper"
    covers = ("cli.options",)

    def begin(self) -> None:
        self.q: Queue[Any] = Queue(
            self.place.open(self.machine), NAME, machine=self.machine, timeout=TIMEOUT_S
        )

    def prepare(self) -> None:
        self.by_rival += 1
        self.acknowledged.append(self.rival.enqueue(f"rival {self.by_rival}").job_id)
        for lease in self.rival.claim(10):
            lease.complete()

    def call(self, payload: str) -> None:
        self.q._run(self.q._steering.reap())

    def check(self) -> None:
        archived = Counter(job.job_id for job in self.rival.history())
        assert archived == Counter(dict.fromkeys(self.acknowledged, 1))

    def close(self) -> None:
        self.q.close()
        super().close()


class BulkEntry(Entry):
    """``BulkWriter``: a bulk under an id, which is begun again after an error."""

    name = "bulk writer"
    covers = ("spark.options",)

    def begin(self) -> None:
        self.bulks = BulkWriter(self.place.open(self.machine), NAME, self.machine)
        self.pending: list[str] = []

    def call(self, payload: str) -> None:
        self.pending.append(payload)
        while self.pending:
            batch_id = self.pending[0]
            self.give(batch_id, lambda text, batch_id=batch_id: self.load(batch_id, text))
            self.pending.pop(0)

    def load(self, batch_id: str, text: str) -> None:
        if self.bulks.is_decided(batch_id):
            self.bulks.resume(batch_id)
            return
        stager = self.bulks.stager(self.bulks.plan(), shard=0)
        stager.add([JobSpec(key, json.dumps(text).encode()) for key in stager.keys(1)])
        self.bulks.attach([stager.finish()], batch_id)


class SparkEntry(Entry):
    """``spark.read``: the reader of live jobs, without a session."""

    name = "spark.read"
    covers = ("spark.options",)
    absent: ClassVar = {"memory": "its workers are other processes"}
    only_reads = True

    def begin(self) -> None:
        from osqueue.spark import live
        from osqueue.spark.columns import SCHEMA
        from osqueue.spark.options import read_options

        self.patch.setattr(live, "MACHINE", self.machine)
        options = read_options({"address": self.place.address, "queue": NAME})
        self.reader = live.LiveReader(options, SCHEMA)
        self.jobs = 0

    def prepare(self) -> None:
        self.jobs += 1
        self.rival.enqueue(f"{self.jobs}{PADDING}")

    def call(self, payload: str) -> None:
        rows = [
            json.loads(text)
            for partition in self.reader.partitions()
            for batch in self.reader.read(partition)
            for text in batch.column("payload").to_pylist()
        ]
        assert sorted(rows) == sorted(f"{number + 1}{PADDING}" for number in range(self.jobs))

    def check(self) -> None:
        self.call("")


ENTRIES: tuple[type[Entry], ...] = (
    *(QueueEntry, AsyncQueueEntry, EventsEntry, WorkerEntry, ConsumerEntry),
    *(ServeEntry, FunctionEntry, RemoteEntry),
    *(PacerEntry, AsyncPacerEntry, ElectionEntry, AsyncElectionEntry),
    *(ReaperEntry, BulkEntry, SparkEntry),
)
# Modules that open a store for no entry of its own, and why.
OTHERS: Mapping[str, str] = {
    "cli.dashboard": "it serves the application of `serve`",
    "devstack.environment": "it asks whether other processes could open the store, and sends nothing",
    "devstack.transfers": "the stack for development, in which functions work",
    "maintenance.store_races": "it tests the store itself",
    "pipeline.files": "a run of the pipeline that fails is begun again",
    "pipeline.places": "a run of the pipeline that fails is begun again",
}
