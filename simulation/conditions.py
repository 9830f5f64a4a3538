"""What a run can be given: latencies, faults, clients and limits, all as data."""

from __future__ import annotations

from msgspec import Struct


class Latency(Struct, frozen=True):
    """How long requests take, in milliseconds (medians, with a log-normal tail)."""

    get: float = 15.0
    put: float = 30.0
    list: float = 30.0
    delete: float = 30.0
    swap_low: float = 58.0  # a compare-and-swap holds its key for this long …
    swap_high: float = 68.0  # … up to this
    swaps_per_second: float = 15.0  # and one key takes no more of them than this; 0: no such limit
    turn: float = 0.01  # where there are any
    sigma: float = 0.25  # of the logarithm
    bytes_per_second: float = 0.0  # of bodies, on top of all this; 0: they take no time
    swap_gap_s: float = 0.0  # an object that was written less than this before is not written again
    parallel: bool = False  # swaps on one key do not wait for each other; the first to end wins
    tick_ms: int = 1_000  # resolution of the store's clock


S3 = Latency()
S3_EXPRESS = Latency(
    get=4.0, put=7.0, list=7.0, delete=7.0, swap_low=13.0, swap_high=15.0, swaps_per_second=70.0
)
GCS = Latency(swaps_per_second=0.0, swap_gap_s=1.0)
FOLDER = Latency(  # on a disk whose flushes take their time
    get=0.1,
    put=0.2,
    list=0.2,
    delete=0.2,
    swap_low=20.0,
    swap_high=40.0,
    swaps_per_second=0.0,
    sigma=0.5,
    tick_ms=1,
)
SLOW_BYTES = Latency(bytes_per_second=50_000.0)


class Faults(Struct, frozen=True):
    """Probabilities, each per request of a client."""

    error: float = 0.0  # 503: no effect
    refused: float = 0.0  # 409 on a conditional write: no effect
    lost: float = 0.0  # the effect happens, the reply is lost
    late: float = 0.0  # a time-out, and the effect happens afterwards, perhaps much later
    duplicate: float = 0.0  # a write takes effect again, perhaps much later
    freeze: float = 0.0  # the client stands still between two steps
    crash: float = 0.0  # the client dies between two steps; a new writer takes its place
    suspend: float = 0.0  # the client's machine stands still, and so does its monotonic clock
    step: float = 0.0  # the client's wall clock is set
    slow: float = 0.0  # the answer of a read, or of a plain write, takes very long
    clone: float = 0.0  # the client is copied with its identity, as by a restored snapshot
    leave: float = 0.0  # a caller leaves in the middle of a call: interrupted, or cancelled
    relay: float = 0.0  # a call over the API is lost, or its answer is; it comes late, or twice
    turn: float = 0.0  # the turn is somebody else's, and its holder does not know
    note: float = 0.0  # a note, or what its writer is told, is lost, cut short or read twice
    fork: float = 0.0  # a process of several callers forks, and both go on
    refusal: float = 0.0  # the store begins to refuse all requests: 403
    expired: float = 0.0  # the credentials of one client run out, until it gets others
    throttling: float = 0.0  # the store begins to fail all but small requests: 503
    delay_seconds_max: float = 1800.0  # of what is late, duplicated or frozen
    freeze_seconds_max: float = 0.0  # of what is frozen; 0: the same
    suspend_seconds_max: float = 7200.0
    stops_wall: float = 0.2  # of suspensions: the wall clock stands still as well
    step_ms_max: int = 24 * 3_600_000  # forth or back
    slow_seconds_max: float = 20.0  # of a slow answer
    outage_seconds_max: float = 20.0  # of a refusal, of credentials that ran out, and of throttling
    timeout_seconds: float = 3.0  # how long a client waits for a lost reply


TURNS = ("note lost", "answer short", "answer of a note lost", "note read again", "turn lost")
OVER_AN_API = ("call lost", "answer lost", "call late", "call twice")  # what ``relay`` stands for
FAULTS = [
    *(
        name
        for name in Faults.__struct_fields__
        if name not in ("relay", "turn", "note") and not name.endswith(("_max", "_seconds", "_wall"))
    ),
    *OVER_AN_API,
    *TURNS,
]


ROUGH = Faults(
    error=0.01, refused=0.01, lost=0.015, late=0.01, duplicate=0.03, freeze=0.004, crash=0.003, clone=0.01
)


