"""What requests to a store take from here: their time, and the money of those who only look whether there is a job."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .. import limits
from ..clock import Machine
from ..commit.effects import Flow
from ..stores.base import (
    Delete,
    Failed,
    Get,
    List,
    Put,
    PutIfAbsent,
    PutIfMatch,
    StoreReply,
    StoreRequest,
    Written,
)
from ..stores.prices import is_free, prices_at
from .store_probes import FOLDER, OK, WARNING, Finding

SAMPLES_MAX = 50  # of each kind of request
KIND_SECONDS_MAX = 1.0  # and no more of a kind after this long
BODY = b"x" * 10_000  # about what a quiet queue's head has
POLLS_S = (1, 10)  # how often a worker looks: by default, and where nobody is in a hurry
MONTH_MS = 730 * limits.HOUR_MS


def latencies(machine: Machine) -> Flow[list[Finding]]:
    """How long requests take, one after the other, each kind by itself; on one object, which is removed."""
    key = f"{FOLDER}{machine.bits(64):016x}-latency"
    version = ""
    kinds: dict[str, Callable[[int], StoreRequest]] = {
        "put_if_absent": lambda at: PutIfAbsent(f"{key}-{at}", BODY),
        "get": lambda _: Get(f"{key}-0"),
        "put": lambda _: Put(key, BODY),
        "put_if_match": lambda at: PutIfMatch(key, b"%d %s" % (at, BODY), version, hot=True),
        "list": lambda _: List(key, limit=1),
        "delete": lambda at: Delete((f"{key}-{at}",)),
    }
    findings = []
    for kind, make in kinds.items():
        times: list[float] = []
        begun = machine.monotonic()
        failed: StoreReply | None = None
        while len(times) < SAMPLES_MAX and machine.monotonic() - begun < KIND_SECONDS_MAX:
            asked = machine.monotonic()
            reply = yield make(len(times))
            times.append((machine.monotonic() - asked) * 1000)
            if isinstance(reply, Written):
                version = reply.version
            if isinstance(reply, Failed):
                failed = reply
                break
        findings.append(_finding(kind, times, failed))
    yield Delete((key, *(f"{key}-{at}" for at in range(SAMPLES_MAX))))
    return findings


def _finding(kind: str, times: Sequence[float], failed: Failed | StoreReply | None) -> Finding:
    check = f"latency: {kind}"
    if isinstance(failed, Failed):
        return Finding(WARNING, check, failed.error.message, "See the checks of the store.")
    p50, p99 = percentile(times, 50), percentile(times, 99)
    text = f"p50 {p50:,.2f} ms, p99 {p99:,.2f} ms, of {len(times)} requests"
    return Finding(OK, check, text, figures={"p50_ms": round(p50, 3), "p99_ms": round(p99, 3)})


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest of them that so many percent do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def polling(address: str) -> list[Finding]:
    """What a worker costs that finds nothing for a month."""
    prices = prices_at(address)
    untold = "they cost no money here" if is_free(address) else "see what the cloud asks for a million reads"
    findings = []
    for seconds in POLLS_S:
        looks = MONTH_MS // (seconds * 1000)
        text = f"a worker that looks every {seconds} s and finds nothing makes {looks:,} reads a month: "
        dollars = 0.0 if prices is None else prices.requests({"get": looks})
        text += untold if prices is None else f"${dollars:,.2f} ({prices.name})"
        figures = {"reads_a_month": looks, "dollars_a_month": round(dollars, 4)}
        findings.append(Finding(OK, "polling", text, figures=figures))
    return findings
