"""Which jobs of a segment were cancelled since it was written: its *deletion vector*.

A segment is immutable, so a job is taken out of it by a bit in a small object beside it, as table formats on object
stores do it (Delta Lake, Apache Iceberg). The span points to the vector as it points to the segment; a new vector is
a new object. It has a bit for each job of every block that lost one: some 19 KB for a segment of 8 MB that lost all.

    vector    frame "OSQV" | MessagePack of {a block's offset: a bit for each of its jobs, the first lowest}
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import Damaged
from .encoding import Block, encode, frame, unframe
from .state import KEYSUM_MASK, JobRecord, Span, VectorRef, keysum

MAGIC = b"OSQV"  # a vector begins with it

_decode = msgspec.msgpack.Decoder(dict[int, bytes]).decode


class DeletionVector(Struct, frozen=True):
    """A vector, as read."""

    masks: Mapping[int, int]  # by the offset of a block: a bit for each of its jobs

    def has(self, offset: int, index: int) -> bool:
        """Was this job taken out?"""
        return bool(self.masks.get(offset, 0) >> index & 1)

    def count(self, offset: int, skip: int) -> int:
        """How many of a block's jobs were, after its first ``skip``."""
        return (self.masks.get(offset, 0) >> skip).bit_count()

    def keep(self, offset: int, block: Block, begin: int, end: int | None = None) -> list[JobRecord]:
        """The jobs of a block, from one index to before another, that were not."""
        jobs, mask = block.jobs[begin:end], self.masks.get(offset, 0) >> begin
        return [job for at, job in enumerate(jobs) if not mask >> at & 1] if mask else list(jobs)

    def more(self, places: Iterable[tuple[int, int]]) -> DeletionVector:
        """The same without some more jobs, each by its block's offset and its index there."""
        masks = dict(self.masks)
        for offset, index in places:
            masks[offset] = masks.get(offset, 0) | 1 << index
        return DeletionVector(masks)


EMPTY_VECTOR = DeletionVector({})


def remaining_jobs(span: Span, block: Block, deleted: DeletionVector) -> list[JobRecord]:
    """The jobs of a span's next block that are still to come."""
    return deleted.keep(span.offset, block, span.skip)


def without_jobs(span: Span, keys: Collection[bytes], failing: int, vector: VectorRef | None) -> Span | None:
    """A segment's span without some of the jobs to come in it; None when nothing is left."""
    if len(keys) == span.count:
        return None
    return replace(
        span,
        count=span.count - len(keys),
        keysum=(span.keysum - sum(map(keysum, keys))) & KEYSUM_MASK,
        failing=span.failing - failing,
        vector=vector,
    )


def encode_vector(deleted: DeletionVector, name: str) -> tuple[bytes, VectorRef]:
    """A vector, and what points to it."""
    masks = {
        offset: mask.to_bytes((mask.bit_length() + 7) // 8, "little")
        for offset, mask in sorted(deleted.masks.items())
    }
    data = frame(MAGIC, encode(masks))
    return data, VectorRef(name, len(data))


def decode_vector(data: bytes, name: str) -> DeletionVector:
    """The inverse; raises Damaged or NewerFormat."""
    try:
        masks = _decode(unframe(MAGIC, data, name))
    except msgspec.MsgspecError as error:
        raise Damaged(f"{name} cannot be decoded: {error}") from error
    return DeletionVector({offset: int.from_bytes(mask, "little") for offset, mask in masks.items()})
