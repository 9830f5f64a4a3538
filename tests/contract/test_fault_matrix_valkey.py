"""The fault matrix over Valkey or Redis."""

from __future__ import annotations

import pytest

from tests.support import matrix_cells
from tests.support.matrix_cells import cells_of, kind
from tests.support.matrix_entry import Entry
from tests.support.matrix_stores import StoreKind

__all__ = ["kind"]  # a fixture


@pytest.mark.parametrize(("kind", "entry", "fault"), cells_of("valkey"), indirect=["kind"])
def test_an_entry_reports_a_fault_and_works_after_it(
    kind: StoreKind,
    entry: type[Entry],
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix_cells.run(kind, entry, fault, monkeypatch)
