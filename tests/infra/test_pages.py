"""The pages on deployment say what the code says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from infra import layers, pipeline
from infra.config import Config, Pipeline, environments, load
from osqueue import limits
from osqueue.contract import functions as table
from osqueue.server.answers import ANSWER_BYTES_MAX
from osqueue_cdk.access import (
    ACCESS,
    ARCHIVE,
    BACKUPS,
    BODIES,
    HEADS,
    IDS,
    INTENTS,
    REGISTER,
    SEGMENTS,
    TABLES,
)
from tests.support.places import ROOT


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def cell(keys: tuple[str, ...]) -> str:
    return ", ".join(f"`{each}`" for each in keys)


def test_the_table_of_roles_is_that_of_the_code() -> None:
    text = page("security.md")
    wanted = [
        f"| {name} | {cell(each.read)} | {cell(each.write)} | {cell(each.delete)} |"
        for name, each in ACCESS.items()
    ]
    rows = [
        line
        for line in text.splitlines()
        if line.startswith("|") and "`????/" in line and line.count("|") == 5
    ]
    assert rows == wanted


def test_every_place_of_the_bucket_is_described() -> None:
    text = page("stores.md")
    shards = {each.replace("????/*/*", "<hash>/<name>/<shard>") for each in (HEADS, SEGMENTS, BODIES, TABLES)}
    folders = shards | {INTENTS, IDS, REGISTER, ARCHIVE, BACKUPS}
    assert {each for each in folders if f"\n| `{each.removesuffix('*')}" not in text} == set()


def test_every_key_of_the_configuration_is_described() -> None:
    rows = "\n".join(re.findall(r"^\| (`.*?) \|", page("deploy.md"), re.MULTILINE))
    names = {field.name for field in msgspec.structs.fields(Config)} - {"name"}
    assert {name for name in names if f"`{name}`" not in rows} == set()


def test_the_limits_of_the_deployed_functions_are_those_of_the_code() -> None:
    text = page("deploy.md")
    for each in table.FUNCTIONS:
        assert f"| {each.name} | {each.timeout_s} s | {each.memory_mb:,} MB |" in text
    said = dict(re.findall(r"^\| ([a-z`][^|]*?) \| ([\d,.]+(?: \w+)?) \|", text, re.MULTILINE))
    mb = limits.KB * limits.KB
    wanted = {
        "the gateway waits for an answer": f"{table.GATEWAY_TIMEOUT_S} s",
        "a call is answered before its function is stopped": f"{table.DEADLINE_MARGIN_S:g} s",
        "`wait` of a claim or an enqueue": f"{table.WAIT_S_MAX:g} s",
        "body of a request": f"{table.BODY_BYTES_MAX / mb:.2f} MB",
        "body of an answer": f"{ANSWER_BYTES_MAX / mb:.2f} MB",
        "payload or result of one job in a request": f"{table.PAYLOAD_BYTES_MAX // limits.KB} KB",
        "uploaded payload or result of one job": f"{table.CONTENT_BYTES_MAX / mb:.0f} MB",
        "jobs, completions, claims or leases in one call": f"{limits.ITEMS_PER_REQUEST_MAX:,}",
        "jobs in one claim": f"{limits.CLAIM_LIMIT_MAX:,}",
    }
    assert {name: value for name, value in said.items() if name in wanted} == wanted


def test_every_alarm_has_its_section(staging: Any) -> None:
    headings = set(re.findall(r"^## (\S+)$", page("runbook.md"), re.MULTILINE))
    alarms = {
        each["AlarmName"] for each in staging.resources("operations", "AWS::CloudWatch::Alarm").values()
    }
    kinds = {
        re.sub(r"^(errors|throttles)-.*", r"\1-FUNCTION", each.removeprefix("osqueue-staging-"))
        for each in alarms
    }
    assert headings == kinds


def test_the_sizes_of_the_layer_are_those_that_are_built(tmp_path: Path) -> None:
    built = layers.build(tmp_path / "layer.zip")
    (said,) = re.findall(r"^\| together; zipped [\d.]+ \| ([\d.]+) \|$", page("deploy.md"), re.MULTILINE)
    assert abs(float(said) - built.unzipped / layers.MB) < 0.5


def test_every_key_of_the_pipeline_is_described_with_its_default() -> None:
    text = page("deploy.md")
    for field in msgspec.structs.fields(Pipeline):
        assert f"\n| `{field.name}` | {field.default} | " in text


def test_the_pages_on_the_pipeline_tell_its_figures() -> None:
    text, limits = page("pipeline.md"), (pipeline.QUEUED_MINUTES_MAX, pipeline.RUN_MINUTES_MAX)
    assert f"`{pipeline.RELEASE}`" in text
    assert f"{pipeline.WORKER_CPUS} vCPU, {pipeline.WORKER_GB} GB" in text
    assert (
        "one at a time: a second one waits, up to {} minutes. Each is cancelled after {}".format(*limits)
        in text
    )
    assert f"--hours {Pipeline().hours} --days {Pipeline().days}" in text
    outputs = set(re.findall(r"told (\w+)\)", text))
    assert outputs == {
        *("ApplicationId", "JobsRoleArn", "EntryPoint", "SubmitParameters", "TablesAddress", "ReportAddress")
    }


def test_what_npm_installs_comes_from_its_public_registry() -> None:
    lock = msgspec.json.decode((ROOT / "package-lock.json").read_bytes())
    found = {name: each for name, each in lock["packages"].items() if name}
    assert found["node_modules/aws-cdk"]["version"] == "2.1148.1"
    assert all(each["resolved"].startswith("https://registry.npmjs.org/") for each in found.values())
    assert all("integrity" in each for each in found.values())


def test_every_setting_that_is_shown_can_be_deployed(tmp_path: Path) -> None:
    shown = [json.loads(each) for each in re.findall(r"^```json\n(.*?)^```", page("deploy.md"), re.M | re.S)]
    keys = {field.name for field in msgspec.structs.fields(Config)}
    settings = [each for each in shown if set(each) <= keys]
    assert {key for each in settings for key in each} == {
        *("jwt", "cors", "domain", "kms_key", "queues_removable"),
        *("logs_kms_key", "topic_kms_key", "tracing", "endpoints", "canary", "express_zone"),
    }
    for each in settings:
        load("x", {"x": each})
    (local,) = [each for each in shown if "prod" in each]
    (tmp_path / "local.json").write_text(json.dumps(local), encoding="utf-8")
    for name in local:
        load(name, environments(tmp_path / "local.json"))
    assert all("Statement" in each for each in shown if each not in settings and each != local)
