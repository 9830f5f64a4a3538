"""The items of calls about many jobs: leases, or mappings. What cannot be read fails alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .. import limits
from ..commit.effects import QueueFlow
from ..core.job_ops import LeaseBeat
from ..errors import Rejected
from ..model import validation
from ..model.job import Done
from ..model.keys import key_of
from ..model.progress import beat_of
from .lease import LeaseBase


def listed(items: Any, field: str = "items", of: str = "leases or mappings") -> list[Any]:
    """A caller's items as a list. Raises Rejected for what is none."""
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise Rejected(f"{field}: {type(items).__name__} is not a list of {of}.", field=field)
    return list(items)


def item_by_item(
    items: Iterable[Any], read: Callable[[Any], Any], send: Callable[[list[Any]], QueueFlow[list[Done]]]
) -> QueueFlow[list[Done]]:
    """Send the items that can be read; the others fail alone, in their places."""
    found: list[Any] = []
    refused: dict[int, Done] = {}
    batch = listed(items)
    for at, item in enumerate(batch):
        try:
            found.append(read(item))
        except Rejected as error:
            text = item.get("job_id") if isinstance(item, Mapping) else None
            refused[at] = Done(text if isinstance(text, str) else "", False, error.code, error=error)
    done = (yield from send(found)) if found else []
    if not refused:
        return done
    rest = iter(done)
    return [refused[at] if at in refused else next(rest) for at in range(len(batch))]


def holder(item: Any) -> tuple[bytes, str]:
    """The job's key and the token of a lease or a mapping."""
    if isinstance(item, LeaseBase):
        return item.key, item.token
    if isinstance(item, Mapping):
        for name in ("job_id", "token"):
            if name not in item:
                raise Rejected(f"{name}: it is missing. Pass leases, or their job_id and token.", field=name)
        return key_of(item["job_id"]), validation.text(item["token"], "token", limits.TOKEN_CHARS_MAX, 1)
    raise Rejected(f"items: {type(item).__name__} is neither a lease nor a mapping.", field="items")


def beat_of_item(item: Any) -> LeaseBeat:
    """The heartbeat of a lease, or of a mapping that may tell of progress."""
    return beat_of(*holder(item), field(item, "progress"), field(item, "note"))


def field(item: Any, name: str) -> Any:
    """A field of a mapping; None where it has none, as a lease."""
    return None if isinstance(item, LeaseBase) or not isinstance(item, Mapping) else item.get(name)
