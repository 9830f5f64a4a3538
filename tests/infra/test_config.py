"""The environments' map: what it may say, and how it refuses the rest."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from infra.config import LOCAL, Config, Pipeline, environments, load
from infra.environments import ENVIRONMENTS
from osqueue_cdk import Misconfigured
from tests.support.places import ROOT

PEOPLE = {"emails": ["ada@example.com"]}
TOPIC = "arn:aws:sns:eu-west-1:123456789012:pager"
CERTIFICATE = "arn:aws:acm:eu-west-1:123456789012:certificate/ab12"
PROTECTED = {"protected": True, "alarms": {"emails": ["ada@example.com"]}}
KEY = "arn:aws:kms:eu-west-1:123456789012:key/ab12-cd34"


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_environment_of_the_map_can_be_deployed_once_alarms_reach_somebody(name: str) -> None:
    assert load(name, {name: {**ENVIRONMENTS[name], "alarms": PEOPLE}}).prefix == f"osqueue-{name}"


# ── Whom alarms reach ────────────────────────────────────────────────────────
def test_prod_is_refused_until_alarms_reach_somebody() -> None:
    with pytest.raises(Misconfigured) as caught:
        load("prod")
    assert str(caught.value).startswith("environment prod: alarms.emails: alarms reach nobody")
    assert LOCAL.name in str(caught.value)


@pytest.mark.parametrize("alarms", [PEOPLE, {"topic": TOPIC}])
def test_an_address_or_a_topic_is_somebody(alarms: dict[str, Any]) -> None:
    assert load("prod", {"prod": {**ENVIRONMENTS["prod"], "alarms": alarms}}).alarms.reach_somebody


def test_what_is_not_protected_may_be_deployed_without() -> None:
    assert not load("dev").alarms.reach_somebody


# ── The local file ───────────────────────────────────────────────────────────
def test_without_a_local_file_the_map_is_all_there_is(tmp_path: Path) -> None:
    assert environments(tmp_path / "none.json") == ENVIRONMENTS


def test_a_local_file_adds_environments_and_replaces_keys(tmp_path: Path) -> None:
    local = tmp_path / LOCAL.name
    local.write_text(json.dumps({"prod": {"alarms": PEOPLE}, "mine": {"archive": {"glacier_days": None}}}))
    known = environments(local)
    prod = load("prod", known)
    assert (prod.alarms.emails, prod.log_days, prod.protected) == (("ada@example.com",), 90, True)
    assert load("mine", known).archive.glacier_days is None
    assert known["dev"] == ENVIRONMENTS["dev"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"dev": {"log_days": 7},}', "not readable as JSON: "),
        ("[]", "write an object of environments"),
        ('{"dev": 7}', "dev: its entry is no object of keys. Write {} for the defaults"),
    ],
)
def test_a_local_file_that_is_none_is_refused_by_its_name(tmp_path: Path, text: str, said: str) -> None:
    local = tmp_path / LOCAL.name
    local.write_text(text)
    with pytest.raises(Misconfigured) as caught:
        environments(local)
    assert str(caught.value).startswith(f"{LOCAL.name}: ")
    assert said in str(caught.value)


def test_what_a_local_file_says_is_checked_by_field(tmp_path: Path) -> None:
    local = tmp_path / LOCAL.name
    local.write_text('{"dev": {"log_days": 8}}')
    with pytest.raises(Misconfigured, match=r"^environment dev: log_days: 8 is none of "):
        load("dev", environments(local))


def test_git_ignores_the_local_file() -> None:
    ended = subprocess.run(["git", "check-ignore", "--no-index", "-q", LOCAL], cwd=ROOT, check=False)
    assert ended.returncode in (0, 128)  # 128: this is no clone
    assert LOCAL.name in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


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
        ({"log_dayz": 7}, "environment x: unknown key 'log_dayz'; known are jwt"),
        ({"name": "y"}, "unknown key 'name'"),
        ({"pipeline": {"minute": 7}}, "environment x, pipeline: unknown key 'minute'; known are executors"),
        (
            {"cors": {"origin": "*"}},
            "environment x, cors: unknown key 'origin'; known are origins, max_age_s",
        ),
        (
            {"domain": {"host": "a.b"}},
            "environment x, domain: unknown key 'host'; known are name, certificate",
        ),
        ({"throttle": {"rat": 7}}, "environment x, throttle: unknown key 'rat'; known are rate, burst"),
        (
            {"jwt": {"isuer": "https://a.example"}},
            "environment x, jwt: unknown key 'isuer'; known are issuer, audience, scopes",
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
        ("express_zone", {"express_zone": "us-east-1a"}),
        ("jwt.scopes", {"jwt": {"issuer": "https://a.example", "audience": ["jobs"], "scopes": "os queue"}}),
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
        ("alarms.topic", {"alarms": {"topic": "pager"}}),
        ("alarms.topic", {"region": "eu-west-2", "alarms": {"topic": TOPIC}}),
        ("cors.origins", {"cors": {"origins": []}}),
        ("cors.origins", {"cors": {"origins": ["app.example.com"]}}),
        ("cors.origins", {"cors": {"origins": ["https://app.example.com/"]}}),
        ("cors.max_age_s", {"cors": {"origins": ["*"], "max_age_s": 86_401}}),
        ("domain.name", {"domain": {"name": "https://jobs.example.com", "certificate": CERTIFICATE}}),
        ("domain.certificate", {"domain": {"name": "jobs.example.com", "certificate": "mine"}}),
        (
            "domain.certificate",
            {"region": "eu-west-2", "domain": {"name": "jobs.example.com", "certificate": CERTIFICATE}},
        ),
        ("domain.zone", {"domain": {"name": "jobs.example.com", "certificate": CERTIFICATE, "zone": "mine"}}),
        ("kms_key", {"kms_key": "alias/jobs"}),
        ("kms_key", {"region": "eu-west-2", "kms_key": KEY}),
        ("logs_kms_key", {"logs_kms_key": "alias/logs"}),
        ("logs_kms_key", {"region": "eu-west-2", "logs_kms_key": KEY}),
        ("topic_kms_key", {"topic_kms_key": "alias/aws/sns"}),
        ("topic_kms_key", {"region": "eu-west-2", "topic_kms_key": KEY}),
        ("canary.minutes", {"canary": {"minutes": 7}}),
        ("canary.errors", {"canary": {"errors": 0}}),
        ("tracing", {"tracing": "Active"}),
        ("bucket_stays", {"bucket_stays": False}),
        ("bucket_stays", {"bucket_stays": False, "queues_removable": True, **PROTECTED}),
        ("endpoints", {"endpoints": {"vpc": "vpc-1"}}),
        ("endpoints", {"endpoints": {"vpc": "vpc-1", "subnets": ["subnet-1"]}}),
        (
            "endpoints",
            {"endpoints": {"vpc": "vpc-1", "route_tables": ["rtb-1"], "security_groups": ["sg-1"]}},
        ),
        ("endpoints.vpc", {"endpoints": {"vpc": "default", "route_tables": ["rtb-1"]}}),
        ("endpoints.route_tables", {"endpoints": {"vpc": "vpc-1", "route_tables": ["main"]}}),
        ("alarms.emails", {"protected": True}),
        ("pipeline", {"pipeline": True}),
        ("pipeline.executors", {"pipeline": {"executors": 0}}),
        ("pipeline.hours", {"pipeline": {"hours": 0}}),
        ("pipeline.days", {"pipeline": {"days": 0}}),
        ("pipeline.silent_hours", {"pipeline": {"silent_hours": 1}}),
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
