"""What the schedule asks of the reaper: one pass over every queue of the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from ..clock import Machine
from ..commit.driver import BlockingDriver
from ..commit.effects import QueueFlow
from ..contract import metrics
from ..errors import OsqueueError
from ..metering.store import InvocationCounts
from ..objects.layout import registered
from ..server.app import Api
from ..server.queues import BlockingServedQueue
from ..server.request import in_time
from .logs import RequestLog

R = TypeVar("R")

QUEUE_S_MIN = 5.0  # left, or the pass ends here
QUEUE_S_MAX = 120.0  # of one queue, while others wait
MEASURE_S = 2.0  # of these, to see how the queue stands


def reap_all(api: Api, counts: InvocationCounts, log: RequestLog, left_s: float) -> dict[str, int]:
    """Reap one queue after the other until all are done or time runs out. The trouble of one stops no other."""
    until = api.machine.monotonic() + left_s
    done = troubles = 0
    failed: list[int] = []
    try:
        names = shuffled(BlockingDriver(api.store, api.machine).run(registered()), api.machine)
    except OsqueueError as error:
        log.trouble("", error.code, error.message)
        names, troubles = [], 1
    for name in names:
        left = until - api.machine.monotonic()
        if left < QUEUE_S_MIN:
            break
        troubles += not _upkeep_of(api, counts, log, name, min(left, QUEUE_S_MAX), failed)
        done += 1
    if done < len(names):
        log.late(len(names) - done)
    whole = counts.whole.values
    whole[metrics.PASSES] = int(not troubles and done == len(names))
    if names and len(failed) == len(names):  # a sum that leaves one out would drop, and rise again
        whole[metrics.FAILED_SO_FAR] = sum(failed)
    return {"queues": done, "troubles": troubles, "left": len(names) - done}


def shuffled(names: list[str], machine: Machine) -> list[str]:
    """In an order of its own each time, so that no queue is always the last."""
    return [name for _, name in sorted((machine.uniform(), name) for name in names)]


def _upkeep_of(
    api: Api, counts: InvocationCounts, log: RequestLog, name: str, seconds: float, failed: list[int]
) -> bool:
    """How the queue stands is measured, trouble or not. ``failed`` gets how many of its jobs have failed so far."""
    reaped = _tried(log, name, lambda: _reap(api, log, name, seconds - MEASURE_S))
    return _tried(log, name, lambda: failed.append(_measure(api, counts, name))) and reaped


def _tried(log: RequestLog, name: str, work: Callable[[], None]) -> bool:
    try:
        work()
    except OsqueueError as error:
        log.trouble(name, error.code, error.message)
    except Exception:  # a defect of ours in one queue is no reason to leave the others
        log.logger.exception("upkeep failed", extra={"queue": name, "code": "internal"})
    else:
        return True
    return False


def _reap(api: Api, log: RequestLog, name: str, seconds: float) -> None:
    queue = api.queue(name)
    report = _run(api, queue, queue.steering.reap(), seconds)
    found = {field: value for field, value in msgspec.structs.asdict(report).items() if value}
    if found:
        log.pass_over(name, found)


def _measure(api: Api, counts: InvocationCounts, name: str) -> int:
    """Count how a queue stands; answers how many of its jobs have failed for good so far."""
    queue = api.queue(name)
    stats = _run(api, queue, queue.steering.stats(), MEASURE_S)
    gauges = counts.of(name).values
    gauges[metrics.DEPTH] = stats["queued"]
    if not stats["paused"]:  # jobs that nobody may claim wait for somebody who knows it
        gauges[metrics.OLDEST] = oldest = stats["oldest_seconds"] or 0.0
        counts.whole.most(metrics.OLDEST, oldest)
    gauges[metrics.DEAD] = stats["failed"]
    if stats["settings"]["consumers"]:
        uses = _run(api, queue, queue.steering.flow(), MEASURE_S).consumers.values()
        gauges[metrics.CONSUMERS] = sum(each.held for each in uses)
        for each in uses:
            counts.whole.most(metrics.CONSUMERS_BUSY, 100 * each.held / each.most)
            counts.whole.most(metrics.WAKE_TRIES, each.tries)
    return int(stats["counters"]["failed"])


def _run(api: Api, queue: BlockingServedQueue, flow: QueueFlow[R], seconds: float) -> R:
    return queue._run(in_time(flow, api.machine, api.machine.monotonic() + seconds))
