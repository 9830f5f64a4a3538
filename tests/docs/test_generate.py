"""What the pages show of the code's tables is what the tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import TABLES, diagram, page
from osqueue.core.arrows import ARROWS
from tests.support.places import ROOT

PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_shows_what_the_tables_say(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert page(text) == text, "run: make docs"


def test_every_table_is_shown() -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    assert [name for name in TABLES if f"<!-- made from {name} -->" not in shown] == []


def test_the_diagram_draws_every_arrow() -> None:
    drawn = diagram().splitlines()
    for arrow in ARROWS:
        (line,) = [
            each for each in drawn if each.startswith(f"    {arrow.origin or '[*]'} --> {arrow.target}:")
        ]
        assert arrow.what in line


def test_a_page_that_was_changed_by_hand_is_seen() -> None:
    text = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    assert page(text.replace("release(delay)", "release")) == text
