"""Reading what lies outside the head: bodies, and jobs in segments.

Everything here reads immutable objects named by a committed head, so what is read is always consistent with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from zlib import crc32

from msgspec import Struct

from .. import limits
from ..commit.effects import Flow, together
from ..commit.retry import OBJECT, ask_all
from ..core.deletion_vectors import EMPTY_VECTOR, DeletionVector, decode_vector
from ..core.encoding import (
    Block,
    BlockInfo,
    Footer,
    cut_by_weight,
    decode_blocks,
    decode_footer,
    decode_index,
    unframe,
)
from ..core.key_directory import blocks_of, page_of
from ..core.rows import BodyRef, StoredContent
from ..core.state import Backlog, JobRecord, Span
from ..errors import Damaged, NotFound, OsqueueError, Unavailable
from ..stores.base import Found, Get, Missing
from .layout import unavailable

FOOTER_BYTES_GUESS = 16 * 1024
FOOTER_DELAYED_BYTES_GUESS = 6 * 1024  # where there is a directory of keys
READS_AT_ONCE = 32
READ_BYTES_AT_ONCE = limits.SEGMENT_BYTES_MAX


class ObjectGone(NotFound):
    """An object that a state names is not there (any more)."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not there any more: the job has moved on. Look it up again.")
        self.name = name


def lost_object(error: NotFound, queue: str) -> Unavailable:
    """The error when the newest state names an object that is not there."""
    name = error.name if isinstance(error, ObjectGone) else error.message
    return Unavailable(
        f"{name} is not there, and the queue refers to it. Restore it from the versions of the bucket, or go on without"
        f" it: docs/operations.md, 'When something is damaged'. 'osqueue doctor ADDRESS {queue}' shows what else is"
        " wrong."
    )


class BacklogPosition(Struct, frozen=True):
    """Where in the backlog a job was found."""

    job: JobRecord
    top: Span  # the outermost span, as it stands in the head
    path: tuple[Span, ...]  # from the outermost span to the segment
    offset: int  # of the block in the segment
    index: int  # of the job in the block

    @property
    def vector(self) -> str:
        """The name of the deletion vector beside the outermost span, if there is one."""
        return self.top.vector.name if self.top.vector is not None else ""


def read_bodies(root: str, contents: Sequence[StoredContent]) -> Flow[list[bytes | OsqueueError]]:
    """The bytes of payloads or results, wherever they lie, in order; one that cannot be read is its error."""
    wanted = sorted({each for each in contents if isinstance(each, BodyRef)}, key=lambda b: (b.name, b.start))
    asked = [Get(root + each.name, start=each.start, length=each.length) for each in wanted]
    replies = yield from ask_all(asked, OBJECT)
    read = {body: _checked(body, reply) for body, reply in zip(wanted, replies, strict=True)}
    return [read[each] if isinstance(each, BodyRef) else each for each in contents]


def _checked(body: BodyRef, reply: object) -> bytes | OsqueueError:
    if not isinstance(reply, Found):
        return read_failure(reply, body.name)
    if len(reply.body) != body.length or crc32(reply.body) != body.crc:
        return Damaged(f"{body.name} is not what was written there: it fails its checksum.")
    return reply.body


def read_failure(reply: object, name: str) -> OsqueueError:
    """Why an object could not be read."""
    if isinstance(reply, Missing):
        return ObjectGone(name)
    return unavailable(reply, name)


def read_range(root: str, name: str, start: int, length: int) -> Flow[bytes]:
    """Part of an object. Raises NotFound when the object is gone, Unavailable when the store gave no answer."""
    reply = yield Get(root + name, start=start, length=length)
    if not isinstance(reply, Found):
        raise read_failure(reply, name)
    return reply.body


def children(root: str, span: Span) -> Flow[tuple[Span, ...]]:
    """The spans inside an index."""
    return decode_index((yield from read_range(root, span.name, 0, span.size)), span.name)


