"""Listings of a store that gives the keys of a folder in no order: the folder is read whole, and a page made of it.

Pages of one walk would each cost the whole folder. So a List without a limit answers everything at once: however many
keys there are, a walk reads them once.
"""

from __future__ import annotations

from collections.abc import Iterable

from .base import List, Listed


def folder_of(prefix: str) -> str:
    """The folder in which all keys of a prefix lie: empty, or ending in a slash."""
    return prefix[: prefix.rfind("/") + 1]


def page_of(keys: Iterable[str], request: List) -> Listed:
    """What a request asks for, of all keys of its folder. Text sorts like its bytes in UTF-8."""
    found = sorted(key for key in keys if key.startswith(request.prefix) and key > request.after)
    page = found[: request.limit]
    return Listed(tuple(page), more=len(found) > len(page))
