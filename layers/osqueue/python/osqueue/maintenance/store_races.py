"""Callers that change one object at the same time, each through a store that it has opened: is a write lost?"""

from __future__ import annotations

import multiprocessing

from ..clock import Machine
from ..errors import OsqueueError, Unavailable
from ..stores.address import open_store
from ..stores.base import (
    Delete,
    Failed,
    Found,
    Get,
    PutIfAbsent,
    PutIfMatch,
    Store,
    StoreReply,
    Written,
)
from .store_probes import FOLDER, OK, TROUBLE, UNSAFE, WARNING, Finding

THREADS, PROCESSES = 4, 3
TIMES = 5  # that each of them adds one
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


def races(address: str, store: Store, machine: Machine) -> list[Finding]:
    """Is a write lost among threads, each with a store of its own, and among processes?"""
    findings = [_race(address, store, machine, "threads", THREADS)]
    if store.shared and PROCESSES:
        findings.append(_race(address, store, machine, "processes", PROCESSES))
    return findings


def _race(address: str, store: Store, machine: Machine, kind: str, callers: int) -> Finding:
    check = f"store: {kind}"
    key = f"{FOLDER}{machine.bits(64):016x}-counter"
    created = store.perform(PutIfAbsent(key, b"0"))
    if isinstance(created, Failed):
        return Finding(WARNING, check, created.error.message, "See the checks above.")
    troubles = [each for each in _counted(address, key, kind, callers) if each is not None]
    counted = store.perform(Get(key))
    store.perform(Delete((key,)))
    if troubles:
        return Finding(WARNING, check, troubles[0], "Nothing was compared. Run it again.")
    expected = callers * TIMES
    total = int(counted.body) if isinstance(counted, Found) else None
    if total == expected:
        return Finding(OK, check, f"{callers} at once made {expected} writes of one object, and none is lost")
    text = f"{callers} at once made {expected} writes of one object, and {total} are there"
    return Finding(TROUBLE, check, text, UNSAFE)


def _counted(address: str, key: str, kind: str, callers: int) -> list[str | None]:
    from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor  # few commands need it

    pool: Executor = (
        ThreadPoolExecutor(callers)
        if kind == "threads"
        else ProcessPoolExecutor(callers, multiprocessing.get_context("spawn"))
    )
    with pool:
        return list(pool.map(_count, [address] * callers, [key] * callers))


def _count(address: str, key: str) -> str | None:
    """One caller's share; answers what went wrong. (Errors of the library do not all pass from process to process.)"""
    store = open_store(address)
    try:
        count_up(store, key, TIMES)
    except OsqueueError as error:
        return error.message
    finally:
        store.close()
    return None
