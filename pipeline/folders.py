"""Folders and files wherever a path may lead (``file:``, ``s3:``), through the file systems that Spark itself uses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from pyspark.sql import SparkSession

from osqueue.errors import NotSupported, Rejected, Unavailable

_EXAMPLES = "file:///var/lib/jobs, s3://bucket/prefix"
_PATTERN = "*?[]{}\\"  # what Spark expands in the paths that it reads


class Entry(Struct, frozen=True):
    """What lies in a folder."""

    name: str
    path: str
    folder: bool
    size: int  # bytes


def place(address: str, field: str) -> str:
    """Where an address of a store, or a plain path, leads to, as Spark writes it. Raises Rejected."""
    if not address:
        raise Rejected(f"{field}: it is empty. Give a folder or an address like {_EXAMPLES}.", field=field)
    scheme, separator, rest = address.partition("://")
    rest, _, options = rest.partition("?") if separator else (address, "", "")
    if "endpoint=" in options:
        raise NotSupported(
            f"{field}: Spark reads s3:// on EMR only, not from an endpoint. Copy the folder, or use the data source.",
            field=field,
        )
    if separator and scheme not in ("file", "s3"):
        raise NotSupported(f"{field}: Spark cannot read {scheme}://. Use one of {_EXAMPLES}.", field=field)
    if not rest.strip("/"):
        raise Rejected(f"{field}: it names no folder. Give one like {_EXAMPLES}.", field=field)
    path = rest.rstrip("/") if separator and scheme == "s3" else str(Path(rest).resolve())
    if found := next((each for each in path if each in _PATTERN), ""):
        raise Rejected(
            f"{field}: Spark takes the {found} in {path} for a pattern. Use a folder without any of {_PATTERN}",
            field=field,
        )
    return f"s3://{path}" if separator and scheme == "s3" else f"file://{path}"


class Folders:
    """The file systems of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._path: Any = spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
        self._settings: Any = spark._jsc.hadoopConfiguration()

    def _of(self, path: str) -> tuple[Any, Any]:
        where = self._path(path)
        return where.getFileSystem(self._settings), where

    def exists(self, path: str) -> bool:
        """Is there anything?"""
        system, where = self._of(path)
        return bool(system.exists(where))

    def entries(self, path: str) -> list[Entry]:
        """What lies directly in a folder, by name; nothing where there is no such folder."""
        system, where = self._of(path)
        if not system.exists(where):
            return []
        found = []
        for status in system.listStatus(where):
            name = str(status.getPath().getName())
            folder = bool(status.isDirectory())
            found.append(Entry(name, f"{path}/{name}", folder, 0 if folder else int(status.getLen())))
        return sorted(found, key=lambda each: each.name)

    def below(self, path: str, depth: int, start: Sequence[str] = ("",)) -> list[str]:
        """The folders so many levels below one, or below some within it; relative to it, without hidden ones."""
        found = list(start)
        for _ in range(depth):
            found = [
                f"{each}/{entry.name}".lstrip("/")
                for each in found
                for entry in self.entries(f"{path}/{each}".rstrip("/"))
                if entry.folder and not entry.name.startswith(("_", "."))
            ]
        return found

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it; nothing where there is none."""
        system, where = self._of(path)
        system.delete(where, True)

    def move(self, source: str, target: str) -> None:
        """Move a folder to where none is. Raises Unavailable where somebody else moves one there as well."""
        system, where = self._of(source)
        goal = self._path(target)
        names = [each.name for each in self.entries(source)]
        system.mkdirs(goal.getParent())
        moved = not system.exists(goal) and system.rename(where, goal)
        if not moved or [each.name for each in self.entries(target)] != names:
            raise Unavailable(
                f"{target} could not be written. If another run writes the same tables, wait for its end; then repeat."
            )
