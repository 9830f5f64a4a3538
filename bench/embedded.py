"""A queue in a folder against queues on SQLite, and how soon it wakes whoever waits (``--part`` picks parts).

The parts: ``one-job``, ``slow-disk``, ``batch``, ``raw``, ``wake``, ``threads``.

What one would take instead on a single machine: litequeue, huey's SQLite storage used as a plain queue, and
persist-queue's SQLiteAckQueue. All of them, and ours, do the same: processes enqueue a job, claim one and complete it,
each call a transaction of its own, on one folder of the same disk (``TMPDIR`` names another). A step counts when its
call returned before the time was up; three steps are a job.

All three open SQLite with ``journal_mode = WAL`` by themselves, which is SQLite's best for several processes: a commit
appends to the log and flushes one file. Nothing of it is changed, nor litequeue's cache of 256 MB. Flushed means
``synchronous = FULL``, which flushes the log at each commit: what our answers promise by default. (NORMAL, which
litequeue sets by itself, flushes at checkpoints alone: a power cut takes what was answered.) Not flushed means
``synchronous = OFF`` there and ``?fsync=off`` here. Each waits up to a minute for SQLite's lock, so that no call fails.

Sides take turns in short rounds, and begin in the other order every second time. A ratio is the median of the rounds'
ratios, so that what else the machine does meets both.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from bench import ours, peer
from bench.crew import BenchCrew
from bench.embedded_wake import wake
from bench.fleet import Answer, run_one
from bench.row import BenchOptions, Figure, at_least, exactly, ratio
from bench.slow_disk import environment as slower

OURS = "osqueue"
BATCH = 100  # jobs a call of the part of that name
BATCHED = f"osqueue, {BATCH} a call"
PEERS = ("litequeue", "huey", "persist-queue")
CROWDS = (1, 4, 16)  # processes
STEPS = 3  # of a job: enqueued, claimed, completed
OVER_PEER = {  # goals over litequeue: processes, flushed
    (1, True): 1.5,
    (4, True): 3.0,
    (16, True): 3.0,
    (1, False): 1.0,
    (4, False): 1.0,
    (16, False): 1.0,
}
OVER_ONE = 4.0  # 16 processes of ours over one, flushed
OVER_SINGLE = 20.0  # 100 jobs a call over litequeue's single ones, 16 processes, flushed
OVER_SLOW = {
    1: 1.0,
    4: 3.0,
    16: 3.0,
}  # processes: the same, flushed, where a flush takes SLOW_FLUSH_MS longer
SLOW_FLUSH_MS = 4  # of the disk on which the goals were set
OVER_RAW = 0.6  # one writer's flushed commits over flushed writes in place
CALLERS = 8  # in one process
ROUND_SHARE = 1 / 12  # of BenchOptions.seconds: there are many rounds, and none of them starts processes
RAW_ROUNDS = 3  # for each round of the other parts, as long as half of one


class RoundTally(Struct, frozen=True):
    """What the processes of one side did in one round."""

    rate: float  # jobs a second
    twice: int  # claims of a job that another one of the round had claimed
    longest_s: float  # the slowest job


def run(options: BenchOptions) -> Iterator[Figure]:
    if unknown := [part for part in options.parts if part not in PARTS]:
        raise ValueError(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    with ExitStack() as stack:
        crews = BenchCrews(stack)
        for part in options.parts or PARTS:
            yield from PARTS[part](options, crews)


class BenchCrews:
    """The processes of both sides, started when first asked for and kept until the end."""

    def __init__(self, stack: ExitStack, environment: Mapping[str, str] | None = None) -> None:
        self.stack = stack
        self.environment = environment
        self.started: dict[bool, BenchCrew] = {}

    def of(self, side: str) -> BenchCrew:
        theirs = side in PEERS
        if theirs not in self.started:
            if theirs:
                peer.ensure()
            crew = BenchCrew(peer.embedded() if theirs else ours.embedded(), max(CROWDS), self.environment)
            self.started[theirs] = self.stack.enter_context(crew)
        return self.started[theirs]


# ── Jobs a second ────────────────────────────────────────────────────────────
class Setting(Struct, frozen=True):
    """One comparison: who does the same at the same time."""

    processes: int
    flushed: bool

    @property
    def name(self) -> str:
        crowd = "1 process" if self.processes == 1 else f"{self.processes} processes"
        return f"{crowd}, {'flushed' if self.flushed else 'not flushed'}"


Rounds = dict[Setting, dict[str, list[RoundTally]]]


def one_job(options: BenchOptions, crews: BenchCrews) -> Iterator[Figure]:
    """One job a call."""
    settings = [Setting(processes, flushed) for flushed in (True, False) for processes in CROWDS]
    rounds = compare(crews, settings, (OURS, *PEERS), options, seconds(options))
    for setting in settings:
        sides = rounds[setting]
        yield from rates(setting, sides)
        goal = OVER_PEER[setting.processes, setting.flushed]
        yield over(f"{setting.name}, over litequeue", sides[OURS], sides["litequeue"], goal)
        for name in PEERS[1:]:
            yield over(f"{setting.name}, over {name}", sides[OURS], sides[name])
    one, many = rounds[Setting(1, True)], rounds[Setting(16, True)]
    yield over("16 processes over 1, flushed, osqueue", many[OURS], one[OURS], OVER_ONE)
    yield over("16 processes over 1, flushed, litequeue", many["litequeue"], one["litequeue"])
    twice = sum(tally.twice for sides in rounds.values() for tally in sides[OURS])
    yield exactly("osqueue, jobs claimed twice", twice, 0, "jobs")


def slow_disk(options: BenchOptions, _: BenchCrews) -> Iterator[Figure]:
    """One job a call, flushed, where each flush takes longer: what is compared then is how many flushes a job costs."""
    settings = [Setting(processes, flushed=True) for processes in CROWDS]
    with ExitStack() as stack:
        built = Path(stack.enter_context(folder()))
        crews = BenchCrews(stack, slower(SLOW_FLUSH_MS, built))
        rounds = compare(crews, settings, (OURS, "litequeue"), options, 2 * seconds(options))
    for setting, sides in rounds.items():
        yield from rates(setting, sides)
        what = f"{setting.name}, over litequeue, a flush {SLOW_FLUSH_MS} ms longer"
        yield over(what, sides[OURS], sides["litequeue"], OVER_SLOW[setting.processes])


def batch(options: BenchOptions, crews: BenchCrews) -> Iterator[Figure]:
    """100 jobs a call against single ones: 16 processes. Without flushes, where a commit costs little, it informs."""
    settings = [Setting(16, flushed) for flushed in (True, False)]
    rounds = compare(crews, settings, (BATCHED, "litequeue"), options, 2 * seconds(options))
    for setting, sides in rounds.items():
        yield from rates(setting, sides)
        what = f"{setting.name}, {BATCH} a call, over litequeue's single jobs"
        yield over(what, sides[BATCHED], sides["litequeue"], OVER_SINGLE if setting.flushed else None)


def compare(
    crews: BenchCrews, settings: Sequence[Setting], sides: Sequence[str], options: BenchOptions, long: float
) -> Rounds:
    """Every side in every setting, in turn, each round so many seconds in a new folder."""
    found: Rounds = {setting: {side: [] for side in sides} for setting in settings}
    for turn in range(turns(options)):
        for setting in settings:
            for side in sides if turn % 2 == 0 else reversed(sides):
                order = {"peer": side} if side in PEERS else {"batch": BATCH if side == BATCHED else 1}
                with folder() as place:
                    crew = crews.of(side)
                    answers = crew.round(
                        setting.processes, long, folder=place, flushed=setting.flushed, **order
                    )
                found[setting][side].append(tally(answers, long))
    return found


def tally(answers: Sequence[Answer], seconds: float) -> RoundTally:
    taken = [job for answer in answers for job in answer["taken"]]
    return RoundTally(
        rate=sum(answer["steps"] for answer in answers) / STEPS / seconds,
        twice=len(taken) - len(set(taken)),
        longest_s=max(answer["longest_s"] for answer in answers),
    )


def rates(setting: Setting, sides: dict[str, list[RoundTally]]) -> Iterator[Figure]:
    for side, tallies in sides.items():
        note = f"slowest job {max(tally.longest_s for tally in tallies) * 1000:,.0f} ms"
        if twice := sum(tally.twice for tally in tallies):
            note += f", {twice} jobs claimed twice"
        rate = statistics.median(tally.rate for tally in tallies)
        yield Figure(f"{setting.name}, {side}", rate, "jobs/s", note=note)


def over(
    what: str, mine: Sequence[RoundTally], theirs: Sequence[RoundTally], goal: float | None = None
) -> Figure:
    """The median of the rounds' ratios, with the lowest and the highest."""
    return compared(what, [(m.rate, t.rate) for m, t in zip(mine, theirs, strict=True)], goal)


