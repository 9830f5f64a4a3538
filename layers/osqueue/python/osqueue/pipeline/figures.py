"""What a queue did, hour by hour or day by day: pure, from the tables of history to those of metrics.

A figure belongs to the hour in which the event happened that it is about: a wait to the hour of the claim that ended
it, a run time to the hour in which the lease ended. Percentiles are exact, over every value of the hour or day, with
linear interpolation between the two nearest ranks. Depth is reconstructed from the timelines: a job waits from the
moment it can be claimed until its end, except while somebody holds a lease of it. A redriven job waits from its first
remembered claim on: when it was redriven is not known. Leases that a job has forgotten count as waiting.

Every query runs on Spark and on DuckDB (``engines``). Moments are milliseconds since 1970 here, because arithmetic of
whole numbers is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec import Struct

from ..core.archive_record import AttemptRecord
from ..core.fingerprint import error_of, fingerprint, normalised
from ..core.state import CANCELLED, COMPLETED, FAILED, RELEASED, STALLED
from .engines.base import Engine, Relation

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
# What an event may be, besides the states in which jobs end.
_ENQUEUED, _WAITS, _STARTED = "enqueued", "waits", "started"
_CLAIMED, _HELD, _RAN, _RETRIED, _ENDED = "claimed", "held", "ran", "retried", "ended"
_COUNTED = (_ENQUEUED, _CLAIMED, COMPLETED, FAILED, CANCELLED, _RETRIED, STALLED, RELEASED)
_OUTCOMES = (COMPLETED, FAILED, STALLED, RELEASED, CANCELLED)
RANKS = (50, 95, 99)
MESSAGES = 10_000  # whose fingerprints a worker remembers: most errors are one of a few


class FigureWindow(Struct, frozen=True):
    """The whole hours that figures are about."""

    since_ms: int  # the first one begins
    until_ms: int  # the last one ends

    @property
    def before_ms(self) -> int:
        """The last moment that is too early."""
        return self.since_ms - 1

    def has(self, at_ms: str) -> str:
        """The condition that a moment lies in it."""
        return f"{at_ms} >= {self.since_ms} AND {at_ms} < {self.until_ms}"


def floor(ms: str, step_ms: int) -> str:
    """The beginning of the step that a moment lies in."""
    return f"{ms} - {ms} % {step_ms}"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns)


def events(engine: Engine, jobs: Relation, attempts: Relation) -> Relation:
    """All that happened, whenever: by how much jobs waiting and running change, and what there is to add up."""
    no_value = "cast(NULL AS bigint) AS value, cast(NULL AS int) AS used"
    nobody = "cast(NULL AS string) AS worker"
    nothing = f"{no_value}, {nobody}"
    return engine.sql(f"""
        WITH arrived AS (  -- a job arrives once, however many records it has
          SELECT queue, min(unix_millis(enqueued_at)) AS at_ms FROM {jobs} GROUP BY queue, job_id
        ), timed AS (
          SELECT queue, state, wait_ms, total_ms, attempt,
                 unix_millis(started_at) AS started_ms, unix_millis(finished_at) AS finished_ms,
                 CASE WHEN total_ms IS NOT NULL THEN unix_millis(claimable_at) END AS known_ms,
                 get(attempts, 0).started_ms AS held_ms
          FROM {jobs}
        ), leases AS (
          SELECT queue, worker, outcome, final, run_ms,
                 unix_millis(started_at) AS started_ms, unix_millis(ended_at) AS ended_ms
          FROM {attempts}
        ), happened AS (
          SELECT queue, at_ms, '{_ENQUEUED}' AS what, 0 AS waiting, 0 AS running, {nothing} FROM arrived
          UNION ALL
          SELECT queue, least(coalesce(known_ms, held_ms, finished_ms), finished_ms), '{_WAITS}', 1, 0, {nothing}
          FROM timed
          UNION ALL
          SELECT queue, started_ms, '{_STARTED}', 0, 0, wait_ms, NULL, {nobody}
          FROM timed WHERE wait_ms IS NOT NULL
          UNION ALL
          SELECT queue, finished_ms, state, -1, 0, total_ms,
                 CASE WHEN state IN ('{COMPLETED}', '{FAILED}') THEN attempt END, {nobody}
          FROM timed
          UNION ALL
          SELECT queue, started_ms, '{_CLAIMED}', -1, 1, {nothing} FROM leases
          UNION ALL
          SELECT queue, ended_ms,
                 CASE WHEN outcome = '{COMPLETED}' THEN '{_RAN}'
                      WHEN outcome = '{FAILED}' AND NOT final THEN '{_RETRIED}'
                      WHEN outcome IN ('{STALLED}', '{RELEASED}') THEN outcome
                      ELSE '{_ENDED}' END,
                 1, -1, run_ms, NULL, {nobody}
          FROM leases
          UNION ALL  -- an event for each hour that the lease touches
          SELECT queue,
                 explode(sequence({floor("started_ms", HOUR_MS)},
                                  {floor("greatest(started_ms, ended_ms - 1)", HOUR_MS)},
                                  {HOUR_MS})),
                 '{_HELD}', 0, 0, {no_value}, worker
          FROM leases
        )
        SELECT * FROM happened WHERE at_ms IS NOT NULL""")


def depths(engine: Engine, events: Relation, over: FigureWindow) -> Relation:
    """How many jobs wait and run, for each queue in every hour in which something happens, waits or runs."""
    # Something else tells of the hours of what is left out.
    changes = f"""
        SELECT queue, at_ms, waiting, running FROM {events} WHERE what NOT IN ('{_STARTED}', '{_HELD}')"""
    return levels(engine, engine.sql(changes), over, ("waiting", "running"), ("queue",))


def summed(
    engine: Engine,
    events: Relation,
    depths: Relation,
    over: FigureWindow,
    target_ms: int,
    step_ms: int = HOUR_MS,
) -> Relation:
    """Rows of ``metrics_hourly`` or ``metrics_daily``.

    First those of one kind together, and then the few rows of an hour or day: most figures are about one kind.
    """
    ranks = _listed(
        [f"percentile_cont({rank / 100}) WITHIN GROUP (ORDER BY value) AS p{rank}" for rank in RANKS]
    )
    return engine.sql(f"""
        WITH kinds AS (
          SELECT queue, {floor("at_ms", step_ms)} AS start_ms, what,
                 count(*) AS number, {ranks}, max(value) AS longest,
                 count(CASE WHEN value <= {target_ms} THEN 1 END) AS in_time,
                 sum(used) AS used, count(used) AS users, max(used) AS most_used,
                 count(DISTINCT worker) AS workers
          FROM {events} WHERE {over.has("at_ms")}
          GROUP BY queue, {floor("at_ms", step_ms)}, what
        ), figures AS (
          SELECT queue, start_ms,
                 {_listed([f"{_of(each, 'number')} AS {each}" for each in _COUNTED])},
                 {_summary("wait", _STARTED)}, {_summary("run", _RAN)}, {_summary("total", COMPLETED)},
                 sum(used) / nullif(sum(users), 0) AS attempts_mean, max(most_used) AS attempts_max,
                 {_of(_HELD, "workers")} AS workers,
                 {_of(_STARTED, "in_time")} AS on_target, {_of(_STARTED, "number")} AS started
          FROM kinds GROUP BY queue, start_ms
        ), steps AS (
          SELECT queue, {floor("start_ms", step_ms)} AS step_ms, {_depth("depth", "waiting", step_ms)},
                 {_depth("running", "running", step_ms)}
          FROM {depths} GROUP BY queue, {floor("start_ms", step_ms)}
        )
        SELECT steps.queue, timestamp_millis(step_ms) AS start,
               cast(timestamp_millis(step_ms) AS date) AS date,
               {_listed([f"coalesce({each}, 0) AS {each}" for each in _COUNTED])},
               coalesce({_ENQUEUED}, 0) - coalesce({COMPLETED}, 0) - coalesce({FAILED}, 0)
                 - coalesce({CANCELLED}, 0) AS growth,
               {_listed([each for name in ("wait", "run", "total") for each in _names(name)])},
               attempts_mean, attempts_max,
               depth_mean, depth_max, depth_end, running_mean, running_max, running_end,
               coalesce(workers, 0) AS workers, {target_ms} AS target_ms,
               coalesce(on_target, 0) AS on_target, on_target / nullif(started, 0) AS on_target_share
        FROM steps LEFT JOIN figures ON steps.queue = figures.queue AND step_ms = start_ms""")


def _of(what: str, name: str) -> str:
    """A figure of one kind of events; null where there are none."""
    return f"max(CASE WHEN what = '{what}' THEN {name} END)"


def _names(name: str) -> list[str]:
    return [*(f"{name}_p{rank}_ms" for rank in RANKS), f"{name}_max_ms"]


def _summary(name: str, what: str) -> str:
    """p50, p95 and p99, exact, and the longest."""
    of = (*(f"p{rank}" for rank in RANKS), "longest")
    return _listed([f"{_of(what, each)} AS {named}" for each, named in zip(of, _names(name), strict=True)])


def _depth(figure: str, name: str, step_ms: int) -> str:
    """The mean over time, the most at one moment, and what it was at the end."""
    return (
        f"sum({name}_ms) / {step_ms} AS {figure}_mean, max({name}_max) AS {figure}_max,"
        f" max_by({name}_end, start_ms) AS {figure}_end"
    )


# ── Levels ───────────────────────────────────────────────────────────────────
def levels(
    engine: Engine, events: Relation, over: FigureWindow, names: Sequence[str], by: Sequence[str]
) -> Relation:
    """What some quantities were over time, from the changes of them: of each hour with a change or with something left.

    Of each: what it was at the end, the most at one moment, the milliseconds summed over all that it counts, and those
    in which it was not zero. Changes at one moment are one change. Hours are independent of each other: how one begins
    follows from the sums of those before.
    """
    own, all_names = _listed(by), _listed(names)
    held = f"least(greatest(at_ms, {over.before_ms}), {over.until_ms})"
    return engine.sql(f"""
        WITH hours AS (
          SELECT {own}, {floor(held, HOUR_MS)} AS start_ms, {_listed([f"sum({name}) AS {name}" for name in names])}
          FROM {events} GROUP BY {own}, {floor(held, HOUR_MS)}
        ), reached AS (
          SELECT {own}, start_ms, lead(start_ms) OVER in_order AS next_ms,
                 {_listed([f"sum({name}) OVER in_order AS {name}" for name in names])}
          FROM hours WINDOW in_order AS (PARTITION BY {own} ORDER BY start_ms)
        ), changes AS (  -- what is zero is not carried on: years in which nothing is left have no rows
          SELECT {own}, at_ms, {all_names} FROM {events}
          UNION ALL
          SELECT {own}, explode(sequence(start_ms + {HOUR_MS}, next_ms, {HOUR_MS})), {all_names} FROM reached
          WHERE {" OR ".join(f"{name} <> 0" for name in names)}
        ), inside AS (
          SELECT {own}, {floor("at_ms", HOUR_MS)} AS start_ms, at_ms, {all_names}
          FROM changes WHERE {over.has("at_ms")}
        ), timed AS (  -- the sums are those of all at one moment
          SELECT {own}, start_ms, at_ms,
                 coalesce(lead(at_ms) OVER moments, start_ms + {HOUR_MS}) - at_ms AS ms,
                 {_listed([f"sum({name}) OVER moments AS {name}" for name in names])}
          FROM inside WINDOW moments AS (PARTITION BY {own}, start_ms ORDER BY at_ms)
        )
        SELECT {own}, start_ms, {_listed([_level(name) for name in names])}
        FROM timed GROUP BY {own}, start_ms""")


def _level(name: str) -> str:
    return (
        f"max_by({name}, at_ms) AS {name}_end, max({name}) AS {name}_max, sum({name} * ms) AS {name}_ms,"
        f" sum(CASE WHEN {name} > 0 THEN ms ELSE 0 END) AS {name}_busy_ms"
    )


# ── Workers and errors ───────────────────────────────────────────────────────
def workers(engine: Engine, attempts: Relation, over: FigureWindow) -> Relation:
    """Rows of ``metrics_workers``: the hours in which a worker held a lease."""
    by = ("queue", "worker")
    events = engine.sql(f"""
        SELECT queue, worker, unix_millis(started_at) AS at_ms, '{_CLAIMED}' AS what, 1 AS held FROM {attempts}
        UNION ALL
        SELECT queue, worker, unix_millis(ended_at), outcome, -1 FROM {attempts}""")
    counted = (_CLAIMED, *_OUTCOMES)
    return engine.sql(f"""
        WITH told AS (
          SELECT queue, worker, {floor("at_ms", HOUR_MS)} AS start_ms,
                 {_listed([f"count_if(what = '{each}') AS {each}" for each in counted])}
          FROM {events} WHERE {over.has("at_ms")} GROUP BY queue, worker, {floor("at_ms", HOUR_MS)}
        )
        SELECT loads.queue, loads.worker, timestamp_millis(loads.start_ms) AS start,
               cast(timestamp_millis(loads.start_ms) AS date) AS date,
               {_listed([f"coalesce({each}, 0) AS {each}" for each in counted])},
               held_ms, held_ms / {HOUR_MS} AS held_mean, held_max, held_busy_ms / {HOUR_MS} AS utilisation
        FROM {levels(engine, events, over, ("held",), by)} AS loads
        LEFT JOIN told ON loads.queue = told.queue AND loads.worker = told.worker AND loads.start_ms = told.start_ms
        WHERE greatest(held_ms, {_listed(counted)}) > 0""")


def errors(engine: Engine, attempts: Relation, over: FigureWindow) -> Relation:
    """Rows of ``metrics_errors``: which errors ended leases, by the library's own fingerprint."""
    functions: tuple[Callable[..., str], ...] = (error_kind, error_text, error_pattern, error_mark)
    for each in functions:
        engine.define(each.__name__, each, 3)
    of = "(outcome, error_type, error)"
    return engine.sql(f"""
        WITH found AS (
          SELECT queue, job_id, final, ended_at, {floor("unix_millis(ended_at)", HOUR_MS)} AS start_ms,
                 error_mark{of} AS fingerprint, error_kind{of} AS kind, error_pattern{of} AS pattern,
                 error_text{of} AS text
          FROM {attempts}
          WHERE outcome IN ('{FAILED}', '{STALLED}') AND {over.has("unix_millis(ended_at)")}
        )
        SELECT queue, timestamp_millis(start_ms) AS start, cast(timestamp_millis(start_ms) AS date) AS date,
               fingerprint, min(kind) AS error_type, min(pattern) AS error, min(text) AS example,
               count(*) AS attempts, count(DISTINCT job_id) AS jobs, count_if(final) AS deaths,
               min(ended_at) AS first_at, max(ended_at) AS last_at
        FROM found GROUP BY queue, start_ms, fingerprint""")


@lru_cache(MESSAGES)
def _error(outcome: str, error_type: str, error: str) -> tuple[str, str]:
    """An error's type and message."""
    return error_of(AttemptRecord(0, "", 0, 0, outcome, error, error_type))


def error_kind(outcome: str, error_type: str, error: str) -> str:
    """An error's type."""
    return _error(outcome, error_type, error)[0]


def error_text(outcome: str, error_type: str, error: str) -> str:
    """Its message."""
    return _error(outcome, error_type, error)[1]


@lru_cache(MESSAGES)
def error_pattern(outcome: str, error_type: str, error: str) -> str:
    """The message without what differs."""
    return normalised(error_text(outcome, error_type, error))


@lru_cache(MESSAGES)
def error_mark(outcome: str, error_type: str, error: str) -> str:
    """The fingerprint."""
    return fingerprint(*_error(outcome, error_type, error))
