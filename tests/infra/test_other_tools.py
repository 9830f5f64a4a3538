"""The pages on Terraform and on a firewall: what they write is what the code has, and what they synthesise is one."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import osqueue
from infra import release
from osqueue.contract.functions import FUNCTIONS
from osqueue.contract.operations import ROUTES
from osqueue_cdk.access import ACCESS, INTENTS
from tests.support.places import ROOT

TERRAFORM = (ROOT / "docs/terraform.md").read_text(encoding="utf-8")


def run_example(page: str, folder: Path) -> str:
    """What the program of a page prints, with the packages of this environment."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    ((name, program),) = re.findall(r"^```python\n# ([\w/]+\.py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (folder / name).write_text(program, encoding="utf-8")
    return release.run(sys.executable, name, cwd=folder, CDK_OUTDIR=str(folder / "out"))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return json.loads(run_example("terraform.md", tmp_path_factory.mktemp("terraform")))


def test_the_tables_for_terraform_are_those_of_the_code(tables: Any) -> None:
    assert [*tables["functions"]] == [*tables["access"]] == [each.name for each in FUNCTIONS]
    assert tables["routes"] == {f"{each.method} {each.path}": each.function for each in ROUTES}
    assert tables["access"]["claim"]["delete"] == [*ACCESS["claim"].delete]
    for words in re.findall(r"local\.tables\.(\w+)", TERRAFORM):
        assert words in tables
    for word in re.findall(r"each\.value\.(read|write|delete)\b", TERRAFORM):
        assert all(word in each for each in tables["access"].values())
    for word in re.findall(r"= +each\.value\.(\w+_\w+)", TERRAFORM):
        assert all(word in each for each in tables["functions"].values())


def test_terraform_gives_functions_what_the_stacks_give_them(prod: Any, policies: Any) -> None:
    made = next(iter(prod.resources("functions", "AWS::Lambda::Function").values()))
    more = {"OSQUEUE_EVENT_BUS", "OSQUEUE_LOG_LEVEL"}  # which the page leaves out
    variables = {name for name in made["Environment"]["Variables"] if name not in more}
    assert {
        each for each in variables if not re.search(rf"^      {each} +=", TERRAFORM, re.MULTILINE)
    } == set()
    assert f'"{made["Runtime"]}"' in TERRAFORM
    assert f'log_format            = "{made["LoggingConfig"]["LogFormat"]}"' in TERRAFORM
    assert f'application_log_level = "{made["LoggingConfig"]["ApplicationLogLevel"]}"' in TERRAFORM
    assert "handler          = local.tables.handler" in TERRAFORM
    policy = prod.only("storage", "AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    sids = {each["Sid"] for each in policy if "Sid" in each}
    assert sids <= set(re.findall(r'sid += "(\w+)"', TERRAFORM))
    assert f'prefix = "{INTENTS.removesuffix("*")}"' in TERRAFORM


def test_the_page_on_terraform_takes_the_release_that_it_belongs_to() -> None:
    named = set(re.findall(r"osqueue[-_]cdk(?:==|-)(\d[\w.]*?)(?:-py3|\s)", TERRAFORM))
    assert named == {osqueue.__version__}


def test_a_firewall_lets_the_name_through_that_callers_have_signed(tmp_path: Path) -> None:
    run_example("firewall.md", tmp_path)
    made = json.loads((tmp_path / "out/edge.template.json").read_text(encoding="utf-8"))["Resources"].values()
    (firewall,) = [each["Properties"] for each in made if each["Type"] == "AWS::WAFv2::WebACL"]
    (edge,) = [
        each["Properties"]["DistributionConfig"]
        for each in made
        if each["Type"] == "AWS::CloudFront::Distribution"
    ]
    assert (firewall["Scope"], len(firewall["Rules"])) == ("CLOUDFRONT", 2)
    assert "Fn::GetAtt" in edge["WebACLId"]
    assert edge["Aliases"] == ["jobs.example.com"]
    behaviour = edge["DefaultCacheBehavior"]
    assert behaviour["CachePolicyId"] == "4135ea2d-6df8-44a3-9df3-4b5a84be39ad"  # CachingDisabled
    assert behaviour["OriginRequestPolicyId"] == "216adef6-5c7f-47e4-b989-5492eafa07d3"  # AllViewer
    assert {"PATCH", "POST", "DELETE"} <= {*behaviour["AllowedMethods"]}