def compared(what: str, pairs: Iterable[tuple[float, float]], goal: float | None = None) -> Figure:
    ratios = sorted(ratio(mine, theirs) for mine, theirs in pairs)
    note = f"{ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} rounds"
    middle = statistics.median(ratios)
    return Figure(what, middle, "x", note=note) if goal is None else at_least(what, middle, goal, note=note)


# ── Against the disk itself ──────────────────────────────────────────────────
def raw(options: BenchOptions, crews: BenchCrews) -> Iterator[Figure]:
    """Flushed commits of one writer over flushed writes in place of as many bytes."""
    answers: list[Answer] = []
    crew = crews.of(OURS)
    with folder() as place:
        for _ in range(turns(options) * RAW_ROUNDS):
            answers += crew.round(1, seconds(options) / 2, folder=place, flushed=True, raw=True)
    commits, writes, size = (
        statistics.median(answer[name] for answer in answers)
        for name in ("commits_a_second", "writes_a_second", "bytes")
    )
    yield Figure("flushed commits of one writer", commits, "commits/s", note=f"{size:,.0f} bytes each")
    yield Figure("flushed writes in place of as many bytes", writes, "writes/s")
    pairs = [(answer["commits_a_second"], answer["writes_a_second"]) for answer in answers]
    yield compared("flushed commits over flushed writes in place", pairs, OVER_RAW)


