"""Lines of the log that are metrics, in CloudWatch's embedded metric format.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from ..contract import functions, metrics
from .store import InvocationCounts, MetricCounts

log = logging.getLogger("osqueue.metering")

VALUES_MAX = 100  # of one metric in a line that CloudWatch reads; of more, evenly some


def print_lines(counts: InvocationCounts, service: str, now_ms: int, told: Mapping[str, Any]) -> None:
    """Print what was ``told`` and counted: a line, and one for each queue but ``told["queue"]``; of nothing none.

    Raises nothing: what has been done is answered whether or not it can be told.
    """
    try:
        _print_all(counts, service, now_ms, told)
    except Exception:
        log.exception("the line of this invocation could not be printed")


def _print_all(counts: InvocationCounts, service: str, now_ms: int, told: Mapping[str, Any]) -> None:
    # A call that nobody waits for any more may go on counting.
    queues = dict(counts.queues)
    tallies = {"": counts.whole}
    mine = queues.get(told.get("queue", ""))
    # A line has one value by a name: what is counted of the queue and of the deployment needs a line each.
    if mine is not None and mine.names.isdisjoint(counts.whole.names):
        tallies[told["queue"]] = queues.pop(told["queue"])
    _print(told, tallies, service, now_ms)
    for queue, tally in queues.items():
        _print({}, {queue: tally}, service, now_ms)


def _print(told: Mapping[str, Any], tallies: Mapping[str, MetricCounts], service: str, now_ms: int) -> None:
    """A line with what was counted of each queue, of the deployment under no name."""
    line: dict[str, Any] = {**told, metrics.SERVICE: service}
    directives = []
    for queue, tally in tallies.items():
        values = _values_of(tally)
        if values:
            if queue:
                line[metrics.QUEUE] = queue
            directives.append(
                {
                    "Namespace": functions.METRICS_NAMESPACE,
                    "Dimensions": [[metrics.SERVICE, metrics.QUEUE] if queue else [metrics.SERVICE]],
                    "Metrics": [{"Name": each.name, "Unit": each.unit} for each in values],
                }
            )
            line.update((each.name, value) for each, value in values.items())
    if directives:
        line["_aws"] = {"Timestamp": now_ms, "CloudWatchMetrics": directives}
    elif not told:  # a commit that nobody answered
        return
    # In one piece: other threads print lines as well.
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()


def _values_of(tally: MetricCounts) -> dict[metrics.Metric, list[float]]:
    values = {metric: [value] for metric, value in tuple(tally.values.items())}
    for metric, series in tuple(tally.series.items()):
        values[metric] = [round(value, 1) for value in series[:: 1 + (len(series) - 1) // VALUES_MAX]]
    return values
