"""What somebody is told of: each alarm as data. What it means and what to do: docs/runbook.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as watch
from msgspec import Struct

from osqueue.contract import metrics
from osqueue.contract.functions import FUNCTIONS, METRICS_NAMESPACE, deployed_name
from osqueue.contract.metrics import Metric
from osqueue.core.consumers import DOUBTFUL_TRIES

from .settings import Alarms

PERIOD = Duration.minutes(5)
RACE_PERIOD = Duration.minutes(15)
BUSY_PERIODS = 12  # an hour
COMMITS_MIN = 100  # in that time: of a handful of commits a share says nothing


class AlarmSpec(Struct, frozen=True, kw_only=True):
    """One alarm."""

    name: str  # after the deployment's prefix; its section in docs/runbook.md
    what: str  # a sentence
    metric: watch.IMetric
    threshold: float
    periods: int = 1  # one after the other
    of_them: int | None = None  # in how many of them the threshold is reached; None: in all
    missing: watch.TreatMissingData = watch.TreatMissingData.NOT_BREACHING
    operator: watch.ComparisonOperator = watch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD


def alarms_of(prefix: str, limits: Alarms, api_id: str) -> Iterator[AlarmSpec]:
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
        what="Jobs have become dead letters: their attempts ran out.",
        metric=_increase(count(prefix, metrics.FAILED_SO_FAR, "Maximum")),
        threshold=limits.dead,
        # An increase is of two values, and CloudWatch reads no more of them than it is asked for with certainty.
        periods=2,
        of_them=1,
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
        name="gateway-errors",
        what="The API answers with 5xx: a function fails, is throttled or does not answer in time, or says so itself.",
        metric=_share(_of_gateway(api_id, "5xx"), {"requests": _of_gateway(api_id, "Count")}, limits),
        threshold=limits.error_share,
    )
    # Whether a function that has a schedule does what it is for another alarm tells.
    asked = {
        each.name: of_function(prefix, each.name, "Invocations")
        for each in FUNCTIONS
        if each.schedule_minutes is None
    }
    yield AlarmSpec(
        name="faults",
        what="Requests are answered with 500 or 503: the bucket refuses, does not answer, or a function has a defect.",
        metric=_share(count(prefix, metrics.FAULTS, "Sum"), asked, limits),
        threshold=limits.error_share,
    )
    yield AlarmSpec(
        name="events-lost",
        what="Events did not reach the event bus. The jobs are not concerned.",
        metric=count(prefix, metrics.LOST, "Sum"),
        threshold=limits.errors,
    )
    yield AlarmSpec(
        name="consumer-absent",
        what="A push consumer was invoked again and again for jobs that wait, and does not come.",
        metric=count(prefix, metrics.WAKE_TRIES, "Maximum"),
        threshold=DOUBTFUL_TRIES,
        periods=2,
    )
    yield AlarmSpec(
        name="consumers-busy",
        what="A push consumer has been at work for an hour as often as it may.",
        metric=count(prefix, metrics.CONSUMERS_BUSY, "Minimum"),
        threshold=100,
        periods=BUSY_PERIODS,
    )
    for name, invoked in asked.items():
        yield AlarmSpec(
            name=f"errors-{name}",
            what=f"Invocations of {name} fail: it crashes, or is stopped by its timeout or memory.",
            metric=_share(of_function(prefix, name, "Errors"), {"invoked": invoked}, limits),
            threshold=limits.error_share,
        )
    for name, invoked in asked.items():
        refused = of_function(prefix, name, "Throttles")
        yield AlarmSpec(
            name=f"throttles-{name}",
            what=f"Invocations of {name} are refused: no concurrency is left.",
            # Lambda does not count those among the invocations.
            metric=_share(refused, {"invoked": invoked}, limits, counted_among=False),
            threshold=limits.error_share,
            periods=2,
        )


def _share(
    bad: watch.IMetric, among: Mapping[str, watch.IMetric], limits: Alarms, counted_among: bool = True
) -> watch.MathExpression:
    """The share of requests that went wrong; 0 while there are few of these. Where nothing is said there was none."""
    parts = [f"FILL({name}, 0)" for name in (*among, *(() if counted_among else ("bad",)))]
    # Not with +, which would know nothing wherever one of the metrics says nothing.
    everything = f"SUM([{', '.join(parts)}])"
    return watch.MathExpression(
        expression=f"IF(FILL(bad, 0) >= {limits.errors}, FILL(bad, 0) / {everything}, 0)",
        using_metrics={"bad": bad, **among},
        label="Share that went wrong",
        period=PERIOD,
    )


def _of_gateway(api_id: str, name: str) -> watch.Metric:
    return watch.Metric(
        namespace="AWS/ApiGateway",
        metric_name=name,
        dimensions_map={"ApiId": api_id},
        statistic="Sum",
        period=PERIOD,
    )


def _increase(metric: watch.Metric) -> watch.MathExpression:
    return watch.MathExpression(
        expression="DIFF(counted)",
        using_metrics={"counted": metric},
        label=f"New: {metric.label}",
        period=metric.period,
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


def of_function(prefix: str, function: str, name: str, statistic: str = "Sum") -> watch.Metric:
    """What Lambda counts of a function."""
    return watch.Metric(
        namespace="AWS/Lambda",
        metric_name=name,
        dimensions_map={"FunctionName": deployed_name(prefix, function)},
        statistic=statistic,
        period=PERIOD,
        label=function,
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
