"""Seed after seed of every profile, in several processes, until the time is up or something is violated."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context

from msgspec import Struct

from osqueue.clock import MACHINE

from .profile import PROFILES
from .report import RunReport, tell
from .run import simulate

NAME_WIDTH = 18  # characters of the column of profiles


class ProfileTotal(Struct):
    """What the runs of one profile came to so far."""

    name: str
    begun: int = 0  # runs
    ended: int = 0
    seconds: float = 0.0  # that its runs took, all processes together
    commits: int = 0
    jobs: int = 0
    slots: int = 0
    terms: int = 0
    hours: float = 0.0  # of virtual time

    @property
    def due(self) -> float:
        """The time used, in seconds, once the runs that have begun are over."""
        return self.seconds / max(self.ended, 1) * self.begun

    def add(self, report: RunReport, seconds: float) -> None:
        """Add a run that has ended."""
        self.ended += 1
        self.seconds += seconds
        for name in ("commits", "jobs", "slots", "terms", "hours"):
            setattr(self, name, getattr(self, name) + getattr(report, name))

    def __str__(self) -> str:
        figures = f"{self.commits:>9,} commits {self.jobs:>8,} jobs {self.hours:>8,.1f} virtual hours"
        others = "".join(
            f" {count:,} {what}" for what, count in (("slots", self.slots), ("terms", self.terms)) if count
        )
        return f"  {self.name:<{NAME_WIDTH}} {self.ended:>4} runs {self.seconds:>6,.0f} s {figures}{others}"


class Soak:
    """The runs of a soak. Each profile gets as much time as the others, so a short one gets more seeds."""

    def __init__(self, first: int, names: list[str]) -> None:
        self.first = first
        self.totals = {name: ProfileTotal(name) for name in names}
        self.total = RunReport("all", first)

    def next_run(self) -> tuple[int, str]:
        """Return the seed and the profile of the next run: of the profile that has used the least time."""
        chosen = min(self.totals.values(), key=lambda each: (each.begun > 0, each.due))
        chosen.begun += 1
        return self.first + chosen.begun - 1, chosen.name

    def add(self, report: RunReport, seconds: float) -> None:
        """Add a run that has ended."""
        self.total.add(report)
        self.totals[report.profile].add(report, seconds)

    def finish(self, failed: RunReport | None) -> int:
        """Print the figures; return the exit code."""
        tell(self.total, sum(each.ended for each in self.totals.values()), self.first)
        for each in self.totals.values():
            print(each)
        if failed is None:
            return 0
        print(f"VIOLATION in {failed.profile}, seed {failed.seed}: {failed.violation}")
        print(f"  python -m simulation replay --seed {failed.seed} --profile '{failed.profile}'")
        return 1


def run_soak(seconds: float, seed: int | None, profile: str | None, processes: int = 1) -> int:
    """Run seed after seed, each profile for as long as the others. Stop at the first violation."""
    first = MACHINE.bits(32) if seed is None else seed
    soak = Soak(first, [profile] if profile else list(PROFILES))
    until = MACHINE.monotonic() + seconds
    if processes == 1:
        while True:
            report, took = timed(*soak.next_run())
            soak.add(report, took)
            if report.violation or MACHINE.monotonic() >= until:
                return soak.finish(report if report.violation else None)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: set[Future[tuple[RunReport, float]]] = set()
        failed: RunReport | None = None
        while running or (failed is None and MACHINE.monotonic() < until):
            while failed is None and len(running) < processes and MACHINE.monotonic() < until:
                running.add(pool.submit(timed, *soak.next_run()))
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for each in ended:
                report, took = each.result()
                soak.add(report, took)
                failed = failed or (report if report.violation else None)
    return soak.finish(failed)


def timed(seed: int, profile: str) -> tuple[RunReport, float]:
    """Run one seed. Return its report, and how many seconds it took."""
    began = MACHINE.monotonic()
    report = simulate(seed, PROFILES[profile])
    return report, MACHINE.monotonic() - began
