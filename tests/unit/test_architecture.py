"""The rules that keep the code simple, read from the source: who may know whom, and what is banned where."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.source import (
    LIBRARY,
    MODULES,
    dotted,
    imports_of,
    modules_in,
    names_used,
    parse,
    relative,
    within,
)

LINES_MAX = 520
UNIT = ROOT / "tests/unit"

# Code that shares the rule on size with the library. (That each module says what it is for, the linter holds.)
FOLDERS = (
    "layers/osqueue/python/osqueue",
    *("functions", "cdk", "infra", "pipeline", "simulation", "demo", "bench", "docs", "tests"),
)

# Every room of the library, the lowest first, and which of those before it a room may know. The modules of the root
# that everybody may know are the foundation.
FOUNDATION = (
    "masking",
    "errors",
    "limits",
    "forks",
    "threads",
    "lazy",
    "child_process",
    "clock",
    "crontab",
    "signals",
)
ENGINE = ("core", "stores", "commit")
THINGS = (*ENGINE, "model", "objects")
MAY_KNOW: dict[str, tuple[str, ...]] = {
    "core": (),
    "stores": (),
    "commit": ("core", "stores"),
    "model": ("core",),
    "aws_calls": ("core", "model"),
    "events": ("core", "model", "aws_calls"),
    "objects": (*ENGINE, "model"),
    "bulk": THINGS,
    "maintenance": (*THINGS, "bulk"),
    "operations": (*THINGS, "maintenance"),
    "contract": ("model",),
    "metering": (*ENGINE, "aws_calls", "events", "contract"),
    "client": (*THINGS, "operations", "contract"),
    "worker": (*THINGS, "operations"),
    "queue": (*THINGS, "aws_calls", "events", "maintenance", "operations", "client", "worker"),
    "election": (*ENGINE, "model", "queue"),
    "pacer": (*THINGS, "operations", "client", "queue"),
    "otel": (*ENGINE, "model", "operations", "worker"),
    "aws": (*THINGS, "aws_calls", "events", "metering", "operations", "worker", "queue"),
    "testing": (*THINGS, "aws_calls", "events", "maintenance", "operations", "worker", "queue", "aws"),
    "pytest_plugin": ("testing",),
    "server": (*THINGS, "events", "maintenance", "operations", "contract", "queue", "pacer"),
    "aws_lambda": (*THINGS, "aws_calls", "contract", "metering", "server"),
    "asgi": (*THINGS, "events", "contract", "client", "queue", "election", "server"),
    "devstack": ("stores", "aws_calls", "contract"),
    "pipeline": THINGS,
    "spark": (*THINGS, "bulk", "pipeline"),
    "cli": (
        *(
            *THINGS,
            "events",
            "bulk",
            "maintenance",
            "operations",
            "contract",
            "client",
            "worker",
            "queue",
            "election",
            "pacer",
        ),
        "asgi",
        "devstack",
        "pipeline",
    ),
}
CORE_KNOWS = {"errors", "limits"}  # no clock, no locks

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


SOURCES = [path for folder in FOLDERS for path in modules_in(ROOT / folder)]


def room_of(module: str) -> str:
    """The room that a module of the library lies in; its own name for one of the root, "" for the root itself."""
    return module.partition(".")[2].partition(".")[0]


def stranger(module: str, imported: str) -> str | None:
    """Why ``module`` may not import ``imported``, or None."""
    if not within(imported, "osqueue"):
        return None
    here, there = room_of(module), room_of(imported)
    if here == there or here in ("", "__main__") or there == "":
        return None  # within a room; or what the package offers as a whole, and who asks for it
    known = {*FOUNDATION} if here != "core" else CORE_KNOWS
    if here in FOUNDATION:
        known = {*FOUNDATION[: FOUNDATION.index(here)]}
    if there in known or there in MAY_KNOW.get(here, ()):
        return None
    return f"{module} imports {imported}: {here} knows only {sorted({*known, *MAY_KNOW.get(here, ())})}"


def circles(edges: dict[str, set[str]]) -> list[str]:
    """The modules that can be reached from themselves."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        ahead = [*edges[start]]
        while ahead:
            module = ahead.pop()
            if module not in found:
                found.add(module)
                ahead.extend(edges.get(module, ()))
        return found

    return sorted(module for module in edges if module in reached(module))


def banned(module: str, name: str) -> bool:
    """Whether a name reaches for the machine's clock or its randomness."""
    if within(module, "osqueue.clock"):
        return False
    return name in BANNED_NAMES or name.partition(".")[0] in BANNED_MODULES


def test_a_layer_knows_only_the_ones_below_it() -> None:
    reasons = [stranger(dotted(path), name) for path in MODULES for name in imports_of(parse(path), path)]
    assert [reason for reason in reasons if reason] == []


def test_every_room_is_named_with_those_it_may_know() -> None:
    rooms = {room_of(dotted(path)) for path in MODULES} - {"", "__main__", *FOUNDATION}
    assert rooms == MAY_KNOW.keys()
    order = list(MAY_KNOW)
    assert [room for room in order if not {*MAY_KNOW[room]} <= {*order[: order.index(room)]}] == []


