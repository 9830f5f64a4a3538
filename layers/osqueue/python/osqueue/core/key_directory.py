"""Finding a job by its key in a segment whose jobs stand in another order: the directory of a segment.

Delayed jobs stand by due time, so every block of their segment may hold any key. Such a segment has, behind its blocks,
*pages* of (fingerprint of a key, number of its block), each page for a share of all fingerprints. Whoever looks for one
job reads one page, and then the one block. A segment in the order of its keys has none: there the footer's ranges do.

    page      (fingerprint (4 bytes), block (2 bytes)) …
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from zlib import crc32

_ENTRY = struct.Struct(">IH")
ENTRY_BYTES = _ENTRY.size
PAGE_BYTES = 4 * 1024  # about what a page takes
BLOCKS_MAX = 1 << 16
COVERING_MAX = 2  # blocks that may hold a key, on average, before it is worth having pages


def key_fingerprint(key: bytes) -> int:
    """Few keys of a segment share one: then a block is read for nothing."""
    return crc32(key)


def wants_pages(ranges: Sequence[tuple[bytes, bytes]]) -> bool:
    """Do the ranges of keys of the blocks tell too little?"""
    if len(ranges) <= COVERING_MAX or len(ranges) > BLOCKS_MAX:
        return False
    firsts, lasts = sorted(first for first, _ in ranges), sorted(last for _, last in ranges)
    covering = passed = 0
    for begun, first in enumerate(firsts, 1):
        while lasts[passed] < first:
            passed += 1
        covering += begun - passed
    return covering > COVERING_MAX * len(ranges)


def encode_pages(keys: Sequence[Sequence[bytes]]) -> list[bytes]:
    """The pages of a segment with these keys in each of its blocks."""
    entries = sorted(
        [key_fingerprint(key) << 16 | number for number, block in enumerate(keys) for key in block]
    )
    count = 1 + len(entries) * ENTRY_BYTES // PAGE_BYTES
    least = [-((-page << 32) // count) for page in range(count + 1)]  # fingerprint in each page
    begins = [bisect_left(entries, each << 16) for each in least]
    packed = b"".join([entry.to_bytes(ENTRY_BYTES, "big") for entry in entries])
    return [packed[begin * ENTRY_BYTES : end * ENTRY_BYTES] for begin, end in pairwise(begins)]


def page_of(key: bytes, pages: int) -> int:
    """In which page a key is."""
    return key_fingerprint(key) * pages >> 32


def blocks_of(key: bytes, page: bytes) -> set[int]:
    """The numbers of the blocks that may hold a key, by its page."""
    wanted = key_fingerprint(key)
    return {number for found, number in _ENTRY.iter_unpack(page) if found == wanted}
