"""A store with a queue in it that tests damage, and what the doctor says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from osqueue import Queue
from osqueue.commit.driver import BlockingDriver
from osqueue.core.encoding import decode_head, encode_head
from osqueue.errors import Unavailable
from osqueue.maintenance import doctor as checks
from osqueue.maintenance.head_restore import Restorer
from osqueue.maintenance.store_probes import Finding, StoreProbes, worst
from osqueue.objects.layout import root_of
from osqueue.stores.base import Delete, Failed, Get, List, Put, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore

ROOT = root_of("mail", 0)
HEAD = ROOT + "head"
SMALL = {"READY_BYTES_MAX": 900, "TAIL_BYTES_MAX": 700, "FINISHED_BYTES_MAX": 600}
HOUR = 3_600


class Careless(WrappedStore):
    """A store that breaks one promise: ``how`` turns a request into what it does instead."""

    def __init__(self, inner: Any, how: Callable[[StoreRequest], StoreRequest | StoreReply]) -> None:
        super().__init__(inner)
        self.how = how

    def perform(self, request: StoreRequest) -> StoreReply:
        done = self.how(request)
        return self.inner.perform(done) if isinstance(done, StoreRequest) else done  # type: ignore[arg-type]

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


def forbids(kind: Any) -> Callable[[StoreRequest], StoreRequest | StoreReply]:
    refused = Failed(Unavailable("the store refuses: access denied.", permanent=True))
    return lambda request: refused if isinstance(request, kind) else request


class Clinic:
    """A store with a queue in it, and what the doctor says."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.store: Any = MemoryStore(machine)
        self.q = self.queue()

    def queue(self, name: str = "mail") -> Queue[Any]:
        return Queue(self.store, name, machine=self.machine)

    def run(self, flow: Any) -> Any:
        return BlockingDriver(self.store, self.machine).run(flow)

    def probe(self, how: Any = lambda request: request) -> list[Finding]:
        probe = StoreProbes(self.machine, None)
        found = BlockingDriver(Careless(self.store, how), self.machine).run(probe.run())
        return [*found, probe.clock()]

    def examine(self, deep: bool = False, queue: str = "mail") -> list[Finding]:
        return self.run(checks.examine(queue, self.machine.now_ms(), deep))  # type: ignore[no-any-return]

    def said(self, deep: bool = False) -> dict[str, str]:
        """The gravest level of each check."""
        found = self.examine(deep)
        return {each.check: worst([e for e in found if e.check == each.check]) for each in found}

    def restore(self, wished: str = "", force: bool = False) -> Any:
        restorer = Restorer("mail", 0, self.machine, self.machine.now_ms())
        return self.run(restorer.run(wished, force=force))

    def names(self, prefix: str = "") -> list[str]:
        return list(self.store.perform(List(prefix)).keys)

    def read(self, key: str) -> bytes:
        return self.store.perform(Get(key)).body  # type: ignore[no-any-return]

    def write(self, key: str, body: bytes) -> None:
        self.store.perform(Put(key, body))

    def remove(self, *keys: str) -> None:
        self.store.perform(Delete(keys))

    def change(self, **fields: Any) -> None:
        """Write another head, as a defect would."""
        self.write(HEAD, encode_head(replace(decode_head(self.read(HEAD)), commit=b"y" * 16, **fields)))
