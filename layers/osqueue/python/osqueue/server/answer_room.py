"""How many bytes of an answer a job or a result takes."""

from __future__ import annotations

from ..contract.content import weight
from ..core.state import FinishedJob, LeaseRecord, content_bytes
from ..core.weights import headers_weight

FAULT_BYTES = 500  # what an answer takes to say of an item how it went, or why it failed


class AnswerRoom:
    """What is left of an answer."""

    def __init__(self, left: int) -> None:
        self.left = left  # bytes

    def take(self, size: int) -> bool:
        """Take so many bytes, if there are as many."""
        fits = size <= self.left
        self.left -= size if fits else 0
        return fits


def lease_weight(lease: LeaseRecord) -> int:
    """About how many bytes the contents and headers of a leased job take."""
    # JSON writes at most two bytes for one of printable text.
    job, links = lease.job, lease.job.links
    beside = (
        0 if links is None or links.input is None else weight(content_bytes(links.input), links.input_codec)
    )
    return weight(content_bytes(job.payload), job.codec) + 2 * headers_weight(job) + beside


def result_weight(row: FinishedJob) -> int:
    """About how many bytes a result takes."""
    return weight(content_bytes(row.result), row.codec or row.job.codec)
