"""How state, segments and indexes become bytes and back.

Everything durable carries a magic word, a format number and a checksum, so that a damaged object is told from
a newer one and neither is ever mistaken for state.

    head      commit (16 bytes) | frame "OSQH" | MessagePack of State
    block     frame "OSQB" | length of the next block (4 bytes, 0 after the last) | MessagePack of jobs
    segment   block … block | frame "OSQK" of a page … | frame "OSQF" of the footer | its length (4 bytes)
    page      see ``directory``; a segment in the order of its keys has none
              (behind them a frame "OSQL" of labels, see ``labels``, in a segment of a mixed lane with many blocks)
    vector    see ``deletions``
    table     the same, of finished jobs: see ``tables``
    index     frame "OSQX" | MessagePack of spans
    intent    frame "OSQI" | MessagePack of a Request: see ``intents``
    frame     magic (4) | format (2) | CRC-32 of the rest (4) | the rest            (integers big-endian)
"""

import math
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, compress
from operator import is_not
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import Conflict, Damaged, NewerFormat
from ..limits import BLOCK_BYTES_MAX, LABELS_OF_A_SPAN_BYTES_MAX
from .key_directory import encode_pages, wants_pages
from .labels import LabelledBlock, labels_of, union
from .rows import BodyRef, StoredRow
from .state import FAILING, KEYSUM_MASK, Hold, JobRecord, Labels, Lane, Span, State, delayed_state, keysums

FORMAT = 1  # what this release writes; that of a head is in its state
FORMATS_READ = (1,)  # what it reads
REMOVAL_FORMAT = 0xFFFF  # of a head's place in a queue that is being removed; never that of a head

_HEADER = struct.Struct(">4sHI")
_LENGTH = struct.Struct(">I")
_COMMIT_BYTES = 16
FRAME_BYTES = _HEADER.size  # what a frame adds
ROWS_MIN = 48  # of fewer it costs as much to look what stayed
BLOCKS_UNLABELLED_MAX = 2  # of so many it costs no more to read them than to read what is in them

encode = msgspec.msgpack.Encoder().encode
_decode_state = msgspec.msgpack.Decoder(State).decode
_decode_jobs = msgspec.msgpack.Decoder(tuple[JobRecord, ...]).decode
_decode_spans = msgspec.msgpack.Decoder(tuple[Span, ...]).decode
_decode_labels = msgspec.msgpack.Decoder(tuple[LabelledBlock, ...]).decode


_NOTHING = msgspec.Raw()

R = TypeVar("R", bound=StoredRow)
T = TypeVar("T")


class Block(Struct, frozen=True):
    """A run of queued jobs, as read from a segment."""

    jobs: tuple[JobRecord, ...]
    next_length: int  # bytes of the block that follows; 0 when this is the last


class BlockInfo(Struct, frozen=True, array_like=True):
    """A footer's line on one block: enough to find a key without reading the others."""

    offset: int
    length: int
    count: int
    first: bytes  # no key in it is smaller; empty where the directory tells
    last: bytes


class Footer(Struct, frozen=True, array_like=True):
    """The end of a segment."""

    blocks: tuple[BlockInfo, ...]
    bodies: tuple[str, ...]  # objects that its jobs keep payloads in
    pages: tuple[int, ...] = ()  # bytes of each page of its directory, which begins behind the blocks


_decode_footer = msgspec.msgpack.Decoder(Footer).decode


def pack_length(number: int) -> bytes:
    """A length as it stands in an object."""
    return _LENGTH.pack(number)


def unpack_length(data: bytes) -> int:
    """The inverse, of the first four bytes."""
    return int(_LENGTH.unpack_from(data)[0])


def frame(magic: bytes, rest: bytes) -> bytes:
    return _HEADER.pack(magic, FORMAT, zlib.crc32(rest)) + rest


