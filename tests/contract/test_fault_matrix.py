"""The fault matrix: each entry on each kind of store through each fault, and what makes it complete."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from osqueue.stores import address
from tests.support import matrix_cells
from tests.support.matrix_cells import CELLS, KINDS, MOMENTS
from tests.support.matrix_entries import ENTRIES, OTHERS
from tests.support.matrix_entry import Entry
from tests.support.matrix_stores import FAULTS, StoreKind
from tests.support.places import ROOT
from tests.support.source import MODULES, dotted, names_used, parse


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
    matrix_cells.run(kind, entry, fault, monkeypatch)


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
        if "open_store" in path.read_text(encoding="utf-8")
        and "osqueue.stores.address.open_store" in set(names_used(parse(path), path))
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
