"""What a file of slots shows, decoded by itself, and what the store makes of the bytes of a file."""

from __future__ import annotations

import struct
import zlib

from osqueue.stores.file_hot import Slots
from osqueue.stores.file_slots import layout_of, plain_start

_MAGIC = b"\x89osqueue slots\r\n"
_PLAIN = b"\x89osqueue plain\r\n"


def shown(data: bytes) -> tuple[bytes, str | None]:
    """The body, and the version if the file has slots: the latest that is whole."""
    if data.startswith(_PLAIN):
        return data[16:], None
    if not data.startswith(_MAGIC):
        return data, None
    salt, size = struct.unpack_from("<QQ", data, 16)
    low = salt & 0xFFFFFFFF
    whole: list[tuple[int, bytes]] = []
    for start in (4096, 4096 + size):
        generation, length, _, body_sum, header_sum = struct.unpack_from("<QQqII", data, start)
        body = data[start + 32 : start + 32 + length]
        told = zlib.crc32(data[start : start + 28], low) == header_sum and length <= size - 32
        if told and zlib.crc32(body, generation & 0xFFFFFFFF) == body_sum:
            whole.append((generation, body))
    if not whole:
        return data, None
    generation, body = max(whole)
    return body, f"{salt:016x}.{generation:x}"


def read_by_store(data: bytes, mtime_ns: int = 0) -> bytes:
    """The body that the store finds in a file that nobody writes."""
    layout = layout_of(data)
    current = None if layout is None else _SlotsOf(data, mtime_ns).look(None)
    if current is not None and current.body is not None:
        return current.body
    return data[plain_start(data) :]


class _SlotsOf(Slots):
    """The slots in some bytes."""

    def __init__(self, data: bytes, mtime_ns: int) -> None:
        layout = layout_of(data)
        assert layout is not None
        super().__init__(-1, layout, data)
        self._data = data
        self._mtime_ns = mtime_ns

    def _pread(self, slot: int, length: int) -> bytes:
        start = self.layout.start(slot)
        return self._data[start : start + length]

    def _modified_ns(self) -> int:
        return self._mtime_ns
