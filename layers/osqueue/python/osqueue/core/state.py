"""What one shard of a queue is: every field of the head object, as frozen data.

A job's life is the table in ``arrows.py``. Where a job's record lies *is* its state; no job is ever in two places:

    queued      lanes (ready window, segments, tail)        completed, cancelled   finished, tables
    processing  leases                                      failed                 dead
    scheduled, failing   delayed (window, segments)

Rows are encoded as MessagePack arrays, so fields may be added only at the end and with a default.
Times are integer milliseconds since the Unix epoch, UTC. Keys are the 16 bytes of a UUIDv7.
"""

from collections.abc import Iterable

from msgspec import Struct

from .. import limits
from .rows import NO_ROUND, BatchRow, BodyRef, Lent, Round, StoredContent, StoredRow, Ticket
from .settings import QueueSettings

SCHEDULED = "scheduled"
QUEUED = "queued"
PROCESSING = "processing"
FAILING = "failing"
COMPLETED = "completed"
FAILED = "failed"
CANCELLED = "cancelled"
STATES = (SCHEDULED, QUEUED, PROCESSING, FAILING, COMPLETED, FAILED, CANCELLED)

# How an attempt ended, as written in a job's history.
RELEASED, STALLED = "released", "stalled"

HISTORY_MAX = 8  # attempts remembered with a job that has not finished; `run` still counts them all
HISTORY_ERROR_CHARS = 300  # of each error


class PastAttempt(StoredRow, frozen=True):
    """One lease that ended."""

    run: int  # counts every lease ever granted to the job, from 1
    worker: str
    started_ms: int
    ended_ms: int
    outcome: str  # failed, stalled, released, completed or cancelled
    error: str = ""  # what went wrong
    error_type: str = ""  # the exception's class, where there was one
    beat_ms: int = 0  # stalled: the last heartbeat, or the claim


class Links(StoredRow, frozen=True):
    """What ties a job to others. See ``follow_ups``."""

    then: bytes = b""  # the jobs that come when it completes, encoded
    parent: bytes = b""  # the job, or the batch, with whose end it came
    batch: bytes = b""  # of which it is
    input: StoredContent | None = None  # the parent's result; None: there is none, or its payload is that
    input_codec: str = ""  # that serialised it
    followed: int = 0  # completed: how many jobs came after it


class JobRecord(StoredRow, frozen=True):
    """One job that is not finished. Its state is the place it lies in."""

    key: bytes
    payload: StoredContent  # serialised by `codec`
    enqueued_ms: int
    priority: int = limits.PRIORITY_DEFAULT  # 0–9, lower runs first
    kind: str = ""
    max_attempts: int = limits.ATTEMPTS_DEFAULT
    result_ttl_ms: int = limits.RESULT_TTL_MS_DEFAULT
    codec: str = "json"
    attempt: int = 0  # attempts used; a release gives one back, a redrive starts again
    run: int = 0  # leases ever granted, and redrives; never reset
    due_ms: int = 0  # when a delayed job becomes claimable
    client_id: str | None = None
    history: tuple[PastAttempt, ...] = ()  # the latest HISTORY_MAX
    trace: str = ""  # the end of the traceback of the latest failure
    scheduled_ms: int = 0  # when it was to become claimable; 0: at once
    # Names and values, carried and never interpreted. None encodes faster than an empty tuple, and most jobs have none.
    headers: tuple[tuple[str, str], ...] | None = None
    run_within_ms: int = 0  # how long one attempt may run; 0: as long as its worker says that it lives
    start_by_ms: int = 0  # after which no attempt starts; 0: it may wait as long as it takes
    schedule: str = ""  # the schedule that made it
    window_ms: int = 0  # how long its id is taken from its enqueue; 0: as long as it matters
    due_by_ms: int = 0  # to when it may be postponed at the latest; 0: no end to that
    replaced: int = 0  # how many jobs of its id it took the place of; it was enqueued as the first
    group: str = ""  # of which so many run at once
    links: Links | None = None  # most jobs have none
    units: int = 1  # as how many starts of a rate each of its starts counts

    @property
    def contents(self) -> tuple[StoredContent, ...]:
        """Its payload, and what else it was given to work on."""
        links = self.links
        return (self.payload,) if links is None or links.input is None else (self.payload, links.input)


