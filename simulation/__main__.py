"""``python -m simulation``: soak (seed after seed), replay (one seed again), explore (every interleaving),
power (power cuts, seed after seed)."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable

from osqueue.clock import MACHINE

from .conditions import FAULTS
from .explore import SCENARIOS, explore
from .power import power_cuts
from .profile import PROFILES
from .run import RunReport, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
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
    cut = commands.add_parser(
        "power", help="cut the power of a machine with a queue in a folder, seed after seed"
    )
    cut.add_argument("--seconds", type=float, default=60.0, help="how long to go on (60)")
    cut.add_argument("--seed", type=int, help="the first seed (drawn at random)")
    chosen = parser.parse_args()
    if chosen.command == "soak":
        return run_soak(chosen.seconds, chosen.seed, chosen.profile)
    if chosen.command == "replay":
        return run_replay(chosen.seed, chosen.profile)
    if chosen.command == "power":
        return run_power(chosen.seconds, chosen.seed)
    return run_explore(chosen.scenario, chosen.paths)


def run_soak(seconds: float, seed: int | None, profile: str | None) -> int:
    """Seed after seed, a profile each in turn, until the time is up or something is violated."""
    first = MACHINE.bits(32) if seed is None else seed
    names = [profile] if profile else list(PROFILES)
    began = MACHINE.monotonic()
    total = RunReport("all", first)
    runs = 0
    while not runs or MACHINE.monotonic() - began < seconds:
        report = simulate(first + runs // len(names), PROFILES[names[runs % len(names)]])
        runs += 1
        add(total, report)
        if report.violation:
            tell(total, runs, first)
            print(f"VIOLATION in {report.profile}, seed {report.seed}: {report.violation}")
            print(f"  python -m simulation replay --seed {report.seed} --profile {report.profile}")
            return 1
    tell(total, runs, first)
    return 0


def add(total: RunReport, report: RunReport) -> None:
    """Sum reports up."""
    for name in report.__struct_fields__:
        value = getattr(report, name)
        if isinstance(value, Counter):
            getattr(total, name).update(value)
        elif isinstance(value, int | float) and name != "seed":
            setattr(total, name, getattr(total, name) + value)
    total.violation = report.violation


def counted(counts: Counter[str], names: Iterable[str] = ()) -> str:
    """How often each thing happened, those that never did as well."""
    all_names = sorted({*counts, *names})
    return ", ".join(f"{counts[name]:,} {name}" for name in all_names) or "none"


def tell(total: RunReport, runs: int, first: int) -> None:
    """Print what a soak came to."""
    print(f"{runs} runs from seed {first}: {total.commits:,} commits, {total.hours:,.1f} virtual hours")
    print(
        f"  {total.jobs:,} jobs accounted for, {total.calls:,} calls, {total.unheard:,} of them without an answer"
    )
    print(
        f"  {total.ids:,} jobs under clients' ids, {total.freed:,} ids freed, {total.asked.total():,} questions of"
        f" callers, {total.waits:,} of them waits"
    )
    print(
        f"  {total.bulks:,} bulks of many tasks came in, each whole and once; their runs: {counted(total.loads)}"
    )
    print(f"  {total.terms:,} leaders were elected, never two at once")
    print(f"  {total.slots:,} slots of pacers were used, none twice, too early or too late")
    print(f"  {total.passes:,} passes of reapers, {total.records:,} records archived")
    print(f"  {total.told:,} events told to those who listened")
    print(f"  injected: {counted(total.faults, FAULTS)}")
    print(f"  commits: {counted(total.protocol)}")
    print(f"  transitions by: {counted(total.events)}")
    print(f"  calls that ended in: {counted(total.errors)}")
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


def run_power(seconds: float, seed: int | None) -> int:
    """Power cuts, seed after seed, until the time is up or something is violated."""
    first = MACHINE.bits(32) if seed is None else seed
    began = MACHINE.monotonic()
    runs = left = cuts = calls = kills = in_place = 0
    violation = ""
    while not violation and (not runs or MACHINE.monotonic() - began < seconds):
        report = power_cuts(first + runs)
        kills += report.kills
        in_place += report.in_place
        runs += 1
        left += report.left
        cuts += report.cuts
        calls += report.calls.total()
        violation = report.violation
    print(f"{runs} runs from seed {first}: {calls:,} calls, {cuts:,} power cuts, {kills:,} killed processes")
    print(f"  {in_place:,} versions were written in place")
    print(f"  {left:,} disks that a power cut could have left were looked at")
    if violation:
        print(f"VIOLATION in seed {first + runs - 1}: {violation}")
    return 1 if violation else 0


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