# ── Callers in one process ───────────────────────────────────────────────────
def threads(options: BenchOptions, _: BenchCrews) -> Iterator[Figure]:
    """8 threads on one Queue against 8 tasks on one AsyncQueue."""
    for flushed in (True, False):
        found: dict[str, list[float]] = {"threads": [], "tasks": []}
        for turn in range(turns(options)):
            for by in ("threads", "tasks") if turn % 2 == 0 else ("tasks", "threads"):
                with folder() as place:
                    address = f"file://{place}" + ("" if flushed else "?fsync=off")
                    timing = ("--callers", CALLERS, "--seconds", 2 * seconds(options))
                    answer = run_one(ours.command("cycle", address, *timing, "--by", by))
                found[by].append(answer["done"] / answer["seconds"])
        what = f"{CALLERS} callers in a process, {'flushed' if flushed else 'not flushed'}"
        for by, tallies in found.items():
            yield Figure(f"{what}, {by}", statistics.median(tallies), "jobs/s")
        yield compared(f"{what}, threads over tasks", zip(found["threads"], found["tasks"], strict=True))


# ── What the parts share ─────────────────────────────────────────────────────
def turns(options: BenchOptions) -> int:
    """Rounds of each side: an odd number, so that the median is one of them."""
    return 2 * options.rounds + 1


def seconds(options: BenchOptions) -> float:
    return options.seconds * ROUND_SHARE


@contextmanager
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="osqueue-bench-", ignore_cleanup_errors=True) as place:
        yield str(Path(place).resolve())


PARTS: dict[str, Callable[[BenchOptions, BenchCrews], Iterator[Figure]]] = {
    "one-job": one_job,
    "slow-disk": slow_disk,
    "batch": batch,
    "raw": raw,
    "wake": lambda options, _: wake(options),
    "threads": threads,
}
