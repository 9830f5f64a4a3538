"""Limits of a queue over its shards, with one check removed: no shard for itself does anything that it may not."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue.core import admin, rates
from osqueue.core.draft import Draft
from osqueue.core.ops import Outcome
from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.settings import QueueSettings

from .control import Control, dispatched, in_runs, patched

PROFILE = "all shards"
_bucket_of = rates.bucket_of


def _as_the_first(draft: Draft, op: ChangeSettings) -> Outcome:
    return admin.configure(draft, replace(op, shard=None if op.shard is None else 0))


def _as_if_alone(draft: Draft, op: ChangeSettings) -> Outcome:
    return admin.configure(draft, replace(op, shards=None) if op.shard else op)


def _undivided(row: Any, settings: QueueSettings) -> rates.Bucket | None:
    return _bucket_of(row, replace(settings, shards=1, shard=0))


def as_the_first() -> AbstractContextManager[None]:
    """Each shard takes itself for the first, which has the larger share."""
    return dispatched(ChangeSettings, _as_the_first)


def as_if_alone() -> AbstractContextManager[None]:
    """Only the first shard learns how many there are."""
    return dispatched(ChangeSettings, _as_if_alone)


def undivided() -> AbstractContextManager[None]:
    """Each shard has the whole rate."""
    return patched((rates, "bucket_of", _undivided))


CONTROLS: tuple[Control, ...] = (
    Control("a shard knows which one it is", as_the_first, (in_runs(PROFILE, "run in all shards"),)),
    Control("a shard knows how many there are", as_if_alone, (in_runs(PROFILE, "run in all shards"),)),
    Control("shards divide a rate", undivided, (in_runs(PROFILE, "started in all shards", seed=2),)),
)
