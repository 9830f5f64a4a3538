"""Merges of delayed segments by writers that collide: which writer merges what, and what a crowd of them writes."""

from __future__ import annotations

import pytest

from bench.crowds import measure
from osqueue import limits
from osqueue.core import spill
from osqueue.core.state import Delayed, Span, State
from osqueue.operations.span_merges import (
    MERGED_AHEAD_MS,
    SPANS_LEFT_MAX,
    SPANS_PER_MERGE,
    _parts,
    run_of,
)

NOW_MS = 1_000_000
SOON_MS = NOW_MS + MERGED_AHEAD_MS
SMALL, LARGE, FULL = 150_000, 1_100_000, limits.SEGMENT_BYTES_MAX // 2 + 1


def spans(sizes: list[int], due_ms: int = SOON_MS) -> list[Span]:
    return [
        Span(f"segments/{at}", 0, 1, 0, 0, 9, size, b"", b"", due_ms=due_ms) for at, size in enumerate(sizes)
    ]


def runs(found: list[Span]) -> dict[str, list[Span]]:
    """Return what each writer merges, by the name of its segment."""
    state = State(commit=b"", epoch=1, seq=1, now_ms=NOW_MS, delayed=Delayed((), tuple(found)))
    each = {span.name: run_of(state, span.name) for span in found}
    return {name: run for name, run in each.items() if run}


def test_the_writer_of_every_eighth_segment_of_a_size_merges_eight() -> None:
    found = spans([SMALL, FULL, LARGE, SMALL] * 8)
    small, large = ([span for span in found if span.size == size] for size in (SMALL, LARGE))
    assert runs(found) == {small[7].name: small[:8], large[7].name: large, small[15].name: small[8:]}
    assert runs([span for span in found if span not in small[:8]]) == {
        large[7].name: large,
        small[15].name: small[8:],
    }


def test_a_writer_merges_the_first_segments_where_earlier_writers_left_many() -> None:
    found = spans([SMALL] * (SPANS_LEFT_MAX + SPANS_PER_MERGE))
    assert runs(found)[found[-1].name] == found[:SPANS_PER_MERGE]


def test_segments_that_are_due_soon_or_nearly_full_are_not_merged() -> None:
    assert not runs(spans([SMALL] * 20, SOON_MS - 1))
    assert not runs(spans([FULL] * 20))


def test_a_run_is_cut_into_parts_that_fit_into_a_segment() -> None:
    parts = list(_parts(spans([limits.SEGMENT_BYTES_MAX // 3] * 8)))
    assert [len(part) for part in parts] == [3, 3, 2]
    assert not list(_parts(spans([FULL, FULL, FULL])))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_lasting_crowd_of_delayed_calls_stages_few_bytes_that_no_commit_refers_to(seed: int) -> None:
    tally = measure(8, 10, 300, delayed=True, seed=seed)
    assert tally.refused == 0
    assert tally.enqueued == 8 * 10 * 300 + 1
    assert tally.lost < 0.25  # 0.8 where every writer merges
    assert tally.spans <= spill.DELAYED_SPANS_CROWDED
