"""Limits made small for a while, so that every mechanism is at work in a short run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType

from osqueue import limits
from osqueue.bulk import receipts
from osqueue.bulk import writer as bulk
from osqueue.commit import announcements, few_writers, protocol, publications, steps, writer
from osqueue.core import (
    backlog,
    draft,
    drop_rules,
    dropping,
    encoding,
    mixed,
    reduce,
    spill,
    state,
    tables,
    timers,
)
from osqueue.maintenance import garbage_collection
from osqueue.objects import segment_rewrite, staging

from . import truth

# `core.reduce` names a module and its function alike, so these are found where they are used.
_MODULES = (
    limits,
    backlog,
    draft,
    drop_rules,
    dropping,
    mixed,
    reduce,
    spill,
    state,
    timers,
    tables,
    encoding,
    announcements,
    few_writers,
    publications,
    steps,
    protocol,
    writer,
    staging,
    receipts,
    bulk,
    truth,
    garbage_collection,
    segment_rewrite,
)


@contextmanager
def limited(values: Mapping[str, int]) -> Iterator[None]:
    """Give limits other values, in every module that keeps one under that name; put them back at the end."""
    before: list[tuple[ModuleType, str, int]] = []
    for name, value in values.items():
        homes = [module for module in _MODULES if hasattr(module, name)]
        if not homes:
            raise KeyError(f"there is no limit called {name}")
        for module in homes:
            before.append((module, name, getattr(module, name)))
            setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, old in reversed(before):
            setattr(module, name, old)
