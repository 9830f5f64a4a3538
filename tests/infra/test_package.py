"""The wheel of osqueue-cdk: built and unpacked elsewhere, it synthesises the apps of its page of the documentation."""

from __future__ import annotations

import email
import json
import re
import sys
import zipfile
from pathlib import Path

import pytest

import osqueue
from infra import release
from osqueue.contract.functions import FUNCTIONS
from tests.support.places import ROOT


@pytest.fixture(scope="module")
def wheel(empty_layer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As it would be released, with an empty layer."""
    return release.build_constructs(empty_layer, tmp_path_factory.mktemp("dist"), offline=True)


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return email.message_from_string(archive.read(name).decode())


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elsewhere")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_it_brings_the_layer_and_every_handler(wheel: Path, empty_layer: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert archive.read("osqueue_cdk/assets/layer.zip") == empty_layer.read_bytes()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"osqueue_cdk"}
    handlers = {name for name in names if name.startswith("osqueue_cdk/assets/functions/")}
    assert handlers == {f"osqueue_cdk/assets/functions/{each.name}/handler.py" for each in FUNCTIONS}
    assert "osqueue_cdk/py.typed" in names


def test_it_is_of_the_library_s_version_and_needs_that_one(metadata: email.message.Message) -> None:
    assert metadata["Name"] == "osqueue-cdk"
    assert metadata["Version"] == osqueue.__version__
    needed = metadata.get_all("Requires-Dist", [])
    assert f"osqueue=={osqueue.__version__}" in needed
    assert {re.split(r"[=<>]", each)[0] for each in needed} == {"osqueue", "aws-cdk-lib", "constructs"}


def test_it_takes_the_cdk_that_the_tests_run_on(metadata: email.message.Message) -> None:
    pinned = re.findall(r'"aws-cdk-lib==([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (needed,) = [each for each in metadata.get_all("Requires-Dist", []) if each.startswith("aws-cdk-lib")]
    (least,) = re.findall(r">=([\d.]+)", needed)
    assert pinned[0].startswith(least)


def test_its_page_leads_to_the_files_of_its_release_from_anywhere(metadata: email.message.Message) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", str(metadata.get_payload()))
    begin = re.compile(rf"https://\S+/blob/v{re.escape(osqueue.__version__)}/(docs/[\w-]+\.md)(#[\w-]+)?")
    found = [begin.fullmatch(each) for each in links]
    assert len(found) > 5
    assert all(each is not None and (ROOT / each[1]).is_file() for each in found)


def test_the_apps_of_its_page_are_synthesised_by_it_alone(unpacked: Path, tmp_path: Path) -> None:
    """With the packages of this environment; ``make release`` installs those that it needs alone."""
    outputs = release.synthesise_apps(Path(sys.executable), tmp_path, PYTHONPATH=str(unpacked))
    assert {*outputs} == {"app.py", "mail.py", "reports.py"}
    shop = json.loads((outputs["app.py"] / "shop.template.json").read_text(encoding="utf-8"))
    kinds = [each["Type"] for each in shop["Resources"].values()]
    assert kinds.count("AWS::Lambda::Function") == len(FUNCTIONS) + 1
    uploaded = {path.read_bytes() for path in outputs["app.py"].glob("asset.*.zip")}
    assert (unpacked / "osqueue_cdk/assets/layer.zip").read_bytes() in uploaded
    mail = json.loads((outputs["mail.py"] / "mail.template.json").read_text(encoding="utf-8"))
    (attached,) = [
        each["Properties"] for each in mail["Resources"].values() if "Consumer" in each["Properties"]
    ]
    assert (attached["Queue"], attached["Consumer"]) == ("emails", "mailer")
    reports = json.loads((outputs["reports.py"] / "reports.template.json").read_text(encoding="utf-8"))
    assert "Fn::ImportValue" not in json.dumps(reports)
    (policy,) = [each for each in reports["Resources"].values() if each["Type"] == "AWS::IAM::Policy"]
    assert "????/reports/*" in json.dumps(policy)


def test_an_app_that_is_refused_is_told(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import nowhere\n", encoding="utf-8")
    with pytest.raises(release.Unreleasable, match="No module named 'nowhere'"):
        release.run(sys.executable, "app.py", cwd=tmp_path)
