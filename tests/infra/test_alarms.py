"""Alarms: what they look at, when they tell somebody, and whom. Expressions are worked out as CloudWatch does it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from osqueue.contract import functions as table
from osqueue.contract import metrics
from osqueue.contract.functions import FUNCTIONS

ENVIRONMENTS = ("dev", "staging", "prod")
METRICS_IN_AN_ALARM_MAX = 10  # of CloudWatch
ASKED = [each.name for each in FUNCTIONS if each.schedule_minutes is None]


def alarms_of(made: Any) -> dict[str, dict[str, Any]]:
    """The alarms of an environment, by their names without its own."""
    found = made.resources("operations", "AWS::CloudWatch::Alarm").values()
    return {each["AlarmName"].removeprefix(f"{made.config.prefix}-"): each for each in found}


def metrics_of(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    """The metrics that an alarm looks at."""
    if "MetricName" in alarm:
        return [alarm]
    return [each["MetricStat"]["Metric"] for each in alarm["Metrics"] if "MetricStat" in each]


def expression_of(alarm: dict[str, Any]) -> str:
    (said,) = [each["Expression"] for each in alarm["Metrics"] if "Expression" in each]
    return str(said)


def told(alarm: dict[str, Any], **values: float | None) -> bool:
    """Whether an alarm is raised where its metrics have these values in one period; None is one that says nothing."""

    def fill(value: float | None, other: float) -> float:
        return other if value is None else value

    def either(which: bool, one: float, other: float) -> float:
        return one if which else other

    names = {"IF": either, "FILL": fill, "SUM": sum, "DIFF": lambda value: value, **values}
    worked_out = eval(expression_of(alarm), {"__builtins__": {}}, names)  # noqa: S307 - it is ours
    assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    return bool(worked_out >= alarm["Threshold"])


# ── What there is ────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_there_is_an_alarm_for_everything_that_wants_somebody(name: str, environments: Any) -> None:
    of_pipeline = {
        f"pipeline-{what}" for what in ("failed", "endings-lost", "not-run", "not-started", "capacity")
    }
    assert {*alarms_of(environments[name])} == {
        *("oldest-age", "dead-letters", "reaper-not-run", "conflict-rate"),
        *("gateway-errors", "faults", "events-lost", "consumer-absent", "consumers-busy"),
        *(f"{what}-{each}" for what in ("errors", "throttles") for each in ASKED),
        *(of_pipeline if environments[name].config.pipeline is not None else ()),
    }


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_alarms_look_at_metrics_that_the_functions_emit(name: str, environments: Any) -> None:
    seen = [
        each
        for alarm in alarms_of(environments[name]).values()
        for each in metrics_of(alarm)
        if not each["Namespace"].startswith("AWS/")  # what AWS counts by itself
    ]
    emitted = {each.name for each in metrics.OF_DEPLOYMENT}
    assert {each["MetricName"] for each in seen} <= emitted
    assert {each["Namespace"] for each in seen} == {table.METRICS_NAMESPACE}
    assert all(each["Dimensions"] == [{"Name": metrics.SERVICE, "Value": f"osqueue-{name}"}] for each in seen)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_alarm_looks_at_no_more_metrics_than_cloudwatch_takes(name: str, environments: Any) -> None:
    most = max(len(metrics_of(each)) for each in alarms_of(environments[name]).values())
    assert most <= METRICS_IN_AN_ALARM_MAX


def test_a_reaper_that_says_nothing_is_one_that_does_not_run(prod: Any) -> None:
    silent = {name for name, each in alarms_of(prod).items() if each["TreatMissingData"] == "breaching"}
    assert silent == {"reaper-not-run"}


def test_silence_counts_as_nothing_in_each_period_of_its_own(staging: Any) -> None:
    """Of a metric as it is CloudWatch would take older data points in place of missing ones, and tell later."""
    silent = [each for each in alarms_of(staging).values() if each["TreatMissingData"] == "breaching"]
    assert [expression_of(each) for each in silent] == ["FILL(counted, 0)"] * 2


# ── When somebody is told ────────────────────────────────────────────────────
def test_one_old_dead_letter_tells_nobody_and_a_new_one_does(prod: Any) -> None:
    alarm = alarms_of(prod)["dead-letters"]
    assert expression_of(alarm) == "DIFF(counted)"
    assert not told(alarm, counted=0)  # as many as before
    assert told(alarm, counted=1)
    (metric,) = metrics_of(alarm)
    assert metric["MetricName"] == metrics.FAILED_SO_FAR.name  # which a redrive or a purge does not lower
    # An increase takes two values, so two periods have to be read.
    assert (alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"]) == (2, 1)


@pytest.mark.parametrize(
    ("bad", "invoked", "raised"),
    [
        (20, 300_000, False),  # of 1,000 a second: noise
        (3_000, 300_000, True),  # one in a hundred
        (4, 4, False),  # too few to say anything
        (5, 5, True),
        (None, 300_000, False),
    ],
)
@pytest.mark.parametrize("name", ["errors-enqueue", "errors-claim"])
def test_invocations_that_fail_are_told_by_their_share(
    name: str, bad: float | None, invoked: float, raised: bool, prod: Any
) -> None:
    assert told(alarms_of(prod)[name], bad=bad, invoked=invoked) is raised


def test_refused_invocations_are_told_by_their_share_also_where_all_are(prod: Any) -> None:
    """Lambda counts no refused one among the invocations."""
    alarm = alarms_of(prod)["throttles-claim"]
    assert not told(alarm, bad=20, invoked=300_000)
    assert told(alarm, bad=50, invoked=4_000)
    assert told(alarm, bad=50, invoked=None)


def test_answers_of_the_gateway_are_told_by_their_share(prod: Any) -> None:
    alarm = alarms_of(prod)["gateway-errors"]
    assert not told(alarm, bad=20, requests=300_000)
    assert told(alarm, bad=3_000, requests=300_000)
    seen = metrics_of(alarm)
    assert {(each["Namespace"], each["MetricName"]) for each in seen} == {
        ("AWS/ApiGateway", "5xx"),
        ("AWS/ApiGateway", "Count"),
    }
    parameters = prod.templates["operations"]["Parameters"]
    (asked,) = {parameters[each["Dimensions"][0]["Value"]["Ref"]]["Default"] for each in seen}
    assert asked == "/osqueue-prod/api-id"


def test_faults_are_told_by_their_share_of_all_requests_also_while_some_functions_have_none(
    prod: Any,
) -> None:
    alarm = alarms_of(prod)["faults"]
    quiet = dict.fromkeys(ASKED, None)
    assert told(alarm, bad=6, **{**quiet, "claim": 100.0})
    assert not told(alarm, bad=6, **{**quiet, "claim": 100_000.0})
    names = {
        each["Dimensions"][0]["Value"] for each in metrics_of(alarm) if each["MetricName"] == "Invocations"
    }
    assert names == {f"osqueue-prod-{each}" for each in ASKED}


def test_events_that_are_lost_are_told(staging: Any) -> None:
    alarm = alarms_of(staging)["events-lost"]
    (metric,) = metrics_of(alarm)
    assert (metric["MetricName"], alarm["Threshold"]) == (metrics.LOST.name, 5)
    endings = alarms_of(staging)["pipeline-endings-lost"]
    assert {each["MetricName"] for each in metrics_of(endings)} == {"FailedInvocations"}
    assert told(endings, failed=None, succeeded=1)
    assert not told(endings, failed=None, succeeded=None)


def test_a_consumer_that_does_not_come_is_told_and_one_that_is_at_its_limit(prod: Any) -> None:
    found = alarms_of(prod)
    for name, metric, statistic, threshold, periods in (
        ("consumer-absent", metrics.WAKE_TRIES, "Maximum", 3, 2),
        ("consumers-busy", metrics.CONSUMERS_BUSY, "Minimum", 100, 12),  # at every look of an hour
    ):
        alarm = found[name]
        (seen,) = alarm["Metrics"]
        assert seen["MetricStat"]["Metric"]["MetricName"] == metric.name
        assert seen["MetricStat"]["Stat"] == statistic
        assert (alarm["Threshold"], alarm["EvaluationPeriods"]) == (threshold, periods)


def test_what_is_noise_is_for_the_configuration_to_say(synthesise: Any) -> None:
    made = synthesise("x", {"x": {"alarms": {"errors": 50, "error_share": 0.2}}})
    alarm = alarms_of(made)["errors-claim"]
    assert not told(alarm, bad=49, invoked=49)
    assert not told(alarm, bad=50, invoked=1_000)
    assert told(alarm, bad=50, invoked=250)


# ── Whom they tell ───────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_first_deployment_sends_no_mail(name: str, environments: Any) -> None:
    """A new alarm becomes OK; nobody has to be told of that."""
    for alarm in alarms_of(environments[name]).values():
        assert len(alarm["AlarmActions"]) == 1
        assert "OKActions" not in alarm


def test_each_address_of_the_configuration_hears_of_alarms(synthesise: Any) -> None:
    people = ["ada@example.com", "grace@example.com"]
    made = synthesise("x", {"x": {"alarms": {"emails": people}}})
    found = made.resources("operations", "AWS::SNS::Subscription").values()
    assert sorted((each["Protocol"], each["Endpoint"]) for each in found) == [
        ("email", each) for each in people
    ]


def test_a_topic_of_somebody_else_hears_of_alarms_as_well_and_of_their_end(synthesise: Any) -> None:
    topic = "arn:aws:sns:eu-west-1:123456789012:pager"
    made = synthesise("x", {"x": {"alarms": {"topic": topic}}})
    for alarm in alarms_of(made).values():
        assert alarm["AlarmActions"][1:] == alarm["OKActions"] == [topic]


# ── The dashboard ────────────────────────────────────────────────────────────
def test_the_dashboard_names_only_metrics_that_are_emitted(prod: Any, policies: Any) -> None:
    board = policies.plain(prod.only("operations", "AWS::CloudWatch::Dashboard")["DashboardBody"])
    searched = set(re.findall(r'MetricName=\\+"(\w+)\\+"', board))
    named = set(re.findall(rf'"{table.METRICS_NAMESPACE}","(\w+)","{metrics.SERVICE}"', board))
    assert searched
    assert named
    assert searched <= {each.name for each in metrics.OF_QUEUES}
    assert named <= {each.name for each in metrics.OF_DEPLOYMENT}
    assert json.loads(board)["widgets"]
