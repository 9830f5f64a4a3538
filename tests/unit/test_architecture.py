"""The rules that keep the code simple, read from the source: who may know whom, and what is banned where."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import ROOT

LIBRARY = ROOT / "layers/osqueue/python/osqueue"
LINES_MAX = 520

# Product code that shares the rules on size and docstrings with the library.
FOLDERS = ("layers/osqueue/python/osqueue", "functions", "infra", "pipeline", "demo", "bench", "tests")

FOUNDATION = {"osqueue.errors", "osqueue.forks", "osqueue.limits"}

# What each layer may know of the package, by prefix. What is not named here sits on top of all of these.
MAY_KNOW = {
    "osqueue.errors": set[str](),
    "osqueue.limits": set[str](),
    "osqueue.forks": set[str](),
    "osqueue.clock": FOUNDATION,
    "osqueue.core": FOUNDATION | {"osqueue.core"},
    "osqueue.stores": FOUNDATION | {"osqueue.clock", "osqueue.stores"},
    "osqueue.client.transports": FOUNDATION
    | {"osqueue.clock", "osqueue.stores.address", "osqueue.stores.faulty", "osqueue.client.transports"}
    | {"osqueue.contract.operations", "osqueue.contract.functions", "osqueue.contract.error_codes"},
    "osqueue.commit": FOUNDATION | {"osqueue.clock", "osqueue.core", "osqueue.stores.base", "osqueue.commit"},
}

# Those on top of everything: nobody below may import them.
EDGES = ("osqueue.cli", "simulation", "osqueue.testing", "osqueue.devstack", "osqueue.demo")

# Standard modules that compute and do nothing else: no clock, no randomness, no input or output.
PURE = {
    *(
        "__future__",
        "abc",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "copy",
        "dataclasses",
        "datetime",
        "enum",
    ),
    *(
        "functools",
        "gzip",
        "hashlib",
        "heapq",
        "itertools",
        "json",
        "math",
        "operator",
        "re",
        "string",
        "struct",
    ),
    *("types", "typing", "uuid", "zlib"),
}
# Names in those modules that reach outside all the same.
IMPURE_NAMES = {"gzip.open", "gzip.GzipFile", "json.load", "json.dump"}
# Built-in calls that reach outside.
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint"}

BANNED_MODULES = {"random", "secrets"}
BANNED_NAMES = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.sleep",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "os.urandom",
    "uuid.uuid1",
    "uuid.uuid4",
}


def modules_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "node_modules" not in path.parts)


MODULES = modules_in(LIBRARY)
SOURCES = [path for folder in FOLDERS for path in modules_in(ROOT / folder)]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def dotted(path: Path) -> str:
    """The import name of a library file: ``osqueue.stores.base``."""
    parts = path.relative_to(LIBRARY.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def is_module(name: str) -> bool:
    place = LIBRARY.parent.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def absolute(node: ast.ImportFrom, path: Path) -> str:
    """The module that a ``from … import`` names, with leading dots resolved."""
    if not node.level:
        return node.module or ""
    package = dotted(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    package = package[: len(package) - (node.level - 1)]
    return ".".join([*package, *([node.module] if node.module else [])])


def imports_of(tree: ast.AST, path: Path) -> Iterator[str]:
    """Every module a file imports, those inside functions and type-checking blocks included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = absolute(node, path)
            for alias in node.names:
                name = f"{origin}.{alias.name}"
                yield name if within(origin, "osqueue") and is_module(name) else origin


def names_used(tree: ast.AST, path: Path) -> Iterator[str]:
    """Every imported name a file uses, in full: ``from time import sleep; sleep()`` gives ``time.sleep``."""
    origin_of: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                origin_of[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{absolute(node, path)}.{alias.name}"
                origin_of[alias.asname or alias.name] = full
                yield full
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            parts = []
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute):
                parts.append(inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name) and inner.id in origin_of:
                yield ".".join([origin_of[inner.id], *reversed(parts)])


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def stranger(module: str, imported: str) -> str | None:
    """Why ``module`` may not import ``imported``, or None."""
    if not within(imported, "osqueue"):
        return None
    for layer, known in MAY_KNOW.items():
        if within(module, layer) and not any(within(imported, name) for name in known):
            return f"{module} imports {imported}: {layer} knows only {sorted(known) or 'nobody'}"
    for edge in EDGES:
        if within(imported, edge) and not any(within(module, other) for other in EDGES):
            return f"{module} imports {imported}, which sits on top of it"
    return None


