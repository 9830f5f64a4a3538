"""``osqueue queue dump``: the heads of a queue as JSON, for whoever has to see what is really there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click
from msgspec import Struct

from .. import limits
from ..clock import MACHINE
from ..commit.driver import BlockingDriver
from ..core.encoding import encode_head
from ..core.state import State
from ..errors import NotFound
from ..model.keys import job_id
from ..objects.layout import read_state, root_of
from ..queue.blocking import Queue
from .contents import MASK
from .options import StoreCommand, existing_queue, open_queue, store_arguments
from .output import Output

CONTENTS = frozenset({"payload", "result"})
KEYS = frozenset({"key", "first", "last", "leases", "tombstones", "delayed_tombstones", "result_ttls"})
SECRET = frozenset({"token", "seals"})  # who has a lease's token may end its job


@click.command("dump", cls=StoreCommand)
@store_arguments()
@click.option("--shard", type=click.IntRange(0, limits.SHARDS_MAX - 1), help="Only this shard's head.")
@click.option("--payloads", is_flag=True, help="Show payloads and results too, where they lie in the head.")
@click.pass_obj
def dump(output: Output, address: str, queue: str, shard: int | None, payloads: bool, timeout: float) -> None:
    """Print the heads of a queue as they are stored, one JSON document a line for each shard.

    Needs the store itself. Payloads and results are their sizes, unless they are asked for; tokens and
    secrets are never shown.
    """
    with open_queue(address, queue, timeout) as q:
        for each, state in _heads(existing_queue(q), shard):
            output.document(
                {
                    "queue": queue,
                    "shard": each,
                    "key": root_of(queue, each) + "head",
                    "bytes": len(encode_head(state)),
                    "head": plain(state, payloads),
                }
            )


def _heads(q: Queue[Any], shard: int | None) -> Iterator[tuple[int, State]]:
    run = BlockingDriver(q.store, MACHINE).run
    first = run(read_state(q.name, 0))
    count = 1 if first is None else first.settings.shards
    for each in range(count) if shard is None else (shard,):
        state = run(read_state(q.name, each))
        if state is None:
            raise NotFound(f"queue {q.name}: shard {each} has no head. 'osqueue doctor' tells why.")
        yield each, state


def plain(value: Any, contents: bool, name: str = "") -> Any:
    """A stored value by names: rows as objects, keys as ids; contents as their sizes unless they are wished."""
    if name in SECRET:
        return MASK
    if name in CONTENTS and isinstance(value, bytes):
        return value.decode(errors="backslashreplace") if contents else {"bytes": len(value)}
    if isinstance(value, Struct):
        return {each: plain(getattr(value, each), contents, each) for each in value.__struct_fields__}
    if isinstance(value, bytes):
        return job_id(value) if name in KEYS else value.hex()
    if isinstance(value, Mapping):
        return {plain(each, contents, name): plain(found, contents) for each, found in value.items()}
    if isinstance(value, tuple | frozenset):
        return [plain(each, contents, name) for each in value]
    return value
