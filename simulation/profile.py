"""How bad it gets in a run: the kinds of runs there are, by name."""

from __future__ import annotations

from msgspec.structs import replace

from .conditions import FOLDER, GCS, PUBLISHING, ROUGH, SLOW_BYTES, TIGHT, Clients, Faults, Profile
from .flow_profiles import FLOW_CONTROL
from .life_profiles import life_profiles

CAPS = {
    "INTENTS_PER_COMMIT_MAX": 6,
    "INTENT_BYTES_PER_COMMIT_MAX": 1_500,
    "LIST_KEYS_MAX": 5,
    "LISTS_PER_LOOK_MAX": 4,
    "SETTLED_PER_DELETE_MAX": 4,
    "SESSIONS_BYTES_MAX": 4_000,
}

CREWS_ALONE = Clients(  # processes of several callers, and hardly anybody else
    producers=1,
    workers=1,
    cancellers=0,
    operators=0,
    bulk=0,
    rounds=12,
    pause_seconds=0.3,
)

BORROWERS_FAIL = Faults(
    error=0.01,
    refused=0.01,
    lost=0.02,
    late=0.01,
    duplicate=0.03,
    freeze=0.01,
    crash=0.003,
    suspend=0.002,
    step=0.002,
    delay_seconds_max=60,
    freeze_seconds_max=20,
    suspend_seconds_max=60,
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
            faults=replace(ROUGH, clone=0.003, delay_seconds_max=150, freeze_seconds_max=300),
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
        Profile(
            "gaps",  # the store takes a write a second of each object, and refuses the others
            limits=TIGHT,
            faults=replace(ROUGH, suspend=0.001, step=0.002),
            latency=GCS,
            clients=Clients(producers=3, workers=4, rounds=20),
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
            limits=TIGHT
            | {
                "TOMBSTONES_MAX": 12,
                "SETTLED_AT_ONCE": 1,
                "DELAYED_SPANS_SOFT": 3,
                "DELAYED_SPANS_CROWDED": 3,
            },
            faults=ROUGH,
            clients=Clients(producers=5, workers=3, cancellers=8, operators=5, bulk=2, pause_seconds=0.7),
        ),
        Profile(
            "mass cancels",  # operators cancel many at once, of lanes, mixed ones and delayed jobs; few in a commit
            limits=TIGHT
            | {"LANES_MAX": 3, "LABELS_OF_A_SPAN_BYTES_MAX": 42, "READ_AHEAD_BYTES_MAX": 1_000}
            | {
                "DROPPED_PER_COMMIT_MAX": 10,
                "DROP_RULES_MAX": 5,
                "DELAYED_SPANS_SOFT": 3,
                "DELAYED_SPANS_CROWDED": 3,
            },
            faults=ROUGH,
            clients=Clients(
                kinds=4,
                groups=3,
                producers=8,
                workers=3,
                bulk=3,
                operators=3,
                cancellers=3,
                reapers=2,
                mass_cancellers=2,
                pause_seconds=0.7,
            ),
        ),
        Profile(
            "merges",  # clients merge delayed segments that workers, cancels and rules change meanwhile
            limits=TIGHT
            | {"LANES_MAX": 3, "DROPPED_PER_COMMIT_MAX": 10, "DROP_RULES_MAX": 5}
            | {"DELAYED_SPANS_SOFT": 6, "DELAYED_SPANS_CROWDED": 9, "DELAYED_BYTES_MAX": 300},
            faults=ROUGH,
            clients=Clients(
                producers=6,
                workers=3,
                bulk=4,
                operators=3,
                cancellers=4,
                reapers=2,
                mass_cancellers=2,
                mergers=3,
                pause_seconds=0.7,
            ),
        ),
        *FLOW_CONTROL,
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
        Profile("many queues", clients=Clients(resting=8)),
        Profile(
            "many queues fail",  # notices of ends of rests are lost, late and repeated
            faults=Faults(
                error=0.01,
                refused=0.01,
                lost=0.02,
                late=0.01,
                duplicate=0.03,
                crash=0.001,
                delay_seconds_max=60,
            ),
            clients=Clients(resting=8),
        ),
        Profile(
            "lending",  # who claim from three shards under one limiter, which is paused and reset
            faults=BORROWERS_FAIL,
            clients=Clients(borrowers=6, shards=3),
        ),
        Profile(
            "lending units",  # the same, and jobs use several slots
            faults=BORROWERS_FAIL,
            clients=Clients(borrowers=6, shards=3, units=1.0),
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
PROFILES["two stores"] = (
    replace(  # the same, with the archive and backups in a store whose clock is hours off
        PROFILES["payloads purged"],
        name="two stores",
        clients=replace(PROFILES["payloads purged"].clients, archive_off_ms=5 * 3_600_000),
    )
)
PROFILES["schedules mended"] = replace(  # heads lost and restored, clocks set, while schedules tick
    PROFILES["repairs"],
    name="schedules mended",
    limits=PROFILES["schedules"].limits,
    clients=replace(PROFILES["repairs"].clients, schedulers=2),
)
PROFILES["batch cancels"] = replace(  # whole batches are cancelled, wherever their jobs lie
    PROFILES["mass cancels"],
    name="batch cancels",
    limits=PROFILES["mass cancels"].limits | {"BATCHES_BYTES_MAX": 1_400, "BATCH_KEPT_MS": 60_000},
    clients=replace(PROFILES["mass cancels"].clients, groups=0, follows=0.5),
)
PROFILES["cancels mended"] = replace(  # heads lost and restored, while batches end and are cancelled
    PROFILES["repairs"],
    name="cancels mended",
    limits=TIGHT | {"BATCHES_BYTES_MAX": 1_400, "DROPPED_PER_COMMIT_MAX": 10, "DROP_RULES_MAX": 5},
    clients=replace(PROFILES["repairs"].clients, follows=0.7, mass_cancellers=1),
)
PROFILES["restarts"] = replace(  # jobs restart few ids, while those that run under them fail and stall
    PROFILES["uniques"],
    name="restarts",
    clients=replace(PROFILES["uniques"].clients, uniques=0.0, restarts=0.8, names=3, workers=4, cancellers=1),
)
PROFILES["consumers"] = Profile(  # functions are invoked when jobs wait
    "consumers",
    limits=TIGHT,
    faults=replace(ROUGH, delay_seconds_max=120.0, freeze_seconds_max=40.0),
    clients=Clients(workers=1, attachers=1, rounds=20),
)
PROFILES["schedules run"] = replace(  # operators run schedules by hand, and one commit gets that twice
    PROFILES["schedules"],
    name="schedules run",
    clients=replace(PROFILES["schedules"].clients, rounds=8, reruns=0.6),
)
PROFILES["two limiters"] = (
    replace(  # an operator lets the shards change from one limiter to the other and back
        PROFILES["lending"],
        name="two limiters",
        clients=replace(PROFILES["lending"].clients, limiters=2),
    )
)
PROFILES.update({profile.name: profile for profile in life_profiles(PROFILES)})
PROFILES["refusals"] = (
    Profile(  # the store refuses everything for a while; clients have no credentials for a while
        "refusals",
        limits=TIGHT,
        faults=Faults(
            error=0.005, lost=0.01, crash=0.002, refusal=0.0015, expired=0.004, delay_seconds_max=120.0
        ),
        clients=Clients(rounds=20, pause_seconds=1.0),
    )
)
PROFILES["throttled"] = Profile(  # the store fails all but small requests for a while
    "throttled",
    limits=TIGHT,
    faults=Faults(error=0.005, lost=0.01, crash=0.002, throttling=0.005, delay_seconds_max=120.0),
    clients=Clients(cancellers=0, operators=0, bulk=0, reapers=2, large_results=0.6, reap_seconds=3.0),
)

_PAIR = Clients(producers=1, workers=1, cancellers=0, operators=0, bulk=0, pause_seconds=0.2, rounds=120)
PROFILES |= {
    profile.name: profile
    for profile in (  # few writers, which publish where they collide
        Profile("two writers", limits=TIGHT | PUBLISHING, faults=ROUGH, clients=_PAIR),
        Profile("three writers", limits=TIGHT | PUBLISHING, faults=ROUGH, clients=replace(_PAIR, workers=2)),
        Profile(
            "eight writers",
            limits=TIGHT | PUBLISHING,
            faults=ROUGH,
            clients=replace(_PAIR, producers=4, workers=4, rounds=40),
        ),
        Profile(  # nothing fails, and calls follow each other closely
            "few calm",
            limits=TIGHT | PUBLISHING,
            ordered=True,
            clients=replace(_PAIR, producers=4, workers=4, pause_seconds=0.05, rounds=60),
        ),
        Profile(  # they become many, and few again, all the time
            "few and many", limits=TIGHT | PUBLISHING | {"FEW_WRITERS_MAX": 4}, faults=ROUGH
        ),
        Profile(  # refused now and then, and nothing else fails
            "few refused",
            limits=TIGHT | PUBLISHING,
            faults=Faults(error=0.01, lost=0.02, expired=0.004, refusal=0.001, delay_seconds_max=60.0),
            clients=replace(_PAIR, producers=3, workers=3, rounds=40),
        ),
    )
}
