"""The archive: bytes a job, and records a second of a reaper pass on one core; other encodings for comparison.

Files without flushes. The records are those of 50,000 jobs that came in calls of 20 and were claimed and completed
400 at a time; every 32nd failed once. The encodings are timed on the same records, in the same run. Jobs that come
and go one by one have times and keys of their own, so their records are larger: 5,000 such jobs are packed, too.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import arrow, ours
from bench.fleet import Answer, run_one
from bench.row import BenchOptions, Figure, exactly, ratio

JOBS = 50_000
SINGLES = 5_000
PARQUET = "Parquet, zstd"
ENCODINGS = ("gzip 1", "gzip 6", "uncompressed", PARQUET)


def run(options: BenchOptions) -> Iterator[Figure]:
    jobs, singles = (max(1_000, int(count * options.scale) // 20 * 20) for count in (JOBS, SINGLES))
    with TemporaryDirectory(prefix="osqueue-bench-") as folder:
        grouped, reaped = archived(Path(folder) / "grouped", jobs)
    with TemporaryDirectory(prefix="osqueue-bench-") as folder:
        single, _ = archived(Path(folder) / "single", singles, "--group", 1, "--held", 1)
    yield exactly("records archived", reaped["archived"], jobs, "records", f"{grouped['parts']} parts")
    core = "on one core" if shutil.which("taskset") else "on all cores: there is no taskset"
    spent = ", ".join(f"{count} {kind.upper()}" for kind, count in reaped["requests"].items() if count)
    yield Figure("reaper pass", jobs / reaped["seconds"], "records/s", note=f"{core}; {spent}")
    yield Figure(
        "reaper pass, peak memory", reaped["peak_mb"], "MB", note=f"{reaped['held_mb']:.0f} MB before"
    )
    yield from encodings(grouped, jobs, reaped["cpu_s"])
    for name in ENCODINGS:
        if name in single:
            yield Figure(f"jobs one by one: {name}, bytes a job", single[name]["bytes"] / singles, "bytes")


def archived(folder: Path, jobs: int, *how: str | int) -> tuple[Answer, Answer]:
    """Finish jobs and reap: the records in every encoding, and what the pass took."""
    address, lines = f"file://{folder}?fsync=off", folder.with_suffix(".jsonl")
    run_one(ours.finished("fill", address, "--jobs", jobs, *how))
    reaped = run_one(on_one_core(ours.finished("reap", address)))
    encoded = run_one(on_one_core(ours.finished("encode", str(folder / "archive"), str(lines))))
    parquet = as_parquet(lines)
    if parquet is not None:
        encoded[PARQUET] = parquet
    return encoded, reaped


def encodings(encoded: Answer, jobs: int, pass_s: float) -> Iterator[Figure]:
    """Each encoding beside ours, which is gzip 1."""
    ours_ = encoded["gzip 1"]
    for name in ENCODINGS:
        if name not in encoded:
            print("no pyarrow here: Parquet is left out", file=sys.stderr)
            continue
        each = encoded[name]
        kind = name if name == PARQUET else f"JSON lines, {name}"
        yield Figure(f"{kind}, bytes a job", each["bytes"] / jobs, "bytes")
        yield Figure(f"{kind}, encoding alone", jobs / each["seconds"], "records/s")
        if name != "gzip 1":
            yield Figure(f"{kind}, bytes over those of gzip 1", ratio(each["bytes"], ours_["bytes"]), "x")
            yield Figure(
                f"{kind}, seconds over those of gzip 1", ratio(each["seconds"], ours_["seconds"]), "x"
            )
    note = "the rest reads, merges and writes tables"
    yield Figure("gzip 1, share of the reaper pass", ratio(ours_["seconds"], pass_s), "x", note=note)


def as_parquet(lines: Path) -> Answer | None:
    """The same records as Parquet; None where pyarrow cannot be had."""
    try:
        arrow.ensure()
        return run_one(on_one_core(arrow.command(str(lines))))
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return None


def on_one_core(command: Sequence[str]) -> list[str]:
    """The command, kept to one core where that can be done."""
    return ["taskset", "-c", "0", *command] if shutil.which("taskset") else list(command)
