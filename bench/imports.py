"""CPU time of what a handler imports and opens, in a fresh interpreter, against boto3's client.

The S3 store's client library is imported within the measured time even where a store would load it later.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from tempfile import TemporaryDirectory

from bench.fleet import ROOT
from bench.row import BenchOptions, Figure, at_most, ratio

GOAL = 0.6
TIMES = 11  # fresh interpreters of each kind, in turn
OPEN = "from osqueue import Queue; Queue.connect('{address}', 'emails')"
TIMED = "import time; _begun = time.process_time(); {code}; print(time.process_time() - _begun)"


def run(options: BenchOptions) -> Iterator[Figure]:
    times = max(3, int(TIMES * options.scale))
    with TemporaryDirectory(prefix="osqueue-bench-") as folder:
        codes = {
            "boto3": "import boto3; boto3.client('s3', region_name='eu-west-1')",
            "osqueue, file": OPEN.format(address=f"file://{folder}"),
            "osqueue, s3": OPEN.format(address="s3://bucket/prefix?region=eu-west-1")
            + "; import obstore.store",
        }
        seconds: dict[str, list[float]] = {name: [] for name in codes}
        for _ in range(times + 1):
            for name, code in codes.items():
                seconds[name].append(cpu_s(code))
    # The first of each kind only warms the disk's cache.
    median = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    for name in codes:
        yield Figure(name, median[name] * 1000, "ms", note=f"CPU time, median of {times}")
    for name in ("osqueue, file", "osqueue, s3"):
        yield at_most(f"{name} over boto3", ratio(median[name], median["boto3"]), GOAL)


def cpu_s(code: str) -> float:
    """The CPU seconds a piece of code takes in a fresh interpreter, its start-up not counted."""
    credentials = {
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    environment = os.environ | credentials | {"PYTHONPATH": str(ROOT / "layers/osqueue/python")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or ours would be compiled every time, and boto3 never
    command = [sys.executable, "-c", TIMED.format(code=code)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return float(answer.stdout)
