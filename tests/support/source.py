"""The library's source as data: its modules, what each imports and what names it uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.places import ROOT

LIBRARY = ROOT / "layers/osqueue/python/osqueue"


def modules_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "node_modules" not in path.parts)


MODULES = modules_in(LIBRARY)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def dotted(path: Path) -> str:
    """The import name of a file: ``osqueue.stores.base``, ``simulation.world``."""
    base = LIBRARY.parent if path.is_relative_to(LIBRARY) else ROOT
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


@cache
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


@cache
def _nodes(tree: ast.AST) -> tuple[list[ast.Import | ast.ImportFrom], list[ast.Attribute]]:
    """The imports of a file and its dotted names, found once: the walk costs more than all the rules do."""
    imports: list[ast.Import | ast.ImportFrom] = []
    attributes: list[ast.Attribute] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            attributes.append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
    return imports, attributes


def imports_of(tree: ast.AST, path: Path) -> Iterator[str]:
    """Every module a file imports, those inside functions and type-checking blocks included."""
    imports, _ = _nodes(tree)
    for node in imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            origin = absolute(node, path)
            for alias in node.names:
                name = f"{origin}.{alias.name}"
                yield name if within(origin, "osqueue") and is_module(name) else origin


def names_used(tree: ast.AST, path: Path) -> Iterator[str]:
    """Every imported name a file uses, in full: ``from time import sleep; sleep()`` gives ``time.sleep``."""
    imports, attributes = _nodes(tree)
    origin_of: dict[str, str] = {}
    for node in imports:
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                origin_of[bound] = alias.name if alias.asname else bound
        else:
            for alias in node.names:
                full = f"{absolute(node, path)}.{alias.name}"
                origin_of[alias.asname or alias.name] = full
                yield full
    for attribute in attributes:
        parts = []
        inner: ast.expr = attribute
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in origin_of:
            yield ".".join([origin_of[inner.id], *reversed(parts)])


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file, read once: many rules look at the same files."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
