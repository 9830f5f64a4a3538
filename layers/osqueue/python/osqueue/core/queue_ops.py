"""What can be asked of a queue as a whole, by its operators and by upkeep; and of a pacer."""

from .job_ops import Operation, SpanSwap, TicketUse
from .rows import BatchRow, BodyRef, StoredRow
from .settings import ConsumerSettings, KindSettings
from .state import PacerRow, ScheduleRow, Span, TableRef


class MergeTables(Operation, frozen=True, tag="merge"):
    """Exchange neighbouring tables for others that hold the same rows but those that may be forgotten."""

    taken: tuple[TableRef, ...]  # as they stand in the head
    put: tuple[TableRef, ...]
    archived: int = 0  # rows whose records have just been written to the archive
    forgets: bool = False  # some rows were left out


AS_THE_QUEUE = -1  # in the place of a number: what a group or a kind had of its own is let go of


class GroupChange(StoredRow, frozen=True):
    """What is to change of one group; None leaves it as it is."""

    group: str
    paused: bool | None = None
    running: int | None = None  # or AS_THE_QUEUE
    rate: tuple[int, int] | None = None  # (0, 0): as the queue says
    burst: int | None = None  # or AS_THE_QUEUE


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
    kinds: tuple[KindSettings, ...] = ()  # None in one of these leaves that as it is, too; or AS_THE_QUEUE
    kinds_dropped: tuple[str, ...] = ()  # these are as the queue says from now on
    max_running: int | None = None
    shard: int | None = None  # which one it is
    recorded: bool = False  # with ``shards``: do those that come new record their transitions?
    archive_payloads: bool | None = None
    paused_until_ms: int | None = None  # below 0: for so long from now on; so in ``kinds``
    rate: tuple[int, int] | None = None  # (0, 0): none; so in ``kinds``
    burst: int | None = None
    ageing_ms: int | None = None
    group_running: int | None = None
    group_on_failure: str | None = None
    group_on_dead: str | None = None
    group_shards: int | None = None  # nothing where it is fixed already
    groups: tuple[GroupChange, ...] = ()  # those at home in the shard
    group_rate: tuple[int, int] | None = None  # (0, 0): none
    group_burst: int | None = None
    fair: bool | None = None
    limiter: str | None = None  # "": none
    consumers: tuple[ConsumerSettings, ...] = ()  # each as a whole
    consumers_dropped: tuple[str, ...] = ()


class KeepTicket(Operation, frozen=True, tag="keep"):
    """Hold a consumer's ticket until the commit's time plus a lease, while its jobs are worked on."""

    use: TicketUse
    lease_ms: int


class LengthenPauses(Operation, frozen=True, tag="hold"):
    """Let pauses last until a time at least: of kinds, or of the queue (None)."""

    ends: tuple[tuple[str | None, int], ...]  # in ms


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


class CancelJobs(Operation, frozen=True, tag="cancel_many"):
    """Cancel all jobs that match and wait; ask those that run. None of what is named here names all."""

    kinds: tuple[str, ...] | None = None
    group: str | None = None
    before_ms: int = 0  # those enqueued before; 0: whenever
    batch: bytes = b""  # the key of one

    def codes_max(self) -> int:
        return 6  # of as many bytes as its runs of large numbers take


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


class MergeSpans(Operation, frozen=True, tag="merge_spans"):
    """Exchange segments of delayed jobs for one of the same jobs. Refused if any of them has changed."""

    taken: tuple[Span, ...]  # as they stood in the head
    merged: Span


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
    rest_ms: int = 0  # with a pause: for which the pacer stands still once it is resumed


class ReserveSlots(Operation, frozen=True, tag="reserve"):
    """Take ``count`` slots of a pacer, each of ``units``, none further ahead than ``ahead_us``."""

    count: int
    units: int
    ahead_us: int
    lead_us: int = 0  # none is sooner than this: so long its answer is on the way
    borrower: bytes = (
        b""  # a shard to which they are lent, as a digest; empty: whoever asks acts by them himself
    )
    remote: bool = False  # the holder looks at the pacer over an API

    def codes_max(self) -> int:
        return 13  # of as many bytes as its runs of large numbers take


class ReturnSlot(Operation, frozen=True, tag="return"):
    """Give a slot back, if no later one has been taken since."""

    number: int
    units: int
    epoch: int  # of its pacer


class ChangeSchedule(Operation, frozen=True, tag="schedule"):
    """Add or change a schedule, remove it, pause it or let it go on, or make a job of it now."""

    name: str
    put: ScheduleRow | None = None  # what it says; how far it has come is the head's to know
    removed: bool = False
    paused: bool | None = None
    run: bytes = b""  # the key of the job to make now


class ChangeBatch(Operation, frozen=True, tag="batch"):
    """Open a batch under a key that its producer drew, or say that no more jobs of it come from outside."""

    key: bytes
    opened: BatchRow | None = None