class LeaseRecord(StoredRow, frozen=True):
    """A job being worked on."""

    job: JobRecord
    token: str  # belongs to this attempt alone; only its bearer may finish the job
    worker: str
    started_ms: int
    beat_ms: int  # the last heartbeat, or the claim
    expires_ms: int
    lease_ms: int  # what a heartbeat adds to the time of its commit
    cancel: bool = False  # somebody asked for the job to be cancelled
    until_ms: int = 0  # the end of the job's run-time limit, which no heartbeat moves; 0: it has none
    progress: int = -1  # thousandths, by its worker's word; -1: it said nothing
    note: str = ""  # what it said beside
    told_ms: int = 0  # when that was


# What a finished row is, besides the end of a job whose record the archive still has to get.
ENDED = 0
ARCHIVE_ONLY = 1  # only for the archive: the job failed, and lies among the dead letters
UPDATED = 2  # a row that had left the head already, back with a change
EXPIRED_DEAD = 3  # a dead letter let go of: the archive had its record when it failed


class FinishedJob(StoredRow, frozen=True):
    """A completed, cancelled or forgotten dead job: first in the head, then in a table, then forgotten."""

    job: JobRecord  # its payload dropped
    state: str
    finished_ms: int
    token: str = ""  # the lease that finished it: a repeat of its complete succeeds
    result: StoredContent = b""
    payload_bytes: int = 0
    why: str = ""  # who cancelled it, or why
    expires_ms: int = 0  # from when on the result is not given out any more
    kept_ms: int = 0  # the latest expiry it ever had: older versions of the row must not outlive it
    codec: str = ""  # that serialised the result; "": the payload's, and the result is None where it is empty
    mark: int = ENDED
    spent: BodyRef | None = (
        None  # where its payload lay: no reference, the object may be gone; a purge looks there
    )
    payload: StoredContent | None = (
        None  # that the archive is to get, with the result; None: it has them, or gets neither
    )
    successor: bytes | None = (
        None  # the job that took its place while it waited: the archive hears of that one alone
    )

    @property
    def key(self) -> bytes:
        """The job's."""
        return self.job.key

    @property
    def bodies(self) -> tuple[BodyRef, ...]:
        """The contents beside it that it refers to."""
        return tuple([each for each in (self.result, self.payload) if isinstance(each, BodyRef)])

    @property
    def archive_bytes(self) -> int:
        """Of contents that the archive is to get."""
        return 0 if self.payload is None else content_bytes(self.payload) + content_bytes(self.result)


class TableRef(StoredRow, frozen=True):
    """A pointer to finished jobs sorted by key (level 0), or to an index of such pointers, oldest first (level > 0).

    Tables are what log-structured merge trees call sorted runs: the newest that knows a key is right.
    """

    name: str  # the object's key below the shard's prefix
    level: int
    count: int  # rows
    size: int  # the object's bytes
    first: bytes  # no key in it is smaller
    last: bytes  # nor larger
    until_ms: int  # from when on none of its rows has to be remembered
    half_expired_ms: int  # from when on at least half of them need not be
    named: int = 0  # rows that were enqueued under a client's id
    bodies: bool = False  # some contents are kept in body objects
    archived: bool = False  # the archive has every record in it
    updated_rows: int = 0  # rows that may stand, older, in an older table as well
    below: int = 0  # of an index: the bytes of the tables below it
    archive_bytes: int = 0  # of contents of its rows that the archive is to get


class VectorRef(StoredRow, frozen=True):
    """A pointer to a deletion vector: see ``deletions``."""

    name: str  # the object's key below the shard's prefix
    size: int  # the object's bytes


class Hold(StoredRow, frozen=True):
    """Why a group starts nothing. See ``groups``."""

    key: bytes = b""  # of the job that it waits for; empty: it waits for none
    why: str = ""  # that job's state
    paused: bool = False  # by an operator


NO_HOLD = Hold()


class Labels(StoredRow, frozen=True):
    """Which kinds and groups of jobs are in a part of a backlog: sorted digests, see ``labels``."""

    kinds: bytes = b""  # of jobs without a group
    pairs: bytes = b""  # of the others: a kind's, then the group's

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.kinds) + len(self.pairs)


