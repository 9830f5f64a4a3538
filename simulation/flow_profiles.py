"""The kinds of runs in which jobs wait for limits, rates, groups, schedules and one another."""

from __future__ import annotations

from .conditions import ROUGH, TIGHT, Clients, Profile

FLOW_CONTROL = (
    Profile(
        "limits",  # jobs have run-time limits and start deadlines, by themselves and by their kinds
        limits=TIGHT,
        faults=ROUGH,
        clients=Clients(producers=5, workers=5, operators=3, time_limits=0.6, pause_seconds=1.0),
    ),
    Profile(
        "throttles",  # workers are told to come later, and tell the others
        limits=TIGHT,
        faults=ROUGH,
        clients=Clients(workers=6, operators=2, time_limits=0.1, throttles=0.5, pause_seconds=0.5),
    ),
    Profile(
        "schedules",  # jobs are made at ticks by whoever commits, while their schedules come, change and go
        limits=TIGHT | {"TICK_LATE_MS": 4_000, "TICKS_MADE_MAX": 5, "SCHEDULE_INLINE_BYTES_MAX": 20},
        faults=ROUGH,
        clients=Clients(producers=2, workers=4, schedulers=2, rounds=40, pause_seconds=3.0),
    ),
    Profile(
        "groups",  # jobs of few groups, which fail, stall, are put off and cancelled
        limits=TIGHT
        | {"LANES_MAX": 2, "LABELS_BYTES_MAX": 120, "LABELS_OF_A_SPAN_BYTES_MAX": 42}
        | {"GROUP_DEBTS_MAX": 3, "GROUP_SETTINGS_MAX": 2},
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
        "units",  # jobs count as several starts of the rates of the queue and of their kind
        limits=TIGHT,
        faults=ROUGH,
        clients=Clients(units=0.5, time_limits=0.05, producers=6, workers=5, bulk=1, pause_seconds=0.7),
    ),
    Profile(
        "units of groups",  # and of their group
        limits=TIGHT | {"GROUP_SETTINGS_MAX": 2},
        faults=ROUGH,
        clients=Clients(units=0.5, groups=2, producers=6, workers=5, bulk=1, operators=3, pause_seconds=0.7),
    ),
    Profile(
        "fair",  # groups share alike, few or many of them, and more than are remembered to have had a turn
        limits=TIGHT
        | {"LANES_MAX": 2, "LABELS_BYTES_MAX": 300, "LABELS_OF_A_SPAN_BYTES_MAX": 140}
        | {"LEASES_BYTES_MAX": 6_000, "GROUPS_SERVED_MAX": 2},
        faults=ROUGH,
        clients=Clients(groups=6, fair=True, producers=6, workers=5, bulk=2, operators=4, pause_seconds=0.7),
    ),
    Profile(
        "groups in turn",  # groups share alike, and the head remembers the turns of all of them
        limits=TIGHT
        | {"LANES_MAX": 2, "LABELS_BYTES_MAX": 300, "LABELS_OF_A_SPAN_BYTES_MAX": 140}
        | {"LEASES_BYTES_MAX": 6_000},
        faults=ROUGH,
        clients=Clients(
            groups=6, fair=True, producers=6, workers=5, bulk=1, operators=5, rounds=20, pause_seconds=0.7
        ),
    ),
    Profile(
        "groups held",  # operators change what groups wait for, and let them wait themselves
        limits=TIGHT | {"LANES_MAX": 3, "LABELS_OF_A_SPAN_BYTES_MAX": 140},
        faults=ROUGH,
        clients=Clients(
            groups=4,
            policies=True,
            producers=4,
            workers=5,
            operators=4,
            cancellers=2,
            bulk=1,
            rounds=18,
            pause_seconds=0.7,
        ),
    ),
    Profile(
        "follows",  # jobs follow others, and whole batches, while workers die, redrive and cancel
        limits=TIGHT | {"BATCHES_BYTES_MAX": 700, "BATCH_KEPT_MS": 60_000},
        faults=ROUGH,
        clients=Clients(
            follows=0.5, producers=5, workers=5, bulk=1, operators=2, cancellers=2, pause_seconds=0.8
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
        "all shards",  # a queue grows to three, while an operator changes the limits that hold for all of them
        limits=TIGHT | {"SESSIONS_BYTES_MAX": 4_000},
        faults=ROUGH,
        clients=Clients(
            shards=3,
            steered=True,
            producers=3,
            workers=3,
            bulk=0,
            operators=0,
            rounds=12,
            pause_seconds=0.5,
        ),
    ),
)
