"""The environments' map: what it may say, and how it refuses the rest."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from infra.config import Config, Misconfigured, Pipeline, load
from infra.environments import ENVIRONMENTS


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_environment_of_the_map_is_one_that_can_be_deployed(name: str) -> None:
    assert load(name).prefix == f"osqueue-{name}"


@pytest.mark.parametrize("name", ["production", "Dev", "../dev"])
def test_an_unknown_environment_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        load(name)
    assert repr(name) in str(caught.value)
    assert all(known in str(caught.value) for known in ENVIRONMENTS)


@pytest.mark.parametrize("name", [None, "", 7])
def test_without_an_environment_the_known_ones_are_named(name: object) -> None:
    with pytest.raises(Misconfigured, match=r"-c env=NAME, one of dev, staging, prod"):
        load(name)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"log_dayz": 7}, "environment x: unknown key 'log_dayz'; known are account"),
        ({"name": "y"}, "unknown key 'name'"),
        ({"pipeline": {"minute": 7}}, "environment x, pipeline: unknown key 'minute'; known are executors"),
        ({"throttle": {"rat": 7}}, "environment x, throttle: unknown key 'rat'; known are rate, burst"),
        (
            {"jwt": {"isuer": "https://a.example"}},
            "environment x, jwt: unknown key 'isuer'; known are issuer, audience",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_the_known_ones(entry: dict[str, Any], said: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        load("x", {"x": entry})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("field", "entry"),
    [
        ("log_days", {"log_days": 8}),
        ("log_days", {"log_days": "30"}),
        ("log_level", {"log_level": "CHATTY"}),
        ("account", {"account": "12345"}),
        ("account", {"account": "123456789012\n"}),
        ("region", {"region": "Frankfurt"}),
        ("region", {"region": "eu-west-1\n"}),
        ("throttle.rate", {"throttle": {"rate": 0}}),
        ("throttle.burst", {"throttle": {"burst": 1.5}}),
        ("jwt.issuer", {"jwt": {"issuer": "http://plain.example", "audience": ["jobs"]}}),
        ("jwt.issuer", {"jwt": {"issuer": "https://a.example/pool one", "audience": ["jobs"]}}),
        ("jwt.issuer", {"jwt": {"issuer": "https://a.example/pool\n", "audience": ["jobs"]}}),
        ("jwt.audience", {"jwt": {"issuer": "https://a.example", "audience": []}}),
        ("audience", {"jwt": {"issuer": "https://a.example"}}),
        ("concurrency", {"concurrency": {"enqueu": 5}}),
        ("concurrency", {"concurrency": {"enqueue": 0}}),
        ("events_archive_days", {"events": False, "events_archive_days": 7}),
        ("archive.infrequent_days", {"archive": {"infrequent_days": 29}}),
        ("archive.glacier_days", {"archive": {"infrequent_days": 60, "glacier_days": 80}}),
        ("alarms.conflict_share", {"alarms": {"conflict_share": 1.5}}),
        ("alarms.emails", {"alarms": {"emails": ["nobody"]}}),
        ("alarms.emails", {"alarms": {"emails": ["ada@example.com\n"]}}),
        ("alarms.emails", {"alarms": {"emails": ["ada@example.com", "ada@example.com"]}}),
        ("pipeline", {"pipeline": True}),
        ("pipeline.executors", {"pipeline": {"executors": 0}}),
        ("pipeline.hours", {"pipeline": {"hours": 0}}),
        ("pipeline.days", {"pipeline": {"days": 0}}),
        ("alarms.pipeline_hours", {"alarms": {"pipeline_hours": 1}}),
        ("protected", {"protected": "yes"}),
    ],
)
def test_a_bad_value_names_its_field(field: str, entry: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured) as caught:
        load("x", {"x": entry})
    assert str(caught.value).startswith("environment x: ")
    assert field in str(caught.value)


@pytest.mark.parametrize("entry", [None, [], "dev"])
def test_an_entry_that_has_no_keys_is_refused(entry: Any) -> None:
    with pytest.raises(Misconfigured, match=r"^environment x: its entry is no map of keys\. Write \{\} "):
        load("x", {"x": entry})


@pytest.mark.parametrize("name", ["Prod", "a_b", "x" * 17, "1st"])
def test_a_name_that_cannot_begin_aws_names_is_refused(name: str) -> None:
    with pytest.raises(Misconfigured, match="name: "):
        load(name, {name: {}})


def test_a_configuration_does_not_change() -> None:
    config = load("dev")
    with pytest.raises(AttributeError):
        config.log_days = 1  # type: ignore[misc]


def test_what_is_left_out_has_its_default() -> None:
    assert msgspec.structs.replace(load("x", {"x": {}}), name="y") == Config(name="y")


def test_there_is_no_pipeline_unless_it_is_asked_for() -> None:
    assert load("x", {"x": {}}).pipeline is None
    assert load("x", {"x": {"pipeline": {}}}).pipeline == Pipeline()