class Span(StoredRow, frozen=True):
    """A pointer to a run of jobs in order: a segment (level 0), or an index of spans (level > 0)."""

    name: str  # the object's key below the shard's prefix
    level: int
    count: int  # jobs still to come
    keysum: int  # sum of their keys, for the conservation check
    offset: int  # the next block's first byte (level 0)
    length: int  # the next block's bytes (level 0), or the whole object's (index)
    size: int  # the object's bytes
    first: bytes  # no key of the object is smaller
    last: bytes  # nor larger
    bodies: bool = False  # some of the jobs keep their payload in a body object
    due_ms: int = 0  # delayed only: nothing in it is due before
    skip: int = 0  # delayed only: jobs of the next block that were already taken
    failing: int = 0  # delayed only: how many wait for a retry
    vector: VectorRef | None = (
        None  # level 0: tells which jobs are not to come although they lie in the segment
    )
    labels: Labels | None = None  # what is in it; None: it does not tell
    labels_at: int = 0  # level 0: where in the object the labels of each block begin
    labels_length: int = 0  # and their bytes; 0: there are none
    joined: int = 0  # how old it is where its name does not tell: see ``drop_rules``


def referenced_objects(pointer: Span | TableRef) -> set[str]:
    """The objects that a pointer names besides its own."""
    vector = pointer.vector if isinstance(pointer, Span) else None
    return set() if vector is None else {vector.name}


class Backlog(StoredRow, frozen=True):
    """A FIFO of any length: the front in memory, the middle in segments, the newest in memory."""

    ready: tuple[JobRecord, ...] = ()
    spans: tuple[Span, ...] = ()
    tail: tuple[JobRecord, ...] = ()
    ready_bytes: int = 0  # sum of the weights of `ready`
    tail_bytes: int = 0


MIXED = "\0"  # in the place of a kind, which never looks like this


class Lane(StoredRow, frozen=True):
    """The queued jobs of one priority and kind, or of a priority and any kinds that have no lane of their own."""

    priority: int
    kind: str  # or MIXED
    backlog: Backlog


class Delayed(StoredRow, frozen=True):
    """Scheduled and failing jobs by due time: the soonest in memory, later ones in segments."""

    jobs: tuple[JobRecord, ...] = ()  # sorted by (due_ms, key)
    spans: tuple[Span, ...] = ()  # each sorted inside
    jobs_bytes: int = 0


class Session(StoredRow, frozen=True):
    """The latest request of one writer that is part of the state, and what became of it."""

    n: int
    nonce: int
    seq: int  # of the commit that applied it
    at_ms: int  # head time of that commit
    outcomes: bytes  # encoded, see ops.Outcome


class Refusals(StoredRow, frozen=True):
    """Announced requests that a commit refused for good: there was no room for what they would leave behind."""

    seq: int  # of that commit
    at_ms: int  # head time of that commit
    marks: frozenset[int]  # of the requests' nonces, as their keys tell them


class Counters(StoredRow, frozen=True):
    """How often each thing has happened since the head was created."""

    enqueued: int = 0
    claimed: int = 0
    completed: int = 0
    retried: int = 0
    stalled: int = 0
    released: int = 0
    failed: int = 0
    cancelled: int = 0
    redriven: int = 0
    archived: int = 0
    keysum_in: int = 0  # sum of the keys of every job accepted, modulo 2^64
    keysum_out: int = 0  # and of every job that left the head for a table


class Transition(StoredRow, frozen=True):
    """One committed transition."""

    key: bytes  # empty for a bulk
    at_ms: int
    origin: str  # the state before; "" for a new job
    target: str
    cause: str  # as ``arrows`` lists them
    attempt: int = 0
    run: int = 0
    worker: str = ""
    client_id: str | None = None
    kind: str = ""
    count: int = 1  # more for a bulk, which is told as a whole and without a key
    headers: tuple[str, ...] = ()  # their names


class EventLog(StoredRow, frozen=True):
    """The transitions of a shard, while somebody listens: the newest ones. See ``event_log``."""

    until_ms: int = 0  # until when they are recorded; 0: nobody listens
    first: int = 0  # the position of the first row
    rows: tuple[Transition, ...] = ()
    rows_bytes: int = 0  # of them, encoded

    @property
    def end(self) -> int:
        """The position of the next transition."""
        return self.first + len(self.rows)

    def is_recorded_at(self, now_ms: int) -> bool:
        """Are the transitions of a commit at this time recorded?"""
        return now_ms < self.until_ms