def unframe(magic: bytes, data: bytes, name: str) -> bytes:
    if len(data) < _HEADER.size:
        raise Damaged(f"{name} is cut short ({len(data)} bytes). See docs/operations.md.")
    found, form, crc = _HEADER.unpack_from(data)
    if found != magic:
        raise Damaged(f"{name} does not begin as {magic.decode()} should. Something else wrote there.")
    if form not in FORMATS_READ:
        raise NewerFormat(
            f"{name} has format {form}; this release reads {', '.join(map(str, FORMATS_READ))}. Upgrade osqueue."
        )
    rest = data[_HEADER.size :]
    if zlib.crc32(rest) != crc:
        raise Damaged(f"{name} fails its checksum. See docs/operations.md.")
    return rest


def encode_head(state: State) -> bytes:
    """The head object. It begins with the random commit id, so no two heads are ever the same bytes."""
    body = encode(state)
    return b"".join((state.commit, _HEADER.pack(b"OSQH", state.format, zlib.crc32(body)), body))


class HeadEncoder:
    """``encode_head`` for heads that follow one another: rows that stay, most of a head, are not encoded again."""

    def __init__(self) -> None:
        self._finished = _Rows()
        self._tables = _Rows()
        self._schedules = _Rows()
        self._leases = _Entries()
        self._sessions = _Entries()
        self._windows: dict[tuple[int, str, str], _Window] = {}  # of lanes
        self._holds: tuple[dict[str, Hold], msgspec.Raw] = ({}, _NOTHING)  # the last, and encoded

    def encode(self, state: State) -> bytes:
        """The same bytes as ``encode_head``."""
        known: dict[str, Any] = {}  # fields as they stand in the head
        if len(state.sessions) >= ROWS_MIN:
            known["sessions"] = self._sessions.encode(state.sessions)
        if len(state.leases) >= ROWS_MIN:
            known["leases"] = self._leases.encode(state.leases)
        if state.lanes:
            known["lanes"] = self._lanes(state.lanes)
        if state.finished:
            known["finished"] = self._finished.encode(state.finished)
        if state.tables:
            known["tables"] = self._tables.encode(state.tables)
        if state.schedules:
            known["schedules"] = self._schedules.encode(state.schedules)
        if state.holds:
            known["holds"] = self._held(state.holds)
        return encode_head(replace(state, **known))

    def _lanes(self, lanes: tuple[Lane, ...]) -> list[Lane]:
        """Lanes as they stand in the head."""
        windows: dict[tuple[int, str, str], _Window] = {}
        found: list[Lane] = []
        for lane in lanes:
            for part in ("ready", "tail"):
                if len(rows := getattr(lane.backlog, part)) >= ROWS_MIN:
                    place = (lane.priority, lane.kind, part)
                    windows[place] = window = _slid(self._windows.get(place), rows)
                    lane = replace(lane, backlog=replace(lane.backlog, **{part: window.field}))
            found.append(lane)
        self._windows = windows
        return found

    def _held(self, holds: dict[str, Hold]) -> msgspec.Raw:
        """Holds as they stand in the head."""
        known, field = self._holds
        if holds is not known:
            field = msgspec.Raw(encode(holds))
            self._holds = (holds, field)
        return field


class _Encoded(Struct, frozen=True):
    """Rows, and what they are in bytes."""

    rows: tuple[StoredRow, ...] = ()
    items: bytes = b""  # those, one after the other
    field: msgspec.Raw = _NOTHING  # and as they stand in the head


class _Rows:
    """One field of rows that mostly grows at its end, as it was encoded last."""

    def __init__(self) -> None:
        self._last = _Encoded()

    def encode(self, rows: tuple[StoredRow, ...]) -> msgspec.Raw:
        """These rows as they stand in the head."""
        last = self._last
        if rows is last.rows:
            return last.field
        count = len(last.rows)
        items = last.items + _bare(rows[count:]) if rows[:count] == last.rows else _bare(rows)
        field = msgspec.Raw(_array(len(rows), items))
        # In one step: a thread may be interrupted anywhere, and half of this would be written as the next head.
        self._last = _Encoded(rows, items, field)
        return field


