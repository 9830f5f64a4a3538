"""Writing what is too big for the head before the commit that refers to it: large payloads, and bulks of jobs.

A staged object is named by when it was born (the seq of a head seen shortly before). Should its writer stall for
so long that the collector has passed that point, the commit answers ``STALE`` and the writer stages again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from zlib import crc32

from .. import limits
from ..clock import Machine
from ..commit.effects import Flow
from ..commit.retry import OBJECT, ask_all, before_commit
from ..core.encoding import encode_index, encode_segment, staged_name
from ..core.job_ops import AttachSpans, JobSpec, record_of
from ..core.rows import BodyRef, StoredContent
from ..core.scheduling import content_at
from ..core.settings import QueueSettings
from ..core.state import MIXED, JobRecord, Span
from ..core.weights import job_weight
from ..errors import OsqueueError
from ..stores.base import Failed, Found, Get, Put, PutIfMatch, Written
from .layout import unavailable

UPLOADS = "uploads"  # the folder of what callers of the API wrote there: a commit refers to a copy
UPLOADS_SHARD = 0  # that it is of: every queue has it
WRITES_AT_ONCE = 8
WRITTEN_AT_ONCE_BYTES = 32 * limits.KB * 1024  # of bodies, or one body: clients may copy what they send
WIPE_TRIES = 3


class StagingArea:
    """Where one call stages its objects."""

    def __init__(self, root: str, born: int, machine: Machine) -> None:
        self.root = root
        self.born = born
        self._chance = machine.bits(64)
        self._count = 0

    def name(self, folder: str) -> str:
        """A name nobody else has."""
        self._count += 1
        return staged_name(folder, self.born, self._chance, self._count)

    def write(self, objects: Sequence[tuple[str, bytes]]) -> Flow[None]:
        """PUT objects, a few at a time."""
        for at in range(0, len(objects), WRITES_AT_ONCE):
            puts = [Put(self.root + name, data) for name, data in objects[at : at + WRITES_AT_ONCE]]
            for reply in (yield from ask_all(puts, OBJECT)):  # their names are their own: again is harmless
                if not isinstance(reply, Written):
                    raise before_commit(unavailable(reply, "room for a staged object"))

    def bodies(self, contents: Sequence[bytes]) -> Flow[list[StoredContent]]:
        """Move what is over the inline limit into body objects, several to an object; the others stay as they are.

        A content with an object of its own is not copied, and the others are joined a few objects at a time. So the
        call needs little more memory than the contents.
        """
        placed: list[StoredContent] = list(contents)
        large = [at for at, data in enumerate(contents) if len(data) > limits.INLINE_BYTES_MAX]
        objects: list[tuple[str, bytes]] = []
        for group in _groups([len(contents[at]) for at in large], limits.BODY_BYTES_MAX):
            name, start = self.name("bodies"), 0
            members = [contents[large[index]] for index in group]
            for index, data in zip(group, members, strict=True):
                placed[large[index]] = BodyRef(name, start, len(data), crc32(data))
                start += len(data)
            objects.append((name, members[0] if len(members) == 1 else b"".join(members)))
            if sum(len(body) for _, body in objects) >= WRITTEN_AT_ONCE_BYTES:
                yield from self.write(objects)
                objects = []
        yield from self.write(objects)
        return placed

    def shared(self, content: bytes) -> Flow[StoredContent]:
        """The payload of a schedule, where all its jobs find it: see ``scheduling``."""
        placed = content_at(self.born, content)
        if isinstance(placed, BodyRef):
            yield from self.write([(placed.name, content)])
        return placed


def _groups(sizes: Sequence[int], most: int) -> Iterator[range]:
    """Cut a sequence into runs of at most ``most`` bytes each, or of one that is larger."""
    begin = total = 0
    for at, size in enumerate(sizes):
        if at > begin and total + size > most:
            yield range(begin, at)
            begin, total = at, 0
        total += size
    if begin < len(sizes):
        yield range(begin, len(sizes))


def wipe_refused(root: str, staged: Iterable[tuple[StoredContent, bool]]) -> Flow[None]:
    """Overwrite contents that a commit refused with zeros, where they lie beside some that it took.

    ``staged``: each content that was written for the commit, and whether the commit refers to it. No row names a
    refused content, so no purge would find it, and it would live for as long as its neighbours do. An object of which
    nothing was taken is left to the collector. Raises nothing when the store gives no answer, or time is up: the
    caller's commit was made, and the caller has to get its answer.
    """
    shared: set[str] = set()
    refused: dict[str, list[BodyRef]] = {}
    for content, taken in staged:
        if isinstance(content, BodyRef) and taken:
            shared.add(content.name)
        elif isinstance(content, BodyRef):
            refused.setdefault(content.name, []).append(content)
    for name, bodies in refused.items():
        if name in shared:
            with suppress(OsqueueError):
                yield from _wipe(root + name, bodies)


def _wipe(name: str, bodies: Sequence[BodyRef]) -> Flow[None]:
    for _ in range(WIPE_TRIES):  # a purge may be at the neighbours just now
        found = yield Get(name)
        if isinstance(found, Failed):
            continue
        if not isinstance(found, Found):
            return
        data = bytearray(found.body)
        for body in bodies:
            data[body.start : body.start + body.length] = bytes(body.length)
        if isinstance((yield PutIfMatch(name, bytes(data), found.version)), Written):
            return


class SegmentBuilder:
    """A bulk of jobs on its way into segments: one run of segments for each lane, one for delayed jobs.

    Jobs of a lane are cut into segments as they come, so a bulk of a million needs the memory of one segment.
    Delayed ones have to be sorted by due time first.
    """

    def __init__(
        self,
        stage: StagingArea,
        now_ms: int,
        latest_ms: int = 0,
        settings: QueueSettings = QueueSettings(),  # noqa: B008 - frozen
    ) -> None:
        self._stage = stage
        self._settings = settings  # as they are when the bulk is staged
        self._now_ms = now_ms
        self._latest_ms = max(now_ms, latest_ms)  # from which delays count, so that none ends early
        self._lanes: dict[tuple[int, str], list[JobRecord]] = {}
        self._sizes: dict[tuple[int, str], int] = {}
        self._delayed: list[JobRecord] = []
        self._spans: dict[tuple[int, str], list[Span]] = {}

    def add(self, news: Sequence[JobSpec]) -> Flow[None]:
        """Take jobs in, in order."""
        for new in news:
            due = max(new.at_ms, self._latest_ms + new.delay_ms if new.delay_ms else self._now_ms)
            due = due if due > self._now_ms else 0
            job = record_of(new, self._settings, self._now_ms, self._latest_ms, due)
            if job.due_ms:
                self._delayed.append(job)
                continue
            lane = self._lane_of(job)
            self._lanes.setdefault(lane, []).append(job)
            size = self._sizes[lane] = self._sizes.get(lane, 0) + job_weight(job)
            if size >= limits.SEGMENT_BYTES_MAX:
                yield from self._cut(lane)

    @property
    def parts(self) -> int:
        """How many operations would attach what was added, before any of it was written."""
        return len(self._lanes) + bool(self._delayed)

    def _lane_of(self, job: JobRecord) -> tuple[int, str]:
        """The first kinds have a lane each, as in a head; all others of a priority, and all groups, are mixed."""
        lane = (job.priority, job.kind)
        known = lane in self._sizes or len(self._sizes) < limits.LANES_MAX
        return lane if known and not job.group else (job.priority, MIXED)

    def _cut(self, lane: tuple[int, str]) -> Flow[None]:
        jobs = self._lanes.pop(lane, [])
        self._sizes[lane] = 0
        if jobs:
            name = self._stage.name("segments")
            data, span = encode_segment(jobs, name, mixed=lane[1] == MIXED)
            self._spans.setdefault(lane, []).append(span)
            yield from self._stage.write([(name, data)])

    def attachments(self) -> Flow[tuple[AttachSpans, ...]]:
        """Write what is left and answer the operations that attach everything."""
        for lane in list(self._lanes):
            yield from self._cut(lane)
        for lane, spans in self._spans.items():
            if lane[1] == MIXED:
                self._spans[lane] = yield from self._indexed(spans)
        attach = [
            AttachSpans(priority, kind, tuple(spans)) for (priority, kind), spans in self._spans.items()
        ]
        if self._delayed:
            self._delayed.sort(key=lambda job: (job.due_ms, job.key))
            spans = []
            for run in _by_size(self._delayed):
                name = self._stage.name("segments")
                data, span = encode_segment(run, name)
                yield from self._stage.write([(name, data)])
                spans.append(span)
            attach.append(AttachSpans(0, "", tuple(spans), delayed=True))
        return tuple(attach)

    def _indexed(self, spans: Sequence[Span]) -> Flow[list[Span]]:
        """The same below an index or several: their labels would take much of a head."""
        indexes: list[Span] = []
        for start in range(0, len(spans), limits.FANOUT):
            name = self._stage.name("segments")
            data, index = encode_index(spans[start : start + limits.FANOUT], name)
            yield from self._stage.write([(name, data)])
            indexes.append(index)
        return indexes


def _by_size(jobs: Sequence[JobRecord]) -> Iterator[list[JobRecord]]:
    """Cut jobs into runs of about one segment's size."""
    run: list[JobRecord] = []
    size = 0
    for job in jobs:
        run.append(job)
        size += job_weight(job)
        if size >= limits.SEGMENT_BYTES_MAX:
            yield run
            run, size = [], 0
    if run:
        yield run
