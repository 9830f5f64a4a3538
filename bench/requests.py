"""Store requests of one warm operation, and of a claim on an empty queue."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory

from bench import ours, peer
from bench.fleet import run_one
from bench.row import Options, Row, exactly

OPERATIONS = ("enqueue", "claim", "heartbeat", "complete")


def run(options: Options) -> Iterator[Row]:
    del options  # requests are counted, not timed
    peer.ensure()
    theirs = run_one(peer.command("requests", "memory"))
    for operation in (*OPERATIONS, "empty claim"):
        count = theirs[operation]
        yield Row(f"jqueue, {operation}", sum(count.values()), "requests", note=spelled(count))
    for store in ("memory", "file"):
        with TemporaryDirectory(prefix="osqueue-bench-") as folder:
            mine = run_one(ours.command("requests", "memory://" if store == "memory" else f"file://{folder}"))
        for operation in OPERATIONS:
            count = mine[operation]
            what = f"osqueue on {store}, {operation}"
            yield exactly(f"{what}, PUT", count["put"], 1, "requests", spelled(count))
            yield exactly(f"{what}, other", sum(count.values()) - count["put"], 0, "requests")
        count = mine["empty claim"]
        writes = count["put"] + count["delete"]
        yield exactly(f"osqueue on {store}, empty claim, writes", writes, 0, "requests", spelled(count))


def spelled(count: dict[str, int]) -> str:
    return ", ".join(f"{number} {kind.upper()}" for kind, number in count.items() if number) or "none"
