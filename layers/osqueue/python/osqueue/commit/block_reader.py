"""Reading what lies outside the head for a reduction: parts of segments and indexes.

They are immutable, so what was read once is kept. What is damaged, or missing although the head still names it,
is noted: the commit goes on without it, and only a claim that needs it is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from ..core.backlog import LABELS, VECTOR, Loaded, NeededRange
from ..core.dedup import decode_keys
from ..core.deletion_vectors import decode_vector
from ..core.encoding import decode_blocks, decode_index, decode_labels
from ..errors import Damaged, NewerFormat
from ..stores.base import Failed, Found, Get, Missing, StoreReply, Unchanged
from .effects import All, Flow
from .writer import HEAD, Head, ShardWriter

Place = tuple[str, int]  # an object's name, and where in it a block begins


def read_blocks(
    writer: ShardWriter, head: Head, needs: Sequence[NeededRange], unreadable: set[Place]
) -> Flow[StoreReply | None]:
    """Read parts of segments into the writer's blocks; what cannot be read is added to ``unreadable``.

    None: done. Missing: the head has moved on. Failed: the store did not answer.
    """
    root = writer.root
    replies = yield All(tuple(Get(root + need.name, start=need.start, length=need.length) for need in needs))
    missing = []
    for need, reply in zip(needs, replies, strict=True):
        if isinstance(reply, Missing):
            missing.append(need.place)
        elif not isinstance(reply, Found):
            return reply  # type: ignore[no-any-return]
        elif not _keep(writer, need, reply.body):
            unreadable.add(need.place)
    if missing:
        current = yield Get(root + HEAD, unless=head.version)
        if isinstance(current, Failed):
            return current
        if not isinstance(current, Unchanged):
            return Missing()
        unreadable.update(missing)
    return None


def _keep(writer: ShardWriter, need: NeededRange, data: bytes) -> bool:
    """Keep what was read; False when it is damaged, or shorter than the head says."""
    # Damage further back says nothing of the blocks in front of it. It is met again should its own turn come.
    with suppress(Damaged, NewerFormat):
        for place, loaded in decode_need(need, data):
            writer.blocks[place] = loaded
    return need.place in writer.blocks


def decode_need(need: NeededRange, data: bytes) -> Iterator[tuple[Place, Loaded]]:
    """What the bytes of a need hold, each with its place. Raises Damaged or NewerFormat where that ends."""
    if need.whole:
        yield need.place, decode_keys(data, need.name)
    elif need.level == LABELS:
        yield need.place, decode_labels(data, need.name)
    elif need.level == VECTOR:
        yield need.place, decode_vector(data, need.name)
    elif need.level:
        yield need.place, decode_index(data, need.name)
    else:
        for offset, block in decode_blocks(data, need.block, need.name):
            yield (need.name, need.start + offset), block
