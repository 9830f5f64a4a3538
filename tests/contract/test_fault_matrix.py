"""Completeness of the fault matrix: every kind of store, every entry, every fault, and the number that the docs state.

``test_fault_matrix_*.py`` beside this file try the cells.
"""

from __future__ import annotations

from pathlib import Path

from osqueue.stores import address
from tests.support.matrix_cells import GROUPS, MOMENTS, cells_of
from tests.support.matrix_entries import ENTRIES, OTHERS
from tests.support.matrix_stores import FAULTS
from tests.support.places import ROOT
from tests.support.source import MODULES, dotted, names_used, parse

KINDS = [kind for group in GROUPS.values() for kind in group]


def test_the_matrix_has_a_file_for_each_group_of_kinds() -> None:
    prefix = f"{Path(__file__).stem}_"
    files = {path.stem.removeprefix(prefix): path for path in Path(__file__).parent.glob(f"{prefix}*.py")}
    assert files.keys() == GROUPS.keys()
    for group, path in files.items():
        assert f'cells_of("{group}"), indirect' in path.read_text(encoding="utf-8")


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
    assert f"{sum(map(len, map(cells_of, GROUPS))) * len(MOMENTS):,} cells" in section
    for name in (*FAULTS, *(entry.name for entry in ENTRIES)):
        assert f"| {name} |" in section
