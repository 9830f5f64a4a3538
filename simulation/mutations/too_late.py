"""Operations that come too late, with one check removed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from osqueue.core import consumers, reduce, replacing
from osqueue.core.batches import counted
from osqueue.core.draft import Draft
from osqueue.core.ops import Outcome
from osqueue.core.queue_ops import ChangeSettings, KeepTicket

from .control import Control, dispatched, in_scene, patched

OPEN = SimpleNamespace(is_open=lambda row: True, counted=counted)  # batches that are never over


def _keep_for_any(draft: Draft, op: KeepTicket) -> Outcome:
    rows = draft.tickets.get(op.use.consumer, ())
    holder = next((row.holder for row in rows if row.id == op.use.ticket), op.use.holder)
    return consumers.keep_ticket(draft, replace(op, use=replace(op.use, holder=holder)))


def kept_for_any() -> AbstractContextManager[None]:
    """Any consumer extends a ticket, whichever holds it."""
    return dispatched(KeepTicket, _keep_for_any)


def never_late() -> AbstractContextManager[None]:
    """A job that waits is replaced, also after its start deadline."""
    return patched((replacing, "is_late", lambda job, now_ms: False))


def never_covered() -> AbstractContextManager[None]:
    """A job that waits is replaced, also if a rule has cancelled it."""
    return patched((replacing, "covering", lambda rules, job, span: None))


def grown_unrecorded() -> AbstractContextManager[None]:
    """Shards are added as if they recorded, whether or not they do."""
    real: Callable[[Draft, Any], Outcome] = reduce._APPLY[ChangeSettings]
    return dispatched(ChangeSettings, lambda draft, op: real(draft, replace(op, recorded=True)))


def attached_to_any() -> AbstractContextManager[None]:
    """A bulk joins a batch that is over."""
    return patched((reduce, "batches", OPEN))


def replaced_into_any() -> AbstractContextManager[None]:
    """A job that replaces another one joins a batch that is over."""
    return patched((replacing, "batches", OPEN))


CONTROLS: tuple[Control, ...] = (
    Control(
        "only its holder extends a ticket",
        kept_for_any,
        (in_scene("kept by its former holder", "extended by another"),),
    ),
    Control(
        "a late job is not replaced",
        never_late,
        (in_scene("replaced after its deadline", "replaced after its start deadline"),),
    ),
    Control(
        "nor is one that a rule covers",
        never_covered,
        (in_scene("replaced after a mass cancel", "was replaced that was cancelled"),),
    ),
    Control(
        "shards record before they are added",
        grown_unrecorded,
        (in_scene("grown beside a listener", "records nothing"),),
    ),
    Control(
        "a bulk joins an open batch",
        attached_to_any,
        (in_scene("attached to an ended batch", "joined a batch that is over"),),
    ),
    Control(
        "so does a replacement",
        replaced_into_any,
        (in_scene("replaced into an ended batch", "joined a batch that is over"),),
    ),
)
