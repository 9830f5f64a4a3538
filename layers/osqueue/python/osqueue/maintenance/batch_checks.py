"""Does every batch say of its jobs how many are left? Counted in the head, and in the segments that it names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..commit.effects import Flow
from ..core.batches import batch_of
from ..core.head_content import jobs_in_memory
from ..core.state import FAILED, JobRecord, State
from ..model.keys import job_id
from ..objects import segments
from ..objects.listing import waiting_spans
from . import salvage
from .head_checks import Told
from .store_probes import OK, TROUBLE

CHECK = "batches"
READ_MAX = 10_000  # jobs in segments that are read for this, without ``deep``
REMEDY = (
    "This is a defect: report it, with a copy of the head. osqueue doctor ADDRESS {queue} --shard {shard}"
    " --restore head --yes counts the jobs again; those that it does not find count as cancelled."
)


def miscounted(queue: str, shard: int, root: str, state: State, deep: bool) -> Flow[list[Told]]:
    """Batches that say of more or of fewer jobs that they are left than wait or run.

    Raises Damaged or NotFound where a segment cannot be read, Unavailable.
    """
    if not state.batches:
        return []
    spans = waiting_spans(state)
    if not deep and sum(span.count for span in spans) > READ_MAX:
        return [
            (OK, CHECK, f"not counted: more than {READ_MAX:,} jobs lie in segments. --deep counts them.", "")
        ]
    left: Counter[bytes] = Counter()
    _count(left, (job for where, job in jobs_in_memory(state) if where != FAILED))
    gone = set(state.tombstones)
    for span in spans:
        for leaf in (yield from salvage.leaves(root, span)):
            found = yield from segments.segment_jobs(root, leaf)
            _count(left, (job for job in found if job.key not in gone))
    remedy = REMEDY.format(queue=queue, shard=shard)
    return [
        (
            TROUBLE,
            CHECK,
            f"batch {job_id(key)} {row.name!r} says that {row.left:,} of its jobs are left; {left[key]:,} wait or run",
            remedy,
        )
        for key, row in state.batches.items()
        if row.left != left[key]
    ]


def _count(left: Counter[bytes], jobs: Iterator[JobRecord]) -> None:
    left.update(filter(None, map(batch_of, jobs)))