def banned(module: str, name: str) -> bool:
    """Whether a name reaches for the machine's clock or its randomness."""
    if within(module, "osqueue.clock"):
        return False
    if within(module, "simulation") and name == "random.Random":
        return False  # a generator with a seed of its own replays
    return name in BANNED_NAMES or name.partition(".")[0] in BANNED_MODULES


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_layer_knows_only_the_ones_below_it(path: Path) -> None:
    reasons = [stranger(dotted(path), name) for name in imports_of(parse(path), path)]
    assert [reason for reason in reasons if reason] == []


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_only_the_clock_module_touches_the_clock_and_randomness(path: Path) -> None:
    assert [name for name in names_used(parse(path), path) if banned(dotted(path), name)] == []


@pytest.mark.parametrize("path", modules_in(LIBRARY / "core"), ids=relative)
def test_the_core_computes_and_does_nothing_else(path: Path) -> None:
    tree = parse(path)
    foreign = {
        name
        for name in imports_of(tree, path)
        if not within(name, "osqueue") and name.split(".")[0] not in PURE | {"msgspec"}
    }
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS
    }
    shared = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    reaching = IMPURE_NAMES.intersection(names_used(tree, path))
    assert (foreign, calls, shared, reaching) == (set(), set(), set(), set())


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_every_module_starts_with_a_docstring(path: Path) -> None:
    assert ast.get_docstring(parse(path)), f"{relative(path)} says nothing about itself in its first line"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_module_grows_past_its_one_idea(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LINES_MAX, f"{relative(path)} has {lines} lines: it wants to be two modules"


SOURCE_THAT_CHEATS = """
import time as clock
from datetime import datetime
from random import Random, choice
import random
clock.sleep(1); datetime.now(); random.Random(7); random.random()
"""


@pytest.mark.parametrize(
    ("module", "caught"),
    [
        (
            "osqueue.queue.blocking",
            {"time.sleep", "datetime.datetime.now", "random.Random", "random.choice", "random.random"},
        ),
        (
            "simulation.world",
            {"time.sleep", "datetime.datetime.now", "random.choice", "random.random"},
        ),
        ("osqueue.clock", set()),
    ],
)
def test_these_rules_see_through_aliases(module: str, caught: set[str]) -> None:
    names = names_used(ast.parse(SOURCE_THAT_CHEATS), LIBRARY / "queue.py")
    assert {name for name in names if banned(module, name)} == caught


@pytest.mark.parametrize(
    ("module", "imported", "allowed"),
    [
        ("osqueue.core.reduce", "osqueue.limits", True),
        ("osqueue.core.reduce", "osqueue.clock", False),
        ("osqueue.core.reduce", "osqueue.stores.base", False),
        ("osqueue.stores.s3", "osqueue.stores.base", True),
        ("osqueue.stores.s3", "osqueue.commit.protocol", False),
        ("osqueue.commit.protocol", "osqueue.stores.base", True),
        ("osqueue.commit.protocol", "osqueue.stores.memory", False),
        ("osqueue.commit.protocol", "osqueue.queue.blocking", False),
        ("osqueue.client.transports.http", "osqueue.contract.operations", True),
        ("osqueue.client.transports.http", "osqueue.server.app", False),
        ("osqueue.queue.blocking", "osqueue.stores.memory", True),
        ("osqueue.queue.blocking", "osqueue.cli", False),
        ("osqueue.cli.main", "osqueue.queue.blocking", True),
    ],
)
def test_the_rule_on_layers_tells_right_from_wrong(module: str, imported: str, allowed: bool) -> None:
    assert (stranger(module, imported) is None) is allowed