class Clients(Struct, frozen=True):
    """Who uses the queue, and how much."""

    producers: int = 4
    workers: int = 6
    cancellers: int = 1
    operators: int = 1
    bulk: int = 1
    reapers: int = 1
    listeners: int = 0
    callers: int = 0
    names: int = 4  # the ids that all callers share
    loaders: int = 0
    schedulers: int = 0  # operators who keep schedules
    reruns: float = 0.0  # share of runs of a schedule by hand that come twice in a commit
    mass_cancellers: int = 0  # operators who cancel many jobs at once
    crews: int = 0  # processes of several callers, every second one with an event loop
    threads: int = 4  # callers of each
    candidates: int = 0  # in an election; then there is nothing else
    paced: int = 0  # callers of a pacer; then there is nothing else
    borrowers: int = 0  # who claim from shards under one limiter; then there is nothing else
    resting: int = 0  # queues at which a process waits; then there is nothing else
    limiters: int = 1  # between which an operator of theirs changes
    remotes: int = 0  # callers over an API
    servers: int = 3  # of that API
    surgeons: int = 0  # operators whose heads are lost and restored, whose clocks go wrong, who purge jobs
    shards: int = 1  # that the queue grows to
    steered: bool = (
        False  # all of them have jobs of their own, and an operator changes the limits of the whole queue
    )
    reap_seconds: float = 8.0  # mean pause between a reaper's passes
    rounds: int = 30  # calls of each producer
    pause_seconds: float = 2.0  # mean pause between a client's calls
    skew_ms_max: int = 2 * 3_600_000
    drift_max: float = 0.0002
    large_results: float = 0.0  # share of a worker's completions whose results lie beside the head
    uniques: float = 0.0  # share of callers' enqueues that say how their id is kept unique
    restarts: float = 0.0  # share of them that restart it; 0: nobody does
    kinds: int = 2  # of jobs
    groups: int = 0  # of most of them; 0: of none
    fair: bool = False  # operators let groups share alike, and take that back
    policies: bool = False  # operators change what groups wait for, pause and resume them
    follows: float = 0.0  # share of jobs that others follow, or that are of a batch
    units: float = 0.0  # share of jobs that count as several starts
    attachers: int = 0  # operators who attach push consumers
    mergers: int = 0  # clients that merge delayed segments
    time_limits: float = 0.0  # share of jobs that may not run for long, or have to start soon
    throttles: float = 0.0  # share of held jobs that are given back with a word on others like them
    archive_payloads: bool = False  # the archive gets payloads and results, most of the time
    store_ahead_ms: int = 0  # the store's clock
    archive_off_ms: int | None = (
        None  # that of a store for archive and backups: ahead, behind in every second seed
    )
    upgrade: bool = False  # some clients are of a newer release and switch to its format on the way


class Profile(Struct, frozen=True):
    """One kind of run."""

    name: str
    faults: Faults = Faults()
    clients: Clients = Clients()
    latency: Latency = S3
    limits: dict[str, int] = {}
    turns: bool = False  # the store offers turns
    ordered: bool = False  # nothing fails, so progress is checked too
    begin_seconds: float = 0.0  # of virtual time at the beginning: runs begin 2,800 s before a full hour


# All collisions lead to announcements, or none below a crowd: each path has profiles and scenes of its own.
ANNOUNCING = {"FEW_WRITERS_MAX": 0, "PUBLISHED_MS_MAX": 500}
PUBLISHING = {"FEW_WRITERS_MAX": 16, "PUBLISHED_MS_MAX": 20_000}
TIGHT = {
    **ANNOUNCING,
    "READY_BYTES_MAX": 900,
    "TAIL_BYTES_MAX": 700,
    "LEASES_BYTES_MAX": 3_000,
    "SESSIONS_BYTES_MAX": 1_500,
    "DELAYED_BYTES_MAX": 700,
    "FINISHED_BYTES_MAX": 1_200,
    "DEAD_BYTES_MAX": 600,
    "TOMBSTONES_MAX": 4,
    "BLOCK_BYTES_MAX": 500,
    "FANOUT": 3,
    "TABLE_BYTES_MAX": 6_000,
    "EXPIRED_KNOWN_MS": 60_000,
    "RESULT_TTL_MS_DEFAULT": 60_000,
    "HOUR_MS": 2_000,  # how often floors are marked
    "SEGMENT_BYTES_MAX": 2_000,
    "INLINE_BYTES_MAX": 64,
    "INLINE_LEASED_BYTES_MAX": 400,
    "INLINE_ROW_BYTES": 16,
    "DELAYED_SPANS_SOFT": 4,
    "DELAYED_SPANS_CROWDED": 4,
    "DELAYED_SPANS_MAX": 12,
    "SESSION_IDLE_MS_MIN": 20_000,
    "GC_HORIZON_MS": 6_000,
    "NAMES_MAX": 20,
    "DEAD_TTL_MS_DEFAULT": 300_000,
    "BACKOFF_CAP_MS": 20_000,
    "LANES_MAX": 6,
}
