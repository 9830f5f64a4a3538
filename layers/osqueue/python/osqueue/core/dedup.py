"""Has a job been accepted already? Several callers may enqueue one job under its client's id, or one caller repeat it.

Each of them has seen the key nowhere, in a head of seq ``seen``. What has been accepted since is in the head, or has
left it for a segment or a table that was born since; or it was finished and forgotten. The objects in question are few
and young; the reduction asks for them and looks whether the key is in them. They are those of the head that was
*read*: what this very reduction takes out of them has been in them, too.
"""

from __future__ import annotations

from typing import cast

from .backlog import NeededRange
from .draft import Draft
from .encoding import Footer, born_of, decode_blocks, decode_footer, decode_index
from .job_ops import JobSpec
from .ops import Code
from .state import Span, TableRef
from .tables import decode_rows
from .tables import decode_table_index as decode_tables

WHOLE = -1  # the place of what a whole object tells: the keys in it, or the pointers
WHOLE_BYTES_MAX = (
    1024 * 1024
)  # of one object that is read for this; a larger one is the caller's to look into

Pointers = tuple[Span, ...] | tuple[TableRef, ...]


def seen_before(draft: Draft, new: JobSpec) -> Code | None:
    """DUPLICATE when the key is known, RETRY when that cannot be told now, None when nobody has enqueued it."""
    if draft.knows(new.key):
        return Code.DUPLICATE
    if draft.forgotten > new.seen:
        return Code.RETRY
    answer: Code | None = None
    state = draft.state
    pending: list[Span | TableRef] = [span for lane in state.lanes for span in lane.backlog.spans]
    pending += [*state.delayed.spans, *state.dead.spans, *state.tables]
    while pending:
        each = pending.pop()
        if not each.first <= new.key <= each.last or born_of(each.name) < new.seen:
            continue
        if isinstance(each, TableRef) and not each.named and new.client_id is not None:
            continue  # a job under an id is not among these
        loaded = draft.blocks.get((each.name, WHOLE))
        if loaded is None:
            answer = Code.RETRY
            if each.size <= WHOLE_BYTES_MAX:
                draft.need(NeededRange(each.name, 0, each.size, each.level, 0, whole=True))
        elif isinstance(loaded, frozenset):
            if new.key in loaded:
                return Code.DUPLICATE
        elif isinstance(loaded, tuple):
            pending.extend(cast("Pointers", loaded))
    return answer


def decode_keys(data: bytes, name: str) -> frozenset[bytes] | Pointers:
    """The keys in a segment or a table, or the pointers in an index. Raises Damaged or NewerFormat."""
    magic = data[:4]
    if magic == b"OSQX":
        return decode_index(data, name)
    if magic == b"OSQY":
        return decode_tables(data, name)
    footer = decode_footer(data, name)
    if not isinstance(footer, Footer) or not footer.blocks:
        return frozenset()
    first = footer.blocks[0].length
    if magic == b"OSQT":
        return frozenset(row.key for row in decode_rows(data, first, name))
    return frozenset(job.key for _, block in decode_blocks(data, first, name) for job in block.jobs)
