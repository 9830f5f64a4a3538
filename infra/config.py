"""The configuration of one environment: read from the environments' map and a local file, checked, and frozen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from osqueue_cdk.names import prefix_of
from osqueue_cdk.settings import DeploymentSettings, Misconfigured, Name, Part, check, converted

from .environments import ENVIRONMENTS

# Entries that a clone keeps to itself: git ignores the file.
LOCAL = Path(__file__).resolve().parents[1] / "environments.local.json"

Region = Annotated[str, Meta(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]\Z")]


class Pipeline(Part, frozen=True, kw_only=True):
    """The Spark pipeline, once an hour: it costs money whether there are jobs or not, so it is there when asked for."""

    executors: Annotated[int, Meta(ge=1, le=100)] = 4  # at most, beside the driver; each has 2 vCPU and 8 GB
    hours: Annotated[int, Meta(ge=1, le=48)] = 6  # archived hours that each run compacts anew
    days: Annotated[int, Meta(ge=1, le=92)] = 7  # days that each run measures anew and reports
    silent_hours: Annotated[int, Meta(ge=2, le=24)] = (
        3  # without a run that ended well, until somebody is told
    )


class Config(DeploymentSettings, frozen=True, kw_only=True):
    """One environment: a deployment over several stacks, in an account and a region."""

    name: Name
    account: Annotated[str, Meta(pattern=r"^[0-9]{12}\Z")] | None = None  # None: that of the credentials
    region: Region | None = None  # None: likewise
    pipeline: Pipeline | None = None  # None: there is none

    @property
    def prefix(self) -> str:
        """Begins the names of everything deployed."""
        return prefix_of(self.name)


def environments(local: Path = LOCAL) -> dict[str, Mapping[str, Any]]:
    """The map, and what the local file adds: new environments, and keys in place of those that the map gives.

    Raises Misconfigured where the file is not a JSON object of objects.
    """
    known: dict[str, Mapping[str, Any]] = {**ENVIRONMENTS}
    if not local.exists():
        return known
    try:
        added = json.loads(local.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise Misconfigured(f"{local.name}: not readable as JSON: {error}") from None
    if not isinstance(added, dict):
        raise Misconfigured(f'{local.name}: write an object of environments: {{"dev": {{…}}}}')
    for name, entry in added.items():
        if not isinstance(entry, dict):
            raise Misconfigured(
                f"{local.name}: {name}: its entry is no object of keys. Write {{}} for the defaults"
            )
        known[name] = {**known.get(name, {}), **entry}
    return known


def load(name: object, among: Mapping[str, Mapping[str, Any]] = ENVIRONMENTS) -> Config:
    """The configuration of an environment. Raises Misconfigured: what is wrong, and what is known."""
    known = ", ".join(among)
    if not isinstance(name, str) or not name:
        raise Misconfigured(f"no environment named: cdk deploy -c env=NAME, one of {known}")
    if name not in among:
        raise Misconfigured(f"env: there is no environment {name!r}; known are {known}")
    given = among[name]
    if not isinstance(given, Mapping):
        raise Misconfigured(f"environment {name}: its entry is no map of keys. Write {{}} for the defaults")
    _check_names(given, Config, name)
    try:
        config = converted({"name": name, **given}, Config)
        check(config, config.region)
    except Misconfigured as error:
        raise Misconfigured(
            f"environment {name}: {error}. Its keys stand in infra/environments.py, or in {LOCAL.name} for this clone"
            " alone"
        ) from None
    return config


def _check_names(given: Mapping[str, Any], kind: type[Struct], place: str) -> None:
    """Refuse unknown keys with the known ones: msgspec names the key alone."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    if kind is Config:
        del fields["name"]  # that of the entry
    for key, value in given.items():
        if key not in fields:
            known = ", ".join(fields)
            raise Misconfigured(f"environment {place}: unknown key {key!r}; known are {known}")
        part = next((each for each in _parts(fields[key].type)), None)
        if part is not None and isinstance(value, Mapping):
            _check_names(value, part, f"{place}, {key}")


def _parts(kind: Any) -> list[type[Struct]]:
    """The structs that a field may hold."""
    members = getattr(kind, "__args__", (kind,))
    return [each for each in members if isinstance(each, type) and issubclass(each, Part)]
