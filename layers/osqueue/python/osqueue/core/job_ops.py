"""What can be asked of jobs: to enqueue them, to claim and end them, to change those that wait.

Every operation answers per item: one bad item fails alone.
"""

from msgspec import Struct

from .rows import Lent, StoredContent
from .settings import QueueSettings
from .state import FinishedJob, JobRecord, Links, Span


class UniqueRule(Struct, frozen=True, array_like=True, gc=False):
    """What else a caller says of the id that it enqueues under."""

    while_: str = ""  # "live", "waiting"; "": while the job lives or its result is kept
    on_duplicate: str = ""  # "replace", "debounce", "restart"; "": the one that is there stays
    window_ms: int = 0  # see ``JobRecord``
    max_wait_ms: int = 0  # from the first enqueue to the latest time to which debouncing postpones; 0: any


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
    unique: UniqueRule | None = None  # only with a client's id
    group: str = ""
    then: bytes = b""  # see ``Links``
    batch: bytes = b""  # the key of one, in the same shard
    restarts: "CancelJob | None" = None  # the job that holds the id, and makes room for this one
    units: int | None = None  # None: 1


def record_of(new: JobSpec, settings: QueueSettings, now_ms: int, latest_ms: int, due_ms: int) -> JobRecord:
    """The row of a new job, accepted now; ``due_ms`` 0 is at once. What it does not say its queue's settings do.

    ``latest_ms`` is the latest that the clock may show, from which it counts what begins.
    """
    its = settings.of_kind(new.kind)
    start_within_ms = its.start_within_ms if new.start_within_ms is None else new.start_within_ms
    unique = new.unique
    return JobRecord(
        new.key,
        new.payload,
        now_ms,
        its.priority if new.priority is None else new.priority,
        new.kind,
        its.max_attempts if new.max_attempts is None else new.max_attempts,
        its.result_ttl_ms if new.result_ttl_ms is None else new.result_ttl_ms,
        new.codec,
        due_ms=due_ms,
        client_id=new.client_id,
        scheduled_ms=due_ms,
        headers=new.headers,
        run_within_ms=its.run_within_ms if new.run_within_ms is None else new.run_within_ms,
        start_by_ms=(due_ms or latest_ms) + start_within_ms if start_within_ms else 0,
        window_ms=0 if unique is None else unique.window_ms,
        due_by_ms=now_ms + unique.max_wait_ms if unique is not None and unique.max_wait_ms else 0,
        group=new.group,
        links=Links(new.then, batch=new.batch) if new.then or new.batch else None,
        units=new.units or 1,
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
    batch: bytes = b""  # that all of them are of


class AttachBulk(Operation, frozen=True, tag="attach_all"):
    """Accept several bulks at once: all of them, or none."""

    parts: tuple[AttachSpans, ...]  # each of a lane of its own; at most one is of delayed jobs


class TicketUse(Struct, frozen=True, array_like=True, gc=False):
    """Whose right to claim is used, and by whom. See ``consumers``."""

    consumer: str
    ticket: int
    holder: int  # 64 random bits of an invocation
    nap_ms: int = 0  # how long it would wait for a job that is about to start, where it is the only holder
    busy: bool = False  # it has jobs in hand, and keeps the ticket where there are no more


class ClaimJobs(Operation, frozen=True, tag="claim"):
    """Lease up to ``limit`` jobs to a worker."""

    limit: int
    worker: str
    lease_ms: int
    kinds: tuple[str, ...] | None = None  # only these
    lent: Lent | None = None  # slots that are put into the head before
    use: TicketUse | None = None  # a consumer's: TICKET_LOST where it may not claim

    def codes_max(self) -> int:
        return 4  # of as many bytes as its runs take, whose last may tell a time


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
    """Give jobs back unworked: the attempt does not count. Perhaps others like them are not to start for a while."""

    held: tuple[LeaseRef, ...]
    delay_ms: int = 0  # from the commit's time
    at_ms: int = 0  # or until an absolute time
    pause_ms: int = 0  # for so long nothing starts of their kinds
    whole: bool = False  # or of the whole queue
    why: str = ""

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


class Replacement(Struct, frozen=True, array_like=True, gc=False):
    """A job that waits, with the evidence of where it does, and the one that takes its place."""

    old: CancelJob
    new: JobSpec  # debounced where its rule says so


class ReplaceJobs(Operation, frozen=True, tag="replace"):
    """Let other jobs take the places of some that wait; each pair as a whole or not at all."""

    items: tuple[Replacement, ...]

    def codes_max(self) -> int:
        return len(self.items)


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
