"""Each entry of the library, on each kind of store, through each fault: before its first call, during one, and warm.

While the fault lasts, the error names its cause and no secret. When it has gone, the next call succeeds, or a worker
goes on by itself. At the end what was acknowledged is there once. docs/operations.md says what operators see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from osqueue.clock import MACHINE
from osqueue.errors import OsqueueError
from osqueue.stores import address
from tests.support.fault_switch import FastMachine, FaultSwitch
from tests.support.matrix_entries import ENTRIES, OTHERS
from tests.support.matrix_entry import Entry
from tests.support.matrix_kinds import KINDS, shorten_silence
from tests.support.matrix_stores import FAULTS, StoreKind
from tests.support.places import ROOT
from tests.support.source import MODULES, dotted, names_used, parse

MOMENTS = ("before the first call", "during a call", "after calls")
SHORT_TRIES = 6  # of a good call, where clients wait for a moment only
CELLS = [
    pytest.param(kind, entry, fault, id=f"{kind.name}-{entry.name}-{fault}")
    for kind in KINDS
    for entry in ENTRIES
    for fault in FAULTS
    if fault not in kind.absent and kind.name not in entry.absent
]


@pytest.fixture(scope="module")
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreKind]:
    """A kind of store, with the servers that its places share."""
    made: StoreKind = request.param(request.getfixturevalue, tmp_path_factory.mktemp("matrix"))
    yield made
    made.close()


@pytest.mark.parametrize(("kind", "entry", "fault"), CELLS, indirect=["kind"])
def test_an_entry_reports_a_fault_and_works_after_it(
    kind: StoreKind, entry: type[Entry], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "hung":
        shorten_silence(monkeypatch)
    switch = FaultSwitch(MACHINE if entry.real_time else FastMachine())
    with ExitStack() as stack:
        place = stack.enter_context(kind.open(switch, monkeypatch))
        opened = entry(place, monkeypatch)
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
        after = self.entry.middle(self.measured()) if moment == "during a call" else 0
        error = self.met(moment, after)
        while error is None and after > 1 and not self.switch.met:  # this call took fewer requests
            after //= 2
            error = self.met(moment, after)
        if error is None:
            unhurt = self.fault in self.entry.unhurt or (after > 0 and self.switch.met > 0)
            assert unhurt, f"{moment}: the fault was not reported"
        else:
            assert re.search(self.cause, str(error)), f"{moment}: the error does not name the cause: {error}"
            assert self.entry.place.kind.secret not in str(error), f"{moment}: the error shows a secret"
        try:
            self.work(f"{moment}, when the fault is over")
        except OsqueueError as raised:
            pytest.fail(f"{moment}: it does not work after the fault: {raised!r}")

    def measured(self) -> int:
        """Return how many requests a call takes."""
        before = self.switch.requests
        self.work("measured")
        return self.switch.requests - before

    def work(self, text: str) -> None:
        """Call while there is no fault. A time-out that is short may end a good call on a machine that is busy."""
        for tries_left in reversed(range(SHORT_TRIES if self.fault == "hung" else 1)):
            try:
                self.entry.prepare()
                return self.entry.recover(self.payload(text))
            except OsqueueError:
                if not tries_left:
                    raise

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


# ── Nothing is left out ──────────────────────────────────────────────────────
def test_the_matrix_has_every_kind_of_store() -> None:
    schemes = {scheme for kind in KINDS for scheme in kind.schemes}
    assert schemes == {*address._OPTIONS, address.ARCHIVE}
    for kind in KINDS:
        assert {*kind.names, *kind.absent} == {*FAULTS}, kind.name


def test_the_matrix_has_every_entry() -> None:
    """An entry is a module that opens a store; those of no entry are listed with the reason."""
    opening = {
        dotted(path).removeprefix("osqueue.")
        for path in MODULES
        if "osqueue.stores.address.open_store" in set(names_used(parse(path), path))
    }
    covered = {module for entry in ENTRIES for module in entry.covers}
    assert opening == covered | OTHERS.keys()
    assert not covered & OTHERS.keys()


def test_the_matrix_has_as_many_cells_as_the_documentation_says() -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    section = page.partition("## When the store fails\n")[2].partition("\n## ")[0]
    assert f"{len(CELLS) * len(MOMENTS):,} cells" in section
    for name in (*FAULTS, *(entry.name for entry in ENTRIES)):
        assert f"| {name} |" in section
