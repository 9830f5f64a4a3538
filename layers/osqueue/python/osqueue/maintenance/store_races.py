"""Callers that change one object at the same time, each through a store that it has opened: is a write lost?"""

from __future__ import annotations

from ..errors import Unavailable
from ..stores.base import Failed, Found, Get, PutIfMatch, Store, StoreReply, Written

REFUSED_MAX = 10_000  # in a row: of several callers one succeeds, so each does before long


def count_up(store: Store, key: str, times: int) -> None:
    """Add one to the number in an object, so often, each time by compare-and-swap.

    Where every answer is definite, the number rises by just as many as were added, whoever else adds. Raises what the
    store fails with, and Unavailable where no write ever comes through.
    """
    for _ in range(times):
        for _ in range(REFUSED_MAX):
            reply: StoreReply = store.perform(Get(key))
            if isinstance(reply, Found):
                reply = store.perform(PutIfMatch(key, b"%d" % (int(reply.body) + 1), reply.version))
            if isinstance(reply, Failed):
                raise reply.error
            if isinstance(reply, Written):
                break
        else:
            raise Unavailable(
                f"{key}: after {REFUSED_MAX:,} reads the version read was never the current one."
            )
