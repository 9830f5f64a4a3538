"""The page that the wheel brings is what its sources make."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import osqueue.asgi
from tests.support.patience import PATIENCE
from tests.support.places import ROOT

SOURCES = ROOT / "dashboard"
STATIC = Path(osqueue.asgi.__file__).parent / "static"


def run(*command: str) -> None:
    ended = subprocess.run(
        command, cwd=SOURCES, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_build_of_the_sources_makes_the_same_bytes(tmp_path: Path) -> None:
    run("node", "build.mjs", str(tmp_path))
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {
        each.name: each.read_bytes() for each in STATIC.iterdir()
    }, "make dashboard"


def test_the_sources_have_no_mistakes_of_types() -> None:
    run("node_modules/.bin/tsc", "--noEmit")


def test_every_package_is_named_with_its_version_and_comes_from_the_registry() -> None:
    wanted = json.loads((SOURCES / "package.json").read_bytes())
    locked = json.loads((SOURCES / "package-lock.json").read_bytes())["packages"]
    for name, version in (wanted["dependencies"] | wanted["devDependencies"]).items():
        assert locked[f"node_modules/{name}"]["version"] == version
    for path, package in locked.items():
        assert not path or package["resolved"].startswith("https://registry.npmjs.org/"), path
        assert not path or package["integrity"], path