NOT_RECORDED = EventLog()  # this very one stays away from an encoded head


class PacerRow(StoredRow, frozen=True):
    """A pacer: who may act when. Its head holds nothing else. See ``pacing``."""

    interval_us: int = 0  # microseconds between two slots; 0: there is no pacer
    burst: int = 1  # slots that an idle pacer gives at once
    tat_us: int = 0  # the theoretical arrival time, in the pacer's own time
    number: int = 0  # of the latest slot
    shift_ms: int = 0  # by which its own time is behind the head's: all pauses together
    paused_ms: int = 0  # head time since when it is paused; 0: it is not
    epoch: int = 0  # random, drawn when it was created or reset: a slot of another one is void
    borrowers: dict[bytes, int] = {}  # noqa: RUF012 - shards that asked lately, and when, in ms: see ``lending``
    rest_ms: int = 0  # of a paused one: for which it stands still once it is resumed
    remote_us: int = 0  # the latest slot of a holder over an API, in own time; 0: no such slot
    latest_units: int = 0  # of the latest slot; 0: it cannot be given back


NO_PACER = PacerRow()  # this very one stays away from an encoded head


class ScheduleRow(StoredRow, frozen=True):
    """When a job is made again and again, and of what. See ``scheduling``."""

    name: str
    cron: str = ""  # five fields
    zone: str = "UTC"  # in which they are meant, by the names of the IANA
    every_ms: int = 0  # instead of them: at whole multiples of it since 1970
    job: bytes = b""  # encoded: a ``JobSpec`` without its key and its payload
    payload: StoredContent = b""
    missed: str = "once"  # what becomes of ticks that nobody was there for
    overlap: str = "allow"  # what becomes of a tick while a job of the schedule lives
    paused: bool = False
    next_ms: int = 0  # nothing is due before; 0: never
    last_ms: int = 0  # up to here every tick has been dealt with
    living: int = 0  # jobs of it that wait or run
    waiting_ms: int = 0  # the tick whose job is to be made when none lives any more; 0: none


class Starts(StoredRow, frozen=True):
    """What rates are owed for starts: when the buckets that are not full will be. See ``rates``."""

    tat_us: int = 0  # head time, microseconds: that of the queue; 0: it is full
    kinds: tuple[tuple[str, int], ...] = ()  # and those of kinds, sorted
    groups: dict[bytes, int] = {}  # noqa: RUF012 - and those of groups, by their digests
    groups_us: int = 0  # that of a group that is not among them; 0: it is full
    lent: Lent | None = None  # slots of the queue's limiter


NO_STARTS = Starts()  # this very one stays away from an encoded head


class DropRule(StoredRow, frozen=True):
    """Jobs that are cancelled wherever they wait: those that match and were there when it came. See ``drop_rules``."""

    seq: int  # of the commit that added it
    at_ms: int  # head time of that commit
    kinds: tuple[str, ...] | None = None  # only these
    group: str | None = None  # only this one
    before_ms: int = 0  # only those enqueued before; 0: whenever
    batch: bytes = b""  # only those of this one


class DropRules(StoredRow, frozen=True):
    """All of them, and how far the reaper has come."""

    rules: tuple[DropRule, ...] = ()  # the oldest first
    place: tuple[str, int, int] = ("", 0, 0)  # a segment, the next block it looks at, and that one's bytes


NO_DROPS = DropRules()  # this very one stays away from an encoded head


