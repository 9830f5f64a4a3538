"""What can be asked of a queue: operations, the request that carries them, and their outcomes.

A request is a vector of operations with an identity ``(env, n, nonce)`` that is fixed for good before it is
first sent. Every operation answers per item: one bad item fails alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from hashlib import shake_256
from itertools import groupby

import msgspec
from msgspec import Struct

from .state import (
    BodyRef,
    FinishedJob,
    JobRecord,
    KindSettings,
    LeaseRecord,
    PacerRow,
    QueueSettings,
    Span,
    StoredContent,
    TableRef,
)


class Code(IntEnum):
    """What became of one item. The numbers are stored: never reuse one."""

    OK = 0
    QUEUED = 1
    SCHEDULED = 2
    LEASE_LOST = 3  # the token is not the newest one, or the job is gone
    CANCEL_REQUESTED = 4  # a heartbeat that worked, on a job somebody wants cancelled
    FAILING = 5  # will be retried
    FAILED = 6  # no attempts left
    CANCELLED = 7
    PROCESSING = 8  # cancel: asked of the worker
    COMPLETED = 9
    NOT_FOUND = 10
    RETRY = 11  # look again: the state has moved since the evidence was gathered
    STALE = 12  # the staged object is older than gc_floor: stage it again
    LANES = 13  # one more (priority, kind) than LANES_MAX
    EMPTY = 14
    PAUSED = 15
    IN_FLIGHT_LIMIT = 16
    GRANTED = 17
    DELAYED_LIMIT = 18  # too many delayed jobs
    DUPLICATE = 19
    UNREADABLE = 20  # the next jobs lie in an object that is damaged, missing or of a newer format
    EXPIRED = 21  # the job's result is not kept any more
    CROWDED = 22  # no room in the head for one more of these
    RUNNING_LIMIT = 23  # as many jobs run as may, of the queue or of every kind that waits
    RESERVED = 24
    TOO_FAR = 25  # the next slot is further ahead than the caller would wait


_CODES = {int(code): code for code in Code}


class JobSpec(Struct, frozen=True, array_like=True, gc=False):
    """One job to enqueue."""

    key: bytes
    payload: StoredContent
    codec: str = "json"
    kind: str = ""
    # None: as its kind or its queue says when it is accepted.
    priority: int | None = None
    max_attempts: int | None = None
    result_ttl_ms: int | None = None
    delay_ms: int = 0  # from the commit's time
    at_ms: int = 0  # or an absolute time
    client_id: str | None = None
    seen: int = -1  # seq of a head in whose objects the key was nowhere; others may enqueue under it as well
    headers: tuple[tuple[str, str], ...] | None = None
    run_within_ms: int | None = None
    start_within_ms: int | None = (
        None  # from when it may start first: the commit's time, or the end of its delay
    )


def record_of(new: JobSpec, settings: QueueSettings, now_ms: int, latest_ms: int, due_ms: int) -> JobRecord:
    """The row of a new job, accepted now; ``due_ms`` 0 is at once. What it does not say its queue's settings do.

    ``latest_ms`` is the latest that the clock may show, from which it counts what begins.
    """
    kind = new.kind

    def said(value: int | None, name: str) -> int:
        return settings.of(kind, name) if value is None else value

    start_within_ms = said(new.start_within_ms, "start_within_ms")
    return JobRecord(
        new.key,
        new.payload,
        now_ms,
        said(new.priority, "priority"),
        kind,
        said(new.max_attempts, "max_attempts"),
        said(new.result_ttl_ms, "result_ttl_ms"),
        new.codec,
        due_ms=due_ms,
        client_id=new.client_id,
        scheduled_ms=due_ms,
        headers=new.headers,
        run_within_ms=said(new.run_within_ms, "run_within_ms"),
        start_by_ms=(due_ms or latest_ms) + start_within_ms if start_within_ms else 0,
    )


class LeaseRef(Struct, frozen=True, array_like=True, gc=False):
    """A job and the lease token its worker holds."""

    key: bytes
    token: str


class LeaseBeat(LeaseRef, frozen=True, array_like=True, gc=False):
    """A lease to extend, and how far its worker is with the job, where that is news."""

    progress: int = -1  # thousandths; -1: as before
    note: str | None = None  # None: as before


class Completion(Struct, frozen=True, array_like=True, gc=False):
    """A job done, and its result, serialised."""

    key: bytes
    token: str
    result: StoredContent = b""
    codec: str = ""  # that serialised the result; "": the payload's, and the result is None where it is empty


class FailedAttempt(Struct, frozen=True, array_like=True, gc=False):
    """An attempt that failed."""

    key: bytes
    token: str
    error: str
    retry_ms: int = -1  # wait this long; -1 leaves it to the queue's back-off
    jitter: float = 1.0  # in [0, 1), drawn by the caller: the share of the full back-off to wait
    final: bool = False  # do not retry
    error_type: str = ""  # the exception's class, where there was one
    trace: str = ""  # the end of its traceback


class Operation(Struct, frozen=True, array_like=True, tag_field="op"):
    """Base of the operations."""

    def codes_max(self) -> int:
        """How many runs of codes its outcome can have: one for every item, where it answers item by item."""
        return 2


class EnqueueJobs(Operation, frozen=True, tag="enqueue"):
    """Accept jobs."""

    jobs: tuple[JobSpec, ...]

    def codes_max(self) -> int:
        return len(self.jobs)


class AttachSpans(Operation, frozen=True, tag="attach"):
    """Accept a bulk of jobs already written as segments: of one lane, or of delayed jobs sorted by due time."""

    priority: int
    kind: str
    spans: tuple[Span, ...]
    delayed: bool = False


class AttachBulk(Operation, frozen=True, tag="attach_all"):
    """Accept several bulks at once: all of them, or none."""

    parts: tuple[AttachSpans, ...]  # each of a lane of its own; at most one is of delayed jobs


class ClaimJobs(Operation, frozen=True, tag="claim"):
    """Lease up to ``limit`` jobs to a worker."""

    limit: int
    worker: str
    lease_ms: int
    kinds: tuple[str, ...] | None = None  # only these


class ExtendLeases(Operation, frozen=True, tag="heartbeat"):
    """Extend leases to the commit's time plus their length."""

    held: tuple[LeaseBeat, ...]
    lease_ms: int = 0  # 0 keeps each lease's own length

    def codes_max(self) -> int:
        return len(self.held)


