"""Which keys a folder holds: files below it, in the order of S3.

Pipes, sockets, devices, links that lead nowhere and names that are not UTF-8 are passed over: other programs made them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from .base import List


def walk(root: str, folder: str, request: List, is_nothing: Callable[[OSError], bool]) -> Iterator[str]:
    """Keys below ``folder`` that the request asks for, in byte order, as far as the caller reads.

    Raises OSError, except where that says that there is no such folder: gone while we looked, or never there.
    """
    prefix, after = request.prefix, request.after
    names: list[str] = []
    base = f"{folder}/" if folder else ""
    try:
        with os.scandir(f"{root}/{folder}") as entries:
            for entry in entries:
                end = _end_of(entry)
                if end is not None and _may_hold(name := base + entry.name + end, prefix, after):
                    names.append(name)
    except OSError as error:
        if is_nothing(error):
            return
        raise
    names.sort()
    for name in names:
        if name.endswith("/"):
            yield from walk(root, name[:-1], request, is_nothing)
        else:
            yield name


def _end_of(entry: os.DirEntry[str]) -> str | None:
    """Return a slash for a folder and nothing for an object; None for what is neither.

    With its slash a folder's name sorts where its keys do: "a-b" comes before "a/c".
    """
    name = entry.name
    # A name that is not UTF-8 has surrogates here.
    if name.startswith(".") or not (name.isascii() or name.encode(errors="replace").decode() == name):
        return None
    try:
        if entry.is_dir():
            return "/"
        return "" if entry.is_file() else None
    except OSError:  # a link in a circle
        return None


def _may_hold(name: str, prefix: str, after: str) -> bool:
    """Is this a key that the listing asks for, or (with a slash at its end) a folder of such keys?"""
    if name.endswith("/"):
        return (name > after or after.startswith(name)) and (
            name.startswith(prefix) or prefix.startswith(name)
        )
    return name > after and name.startswith(prefix)
