"""Which kinds of jobs lie in a part of a backlog, told without reading it: its *labels*.

A mixed lane holds jobs of any number of kinds in the order in which they came. A claim of a few kinds has to find the
first job that it may start, and must not read a million others to get there. So each span of such a lane is labelled
with a digest of every kind in it, as column stores keep zone maps and Bloom filters beside their data.

Labels are told when a segment is written and never change. What was taken out since stands in the deletion vector, so
labels may tell of more than is left, and never of less. A segment of many blocks labels each of them as well. An index
holds the labels of the spans below it. A span that would have too many has none, which means: look into it.

    labels    the digests of the kinds, each of ``DIGEST_BYTES``, sorted
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b

from msgspec import Struct

DIGEST_BYTES = 6  # two of 5,000 kinds share one once in 22 million queues
KINDS_REMEMBERED = 16_384  # digests kept in a process


class LabelledBlock(Struct, frozen=True, array_like=True, gc=False):
    """One block of a segment, and what is in it."""

    offset: int
    length: int
    labels: bytes


@lru_cache(KINDS_REMEMBERED)
def digest_of(kind: str) -> bytes:
    """What stands for a kind."""
    return blake2b(kind.encode(), digest_size=DIGEST_BYTES).digest()


def labels_of(kinds: Iterable[str]) -> bytes:
    """The labels of jobs of these kinds."""
    return b"".join(sorted({digest_of(kind) for kind in kinds}))


def digests_in(labels: bytes) -> Iterator[bytes]:
    """The digests, one by one."""
    for at in range(0, len(labels), DIGEST_BYTES):
        yield labels[at : at + DIGEST_BYTES]


def union(all_labels: Iterable[bytes | None]) -> bytes | None:
    """The labels of several parts together; None where one of them does not tell."""
    found: set[bytes] = set()
    for labels in all_labels:
        if labels is None:
            return None
        found.update(digests_in(labels))
    return b"".join(sorted(found))


def may_hold(labels: bytes | None, wanted: Callable[[bytes], bool]) -> bool:
    """May there be a job of a wanted kind?"""
    return labels is None or any(map(wanted, digests_in(labels)))