class CompleteJobs(Operation, frozen=True, tag="complete"):
    """Finish jobs."""

    items: tuple[Completion, ...]

    def codes_max(self) -> int:
        return len(self.items)


class FailJobs(Operation, frozen=True, tag="fail"):
    """Report failed attempts."""

    items: tuple[FailedAttempt, ...]

    def codes_max(self) -> int:
        return len(self.items)


class ReleaseJobs(Operation, frozen=True, tag="release"):
    """Give jobs back unworked: the attempt does not count."""

    held: tuple[LeaseRef, ...]
    delay_ms: int = 0

    def codes_max(self) -> int:
        return len(self.held)


class AbortJobs(Operation, frozen=True, tag="abort"):
    """The worker cancels its job, on request or by its own decision."""

    held: tuple[LeaseRef, ...]
    why: str = ""

    def codes_max(self) -> int:
        return len(self.held)


class CancelJob(Operation, frozen=True, tag="cancel"):
    """Cancel a job that waits; ask its worker when it runs.

    A job inside a segment cannot be seen by the reducer. The caller, who read it there, sends the record and
    the place of the outermost span it found it under; if that span has moved on, or its deletion vector is another
    one, which may tell of this job: RETRY.
    """

    key: bytes
    job: JobRecord | None = None
    span: str = ""  # the outermost span's name
    offset: int = 0  # of the job's block, where that span is a segment
    index: int = 0  # of the job in its block
    vector: str = ""  # the name of the deletion vector beside that span


class SpanSwap(Struct, frozen=True, array_like=True):
    """A span, and the one that takes its place."""

    span: Span  # as it stands in the head
    replacement: Span | None  # None when nothing is left


class RunJobNow(Operation, frozen=True, tag="run_now"):
    """Let a delayed job be claimable at once.

    A job inside a segment cannot be seen by the reducer. The caller, who read it there, sends the record, and the
    outermost span without it; if that span is not what it was: RETRY.
    """

    key: bytes
    job: JobRecord | None = None
    swap: SpanSwap | None = None


