"""Reading and writing the slots of a hot object's file (``file_slots`` has the layout).

**Readers** take no lock. They read both headers, then the newer slot, and trust what they then find for this reason:
generation n + 1 is begun, in the slot of n - 1, only when n is whole. So a slot that still has the header it had
tells that nothing after its successor has begun: if the other slot is torn, or its body is, that successor is being
written, or its writer died, and this one was current when the other was read. A slot whose header has changed tells
that writers were quicker: the reader begins again.

**Writers** hold the lock of the key's stripe, and write the slot that is not current. A version that is flushed gets
a modification time that says so; every write sets another. Without it nobody knows whether the writer died before its
flush, or its flush failed. Then the other slot may be the only one that a power cut would leave, so it is not
overwritten: the next version goes to a new file.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec import Struct

from .file_slots import (
    HEADER_BYTES,
    MAGIC,
    PAGE,
    Header,
    SlotLayout,
    flushed_mark_ns,
    header_of,
    is_mark_of,
    is_whole,
    layout_of,
    slot_of,
    target,
    version_of_slot,
)

LOOKS_MAX = 16  # of a reader that writers overtake, before it keeps them away
_BEGIN_BYTES = PAGE + HEADER_BYTES


class Current(Struct, frozen=True):
    """The current version of a hot object."""

    slot: int
    header: Header
    version: str
    body: bytes | None  # None where it was known already


class Slots:
    """A file of slots, open."""

    def __init__(self, descriptor: int, layout: SlotLayout, begin: bytes) -> None:
        self.layout = layout
        self._descriptor = descriptor
        self._begin = begin
        self._past: tuple[Header | None, Header | None] = (None, None)

    def read(self, known: str | None, once: bool = False) -> Current | None:
        """What is current; None where only the lock would tell, or under it (``once``) where no slot is whole."""
        found = self.look(known, self._begin[PAGE:])
        looks = LOOKS_MAX if once else 1
        while found is None and looks < LOOKS_MAX:
            found = self.look(known)
            looks += 1
        return found

    def look(self, known: str | None, first: bytes | None = None) -> Current | None:
        """One look, for which the first slot's header may have been read; None when a writer came between."""
        if first is None:
            first = self._pread(0, HEADER_BYTES)
        headers = header_of(self.layout, first), header_of(self.layout, self._pread(1, HEADER_BYTES))
        self._past = headers
        one, two = headers
        newer = 0 if two is None or (one is not None and one.generation > two.generation) else 1
        for slot in (newer, 1 - newer):
            header = headers[slot]
            if header is None:
                continue
            version = version_of_slot(self.layout, header)
            if version == known and slot == newer and self.is_sure(headers[1 - slot]):
                return Current(slot, header, version, None)  # who knows it has seen it whole
            data = self._pread(slot, HEADER_BYTES + header.length)
            if self.changed(header, data):
                return None
            body = data[HEADER_BYTES:]
            if not is_whole(header, body):
                continue
            other = headers[1 - slot]
            if (slot != newer or other is None) and self._was_flushed(
                header.generation + 1 if other is None else other.generation
            ):
                return None  # the next version is not being written: it was answered, and something has damaged it
            return Current(slot, header, version, body)
        return None

    def _was_flushed(self, generation: int) -> bool:
        return is_mark_of(self.layout, generation, self._modified_ns())

    def is_sure(self, other: Header | None) -> bool:
        """Does the header of the older slot rule out that somebody writes there what comes after the next version?"""
        return other is not None

    def changed(self, header: Header, data: bytes) -> bool:
        """Has a slot another header by now?"""
        return header_of(self.layout, data) != header

    def write(self, current: Current, body: bytes, modified_ms: int) -> Header:
        """Write the version after ``current``, under the lock."""
        slot = target(current.slot)
        past = self._past[slot]
        if past is not None:
            length = HEADER_BYTES + past.length
        else:  # cut short, or never written
            length = self.layout.slot_bytes if any(self._pread(slot, HEADER_BYTES)) else 0
        # A writer that died may have left a header behind: not even its generation is used again.
        generation = 1 + max(each.generation for each in self._past if each is not None)
        data = slot_of(self.layout, generation, body, modified_ms)
        start = self.layout.start(slot)
        # What a purge took out of the object must not stay behind it. It goes first: until the header is written the
        # old length is known, to the next writer if this one dies.
        self._erase(start + len(data), start + length)
        write_all(self._pwrite, data, start)
        header = header_of(self.layout, data[:HEADER_BYTES])
        assert header is not None
        return header

    def _erase(self, start: int, end: int) -> None:
        if start < end:
            write_all(self._pwrite, bytes(end - start), start)

    def write_again(self, current: Current) -> None:
        """Write a slot as it is."""
        data = self._pread(current.slot, HEADER_BYTES + current.header.length)
        write_all(self._pwrite, data, self.layout.start(current.slot))

    def is_marked(self, header: Header) -> bool:
        """Does the file say that this version is flushed?"""
        return self._modified_ns() == flushed_mark_ns(self.layout, header)

    def mark(self, header: Header) -> None:
        """Say that this version is flushed."""
        at = flushed_mark_ns(self.layout, header)
        os.utime(self._descriptor, ns=(at, at))

    def flush(self) -> None:
        """Flush what was written."""
        flush_data(self._descriptor)

    def _modified_ns(self) -> int:
        return os.fstat(self._descriptor).st_mtime_ns

    def _pread(self, slot: int, length: int) -> bytes:
        return read_all(self._descriptor, self.layout.start(slot), length)

    def _pwrite(self, data: memoryview, at: int) -> int:
        return os.pwrite(self._descriptor, data, at)


def opened(descriptor: int) -> tuple[bytes, Slots | None]:
    """The first bytes of an open file, and its slots if it has any."""
    begin = read_all(descriptor, 0, _BEGIN_BYTES)
    if not begin.startswith(MAGIC):
        return begin, None
    layout = layout_of(begin)
    return begin, None if layout is None else Slots(descriptor, layout, begin)


def flush_again(descriptor: int) -> None:
    """Write the current version once more where no flush of it is known, and flush it; under the file's locks.

    A flush that fails may leave the pages clean: the next one writes nothing, and reports no error.
    """
    _, slots = opened(descriptor)
    current = None if slots is None else slots.read(None, once=True)
    if slots is not None and current is not None and not slots.is_marked(current.header):
        slots.write_again(current)
        slots.flush()
        slots.mark(current.header)


def read_all(descriptor: int, start: int, length: int) -> bytes:
    """As many bytes of an open file, if it has them."""
    body = os.pread(descriptor, length, start)
    while len(body) < length:  # one read brings at most 2 GB
        more = os.pread(descriptor, length - len(body), start + len(body))
        if not more:
            break
        body += more
    return body


def write_all(write: Callable[[memoryview, int], int], data: bytes, at: int) -> None:
    """Write all of it, in as many steps as the system likes."""
    rest = memoryview(data)
    while rest:
        taken = write(rest, at)
        rest, at = rest[taken:], at + taken


def flush_data(descriptor: int) -> None:
    """Flush what a file holds, without what need not be known to read it, where the system knows the difference."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)
