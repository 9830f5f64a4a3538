"""Runs the benchmarks, one by one or all: ``python -m bench [NAME …] [--json]``."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from typing import cast

import msgspec

from bench.row import Benchmark, BenchOptions, Figure, table

NAMES = (
    "requests",
    "imports",
    "cycle",
    "writers",
    "embedded",
    "visit",
    "valkey",
    "contention",
    "burst",
    "pair",
    "trickle",
    "depth",
    "cancel",
    "due",
    "late",
    "bulk",
    "waiting",
    "tenants",
    "limits",
    "kinds",
    "pacer",
    "schedules",
    "consumers",
    "archive",
    "lookup",
    "stack",
    "handlers",
    "serve",
    "compaction",
    "thin",
    "source",
)


def title(name: str) -> str:
    """The first line of a benchmark's own description."""
    return (importlib.import_module(f"bench.{name}").__doc__ or "").strip().splitlines()[0]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Benchmarks against their goals and, where they can do the same, against other queues.",
        epilog="\n".join(f"  {name:<12}{title(name)}" for name in NAMES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run (all of them by default)")
    parser.add_argument(
        "--json", action="store_true", help="one line of JSON per benchmark instead of a table"
    )
    parser.add_argument("--seconds", type=float, default=6.0, help="length of one timed round (6)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of each side, in turn (2)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="below 1 for a quick try on smaller sizes (1)"
    )
    parser.add_argument(
        "--part", action="append", default=[], dest="parts", help="of embedded, only this part (repeatable)"
    )
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in NAMES]:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    options = BenchOptions(
        seconds=arguments.seconds,
        rounds=arguments.rounds,
        scale=arguments.scale,
        parts=tuple(arguments.parts),
    )
    broken = 0
    for name in arguments.names or NAMES:
        if not arguments.json:
            print(f"\n{name}: {title(name)}", flush=True)
        try:
            rows = list(cast("Benchmark", importlib.import_module(f"bench.{name}").run)(options))
        except (RuntimeError, subprocess.SubprocessError, ValueError) as error:
            print(f"{name} could not be measured: {error}", file=sys.stderr)
            broken += 1
            continue
        show(name, rows, arguments.json)
    return 1 if broken else 0


def show(name: str, rows: list[Figure], as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode({"bench": name, "rows": rows}).decode(), flush=True)
    else:
        print(table(rows), flush=True)


if __name__ == "__main__":
    sys.exit(main())