class _Entries:
    """One field of rows by keys, as it was encoded last."""

    def __init__(self) -> None:
        # Its rows, and those and perhaps others as entries in bytes.
        self._last: tuple[Mapping[Any, StoredRow], dict[Any, bytes]] = ({}, {})

    def encode(self, rows: Mapping[Any, StoredRow]) -> msgspec.Raw:
        """These entries as they stand in the head."""
        last, known = self._last
        fresh = compress(rows.items(), map(is_not, rows.values(), map(last.get, rows)))
        if len(known) > 2 * len(rows):  # more have left than are there
            known = {key: known[key] for key in rows if key in last}
        known = {**known, **{key: encode(key) + encode(row) for key, row in fresh}}
        self._last = (rows, known)
        return msgspec.Raw(_sized(0x80, b"\xde", b"\xdf", len(rows)) + b"".join(map(known.__getitem__, rows)))


class _Window(Struct, frozen=True):
    """The window of a lane as it was encoded last: it loses jobs at the front, and gets some at the end."""

    rows: tuple[JobRecord, ...]
    field: msgspec.Raw  # as it stands in the head
    items: bytes = b""  # its jobs, one after the other, and where each of them begins; not before it slides
    starts: tuple[int, ...] = ()
    gone: int = 0  # of them, those in front that have left


def _slid(last: _Window | None, rows: tuple[JobRecord, ...]) -> _Window:
    """A window that may be the last one, or what is left of it and some more."""
    if last is not None and rows is last.rows:
        return last
    first = rows[0]
    gone = None if last is None else next((at for at, row in enumerate(last.rows) if row is first), None)
    if last is None or gone is None:
        return _Window(rows, msgspec.Raw(encode(rows)))
    kept = min(len(last.rows) - gone, len(rows))
    if last.rows[gone : gone + kept] != rows[:kept]:
        return _Window(rows, msgspec.Raw(encode(rows)))
    items, starts, at = last.items, last.starts, last.gone + gone
    if not starts or at > len(rows):  # it has not slid before, or as much lies behind it as is in it
        kept, items, starts, at = 0, b"", (0,), 0
    if kept < len(rows):
        fresh = [encode(row) for row in rows[kept:]]
        end = starts[at + kept]
        items = items[:end] + b"".join(fresh)
        starts = (*starts[: at + kept], *accumulate(map(len, fresh), initial=end))
    field = _array(len(rows), items[starts[at] : starts[at + len(rows)]])
    return _Window(rows, msgspec.Raw(field), items, starts, at)


def removal_mark(commit: bytes) -> bytes:
    """What stands in a head's place while its queue is removed; ``commit`` is random, so no two are the same bytes.

    A release that does not know it takes it for a head of a newer format, and leaves it alone.
    """
    return commit + _HEADER.pack(b"OSQH", REMOVAL_FORMAT, 0)


def is_removal_mark(data: bytes) -> bool:
    """Is a queue being removed in whose head's place this stands?"""
    return len(data) == _COMMIT_BYTES + FRAME_BYTES and data[_COMMIT_BYTES:] == removal_mark(b"")


def decode_head(data: bytes) -> State:
    """The inverse of ``encode_head``; raises Damaged or NewerFormat, and Conflict for a ``removal_mark``."""
    if is_removal_mark(data):
        raise Conflict(
            "the queue is being removed, so nothing was done. Repeat it when 'osqueue queue rm' is through;"
            " if that was interrupted, run it again."
        )
    try:
        state = _decode_state(unframe(b"OSQH", data[_COMMIT_BYTES:], "the head"))
    except msgspec.MsgspecError as error:
        raise Damaged(f"the head cannot be decoded: {error}") from error
    if state.commit != data[:_COMMIT_BYTES]:
        raise Damaged("the head's commit id does not match its content. See docs/operations.md.")
    return state


