"""Requests and time of a look at a finished job, with 1, 100 and 10,000 archive parts, with a reaper and without.

Each part is a round in which two jobs end and leave the head; all results are still kept. Memory store. Jobs are
looked up all over the queue's past, by job id. In order: each table covers keys of its own. Apart: of the two one is
old and one young, so that each table covers half of all keys; nothing is worse. A goal holds where somebody reaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from bench import ours
from bench.fleet import run_one
from bench.row import BenchOptions, Figure, at_most, ratio

PARTS = (1, 100, 10_000)
MORE_PER_DOUBLING = 1.0  # requests: logarithmic. The worst job counts, not the mean one


SIDES = {
    "in order, reaped": ("--reaper",),
    "apart, reaped": ("--reaper", "--apart"),
    "in order, nobody reaps": (),
    "apart, nobody reaps": ("--apart",),
}


def run(options: BenchOptions) -> Iterator[Figure]:
    parts = [max(1, round(count * options.scale)) if count > 1 else 1 for count in PARTS]
    for side, how in SIDES.items():
        found = {count: run_one(ours.finished("lookup", "--rounds", count, *how)) for count in parts}
        few, many = found[1], found[parts[-1]]
        for ask in ("status", "result"):
            for count, answer in found.items():
                each = answer[ask]
                note = f"{each['micros']:,.0f} µs (median); at most {each['requests_max']:.0f} requests"
                yield Figure(f"{side}, parts: {count:,}, {ask}", each["requests"], "requests", note=note)
            what = f"{side}, parts: {parts[-1]:,} over 1, {ask}, worst job"
            more = many[ask]["requests_max"] - few[ask]["requests_max"]
            note = f"time {ratio(many[ask]['micros'], few[ask]['micros']):.1f}x"
            if "--reaper" in how:
                most = round(MORE_PER_DOUBLING * math.log2(parts[-1]), 1)
                yield at_most(what, more, most, "more requests", note)
            else:
                yield Figure(what, more, "more requests", note=note)
