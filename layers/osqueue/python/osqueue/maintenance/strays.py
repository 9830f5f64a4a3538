"""Objects of other programs among osqueue's own: listings skip them, and the doctor names them."""

from __future__ import annotations

from ..commit.effects import Flow
from ..errors import OsqueueError
from ..model.validation import is_queue_name
from ..objects import archive, inventory
from ..objects.layout import REGISTER
from .store_probes import TROUBLE, WARNING, Finding

ARCHIVE_KEYS_MAX = 1_000  # of a queue's archive, the first ones
SHOWN_MAX = 5  # keys that are named


def examine_register() -> Flow[list[Finding]]:
    """Find strays where queues are found by name."""
    try:
        keys = yield from inventory.keys(REGISTER)
    except OsqueueError as error:
        return [_unreadable(error, None)]
    return _named([key for key in keys if not is_queue_name(key.removeprefix(REGISTER))], None)


def examine(queue: str) -> Flow[list[Finding]]:
    """Find strays among the parts of a queue's archive."""
    try:
        keys = yield from inventory.keys(archive.folder_of(queue), ARCHIVE_KEYS_MAX)
    except OsqueueError as error:
        return [_unreadable(error, queue)]
    return _named([key for key in keys if not archive.is_part(key, queue)], queue)


def _unreadable(error: OsqueueError, queue: str | None) -> Finding:
    return Finding(TROUBLE, "strays", error.message, "See the checks of the store.", queue)


def _named(keys: list[str], queue: str | None) -> list[Finding]:
    if not keys:
        return []
    text = f"{len(keys):,} objects of other programs, such as {', '.join(map(repr, keys[:SHOWN_MAX]))}"
    remedy = "Remove the objects that osqueue did not write. Listings skip them."
    return [Finding(WARNING, "strays", text, remedy, queue)]
