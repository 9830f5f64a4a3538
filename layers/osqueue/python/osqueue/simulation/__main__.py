"""``python -m osqueue.simulation``: soak (seed after seed), replay (one seed again), explore (every interleaving)."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from ..clock import MACHINE
from .explore import SCENARIOS, explore
from .profile import PROFILES
from .run import Report, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m osqueue.simulation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    soak = commands.add_parser("soak", help="run seed after seed and report what was injected and found")
    soak.add_argument("--seconds", type=float, default=60.0, help="how long to go on (60)")
    soak.add_argument("--seed", type=int, help="the first seed (drawn at random)")
    soak.add_argument("--profile", choices=PROFILES, help="only this kind of run (all, in turn)")
    again = commands.add_parser("replay", help="run one seed again")
    again.add_argument("--seed", type=int, required=True)
    again.add_argument("--profile", choices=PROFILES, default="rough")
    every = commands.add_parser("explore", help="follow every interleaving of small scenarios")
    every.add_argument("--scenario", choices=SCENARIOS, help="only this one (all, in turn)")
    every.add_argument("--paths", type=int, default=20_000, help="at most so many of each (20,000)")
    chosen = parser.parse_args()
    if chosen.command == "soak":
        return run_soak(chosen.seconds, chosen.seed, chosen.profile)
    if chosen.command == "replay":
        return run_replay(chosen.seed, chosen.profile)
    return run_explore(chosen.scenario, chosen.paths)


def run_soak(seconds: float, seed: int | None, profile: str | None) -> int:
    """Seed after seed, a profile each in turn, until the time is up or something is violated."""
    first = MACHINE.bits(32) if seed is None else seed
    names = [profile] if profile else list(PROFILES)
    began = MACHINE.monotonic()
    total = Report("all", first, faults=Counter(), codes=Counter(), asked=Counter(), loads=Counter())
    runs = 0
    while not runs or MACHINE.monotonic() - began < seconds:
        report = simulate(first + runs // len(names), PROFILES[names[runs % len(names)]])
        runs += 1
        add(total, report)
        if report.violation:
            tell(total, runs, first)
            print(f"VIOLATION in {report.profile}, seed {report.seed}: {report.violation}")
            print(f"  python -m osqueue.simulation replay --seed {report.seed} --profile {report.profile}")
            return 1
    tell(total, runs, first)
    return 0


def add(total: Report, report: Report) -> None:
    """Sum reports up."""
    total.commits += report.commits
    total.hours += report.hours
    total.jobs += report.jobs
    total.calls += report.calls
    total.unheard += report.unheard
    total.records += report.records
    total.passes += report.passes
    total.ids += report.ids
    total.freed += report.freed
    total.waits += report.waits
    total.bulks += report.bulks
    total.loads.update(report.loads)
    total.terms += report.terms
    total.asked.update(report.asked)
    total.faults.update(report.faults)
    total.codes.update(report.codes)
    total.violation = report.violation


def tell(total: Report, runs: int, first: int) -> None:
    """Print what a soak came to."""
    print(f"{runs} runs from seed {first}: {total.commits:,} commits, {total.hours:,.1f} virtual hours")
    print(
        f"  {total.jobs:,} jobs accounted for, {total.calls:,} calls, {total.unheard:,} of them without an answer"
    )
    print(
        f"  {total.ids:,} jobs under clients' ids, {total.freed:,} ids freed, {total.asked.total():,} questions of"
        f" callers, {total.waits:,} of them waits"
    )
    told = ", ".join(f"{count:,} {kind}" for kind, count in sorted(total.loads.items()))
    print(f"  {total.bulks:,} bulks of many tasks came in, each whole and once; their runs: {told or 'none'}")
    print(f"  {total.terms:,} leaders were elected, never two at once")
    print(f"  {total.passes:,} passes of reapers, {total.records:,} records archived")
    print("  injected: " + ", ".join(f"{count:,} {kind}" for kind, count in sorted(total.faults.items())))
    print(f"  violations: {1 if total.violation else 0}")


def run_replay(seed: int, profile: str) -> int:
    """One seed again, with everything it did."""
    report = simulate(seed, PROFILES[profile])
    tell(report, 1, seed)
    for name, count in sorted((report.codes + report.asked).items()):
        print(f"    {count:>7,} {name}")
    if report.violation:
        print(f"VIOLATION: {report.violation}")
    return 1 if report.violation else 0


def run_explore(name: str | None, paths: int) -> int:
    """Every interleaving of one scenario or of all."""
    failed = 0
    for scenario in [SCENARIOS[name]] if name else SCENARIOS.values():
        found = explore(scenario, paths)
        extent = "all of them" if found.whole else "more are left"
        print(f"{scenario.name}: {found.paths:,} paths ({extent}), {found.states:,} states")
        if found.violation:
            failed += 1
            print(f"  VIOLATION: {found.violation}\n  after: {', '.join(found.path)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
