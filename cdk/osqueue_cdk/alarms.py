"""What somebody is told of: each alarm as data. What it means and what to do: docs/runbook.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as watch
from aws_cdk import aws_lambda as lambda_
from msgspec import Struct

from osqueue.contract import metrics
from osqueue.contract.functions import METRICS_NAMESPACE
from osqueue.contract.metrics import Metric

from .settings import Alarms

PERIOD = Duration.minutes(5)
RACE_PERIOD = Duration.minutes(15)
COMMITS_MIN = 100  # in that time: of a handful of commits a share says nothing


class AlarmSpec(Struct, frozen=True, kw_only=True):
    """One alarm."""

    name: str  # after the deployment's prefix; its section in docs/runbook.md
    what: str  # a sentence
    metric: watch.IMetric
    threshold: float
    periods: int = 1  # one after the other
    missing: watch.TreatMissingData = watch.TreatMissingData.NOT_BREACHING
    operator: watch.ComparisonOperator = watch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD


def alarms_of(prefix: str, limits: Alarms, functions: Mapping[str, lambda_.IFunction]) -> Iterator[AlarmSpec]:
    """Every alarm of a deployment."""
    yield AlarmSpec(
        name="oldest-age",
        what="A job has been claimable for long and nobody claims it.",
        metric=count(prefix, metrics.OLDEST, "Maximum"),
        threshold=limits.oldest_s,
        periods=2,
    )
    yield AlarmSpec(
        name="dead-letters",
        what="A queue holds dead letters: jobs whose attempts ran out.",
        metric=count(prefix, metrics.DEAD, "Maximum"),
        threshold=limits.dead,
    )
    yield AlarmSpec(
        name="reaper-not-run",
        what="No pass of the reaper has ended well.",
        metric=filled(count(prefix, metrics.PASSES, "Sum")),
        threshold=1,
        periods=2,
        missing=watch.TreatMissingData.BREACHING,
        operator=watch.ComparisonOperator.LESS_THAN_THRESHOLD,
    )
    yield AlarmSpec(
        name="conflict-rate",
        what="Many commits lose their race: too many writers for the shards.",
        metric=_lost_races(prefix),
        threshold=limits.conflict_share,
        periods=2,
    )
    yield AlarmSpec(
        name="faults",
        what="Requests are answered with 500 or 503: the bucket refuses, does not answer, or a function has a defect.",
        metric=count(prefix, metrics.FAULTS, "Sum"),
        threshold=limits.errors,
    )
    for name, function in functions.items():
        yield AlarmSpec(
            name=f"errors-{name}",
            what=f"Invocations of {name} fail: it crashes, or is stopped by its timeout or memory.",
            metric=function.metric_errors(period=PERIOD, statistic="Sum"),
            threshold=limits.errors,
        )
    for name, function in functions.items():
        yield AlarmSpec(
            name=f"throttles-{name}",
            what=f"Invocations of {name} are refused: no concurrency is left.",
            metric=function.metric_throttles(period=PERIOD, statistic="Sum"),
            threshold=1,
            periods=2,
        )


def _lost_races(prefix: str) -> watch.MathExpression:
    lost = count(prefix, metrics.CONFLICTS, "Sum", RACE_PERIOD)
    won = count(prefix, metrics.COMMITS, "Sum", RACE_PERIOD)
    return watch.MathExpression(
        expression=f"IF(won + lost >= {COMMITS_MIN}, lost / (won + lost), 0)",
        using_metrics={"won": won, "lost": lost},
        label="Share of commits that lost their race",
        period=RACE_PERIOD,
    )


# ── Metrics ──────────────────────────────────────────────────────────────────
def count(prefix: str, metric: Metric, statistic: str, period: Duration = PERIOD) -> watch.Metric:
    """A metric over all queues of a deployment."""
    return watch.Metric(
        namespace=METRICS_NAMESPACE,
        metric_name=metric.name,
        dimensions_map={metrics.SERVICE: prefix},
        statistic=statistic,
        period=period,
        label=metric.what,
    )


def by_queue(prefix: str, metric: Metric, statistic: str) -> watch.MathExpression:
    """A metric of each queue, whichever there are: queues are made by their first job."""
    search = (
        f"SEARCH('{{{METRICS_NAMESPACE},{metrics.SERVICE},{metrics.QUEUE}}} "
        f'MetricName="{metric.name}" {metrics.SERVICE}="{prefix}"\', '
        f"'{statistic}', {PERIOD.to_seconds()})"
    )
    return watch.MathExpression(expression=search, using_metrics={}, label="", period=PERIOD)


def filled(metric: watch.Metric) -> watch.MathExpression:
    """A metric with 0 where it says nothing.

    Whatever an alarm makes of missing data, CloudWatch looks back over more periods than the alarm has, and what it
    finds there counts in place of what is missing: silence would be told hours late. What says nothing at all stays
    missing.
    """
    return watch.MathExpression(
        expression="FILL(counted, 0)",
        using_metrics={"counted": metric},
        label=metric.label,
        period=metric.period,
    )
