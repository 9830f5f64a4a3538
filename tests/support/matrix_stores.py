"""The kinds of stores of the fault matrix: each opens places whose requests meet the fault of a switch."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pytest

from osqueue.clock import Machine
from osqueue.errors import OsqueueError, Timeout, Unavailable
from osqueue.stores import address as addresses
from osqueue.stores import memory
from osqueue.stores.address import open_store
from osqueue.stores.base import Failed, Put, PutIfAbsent, PutIfMatch, Store, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from tests.support import faulty_files
from tests.support.fault_switch import FaultSwitch

FAULTS = {
    "refused": "the store forbids each request",
    "throttled": "the store asks for fewer requests",
    "hung": "no reply arrives before the client's time-out",
    "cut": "the connection ends in the middle of a reply; the request was carried out",
    "credentials": "the store does not know the credentials for a while",
    "rotated": "the store knows other credentials from now on, and the environment is given them later",
    "gone": "the store cannot be reached",
    "missing": "the bucket or container does not exist",
    "full": "the store has no room for what is written",
}
HUNG_S = 0.25  # what a client waits for a reply that never arrives
SECRET = "secret-of-the-matrix"

numbers = itertools.count(1)


class Place:
    """A place in a store, which meets the fault of ``switch``. ``direct`` is its address around the fault."""

    def __init__(self, kind: StoreKind, address: str, direct: str, switch: FaultSwitch) -> None:
        self.kind = kind
        self.address = address
        self.direct = direct
        self.switch = switch

    def open(self, machine: Machine) -> Any:
        """The store, as an entry opens it."""
        return open_store(self.address, machine)

    def pass_time(self, seconds: float) -> None:
        """Let time pass by the store's clock."""
        if self.kind.own_clock:
            threading.Event().wait(seconds)
        else:
            self.switch.machine.sleep(seconds)


class StoreKind:
    """A kind of store: opens places, and has what its servers need."""

    name: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]]  # of the addresses
    absent: ClassVar[Mapping[str, str]] = {}  # by fault: the reason why the kind does not have it
    secret: ClassVar[str] = SECRET  # that no error may show
    own_clock: ClassVar[bool] = False  # it runs by a clock that no test moves
    # By fault that no read meets, and by fault that no listing meets: the reason. `/readyz` lists: it stays at 200.
    reads_pass: ClassVar[Mapping[str, str]] = {"full": "a read takes no room"}
    lists_pass: ClassVar[Mapping[str, str]] = reads_pass
    names: ClassVar[Mapping[str, str]]  # by fault: what an error says of its cause, as a pattern

    def __init__(self, given: Callable[[str], Any], folder: Path) -> None:
        """Start what all places share. ``given`` returns a fixture."""

    def open(
        self, switch: FaultSwitch, patch: pytest.MonkeyPatch
    ) -> contextlib.AbstractContextManager[Place]:
        """An empty place, while the block lasts."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop what the places share."""


# ── In this process ──────────────────────────────────────────────────────────
class FaultyMemory(WrappedStore):
    """A store in memory that fails as any store may, one of a program's own included."""

    def __init__(self, inner: Store, switch: FaultSwitch) -> None:
        super().__init__(inner)
        self.switch = switch

    def perform(self, request: StoreRequest) -> StoreReply:
        fault = self.switch.draw()
        if fault is None or (fault == "full" and not isinstance(request, Put | PutIfAbsent | PutIfMatch)):
            return self.inner.perform(request)
        if fault == "cut":
            self.inner.perform(request)
        if fault == "hung":
            self.switch.hang()
        return Failed(_failure(fault))

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


def _failure(fault: str) -> OsqueueError:
    if fault == "hung":
        return Timeout("the store: no answer in time. Remedy: try again.")
    said = MemoryKind.names[fault].replace("\\", "")
    return Unavailable(f"the store answered: {said}. Remedy: see there.", permanent=fault == "refused")


class MemoryKind(StoreKind):
    """A store in this process's memory, around which faults are made."""

    name = "memory"
    schemes = ("memory",)
    absent: ClassVar = {
        **dict.fromkeys(("credentials", "rotated"), "it takes no credentials"),
        "missing": "it has no bucket",
    }
    names: ClassVar = {
        "refused": "forbidden",
        "throttled": "too many requests",
        "hung": "no answer in time",
        "cut": "connection lost",
        "gone": "connection refused",
        "full": "no space left",
    }

    @contextlib.contextmanager
    def open(self, switch: FaultSwitch, patch: pytest.MonkeyPatch) -> Iterator[Place]:
        name = f"matrix-{next(numbers)}"
        inner = MemoryStore(switch.machine)
        patch.setitem(memory._named, name, FaultyMemory(inner, switch))  # type: ignore[arg-type]
        patch.setitem(memory._named, f"direct-{name}", inner)
        yield Place(self, f"memory://{name}", f"memory://direct-{name}", switch)


class FileKind(StoreKind):
    """A folder, whose modules see an operating system that fails."""

    name = "file"
    schemes = ("file",)
    reads_pass: ClassVar = {**StoreKind.reads_pass, "hung": "a read waits for no lock"}
    lists_pass: ClassVar = {**reads_pass, "cut": "a listing reads no content of a file"}
    absent: ClassVar = {
        **dict.fromkeys(("credentials", "rotated"), "it takes no credentials"),
        "missing": "a folder that does not exist is an empty store: the next write makes it",
    }
    names: ClassVar = {
        "refused": "Permission denied",
        "throttled": "[Tt]oo many open files",
        "hung": "stayed locked",
        "cut": "Input/output error",
        "gone": "Stale file handle",
        "full": "No space left",
    }

    def __init__(self, given: Callable[[str], Any], folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def open(self, switch: FaultSwitch, patch: pytest.MonkeyPatch) -> Iterator[Place]:
        faulty_files.install(switch, patch)
        address = self.address(f"{self.folder}/{next(numbers)}")
        yield Place(self, address, address, switch)

    def address(self, folder: str) -> str:
        return f"file://{folder}?fsync=off"


class SplitKind(FileKind):
    """Two folders behind one address: heads in the first, finished jobs in the second. Both meet the fault."""

    name = "split"
    schemes = (addresses.ARCHIVE,)

    def address(self, folder: str) -> str:
        return (
            f"file://{folder}/heads?fsync=off&archive={quote(f'file://{folder}/archive?fsync=off', safe='')}"
        )