def encode_segment(jobs: Sequence[JobRecord], name: str, mixed: bool = False) -> tuple[bytes, Span]:
    """A segment of these jobs, in this order, and the span that points to it; with labels where kinds are mixed."""
    runs = list(cut_rows(jobs))
    lengths = [_HEADER.size + _LENGTH.size + len(body) for _, body in runs] + [0]
    out: list[bytes] = []
    infos: list[BlockInfo] = []
    keys: list[list[bytes]] = []
    offset = 0
    for index, (run, body) in enumerate(runs):
        out.append(frame(b"OSQB", _LENGTH.pack(lengths[index + 1]) + body))
        keys.append([job.key for job in run])
        infos.append(BlockInfo(offset, lengths[index], len(run), min(keys[-1]), max(keys[-1])))
        offset += lengths[index]
    first, last = min(info.first for info in infos), max(info.last for info in infos)
    pages: list[bytes] = []
    if wants_pages([(info.first, info.last) for info in infos]):
        pages = [frame(b"OSQK", page) for page in encode_pages(keys)]
        infos = [replace(info, first=b"", last=b"") for info in infos]
    names = sorted({each.name for job in jobs for each in job.contents if isinstance(each, BodyRef)})
    footer = frame(b"OSQF", encode(Footer(tuple(infos), tuple(names), tuple(map(len, pages)))))
    labels = b""
    if mixed and len(runs) > BLOCKS_UNLABELLED_MAX:
        labels = frame(
            b"OSQL", encode([_labelled(info, run) for info, (run, _) in zip(infos, runs, strict=True)])
        )
    labels_at = offset + sum(map(len, pages))
    out.extend((*pages, labels, footer, _LENGTH.pack(len(footer))))
    data = b"".join(out)
    span = Span(
        name=name,
        level=0,
        count=len(jobs),
        keysum=keysums(jobs),
        offset=0,
        length=lengths[0],
        size=len(data),
        first=first,
        last=last,
        bodies=bool(names),
        due_ms=jobs[0].due_ms,
        failing=sum(delayed_state(job) == FAILING for job in jobs) if jobs[0].due_ms else 0,
        labels=labels_of(jobs) if mixed else None,
        labels_at=labels_at if labels else 0,
        labels_length=len(labels),
    )
    return data, span


def _labelled(info: BlockInfo, jobs: Sequence[JobRecord]) -> LabelledBlock:
    return LabelledBlock(info.offset, info.length, labels_of(jobs))


def decode_labels(data: bytes, name: str) -> tuple[LabelledBlock, ...]:
    """The labels of the blocks of a segment. Raises Damaged or NewerFormat."""
    try:
        return _decode_labels(unframe(b"OSQL", data, name))
    except msgspec.MsgspecError as error:
        raise Damaged(f"{name} cannot be decoded: {error}") from error


def cut_by_weight(
    items: Iterable[T], weigh: Callable[[T], int], weight_max: float, items_max: float = math.inf
) -> Iterator[list[T]]:
    """Cut items, in order, into groups of at most so much weight and so many items; a heavier one stands alone."""
    group: list[T] = []
    total = 0
    for item in items:
        weight = weigh(item)
        if group and (len(group) >= items_max or total + weight > weight_max):
            yield group
            group, total = [], 0
        group.append(item)
        total += weight
    if group:
        yield group


def cut_rows(jobs: Iterable[R]) -> Iterator[tuple[list[R], bytes]]:
    """Cut rows into runs whose encoding fits a block (a single larger one is a block of its own)."""
    run: list[R] = []
    rows: list[bytes] = []
    room = BLOCK_BYTES_MAX - _HEADER.size - 2 * _LENGTH.size - 1
    for job in jobs:
        row = encode(job)
        if run and len(row) > room:
            yield run, _array32(rows)
            run, rows = [], []
            room = BLOCK_BYTES_MAX - _HEADER.size - 2 * _LENGTH.size - 1
        run.append(job)
        rows.append(row)
        room -= len(row)
    if run:
        yield run, _array32(rows)


