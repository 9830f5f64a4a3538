"""``python -m simulation``: soak (seed after seed), replay (one seed again), explore (every interleaving),
power (power cuts, seed after seed)."""

from __future__ import annotations

import argparse
import os
import sys

from osqueue.clock import MACHINE

from .explore import SCENARIOS, explore
from .power import power_cuts
from .profile import PROFILES
from .report import tell
from .run import simulate
from .soak import run_soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    soak = commands.add_parser("soak", help="run seed after seed and report what was injected and found")
    soak.add_argument("--seconds", type=float, default=60.0, help="how long to go on (60)")
    soak.add_argument("--seed", type=int, help="the first seed (drawn at random)")
    soak.add_argument("--profile", choices=PROFILES, help="only this kind of run (all, for as long each)")
    soak.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="how many run at once (one for each core)"
    )
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
        return run_soak(chosen.seconds, chosen.seed, chosen.profile, chosen.processes)
    if chosen.command == "replay":
        return run_replay(chosen.seed, chosen.profile)
    if chosen.command == "power":
        return run_power(chosen.seconds, chosen.seed)
    return run_explore(chosen.scenario, chosen.paths)


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
