"""Objects of other programs among a queue's own: listings pass over them, and the doctor names them."""

from __future__ import annotations

from ..commit.effects import Flow
from ..errors import OsqueueError
from ..model.validation import is_queue_name
from ..objects import archive, inventory
from ..objects.layout import REGISTER
from .store_probes import TROUBLE, WARNING, Finding

LOOKED_AT_MAX = 1_000  # keys of a queue's archive, the first
SHOWN_MAX = 5  # keys that are named


def examine(queue: str) -> Flow[list[Finding]]:
    """Look where queues are found by name, and where the archive's parts of this queue lie."""
    try:
        names = yield from inventory.keys(REGISTER)
        parts = yield from inventory.keys(archive.folder_of(queue), LOOKED_AT_MAX)
    except OsqueueError as error:
        return [Finding(TROUBLE, "strays", error.message, "See the checks of the store.", queue)]
    found = [key for key in names if not is_queue_name(key.removeprefix(REGISTER))]
    found += [key for key in parts if not archive.is_part(key, queue)]
    if not found:
        return []
    text = f"{len(found):,} objects of other programs, such as {', '.join(map(repr, found[:SHOWN_MAX]))}"
    return [Finding(WARNING, "strays", text, "Remove what is not osqueue's own; it is passed over.", queue)]