def _array32(rows: Sequence[bytes]) -> bytes:
    """A MessagePack array of rows that are already encoded, its length in four bytes."""
    return b"\xdd" + _LENGTH.pack(len(rows)) + b"".join(rows)


def _array(count: int, rows: bytes) -> bytes:
    """The same, its length in as few bytes as hold it."""
    return _sized(0x90, b"\xdc", b"\xdd", count) + rows


def _sized(short: int, long: bytes, longest: bytes, count: int) -> bytes:
    """How many there are, behind the sign of an array or a map of so many."""
    if count < 16:
        return bytes((short | count,))
    return long + count.to_bytes(2, "big") if count < 1 << 16 else longest + pack_length(count)


def _bare(rows: Sequence[StoredRow]) -> bytes:
    """Rows encoded, one after the other."""
    return encode(rows)[len(_array(len(rows), b"")) :]


def decode_blocks(data: bytes, length: int, name: str) -> Iterator[tuple[int, Block]]:
    """Every whole block in ``data``, whose first is ``length`` bytes long, with its offset in ``data``."""
    offset = 0
    while length and offset + length <= len(data):
        rest = unframe(b"OSQB", data[offset : offset + length], name)
        (following,) = _LENGTH.unpack_from(rest)
        try:
            block = Block(_decode_jobs(memoryview(rest)[_LENGTH.size :]), following)
        except msgspec.MsgspecError as error:
            raise Damaged(f"{name} cannot be decoded: {error}") from error
        yield offset, block
        offset += length
        length = following


def decode_footer(data: bytes, name: str) -> Footer | int:
    """The footer from a segment's last bytes, or how many bytes are needed to hold it."""
    if len(data) < _LENGTH.size:
        raise Damaged(f"{name} is cut short. See docs/operations.md.")
    (length,) = _LENGTH.unpack(data[-_LENGTH.size :])
    if length + _LENGTH.size > len(data):
        return int(length + _LENGTH.size)
    rest = unframe(b"OSQF", data[-_LENGTH.size - length : -_LENGTH.size], name)
    try:
        return _decode_footer(rest)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{name} cannot be decoded: {error}") from error


def encode_index(spans: Sequence[Span], name: str) -> tuple[bytes, Span]:
    """An index of these spans, in this order, and the span that points to it."""
    data = frame(b"OSQX", encode(tuple(spans)))
    return data, Span(
        name=name,
        level=max(span.level for span in spans) + 1,
        count=sum(span.count for span in spans),
        keysum=sum(span.keysum for span in spans) & KEYSUM_MASK,
        offset=0,
        length=len(data),
        size=len(data),
        first=min(span.first for span in spans),
        last=max(span.last for span in spans),
        bodies=any(span.bodies for span in spans),
        due_ms=min(span.due_ms for span in spans),
        labels=_labels_of_index(spans),
    )


def _labels_of_index(spans: Sequence[Span]) -> Labels | None:
    labels = union(span.labels for span in spans)
    return None if labels is None or labels.size > LABELS_OF_A_SPAN_BYTES_MAX else labels


def decode_index(data: bytes, name: str) -> tuple[Span, ...]:
    """The inverse of ``encode_index``."""
    try:
        return _decode_spans(unframe(b"OSQX", data, name))
    except msgspec.MsgspecError as error:
        raise Damaged(f"{name} cannot be decoded: {error}") from error


def staged_name(folder: str, born: int, chance: int, position: int = 0) -> str:
    """The name of a segment, index or body: when it was born, and who it is."""
    return f"{folder}/{born:012x}-{chance:016x}-{position:x}"


def born_of(name: str) -> int:
    """When a staged object was born: the seq of a head seen shortly before it was written; -1: it is none of ours."""
    try:
        return int(name.rpartition("/")[2].partition("-")[0], 16)
    except ValueError:
        return -1