class State(Struct, frozen=True, omit_defaults=True):
    """The whole head of one shard."""

    commit: bytes  # random, of this commit
    epoch: int  # random, drawn when the head was created
    seq: int = 0  # commits since
    now_ms: int = 0  # the latest time any commit has seen; never goes back
    floor: int = 0  # intents born before this seq are never applied
    gc_floor: int = 0  # staged objects born before this seq may be gone
    marks: tuple[tuple[int, int], ...] = ()  # (ms, seq) about once an hour, for the floors
    hot: int = 0  # > 0: writers collide, so announce instead of committing directly
    load: int = 0  # requests in the last combined commit
    direct: int = 0  # direct commits in quick succession since intents were last looked for
    direct_ms: int = 0  # when that succession began
    combined: int = 0  # moving average of others' requests in a commit, in thousandths
    streak: int = 0  # commits of one writer in quick succession, after the first
    sessions: dict[str, Session] = {}
    sessions_bytes: int = 0
    refusals: tuple[Refusals, ...] = ()
    lanes: tuple[Lane, ...] = ()
    leases: dict[bytes, LeaseRecord] = {}
    leases_bytes: int = 0
    delayed: Delayed = Delayed()
    dead: Backlog = Backlog()
    finished: tuple[FinishedJob, ...] = ()
    finished_bytes: int = 0
    tombstones: tuple[bytes, ...] = ()  # keys cancelled while in a segment
    delayed_tombstones: dict[bytes, str] = {}  # those of them in delayed segments: scheduled or failing
    settings: QueueSettings = QueueSettings()
    counters: Counters = Counters()
    tables: tuple[TableRef, ...] = ()  # finished jobs that have left the head, oldest first
    forgotten: int = 0  # seq of the last commit that let finished jobs be forgotten
    result_ttls: dict[
        bytes, int
    ] = {}  # ms, asked for while a job is unfinished; its own stands in an immutable place
    seals: tuple[bytes, ...] = ()  # secrets of announced requests, the newest last: see ``intents``
    gc_after: str = ""  # the name behind which collection goes on; "": it is done until ``gc_floor`` rises
    log: EventLog = NOT_RECORDED
    pacer: PacerRow = NO_PACER
    schedules: tuple[ScheduleRow, ...] = ()  # sorted by name; in the first shard
    holds: dict[str, Hold] = {}  # groups that start nothing, by their names
    starts: Starts = NO_STARTS
    drops: DropRules = NO_DROPS
    batches: dict[bytes, BatchRow] = {}  # by their keys
    round: Round = NO_ROUND
    tickets: dict[str, tuple[Ticket, ...]] = {}  # by the names of consumers, as they were granted
    format: int = 1  # of the head: raised by what older releases would erase, and never lowered


KEYSUM_MASK = (1 << 64) - 1


def keysum(key: bytes) -> int:
    """A job's share of the conservation sums: the random half of its key."""
    return int.from_bytes(key[8:], "big")


def key_text(key: bytes) -> str:
    """The key as callers see it: a UUID's usual form."""
    text = key.hex("-", 2)
    return f"{text[:4]}{text[5:29]}{text[30:34]}{text[35:]}"


def keysums(jobs: Iterable[JobRecord]) -> int:
    """The share of several jobs."""
    return sum([int.from_bytes(job.key[8:], "big") for job in jobs]) & KEYSUM_MASK


def content_bytes(content: StoredContent) -> int:
    """The size of a payload or result, wherever it lies."""
    return len(content) if type(content) is bytes else content.length  # type: ignore[union-attr]


def links_kept(links: Links | None, followed: int = 0) -> Links | None:
    """What of a job's ties is told when it is over, and left so many follow-ups."""
    if links is None or not (links.parent or links.batch or followed):
        return None
    return Links(b"", links.parent, links.batch, followed=followed)


def is_late(job: JobRecord, now_ms: int) -> bool:
    """Has its start deadline passed? Then no attempt of it starts any more."""
    return 0 < job.start_by_ms < now_ms


def lease_end(latest_ms: int, lease_ms: int, until_ms: int) -> int:
    """When a lease ends that is given or extended now: no later than the job's run-time limit does."""
    return min(latest_ms + lease_ms, until_ms) if until_ms else latest_ms + lease_ms


def due_order(job: JobRecord) -> tuple[int, bytes]:
    """Delayed jobs stand by due time, then key."""
    return (job.due_ms, job.key)


def delayed_state(job: JobRecord) -> str:
    """A delayed job is failing when its last attempt failed, else scheduled."""
    return FAILING if job.history and job.history[-1].outcome == FAILED else SCHEDULED


def waiting(backlog: Backlog) -> int:
    """Jobs in a backlog, wherever they lie (cancelled ones still in segments included)."""
    return len(backlog.ready) + sum(span.count for span in backlog.spans) + len(backlog.tail)