def footer(root: str, span: Span) -> Flow[Footer]:
    """A segment's footer."""
    guess = min(FOOTER_DELAYED_BYTES_GUESS if span.due_ms else FOOTER_BYTES_GUESS, span.size)
    end = yield from read_range(root, span.name, span.size - guess, guess)
    return (yield from footer_of(root, span.name, span.size, end))


def footer_of(root: str, name: str, size: int, end: bytes) -> Flow[Footer]:
    """The footer of a segment or a table whose last bytes have been read; the rest is read, should it be longer."""
    while True:
        found = decode_footer(end, name)
        if isinstance(found, Footer):
            return found
        if not len(end) < found <= size:
            raise Damaged(f"{name} is shorter than the head says. See docs/operations.md.")
        end = yield from read_range(root, name, size - found, found)


def block(root: str, span: Span, info: BlockInfo) -> Flow[Block]:
    """One block of a segment."""
    data = yield from read_range(root, span.name, info.offset, info.length)
    for _, found in decode_blocks(data, info.length, span.name):
        return found
    raise Damaged(f"{span.name} is shorter than its footer says. See docs/operations.md.")


def deleted_from(root: str, span: Span) -> Flow[DeletionVector]:
    """Which jobs of a segment are not to come although they lie in it."""
    if span.vector is None:
        return EMPTY_VECTOR
    name = span.vector.name
    return decode_vector((yield from read_range(root, name, 0, span.vector.size)), name)


def front(root: str, span: Span) -> Flow[None]:
    """Read what the next jobs of a span are taken from. Raises as ``block`` and ``children`` do."""
    if span.level:
        yield from children(root, span)
    else:
        yield from deleted_from(root, span)
        yield from block(root, span, BlockInfo(span.offset, span.length, 0, span.first, span.last))


def segments_of(root: str, spans: Iterable[Span]) -> Flow[list[Span]]:
    """Every segment under these spans, in order."""
    found: list[Span] = []
    for span in spans:
        if span.level == 0:
            found.append(span)
        else:
            found.extend((yield from segments_of(root, (yield from children(root, span)))))
    return found


def segment_jobs(root: str, span: Span) -> Flow[list[JobRecord]]:
    """Every job still to come in one segment, in order."""
    deleted = yield from deleted_from(root, span)
    jobs = yield from jobs_from(root, span, deleted)
    if len(jobs) != span.count:
        raise Damaged(f"{span.name} is shorter than the head says. See docs/operations.md.")
    return jobs


def jobs_from(root: str, span: Span, deleted: DeletionVector) -> Flow[list[JobRecord]]:
    """Every job of a segment from the span's place on, but for those in this vector."""
    data = yield from read_range(root, span.name, span.offset, span.size - span.offset)
    return remaining(span, data, deleted)


def remaining(span: Span, data: bytes, deleted: DeletionVector) -> list[JobRecord]:
    """Every job still to come in a segment; ``data`` is what of it begins with the next block."""
    jobs: list[JobRecord] = []
    for at, each in decode_blocks(data, span.length, span.name):
        jobs.extend(deleted.keep(span.offset + at, each, 0 if at else span.skip))
    return jobs


def find(root: str, spans: Iterable[Span], key: bytes) -> Flow[BacklogPosition | None]:
    """A job in the backlog. Key ranges decide which few objects to read."""
    for span in spans:
        place = (yield from find_many(root, span, (key,))).get(key)
        if place is not None:
            return place
    return None


def find_many(root: str, span: Span, keys: Iterable[bytes]) -> Flow[dict[bytes, BacklogPosition]]:
    """Those of the jobs that are still to come in one span; everything is read once for all of them."""
    return (yield from _find(root, (span,), keys))


