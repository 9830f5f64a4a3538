"""Which kinds and groups of jobs lie in a part of a backlog, told without reading it: its *labels*.

A mixed lane holds jobs of any number of kinds and groups in the order in which they came. A claim has to find the first
job that it may start, and must not read a million others to get there. So each span of such a lane is labelled with a
digest of every kind in it, and of every kind and group, as column stores keep zone maps and Bloom filters beside their
data.

Labels are told when a segment is written. What was taken out since stands in the deletion vector, so labels may tell of
more than is left, and never of less; those that a head keeps are narrowed where a search has found nothing. A segment
of many blocks labels each of them as well. An index holds the labels of the spans below it. A span that would have too
many has none, which means: look into it.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

from msgspec import Struct

from .state import JobRecord, Labels

KIND_BYTES = 6  # of a digest: two of 5,000 kinds share one once in 22 million queues
GROUP_BYTES = 8  # two groups that share one would wait for each other
PAIR_BYTES = KIND_BYTES + GROUP_BYTES
DIGESTS_REMEMBERED = 16_384  # in a process
FEW = 16  # digests that are looked for one by one


class LabelledBlock(Struct, frozen=True, array_like=True, gc=False):
    """One block of a segment, and what is in it."""

    offset: int
    length: int
    labels: Labels


class Wish(Protocol):
    """What somebody looks for."""

    asked: frozenset[bytes] | None  # the digests of the kinds; None: of all but some
    ungrouped: bool  # may it have no group?

    def has(self, kind: bytes) -> bool:
        """Is it this kind? By its digest."""
        ...

    def opens(self, group: bytes) -> bool:
        """May it be of this group?"""
        ...


@lru_cache(DIGESTS_REMEMBERED)
def kind_digest(kind: str) -> bytes:
    """What stands for a kind."""
    return blake2b(kind.encode(), digest_size=KIND_BYTES).digest()


@lru_cache(DIGESTS_REMEMBERED)
def group_digest(group: str) -> bytes:
    """What stands for a group."""
    return blake2b(group.encode(), digest_size=GROUP_BYTES, person=b"group").digest()


def labels_of(jobs: Iterable[JobRecord]) -> Labels:
    """The labels of some jobs."""
    kinds: set[bytes] = set()
    pairs: set[bytes] = set()
    for job in jobs:
        if job.group:
            pairs.add(kind_digest(job.kind) + group_digest(job.group))
        else:
            kinds.add(kind_digest(job.kind))
    return _labels(kinds, pairs)


def labels_of_kind(kind: str) -> Labels:
    """The labels of jobs of one kind and of no group."""
    return Labels(kind_digest(kind))


def _labels(kinds: Iterable[bytes], pairs: Iterable[bytes]) -> Labels:
    return Labels(b"".join(sorted(kinds)), b"".join(sorted(pairs)))


def _parts(digests: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(digests), size):
        yield digests[at : at + size]


def union(parts: Iterable[Labels | None]) -> Labels | None:
    """The labels of several parts together; None where one of them does not tell."""
    kinds: set[bytes] = set()
    pairs: set[bytes] = set()
    for labels in parts:
        if labels is None:
            return None
        kinds.update(_parts(labels.kinds, KIND_BYTES))
        pairs.update(_parts(labels.pairs, PAIR_BYTES))
    return _labels(kinds, pairs)


def may_hold(labels: Labels | None, wish: Wish) -> bool:
    """May there be a job that is looked for?"""
    if labels is None:
        return True
    kinds = labels.kinds if wish.ungrouped else b""
    if wish.asked is not None and not labels.pairs and len(wish.asked) < FEW:
        return any(_is_in(kinds, digest) for digest in wish.asked)
    return any(map(wish.has, _parts(kinds, KIND_BYTES))) or (
        any(
            wish.has(pair[:KIND_BYTES]) and wish.opens(pair[KIND_BYTES:])
            for pair in _parts(labels.pairs, PAIR_BYTES)
        )
    )


def groups_told(labels: Labels, wish: Wish) -> set[bytes]:
    """The groups that they tell of with a kind that is looked for."""
    return {pair[KIND_BYTES:] for pair in _parts(labels.pairs, PAIR_BYTES) if wish.has(pair[:KIND_BYTES])}


def narrowed(labels: Labels, wish: Wish) -> Labels:
    """The labels of a part in which it is known that there is none of what is looked for."""
    kinds = [kind for kind in _parts(labels.kinds, KIND_BYTES) if not (wish.ungrouped and wish.has(kind))]
    pairs = _parts(labels.pairs, PAIR_BYTES)
    left = [pair for pair in pairs if not (wish.has(pair[:KIND_BYTES]) and wish.opens(pair[KIND_BYTES:]))]
    return _labels(kinds, left)


def _is_in(digests: bytes, digest: bytes) -> bool:
    """Is it one of these? A search of bytes is faster than to take them apart."""
    at = digests.find(digest)
    while at >= 0 and at % KIND_BYTES:
        at = digests.find(digest, at + 1)
    return at >= 0


def holds_kind(labels: Labels | None, kind: str) -> bool:
    """Do they tell of a kind?"""
    if labels is None:
        return False
    digest = kind_digest(kind)
    pairs = (pair[:KIND_BYTES] for pair in _parts(labels.pairs, PAIR_BYTES))
    return digest in _parts(labels.kinds, KIND_BYTES) or digest in pairs
