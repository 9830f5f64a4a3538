"""How bad it gets in a run: latencies, faults, clients and limits, all as data."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace


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
    parallel: bool = False  # swaps on one key do not wait for each other; the first to end wins


S3 = Latency()
S3_EXPRESS = Latency(
    get=4.0, put=7.0, list=7.0, delete=7.0, swap_low=13.0, swap_high=15.0, swaps_per_second=70.0
)
FOLDER = Latency(  # on a disk whose flushes take their time
    get=0.1, put=0.2, list=0.2, delete=0.2, swap_low=20.0, swap_high=40.0, swaps_per_second=0.0, sigma=0.5
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
    delay_seconds_max: float = 1800.0  # of what is late, duplicated or frozen
    freeze_seconds_max: float = 0.0  # of what is frozen; 0: the same
    suspend_seconds_max: float = 7200.0
    stops_wall: float = 0.2  # of suspensions: the wall clock stands still as well
    step_ms_max: int = 24 * 3_600_000  # forth or back
    slow_seconds_max: float = 20.0  # of a slow answer
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
    crews: int = 0  # processes of several callers, every second one with an event loop
    threads: int = 4  # callers of each
    candidates: int = 0  # in an election; then there is nothing else
    paced: int = 0  # callers of a pacer; then there is nothing else
    remotes: int = 0  # callers over an API
    servers: int = 3  # of that API
    surgeons: int = 0  # operators whose heads are lost and restored, whose clocks go wrong, who purge jobs
    shards: int = 1  # that the queue grows to
    reap_seconds: float = 8.0  # mean pause between a reaper's passes
    rounds: int = 30  # calls of each producer
    pause_seconds: float = 2.0  # mean pause between a client's calls
    skew_ms_max: int = 2 * 3_600_000
    drift_max: float = 0.0002
    large_results: float = 0.0  # share of a worker's completions whose results lie beside the head
    uniques: float = 0.0  # share of callers' enqueues that say how their id is kept unique
    kinds: int = 2  # of jobs
    groups: int = 0  # of most of them; 0: of none
    time_limits: float = 0.0  # share of jobs that may not run for long, or have to start soon
    archive_payloads: bool = False  # the archive gets payloads and results, most of the time
    store_ahead_ms: int = 0  # the store's clock
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


TIGHT = {
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
    "DELAYED_SPANS_MAX": 12,
    "SESSION_IDLE_MS_MIN": 20_000,
    "GC_HORIZON_MS": 6_000,
    "NAMES_MAX": 20,
    "DEAD_TTL_MS_DEFAULT": 300_000,
    "BACKOFF_CAP_MS": 20_000,
    "LANES_MAX": 6,
}

CAPS = {
    "INTENTS_PER_COMMIT_MAX": 6,
    "INTENT_BYTES_PER_COMMIT_MAX": 1_500,
    "LIST_KEYS_MAX": 5,
    "LISTS_PER_LOOK_MAX": 4,
    "SETTLED_PER_DELETE_MAX": 4,
    "SESSIONS_BYTES_MAX": 4_000,
}

ROUGH = Faults(
    error=0.01, refused=0.01, lost=0.015, late=0.01, duplicate=0.03, freeze=0.004, crash=0.003, clone=0.01
)

CREWS_ALONE = Clients(  # processes of several callers, and hardly anybody else
    producers=1,
    workers=1,
    cancellers=0,
    operators=0,
    bulk=0,
    rounds=12,
    pause_seconds=0.3,
)

PROFILES = {
    profile.name: profile
    for profile in (
        Profile("calm", limits=TIGHT, ordered=True, clients=Clients(pause_seconds=1.0)),
        Profile("rough", limits=TIGHT, faults=ROUGH),
        Profile(
            "loads",  # bulks of many tasks, into more shards all the time
            limits=TIGHT
            | {
                "SESSION_IDLE_MS_MIN": 120_000,
                "SESSIONS_BYTES_MAX": 3_000,
                "GC_HORIZON_MS": 240_000,
                "DELAYED_SPANS_LOOSE": 3,
                "LANES_MAX": 8,
            },
            faults=Faults(
                error=0.01,
                refused=0.01,
                lost=0.015,
                late=0.01,
                duplicate=0.03,
                freeze=0.004,
                crash=0.003,
                clone=0.003,
                delay_seconds_max=150,
                freeze_seconds_max=300,
            ),
            clients=Clients(
                producers=1,
                bulk=0,
                workers=2,
                cancellers=0,
                operators=0,
                loaders=4,
                shards=3,
                rounds=5,
                pause_seconds=4.0,
                reap_seconds=15.0,
            ),
        ),
        Profile(
            "crowd",
            limits=TIGHT | {"SESSIONS_BYTES_MAX": 3_000},
            faults=ROUGH,
            clients=Clients(producers=12, workers=12, pause_seconds=0.3, rounds=15),
        ),
        Profile(
            "forgetful",  # rows are dropped all the time while clients stand still
            limits=TIGHT | {"SESSIONS_BYTES_MAX": 350, "SESSION_IDLE_MS_MIN": 2_000},
            faults=Faults(
                lost=0.05,
                late=0.05,
                duplicate=0.15,
                freeze=0.02,
                crash=0.01,
                clone=0.04,
                delay_seconds_max=300,
            ),
        ),
        Profile("upgrade", limits=TIGHT, faults=ROUGH, clients=Clients(upgrade=True)),
        Profile(
            "names",  # ids are freed while callers stand still; no request is late for as long
            limits=TIGHT | {"SESSION_IDLE_MS_MIN": 120_000, "SESSIONS_BYTES_MAX": 4_000},
            faults=Faults(
                error=0.005,
                refused=0.005,
                lost=0.01,
                late=0.005,
                duplicate=0.02,
                freeze=0.004,
                crash=0.003,
                clone=0.005,
                delay_seconds_max=50,
                freeze_seconds_max=900,
            ),
            clients=Clients(
                producers=1,
                bulk=0,
                workers=4,
                cancellers=0,
                reapers=2,
                callers=6,
                rounds=30,
                pause_seconds=4.0,
                reap_seconds=15.0,
            ),
            begin_seconds=2_700,
        ),
        Profile(
            "uniques",  # jobs take the places of others under few ids, in the head and in segments
            limits=TIGHT | {"SESSION_IDLE_MS_MIN": 120_000, "SESSIONS_BYTES_MAX": 4_000},
            faults=Faults(
                error=0.005,
                refused=0.005,
                lost=0.02,
                late=0.005,
                duplicate=0.02,
                freeze=0.01,
                crash=0.005,
                clone=0.005,
                delay_seconds_max=50,
                freeze_seconds_max=900,
            ),
            clients=Clients(
                producers=3,
                bulk=0,
                workers=2,
                cancellers=0,
                reapers=2,
                callers=8,
                names=5,
                uniques=0.8,
                rounds=30,
                pause_seconds=2.0,
                reap_seconds=15.0,
            ),
            begin_seconds=2_700,
        ),
        Profile(
            "roomy",
            limits={"EXPIRED_KNOWN_MS": 60_000},
            faults=ROUGH,
            clients=Clients(producers=8, workers=8, pause_seconds=0.5),
        ),
        Profile(
            "caps",  # more is announced than one commit takes, one listing tells and one deletion removes
            limits=TIGHT | CAPS,
            ordered=True,
            clients=Clients(producers=14, workers=14, bulk=0, pause_seconds=0.2, rounds=8),
        ),
        Profile(
            "pages",  # the same where everything fails, and large bodies and listings take long
            limits=TIGHT | CAPS,
            faults=replace(ROUGH, slow=0.01),
            clients=Clients(producers=10, workers=10, bulk=0, pause_seconds=0.3, rounds=12),
            latency=SLOW_BYTES,
        ),
        Profile(
            "clocks",  # machines stand still, are days early or late, are set right and wrong; reads take long
            limits=TIGHT | {"SESSION_IDLE_MS_MIN": 120_000, "SESSIONS_BYTES_MAX": 1_200},
            faults=Faults(
                lost=0.01,
                late=0.003,
                duplicate=0.01,
                crash=0.004,
                suspend=0.012,
                step=0.01,
                slow=0.03,
                delay_seconds_max=60,
            ),
            clients=Clients(skew_ms_max=5 * 24 * 3_600_000, store_ahead_ms=24 * 3_600_000, pause_seconds=4.0),
        ),
        Profile(
            "shared",  # callers share a Queue object, and leave; nothing else fails
            limits=TIGHT | {"SESSIONS_BYTES_MAX": 3_000},
            faults=Faults(leave=0.15),
            clients=replace(CREWS_ALONE, crews=4, threads=5),
            ordered=True,
        ),
        Profile(
            "large results",  # staged, and completed when the collector has been there
            limits=TIGHT,
            faults=ROUGH,
            clients=Clients(
                cancellers=0, operators=0, bulk=0, reapers=2, large_results=0.6, reap_seconds=3.0
            ),
        ),
        Profile(
            "forked",  # the processes fork wherever they are; nothing else fails
            limits=TIGHT | {"SESSIONS_BYTES_MAX": 6_000},
            faults=Faults(fork=0.01, leave=0.03),
            clients=replace(CREWS_ALONE, crews=2, threads=3),
            ordered=True,
        ),
        Profile(
            "crews",  # processes of several callers, and everything fails
            limits=TIGHT | {"SESSIONS_BYTES_MAX": 3_000},
            faults=Faults(
                error=0.01,
                refused=0.01,
                lost=0.015,
                late=0.01,
                duplicate=0.03,
                freeze=0.004,
                crash=0.003,
                clone=0.01,
                fork=0.003,
                leave=0.1,
                delay_seconds_max=300,
            ),
            clients=Clients(producers=1, workers=2, crews=3, threads=4, rounds=15, pause_seconds=0.5),
        ),
        Profile(
            "remote",  # callers over an API, whose calls are lost and repeated
            limits=TIGHT
            | {"SESSIONS_BYTES_MAX": 3_000, "SESSION_IDLE_MS_MIN": 120_000, "EXPIRED_KNOWN_MS": 600_000}
            | {"FINISHED_BYTES_MAX": 300},  # a completion is in a table when it is repeated
            faults=Faults(
                error=0.005,
                refused=0.005,
                lost=0.01,
                late=0.003,
                crash=0.002,
                relay=0.05,
                delay_seconds_max=50,
            ),
            clients=Clients(
                producers=1,
                bulk=0,
                workers=1,
                operators=0,
                cancellers=0,
                remotes=6,
                rounds=25,
                pause_seconds=1.5,
            ),
        ),
        Profile(
            "cancels",  # many jobs are cancelled in their segments, and moved to deletion vectors
            limits=TIGHT | {"TOMBSTONES_MAX": 12, "SETTLED_AT_ONCE": 1, "DELAYED_SPANS_SOFT": 3},
            faults=ROUGH,
            clients=Clients(producers=5, workers=3, cancellers=8, operators=5, bulk=2, pause_seconds=0.7),
        ),
        Profile(
            "limits",  # jobs have run-time limits and start deadlines, by themselves and by their kinds
            limits=TIGHT,
            faults=ROUGH,
            clients=Clients(producers=5, workers=5, operators=3, time_limits=0.6, pause_seconds=1.0),
        ),
        Profile(
            "schedules",  # jobs are made at ticks by whoever commits, while their schedules come, change and go
            limits=TIGHT | {"TICK_LATE_MS": 4_000, "TICKS_MADE_MAX": 5, "SCHEDULE_INLINE_BYTES_MAX": 20},
            faults=ROUGH,
            clients=Clients(producers=2, workers=4, schedulers=2, rounds=40, pause_seconds=3.0),
        ),
        Profile(
            "groups",  # jobs of few groups, which fail, stall, are put off and cancelled
            limits=TIGHT | {"LANES_MAX": 2, "LABELS_BYTES_MAX": 120, "LABELS_OF_A_SPAN_BYTES_MAX": 42},
            faults=ROUGH,
            clients=Clients(
                kinds=3,
                groups=5,
                producers=6,
                workers=5,
                bulk=2,
                operators=2,
                cancellers=3,
                pause_seconds=0.7,
            ),
        ),
        Profile(
            "kinds",  # more of them than lanes: they are mixed, and labels are few
            limits=TIGHT | {"LANES_MAX": 1, "LABELS_BYTES_MAX": 60, "LABELS_OF_A_SPAN_BYTES_MAX": 18},
            faults=ROUGH,
            clients=Clients(
                kinds=9,
                producers=6,
                workers=4,
                bulk=2,
                operators=3,
                cancellers=3,
                time_limits=0.1,
                pause_seconds=0.7,
            ),
        ),
        Profile(
            "events",  # some listen, leave and come back; what is recorded leaves the head, is collected, and lapses
            limits=TIGHT | {"EVENTS_BYTES_MAX": 600, "EVENTS_KEPT_MS": 24_000},
            faults=ROUGH,
            clients=Clients(listeners=3, rounds=20, pause_seconds=1.0),
        ),
        Profile(  # a folder whose processes take turns
            "turns",
            limits=TIGHT,
            latency=FOLDER,
            turns=True,
            ordered=True,
            clients=Clients(producers=8, workers=8, pause_seconds=0.4),
        ),
        Profile(
            "turns lost",  # the same, and everything fails
            limits=TIGHT | {"SESSIONS_BYTES_MAX": 3_000},
            latency=FOLDER,
            turns=True,
            faults=replace(ROUGH, turn=0.03, note=0.05, leave=0.05, delay_seconds_max=60.0),
            clients=Clients(producers=6, crews=2, threads=3, rounds=15, pause_seconds=0.3),
        ),
        Profile(
            "election",  # candidates on machines whose clocks run at different speeds
            faults=Faults(
                error=0.02,
                refused=0.02,
                lost=0.04,
                late=0.03,
                duplicate=0.02,
                freeze=0.02,
                crash=0.004,
                delay_seconds_max=60,
                timeout_seconds=1.0,
            ),
            clients=Clients(candidates=5, drift_max=0.045),
        ),
        Profile(
            "pacer",  # callers who take slots, on machines that stand still, whose clocks are wrong and are set
            faults=Faults(
                error=0.01,
                refused=0.01,
                lost=0.02,
                late=0.01,
                duplicate=0.03,
                freeze=0.01,
                crash=0.003,
                suspend=0.003,
                step=0.003,
                delay_seconds_max=120,
                suspend_seconds_max=300,
                stops_wall=0.0,
            ),
            clients=Clients(paced=8),
        ),
        Profile(
            "repairs",  # heads are lost and restored, clocks go wrong, jobs are purged
            limits=TIGHT,
            faults=Faults(
                error=0.005,
                refused=0.005,
                lost=0.01,
                freeze=0.004,
                crash=0.002,
                clone=0.003,
                delay_seconds_max=120,
            ),
            clients=Clients(producers=3, workers=4, bulk=1, surgeons=1, rounds=25),
        ),
        Profile(
            "payloads",  # the archive gets payloads and results, in small parts
            limits=TIGHT | {"ARCHIVE_PART_BYTES": 300},
            faults=ROUGH,
            clients=Clients(reapers=2, large_results=0.3, reap_seconds=4.0, archive_payloads=True),
        ),
    )
}
PROFILES["payloads purged"] = replace(  # heads lost and jobs purged, while the archive gets payloads
    PROFILES["repairs"],
    name="payloads purged",
    limits=TIGHT | {"ARCHIVE_PART_BYTES": 300},
    clients=replace(PROFILES["repairs"].clients, archive_payloads=True),
)
PROFILES["schedules mended"] = (
    replace(  # heads lost and restored, clocks set and jobs purged, while schedules tick
        PROFILES["repairs"],
        name="schedules mended",
        limits=PROFILES["schedules"].limits,
        clients=replace(PROFILES["repairs"].clients, schedulers=2),
    )
)