def _find(root: str, path: tuple[Span, ...], keys: Iterable[bytes]) -> Flow[dict[bytes, BacklogPosition]]:
    span = path[-1]
    left = {key for key in keys if span.first <= key <= span.last}
    found: dict[bytes, BacklogPosition] = {}
    if not left:
        return found
    if span.level > 0:
        for child in (yield from children(root, span)):
            found.update((yield from _find(root, (*path, child), left - found.keys())))
        return found
    end = yield from footer(root, span)
    infos = (yield from _by_pages(root, span, end, left)) if end.pages else _by_ranges(end, left)
    infos = [info for info in infos if info.offset >= span.offset]
    blocks = yield from together([block(root, span, info) for info in infos])
    for info, each in zip(infos, blocks, strict=True):
        for index, job in enumerate(each.jobs):
            if job.key in left and (info.offset, index) >= (span.offset, span.skip):
                found[job.key] = BacklogPosition(job, path[0], path, info.offset, index)
    if found:
        deleted = yield from deleted_from(root, span)
        return {key: place for key, place in found.items() if not deleted.has(place.offset, place.index)}
    return found


def _by_ranges(end: Footer, keys: Collection[bytes]) -> list[BlockInfo]:
    """The blocks that may hold some keys, by the first and the last key of each."""
    return [info for info in end.blocks if any(info.first <= key <= info.last for key in keys)]


def _by_pages(root: str, span: Span, end: Footer, keys: Iterable[bytes]) -> Flow[list[BlockInfo]]:
    """The same by a segment's directory."""
    last = end.blocks[-1]
    begins = list(accumulate(end.pages, initial=last.offset + last.length))
    wanted: dict[int, list[bytes]] = {}
    for key in keys:
        wanted.setdefault(page_of(key, len(end.pages)), []).append(key)
    pages = yield from together(
        [read_range(root, span.name, begins[number], end.pages[number]) for number in wanted]
    )
    found: set[int] = set()
    for some, data in zip(wanted.values(), pages, strict=True):
        rest = unframe(b"OSQK", data, span.name)
        found.update(*(blocks_of(key, rest) for key in some))
    return [end.blocks[number] for number in sorted(found)]


def page(root: str, span: Span, skip: int, limit: int) -> Flow[list[JobRecord]]:
    """``limit`` jobs of a segment after the first ``skip`` that are still to come; neighbours are read at once."""
    if limit >= span.count:
        return (yield from segment_jobs(root, span))[skip:]
    deleted = yield from deleted_from(root, span)
    wanted: list[BlockInfo] = []  # neighbours
    found = 0
    for info in (yield from footer(root, span)).blocks:
        if info.offset < span.offset or found - skip >= limit:
            continue
        first = span.skip if info.offset == span.offset else 0
        left = info.count - first - deleted.count(info.offset, first)
        if not wanted and skip >= left:
            skip -= left
            continue
        wanted.append(info)
        found += left
    if not wanted:
        return []
    begin, last = wanted[0], wanted[-1]
    data = yield from read_range(root, span.name, begin.offset, last.offset + last.length - begin.offset)
    jobs: list[JobRecord] = []
    for at, each in decode_blocks(data, begin.length, span.name):
        offset = begin.offset + at
        jobs.extend(deleted.keep(offset, each, span.skip if offset == span.offset else 0))
    return jobs[skip : skip + limit]


def read_backlog(root: str, backlog: Backlog, skip: int, most: int | None = None) -> Flow[list[JobRecord]]:
    """Up to ``most`` jobs of a backlog in order, after the first ``skip``."""
    ready, tail = list(backlog.ready), list(backlog.tail)
    jobs = ready[skip:]
    skip = max(0, skip - len(ready))
    wanted: list[Span] = []
    if most is None or len(jobs) < most:
        room = None if most is None else most - len(jobs)
        for segment in (yield from segments_of(root, backlog.spans)):
            if not wanted and skip >= segment.count:
                skip -= segment.count
                continue
            wanted.append(segment)
            if room is not None and sum(each.count for each in wanted) - skip >= room:
                break
    for group in by_bytes(wanted):
        for found in (yield from together([segment_jobs(root, each) for each in group])):
            jobs.extend(found[skip:])
            skip = 0
    if most is None or len(jobs) < most:
        jobs.extend(tail[skip:])
    return jobs if most is None else jobs[:most]


def by_bytes(spans: Iterable[Span]) -> Iterator[list[Span]]:
    """Spans in groups that may be read at once."""
    return cut_by_weight(spans, lambda span: span.size, READ_BYTES_AT_ONCE, READS_AT_ONCE)
