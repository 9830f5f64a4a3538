"""What a commit costs with 1,000 and with 1,000,000 jobs waiting (the peer: 1,000 and 50,000).

Ours runs on files without fsync, so that the disk's own time cannot hide a difference, and takes the two
queues in turn; an operation is an enqueue, a claim or a complete of one job.
"""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory

from bench import ours, peer
from bench.fleet import run_one
from bench.row import BenchOptions, Figure, at_most, ratio

SHALLOW = 1_000
DEEP = 1_000_000
PEER_DEEP = 50_000
GOAL = 1.3


def run(options: BenchOptions) -> Iterator[Figure]:
    peer.ensure()
    peer_deep, deep = (max(SHALLOW, int(jobs * options.scale)) for jobs in (PEER_DEEP, DEEP))
    low, high = (run_one(peer.command("depth", jobs)) for jobs in (SHALLOW, peer_deep))
    yield Figure(
        f"jqueue, commit with {SHALLOW:,} waiting", low["median_s"] * 1000, "ms", note=size(low["bytes"])
    )
    yield Figure(
        f"jqueue, commit with {peer_deep:,} waiting", high["median_s"] * 1000, "ms", note=size(high["bytes"])
    )
    yield Figure("jqueue, deep over shallow", ratio(high["median_s"], low["median_s"]), "x")
    with TemporaryDirectory(prefix="osqueue-bench-") as folder:
        mine = run_one(ours.command("depth", folder, "--shallow", SHALLOW, "--deep", deep))
    for jobs, side in ((SHALLOW, mine["shallow"]), (deep, mine["deep"])):
        note = f"p99 {side['p99_s'] * 1000:.2f} ms, {size(side['bytes'])}"
        yield Figure(f"osqueue, commit with {jobs:,} waiting", side["median_s"] * 1000, "ms", note=note)
    yield at_most(
        "osqueue, time, deep over shallow", ratio(mine["deep"]["median_s"], mine["shallow"]["median_s"]), GOAL
    )
    if mine["deep"]["bytes"] and mine["shallow"]["bytes"]:
        yield at_most(
            "osqueue, head bytes, deep over shallow",
            ratio(mine["deep"]["bytes"], mine["shallow"]["bytes"]),
            GOAL,
        )


def size(count: int | None) -> str:
    return "head not found" if count is None else f"{count:,} bytes a commit"
