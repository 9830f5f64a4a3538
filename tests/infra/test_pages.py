"""The pages on deployment say what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from infra import layers
from infra.access import ACCESS
from infra.config import Config

ROOT = Path(__file__).resolve().parents[2]


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


def test_every_key_of_the_configuration_is_described() -> None:
    rows = "\n".join(re.findall(r"^\| (`.*?) \|", page("deploy.md"), re.MULTILINE))
    names = {field.name for field in msgspec.structs.fields(Config)} - {"name"}
    assert {name for name in names if f"`{name}`" not in rows} == set()


def test_every_alarm_has_its_section(prod: Any) -> None:
    headings = set(re.findall(r"^## (\S+)$", page("runbook.md"), re.MULTILINE))
    alarms = {each["AlarmName"] for each in prod.resources("operations", "AWS::CloudWatch::Alarm").values()}
    kinds = {
        re.sub(r"^(errors|throttles)-.*", r"\1-FUNCTION", each.removeprefix("osqueue-prod-"))
        for each in alarms
    }
    assert headings == kinds


def test_the_sizes_of_the_layer_are_those_that_are_built(tmp_path: Path) -> None:
    built = layers.build(tmp_path / "layer.zip")
    (said,) = re.findall(r"^\| together; zipped [\d.]+ \| ([\d.]+) \|$", page("deploy.md"), re.MULTILINE)
    assert abs(float(said) - built.unzipped / layers.MB) < 0.5


def test_what_npm_installs_comes_from_its_public_registry() -> None:
    lock = msgspec.json.decode((ROOT / "package-lock.json").read_bytes())
    found = {name: each for name, each in lock["packages"].items() if name}
    assert found["node_modules/aws-cdk"]["version"] == "2.1148.1"
    assert all(each["resolved"].startswith("https://registry.npmjs.org/") for each in found.values())
    assert all("integrity" in each for each in found.values())
