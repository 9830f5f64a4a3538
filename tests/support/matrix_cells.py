"""The cells of the fault matrix: an entry, a kind of store and a fault, which is tried at each of three moments.

While the fault lasts, the error names its cause and no secret. When it has gone, the next call succeeds, or a worker
goes on by itself. At the end what was acknowledged is there once. docs/operations.md says what operators see.
"""

from __future__ import annotations

import re
from contextlib import ExitStack

import pytest

from osqueue.clock import MACHINE
from osqueue.errors import OsqueueError
from tests.support.fault_switch import FastMachine, FaultSwitch
from tests.support.matrix_clouds import AzureKind, ExpressKind, GoogleKind, S3Kind
from tests.support.matrix_entries import ENTRIES
from tests.support.matrix_entry import Entry
from tests.support.matrix_kinds import ValkeyKind, shorten_silence
from tests.support.matrix_stores import FAULTS, FileKind, MemoryKind, SplitKind, StoreKind
from tests.support.matrix_work import BUSY

MOMENTS = ("before the first call", "during a call", "after calls")
SHORT_TRIES = 6  # of a good call, where clients wait for a moment only
KINDS: tuple[type[StoreKind], ...] = (
    *(MemoryKind, FileKind, SplitKind),
    *(S3Kind, ExpressKind, GoogleKind, AzureKind),
    ValkeyKind,
)
CELLS = [
    pytest.param(kind, entry, fault, id=f"{kind.name}-{entry.name}-{fault}")
    for kind in KINDS
    for entry in ENTRIES
    for fault in FAULTS
    if fault not in kind.absent and kind.name not in entry.absent
]
_requests: dict[tuple[type[StoreKind], type[Entry]], int] = {}  # that a call without a fault takes


def run(kind: StoreKind, entry: type[Entry], fault: str, patch: pytest.MonkeyPatch) -> None:
    """Try an entry at a place of a kind through a fault, at each moment."""
    if fault == "hung":
        shorten_silence(patch)
    switch = FaultSwitch(MACHINE if entry.real_time else FastMachine())
    with ExitStack() as stack:
        place = stack.enter_context(kind.open(switch, patch))
        opened = entry(place, patch)
        stack.callback(opened.close)
        cells = Cells(opened, fault)
        for moment in MOMENTS:
            cells.run(moment)
        opened.check()


class Cells:
    """An entry at a place, and one fault."""

    def __init__(self, entry: Entry, fault: str) -> None:
        self.entry = entry
        self.switch = entry.place.switch
        self.fault = fault
        self.cause = entry.place.kind.names[fault]
        self.calls = 0

    def run(self, moment: str) -> None:
        self.entry.moment = moment
        after = self.entry.middle(self.measured()) if moment == "during a call" else 0
        error = self.reported(moment, after)
        while error is None and after > 1 and not self.switch.met:  # this call took fewer requests
            after //= 2
            error = self.reported(moment, after)
        if error is None:
            passing = self.entry.place.kind.reads_pass if self.entry.only_reads else self.entry.unhurt
            unhurt = self.fault in passing or (after > 0 and self.switch.met > 0)
            assert unhurt, f"{moment}: the fault was not reported"
        else:
            assert re.search(self.cause, str(error)), f"{moment}: the error does not name the cause: {error}"
            assert self.entry.place.kind.secret not in str(error), f"{moment}: the error shows a secret"
        try:
            self.work(f"{moment}, when the fault is over")
        except OsqueueError as raised:
            pytest.fail(f"{moment}: it does not work after the fault: {raised!r}")

    def measured(self) -> int:
        """Return how many requests a call takes. It is measured once for an entry on a kind of store."""
        cell = type(self.entry.place.kind), type(self.entry)
        if cell not in _requests:
            before = self.switch.requests
            self.work("measured")
            _requests[cell] = self.switch.requests - before
        return _requests[cell]

    def work(self, text: str) -> None:
        """Call while there is no fault. A time-out that is short may end a good call on a machine that is busy."""
        for tries_left in reversed(range(SHORT_TRIES if self.fault == "hung" else 1)):
            try:
                self.entry.prepare()
                return self.entry.recover(self.payload(text))
            except OsqueueError:
                if not tries_left:
                    raise

    def reported(self, moment: str, after: int) -> OsqueueError | None:
        """Call while the fault is on; again if a short time-out ended the call before the fault's own error."""
        for _ in range(SHORT_TRIES if self.fault == "hung" else 1):
            error = self.met(moment, after)
            if error is None or BUSY not in str(error):
                break
        return error

    def met(self, moment: str, after: int) -> OsqueueError | None:
        """Call while the fault is on, from the request after so many others; return what is raised."""
        self.entry.prepare()
        with self.switch.on(self.fault, after):
            try:
                self.entry.call(self.payload(moment))
            except OsqueueError as raised:
                return raised
        return None

    def payload(self, text: str) -> str:
        self.calls += 1
        return f"{self.calls}: {text}"
