"""The app, synthesised once for each environment: templates as CloudFormation would get them."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tests.support.places import ROOT

CONTEXT = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
# On Node 20 both say on standard error that it is no longer supported. It works; the warning is for who deploys.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
os.environ.setdefault("AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED", "true")


class Synthesised(NamedTuple):
    """What one environment becomes."""

    config: Any
    folder: Path
    templates: dict[str, dict[str, Any]]  # by the stack's duty: "storage", "api", …

    def resources(self, stack: str, kind: str) -> dict[str, dict[str, Any]]:
        """The properties of a stack's resources of one type, by logical id."""
        found = self.templates[stack]["Resources"].items()
        return {name: each.get("Properties", {}) for name, each in found if each["Type"] == kind}

    def only(self, stack: str, kind: str) -> dict[str, Any]:
        """The properties of the one resource of this type."""
        (properties,) = self.resources(stack, kind).values()
        return properties


Synthesise = Callable[..., Synthesised]


class OneStack(NamedTuple):
    """A stack of somebody's own app."""

    path: Path
    template: dict[str, Any]

    def resources(self, kind: str) -> dict[str, dict[str, Any]]:
        """The properties of its resources of one type, by logical id."""
        found = self.template["Resources"].items()
        return {name: each.get("Properties", {}) for name, each in found if each["Type"] == kind}


InOneStack = Callable[..., OneStack]


@pytest.fixture(scope="session")
def empty_layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zip file in the layer's place: templates name it, and do not look into it."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("python/nothing.py", "")
    path = tmp_path_factory.mktemp("layer") / "layer.zip"
    path.write_bytes(data.getvalue())
    return path


@pytest.fixture(scope="session")
def empty_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in place of the archive of the Spark jobs."""
    path = tmp_path_factory.mktemp("jobs") / "pipeline.tgz"
    path.write_bytes(b"nothing")
    return path


@pytest.fixture(scope="session")
def synthesise(empty_layer: Path, empty_jobs: Path, tmp_path_factory: pytest.TempPathFactory) -> Synthesise:
    """Synthesises an environment; the second argument is the map to take it from."""
    from aws_cdk import App

    from infra.app import add_stacks
    from infra.config import load
    from infra.environments import ENVIRONMENTS

    # What environments.local.json says of whoever deploys.
    told = {"prod": {**ENVIRONMENTS["prod"], "alarms": {"emails": ["on-call@example.com"]}}}

    def run(name: str, among: dict[str, dict[str, Any]] = {**ENVIRONMENTS, **told}) -> Synthesised:  # noqa: B006
        folder = tmp_path_factory.mktemp(name)
        config = load(name, among)
        app = App(outdir=str(folder), context=CONTEXT)
        add_stacks(app, config, empty_layer, empty_jobs if config.pipeline is not None else None)
        app.synth()  # ends with an error where cdk-nag finds what nobody has acknowledged
        found = sorted(folder.glob("*.template.json"))
        templates = {
            path.name.removeprefix(f"{config.prefix}-").removesuffix(".template.json"): json.loads(
                path.read_text(encoding="utf-8")
            )
            for path in found
        }
        return Synthesised(config, folder, templates)

    return run


@pytest.fixture(scope="session")
def in_one_stack(empty_layer: Path, tmp_path_factory: pytest.TempPathFactory) -> InOneStack:
    """Synthesises a stack of somebody's own app, in which a function fills; cdk-nag has nothing to say about ours."""
    from aws_cdk import App, Stack, Validations
    from cdk_nag import AwsSolutionsChecks

    def run(fill: Callable[[Any, Any], None], **stack: Any) -> OneStack:
        from infra.app import HANDLERS
        from osqueue_cdk import Assets

        folder = tmp_path_factory.mktemp("theirs")
        app = App(outdir=str(folder), context=CONTEXT)
        Validations.of(app).add_plugins(AwsSolutionsChecks(app))
        fill(Stack(app, "Theirs", **stack), Assets(empty_layer, HANDLERS))
        app.synth()
        path = folder / "Theirs.template.json"
        return OneStack(path, json.loads(path.read_text(encoding="utf-8")))

    return run


@pytest.fixture(scope="session")
def environments(synthesise: Synthesise) -> dict[str, Synthesised]:
    """Every environment of the map."""
    from infra.environments import ENVIRONMENTS

    return {name: synthesise(name) for name in ENVIRONMENTS}


@pytest.fixture
def dev(environments: dict[str, Synthesised]) -> Synthesised:
    return environments["dev"]


@pytest.fixture
def staging(environments: dict[str, Synthesised]) -> Synthesised:
    """The one that has the pipeline."""
    return environments["staging"]


@pytest.fixture
def prod(environments: dict[str, Synthesised]) -> Synthesised:
    return environments["prod"]


@pytest.fixture(scope="session")
def policies() -> ModuleType:
    """``policies.py``, which stands beside this file and in no package."""
    spec = importlib.util.spec_from_file_location("infra_policies", Path(__file__).with_name("policies.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def lint() -> Callable[[list[Path]], list[str]]:
    """Return what cfn-lint finds, as `.cfnlintrc.yaml` sets it up. It runs here, since its start takes long."""
    from cfnlint.config import ConfigMixIn
    from cfnlint.runner import Runner

    def run(paths: list[Path]) -> list[str]:
        with contextlib.chdir(ROOT):
            found = Runner(ConfigMixIn([str(path) for path in paths])).run()
            return [f"{each.rule.id} {each.filename}:{each.linenumber}: {each.message}" for each in found]

    return run