def test_no_module_can_be_reached_from_itself() -> None:
    edges = {
        dotted(path): {name for name in imports_of(parse(path), path) if within(name, "osqueue")}
        for path in MODULES
        if dotted(path) != "osqueue"  # it offers what lies in the rooms
    }
    assert circles(edges) == []


def test_only_the_clock_module_touches_the_clock_and_randomness() -> None:
    used = [(dotted(path), name) for path in MODULES for name in names_used(parse(path), path)]
    assert [each for each in used if banned(*each)] == []


def test_the_simulator_draws_from_seeded_generators_alone() -> None:
    simulator = modules_in(ROOT / "simulation")
    used = [(relative(path), name) for path in simulator for name in names_used(parse(path), path)]
    assert [each for each in used if banned("simulation", each[1]) and each[1] != "random.Random"] == []


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


def test_no_module_grows_past_its_one_idea() -> None:
    lines = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {name: count for name, count in lines.items() if count > LINES_MAX} == {}, (
        "it wants to be two modules"
    )


def test_no_class_name_means_two_things() -> None:
    homes: dict[str, list[str]] = {}
    for path in [path for path in SOURCES if "tests" not in path.relative_to(ROOT).parts]:
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(relative(path))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_a_test_is_named_after_the_module_that_it_tests() -> None:
    """Whoever looks for the tests of ``stores/file.py`` finds ``unit/stores/test_file.py`` and ``test_file_….py``."""
    modules = {
        (room_of(dotted(path)), path.parent.name if path.stem == "__init__" else path.stem)
        for path in MODULES
    }
    modules |= {("", path.stem) for path in LIBRARY.glob("*.py")} | {("", "architecture")}
    modules |= {(folder, path.stem) for folder in ("bench", "demo") for path in modules_in(ROOT / folder)}
    lost = []
    for path in UNIT.rglob("test_*.py"):
        words = path.stem.removeprefix("test_").split("_")
        room = "/".join(path.relative_to(UNIT).parts[:-1])
        names = {(room, "_".join(words[:count])) for count in range(1, len(words) + 1)}
        if not names & modules:
            lost.append(relative(path))
    assert lost == []


def test_a_unit_test_needs_this_python_alone() -> None:
    """What starts processes, Java, Node or a server stands in another folder, so that ``make unit`` stays quick."""
    heavy = re.compile(
        r"^\s*(?:import|from) (?:subprocess|multiprocessing|pty|pyspark|aws_cdk|infra|pipeline)\b"
        r"|\b(?:s3_endpoint|s3_bucket)\b",
        re.MULTILINE,
    )
    texts = {path: path.read_text(encoding="utf-8") for path in modules_in(UNIT) if path != Path(__file__)}
    assert {relative(path): found[0] for path, text in texts.items() if (found := heavy.search(text))} == {}


def test_no_module_marks_a_test_function_of_another() -> None:
    """A mark changes the function itself, and with it the cases of the module that defines the function.

    Mark a class that holds it as a ``staticmethod``, or the whole module with ``pytestmark``.
    """
    marked = re.compile(r"^\s*test_\w+ = (?!staticmethod\()[\w.]+\(.*", re.MULTILINE)
    texts = {path: path.read_text(encoding="utf-8") for path in modules_in(ROOT / "tests")}
    assert marked.search("test_a = marks(others.test_a)")
    assert not marked.search("test_a = others.test_a")
    assert {relative(path): found[0] for path, text in texts.items() if (found := marked.search(text))} == {}


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
        ("osqueue.clock", set()),
    ],
)
def test_these_rules_see_through_aliases(module: str, caught: set[str]) -> None:
    names = names_used(ast.parse(SOURCE_THAT_CHEATS), LIBRARY / "limits.py")
    assert {name for name in names if banned(module, name)} == caught


@pytest.mark.parametrize(
    ("module", "imported", "allowed"),
    [
        ("osqueue.core.reduce", "osqueue.limits", True),
        ("osqueue.core.reduce", "osqueue.clock", False),
        ("osqueue.core.reduce", "osqueue.stores.base", False),
        ("osqueue.errors", "osqueue.limits", False),
        ("osqueue.stores.s3", "osqueue.stores.base", True),
        ("osqueue.stores.s3", "osqueue.commit.protocol", False),
        ("osqueue.commit.protocol", "osqueue.stores.base", True),
        ("osqueue.commit.protocol", "osqueue.queue.blocking", False),
        ("osqueue.client.transports.http", "osqueue.contract.operations", True),
        ("osqueue.client.transports.http", "osqueue.server.app", False),
        ("osqueue.contract.operations", "osqueue.operations.claims", False),
        ("osqueue.queue.blocking", "osqueue.stores.memory", True),
        ("osqueue.queue.blocking", "osqueue.cli", False),
        ("osqueue.cli.app", "osqueue.queue.blocking", True),
    ],
)
def test_the_rule_on_rooms_tells_right_from_wrong(module: str, imported: str, allowed: bool) -> None:
    assert (stranger(module, imported) is None) is allowed


def test_a_circle_is_seen_however_long_it_is() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]
