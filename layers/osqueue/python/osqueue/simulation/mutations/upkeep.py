"""Upkeep (collection, staged objects, tables, ids, batches) with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ...core import reduce
from ...core.draft import Draft
from ...core.ops import Code, Completion
from .control import Control, in_runs, patched


def results_of_any_age() -> AbstractContextManager[None]:
    """A completion may refer to a result that the collector may have taken."""
    real = reduce._complete

    def complete(draft: Draft, item: Completion) -> Code:
        floor, draft.gc_floor = draft.gc_floor, 0
        answer = real(draft, item)
        draft.gc_floor = floor
        return answer

    return patched((reduce, "_complete", complete))


CONTROLS = (Control("age of results", results_of_any_age, (in_runs("large results", "invariant 8"),)),)
