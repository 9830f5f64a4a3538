"""The layout of a file that keeps a hot object: two slots, written in turn. Computes and does nothing else.

    page 0   magic, salt, size of a slot, checksum                                 never written again
    slot A   generation, length, time, checksum of the body, checksum of these │ body │ …
    slot B   the same

A slot and its body lie side by side, so that a new version is one write. A version is the file's salt, which is
random, and the slot's generation, which counts. The version that counts is the latest one that is *whole*, which
its checksums tell: a write that was cut short leaves the other slot, which it did not touch.

Every other file holds a body as it is. One that begins like a file of slots has a mark in front of it.
"""

from __future__ import annotations

import struct
import zlib

from msgspec import Struct

PAGE = 4096
SLOT_BYTES_MIN = 32_768
MAGIC = b"\x89osqueue slots\r\n"  # the first bytes of a file of slots
PLAIN = b"\x89osqueue plain\r\n"  # and of a file whose body would begin like one of the two

_FIRST = struct.Struct(f"<{len(MAGIC)}sQQ")  # magic, salt, size of a slot
_HEADER = struct.Struct("<QQqI")  # generation, length, ms since the epoch, checksum of the body
_CHECKSUM = struct.Struct("<I")
FIRST_BYTES = _FIRST.size + _CHECKSUM.size
HEADER_BYTES = _HEADER.size + _CHECKSUM.size


class SlotLayout(Struct, frozen=True):
    """What the first page of a file of slots says."""

    salt: int  # random: no two files have the same
    slot_bytes: int

    @property
    def room(self) -> int:
        """The longest body that fits, in bytes."""
        return self.slot_bytes - HEADER_BYTES

    def start(self, slot: int) -> int:
        """Where a slot begins."""
        return PAGE + slot * self.slot_bytes


class Header(Struct, frozen=True):
    """What a slot says of the body behind it."""

    generation: int  # counts the versions of one file, from 1
    length: int  # of the body, bytes
    modified_ms: int  # when it was written, ms since the epoch
    checksum: int  # of the body


def plain(body: bytes) -> bytes:
    """The content of a file that holds this body and nothing else."""
    return PLAIN + body if body.startswith((MAGIC, PLAIN)) else body


def plain_start(first: bytes) -> int:
    """Where the body begins in such a file, which begins like this."""
    return len(PLAIN) if first.startswith(PLAIN) else 0


def slot_bytes_for(body: bytes) -> int:
    """The size of the slots of a new file: the body may double before it needs larger ones."""
    twice = 2 * (len(body) + HEADER_BYTES)
    return max(SLOT_BYTES_MIN, -(-twice // PAGE) * PAGE)


def new_file(layout: SlotLayout, body: bytes, modified_ms: int) -> bytes:
    """The content of a new file of slots: all of it is written, so that no later write needs to allocate."""
    first = _FIRST.pack(MAGIC, layout.salt, layout.slot_bytes)
    page = (first + _sum(first)).ljust(PAGE, b"\0")
    slot = slot_of(layout, 1, body, modified_ms)
    return page + slot.ljust(2 * layout.slot_bytes, b"\0")


def new_slots(salt: int, body: bytes, modified_ms: int) -> tuple[bytes, str, int]:
    """A new file for a hot object: its content, its first version, and the time that says that this is flushed."""
    layout = SlotLayout(salt, slot_bytes_for(body))
    content = new_file(layout, body, modified_ms)
    header = header_of(layout, content[PAGE:])
    assert header is not None
    return content, version_of_slot(layout, header), flushed_mark_ns(layout, header)


def layout_of(first: bytes) -> SlotLayout | None:
    """What the first bytes of a file say; None where it holds no slots."""
    if not first.startswith(MAGIC) or len(first) < FIRST_BYTES:
        return None
    if first[_FIRST.size : FIRST_BYTES] != _sum(first[: _FIRST.size]):
        return None
    _, salt, slot_bytes = _FIRST.unpack_from(first)
    return SlotLayout(salt, slot_bytes)


def slot_of(layout: SlotLayout, generation: int, body: bytes, modified_ms: int) -> bytes:
    """A slot's header and body."""
    checksum = zlib.crc32(
        body, generation & 0xFFFF_FFFF
    )  # not even the same body passes for another version's
    header = _HEADER.pack(generation, len(body), modified_ms, checksum)
    return header + _sum(header, layout.salt) + body


def header_of(layout: SlotLayout, slot: bytes) -> Header | None:
    """The header that a slot begins with; None for one that was never written, or not to its end."""
    if len(slot) < HEADER_BYTES:
        return None
    if slot[_HEADER.size : HEADER_BYTES] != _sum(slot[: _HEADER.size], layout.salt):
        return None
    header = Header(*_HEADER.unpack_from(slot))
    return header if header.length <= layout.room else None


def is_whole(header: Header, body: bytes) -> bool:
    """Is this the body that the header speaks of, all of it?"""
    return len(body) == header.length and zlib.crc32(body, header.generation & 0xFFFF_FFFF) == header.checksum


def target(current: int) -> int:
    """Which slot the next version goes to: the current one stays until that is flushed."""
    return 1 - current


def version_of_slot(layout: SlotLayout, header: Header) -> str:
    """The version token. It has a point where that of other files has a dash: none is like one of theirs."""
    return f"{layout.salt:016x}.{header.generation:x}"


def is_slot(version: str) -> bool:
    """Is this the version of a slot?"""
    return "." in version


def file_of(version: str) -> str:
    """What all versions of one file of slots begin with."""
    return version.partition(".")[0]


def flushed_mark_ns(layout: SlotLayout, header: Header) -> int:
    """The modification time that says: this version is flushed.

    Every write sets another time, which cannot be this one but by a chance of one in a million: the digits below the
    millisecond follow from the version.
    """
    return header.modified_ms * 1_000_000 + _mark_digits(layout, header.generation)


def is_mark_of(layout: SlotLayout, generation: int, mtime_ns: int) -> bool:
    """Does a modification time say that this generation is flushed, whenever it was written?"""
    return mtime_ns % 1_000_000 == _mark_digits(layout, generation)


def _mark_digits(layout: SlotLayout, generation: int) -> int:
    digits = zlib.crc32(_CHECKSUM.pack(generation & 0xFFFF_FFFF), layout.salt & 0xFFFF_FFFF)
    return 3 + digits % 499_998 * 2


def _sum(data: bytes, salt: int = 0) -> bytes:
    return _CHECKSUM.pack(zlib.crc32(data, salt & 0xFFFF_FFFF))
