"""The Dockerfile, the Compose file and the manifest of Kubernetes fit the package, as far as no engine is needed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from typing import Any

import click
import pytest
import yaml

from osqueue.asgi.server import ServeOptions
from osqueue.cli.app import app
from osqueue.contract.operations import BY_NAME
from tests.support.places import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
PAGE = (ROOT / "docs/server.md").read_text()


def manifests() -> list[dict[str, Any]]:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    return list(yaml.safe_load_all(text))


def parsed(arguments: Sequence[str]) -> dict[str, Any]:
    """The parameters of a command line of ours. Raises a usage error."""
    name, *rest = arguments
    command = app.get_command(click.Context(app), name)
    assert command is not None
    return command.make_context(name, list(rest)).params


def lines(instruction: str) -> list[str]:
    return re.findall(rf"^{instruction} (.*)$", DOCKERFILE, re.MULTILINE)


def pod() -> dict[str, Any]:
    deployment, _ = manifests()
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return found


def commands() -> dict[str, list[str]]:
    """Every command that a container runs."""
    services = {f"compose {name}": each["command"] for name, each in COMPOSE["services"].items()}
    (container,) = pod()["containers"]
    return {"image": json.loads(lines("CMD")[0]), **services, "kubernetes": container["args"]}


@pytest.mark.parametrize("name", commands())
def test_what_containers_run_is_a_command_of_ours(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSQUEUE_ADDRESS", "file:///var/lib/osqueue")
    found = parsed(commands()[name])
    if "host" in found:
        assert found["tokens"], "it would not listen beyond its own machine"


def test_the_image_is_made_of_what_there_is() -> None:
    for line in lines("COPY"):
        *sources, _ = [each for each in line.split() if not each.startswith("--")]
        if not line.startswith("--from"):
            for source in sources:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in (ROOT / ".dockerignore").read_text().splitlines()
    extras = re.search(r"/src\[(.*?)\]", DOCKERFILE)
    assert extras is not None
    there = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras[1].split(",")) <= set(there)
    assert lines("ENTRYPOINT") == ['["osqueue"]']


def test_ports_paths_and_times_fit_the_server() -> None:
    port = ServeOptions("memory://").port
    drain_s = ServeOptions("memory://").drain_s
    (container,) = pod()["containers"]
    assert lines("EXPOSE") == [str(port)]
    assert container["ports"] == [{"containerPort": port}]
    assert COMPOSE["services"]["server"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    paths = {name: container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")}
    assert paths["livenessProbe"] == {"path": BY_NAME["health"].path, "port": port}
    assert paths["readinessProbe"] == {"path": "/readyz", "port": port}
    assert f"127.0.0.1:{port}{BY_NAME['health'].path}" in lines("HEALTHCHECK")[0]
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod()["terminationGracePeriodSeconds"] > drain_s + pause
    for service in COMPOSE["services"].values():
        assert float(service["stop_grace_period"].removesuffix("s")) > drain_s


def test_the_service_finds_the_pods() -> None:
    deployment, service = manifests()
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