class SetResultTtl(Operation, frozen=True, tag="amend"):
    """Let a job's result live for ``ttl_ms``: from now on if it is there, else from the job's end on.

    A job in a table or a segment cannot be seen by the reducer: as for ``CancelJob``, the caller sends what it read
    and the name of the outermost pointer it found it under; if that has moved on: RETRY.
    """

    key: bytes
    ttl_ms: int
    row: FinishedJob | None = None  # of a finished job
    table: str = ""  # the outermost table's name
    span: str = ""  # of a waiting job: as in Cancel
    offset: int = 0
    index: int = 0
    vector: str = ""
    seen: int = -1  # with a row: seq of the head in which it was looked for


class MergeTables(Operation, frozen=True, tag="merge"):
    """Exchange neighbouring tables for others that hold the same rows but those that may be forgotten."""

    taken: tuple[TableRef, ...]  # as they stand in the head
    put: tuple[TableRef, ...]
    archived: int = 0  # rows whose records have just been written to the archive
    forgets: bool = False  # some rows were left out


class ChangeSettings(Operation, frozen=True, tag="configure"):
    """Change settings; None leaves one as it is."""

    paused: bool | None = None
    backoff_base_ms: int | None = None
    backoff_cap_ms: int | None = None
    dead_ttl_ms: int | None = None
    shards: int | None = None
    priority: int | None = None
    max_attempts: int | None = None
    result_ttl_ms: int | None = None
    run_within_ms: int | None = None
    start_within_ms: int | None = None
    kinds: tuple[KindSettings, ...] = ()  # None in one of these leaves that as it is, too
    kinds_dropped: tuple[str, ...] = ()  # these are as the queue says from now on
    max_running: int | None = None
    shard: int | None = None  # which one it is
    recorded: bool = False  # with ``shards``: do those that come new record their transitions?
    archive_payloads: bool | None = None


class RedriveJobs(Operation, frozen=True, tag="redrive"):
    """Look at ``scan`` dead jobs from the oldest on; queue up to ``limit`` that match, keep the others."""

    limit: int
    scan: int
    kinds: tuple[str, ...] | None = None
    error: str = ""  # part of the last error's text
    keys: tuple[bytes, ...] | None = None  # only these, as chosen by a caller who has read the first ``scan``
    first: bytes = b""  # then: the first of them; if another one is first by now, RETRY


class RunTimers(Operation, frozen=True, tag="sweep"):
    """Do what time demands: expire leases, promote due jobs, forget old dead letters."""

    flush: bool = False  # also move finished jobs to the archive


class RecordEvents(Operation, frozen=True, tag="events"):
    """Somebody listens: record transitions for another while."""


class RaiseGcFloor(Operation, frozen=True, tag="gc"):
    """Declare staged objects born before ``floor`` collectable, if they are still unreferenced."""

    floor: int
    after: str = ""  # the name behind which the next pass goes on; "": all are looked at


class ReplaceSpan(Operation, frozen=True, tag="rewrite"):
    """Replace a span by one that lacks cancelled jobs it held: a segment's by itself with another deletion vector.

    A segment may have moved on meanwhile, but for its vector; an index must be as it was.
    """

    span: Span  # as it stood in the head
    replacement: Span | None  # None when nothing is left
    dropped: tuple[bytes, ...]  # keys whose tombstones are settled


class EraseJobs(Operation, frozen=True, tag="erase"):
    """Forget jobs that are over as if they had never been: from the head, and from spans of dead letters."""

    keys: tuple[bytes, ...]
    swaps: tuple[SpanSwap, ...] = ()  # spans rewritten without them
    again: bool = False  # whoever is about to enqueue under an id has to look again
    wiped: tuple[BodyRef, ...] = ()  # contents beside the head that nobody can read any more


LOOK_AGAIN = EraseJobs(
    (), again=True
)  # commits that whoever is about to enqueue under an id has to look again


class ChangePacer(Operation, frozen=True, tag="pacer"):
    """Create a pacer where there is none, or anew; pause it or let it go on; remove it."""

    created: PacerRow | None = None
    reset: bool = False  # with ``created``: in the place of the one there is
    paused: bool | None = None
    removed: bool = False


class ReserveSlots(Operation, frozen=True, tag="reserve"):
    """Take ``count`` slots of a pacer, each of ``units``, none further ahead than ``ahead_us``."""

    count: int
    units: int
    ahead_us: int
    lead_us: int = 0  # none is sooner than this: so long its answer is on the way

    def codes_max(self) -> int:
        return 13  # of as many bytes as its runs of large numbers take


class ReturnSlot(Operation, frozen=True, tag="return"):
    """Give a slot back, if no later one has been taken since."""

    number: int
    units: int
    epoch: int  # of its pacer


Op = (
    EnqueueJobs
    | AttachSpans
    | AttachBulk
    | ClaimJobs
    | ExtendLeases
    | CompleteJobs
    | FailJobs
    | ReleaseJobs
    | AbortJobs
    | CancelJob
    | RunJobNow
    | SetResultTtl
    | MergeTables
    | ChangeSettings
    | RedriveJobs
    | RunTimers
    | RecordEvents
    | RaiseGcFloor
    | ReplaceSpan
    | EraseJobs
    | ChangePacer
    | ReserveSlots
    | ReturnSlot
)


Identity = tuple[str, int, int]  # env, n, nonce


class Request(Struct, frozen=True, array_like=True):
    """One vector of operations and its identity."""

    env: str  # the writer
    n: int  # its request number
    nonce: int  # 64 random bits, drawn with n
    born: int  # seq of a head seen shortly before
    epoch: int  # of that head
    ops: tuple[Op, ...]

    @property
    def identity(self) -> Identity:
        """Who asks. A clone of the writer asks under the same env and n, never with the same nonce."""
        return (self.env, self.n, self.nonce)


class Outcome(Struct, frozen=True, array_like=True, gc=False):
    """What became of one operation: runs of (code, items), and the leases it was granted.

    A claim that got fewer than it asked for says in its last run why there were no more.
    The leases travel only to a caller that made the commit itself; another finds them in the head by its nonce.
    """

    runs: tuple[tuple[int, int], ...]
    leases: tuple[LeaseRecord, ...] = ()

    @property
    def codes(self) -> list[Code]:
        """One code per item."""
        return [code for number, count in self.runs for code in (_CODES[number],) * count]

    @property
    def code(self) -> Code:
        """The code of an operation that answers as a whole."""
        return _CODES[self.runs[0][0]]

    @property
    def count(self) -> int:
        """How many, where the operation answers with a number."""
        return self.runs[0][1]


_ALONE = tuple([Outcome(((number, 1),)) for number in range(max(_CODES) + 1)])  # by code


def outcome(codes: Sequence[Code]) -> Outcome:
    """Compress one code per item into runs."""
    if len(codes) == 1:
        return _ALONE[codes[0]]
    if codes and codes.count(codes[0]) == len(codes):
        return Outcome(((int(codes[0]), len(codes)),))
    return Outcome(tuple([(int(code), len(list(run))) for code, run in groupby(codes)]))


def nonce_digest(nonce: int) -> int:
    """Tells nonces apart, and nothing else about them: lease tokens are made of nonces."""
    return int.from_bytes(shake_256(b"mark.%016x" % nonce).digest(8), "big")


def token_of(nonce: int, position: int) -> str:
    """The lease token of the ``position``-th job granted to a request."""
    return f"{nonce:016x}-{position:x}"


_encode_outcomes = msgspec.msgpack.Encoder().encode
_decode_outcomes = msgspec.msgpack.Decoder(tuple[tuple[tuple[int, int], ...], ...]).decode


def outcomes_bytes_max(ops: Sequence[Op]) -> int:
    """The most bytes that the remembered outcomes of these operations can take: a run for every item."""
    return 3 + sum([5 + 4 * op.codes_max() for op in ops])


def encode_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    """What a session row remembers of them: the codes, never the leases."""
    return _encode_outcomes([each.runs for each in outcomes])


def decode_outcomes(data: bytes) -> tuple[Outcome, ...]:
    """The inverse of ``encode_outcomes``."""
    return tuple(Outcome(runs) for runs in _decode_outcomes(data))
