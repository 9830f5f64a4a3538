"""A Valkey or Redis server is killed, and fails over: what was acknowledged, and what is there afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue
from osqueue.errors import OsqueueError
from tests.support.valkey_server import BINARY, DURABLE, HOST, HOW_TO_INSTALL, ValkeyServer, valkey_server

pytestmark = pytest.mark.skipif(BINARY is None, reason=HOW_TO_INSTALL)

KILLS = 4
ACKNOWLEDGED_BETWEEN = 15  # jobs, from one kill to the next
CALLERS = 4
OFFSETS = b"replication"


def drain(address: str) -> list[Any]:
    found = []
    with Queue.connect(address, "mail") as q:
        while leases := q.claim(100):
            found += [lease.payload for lease in leases]
            q.complete_many(leases)
    return sorted(found)


def test_a_server_that_flushes_always_loses_nothing_when_it_is_killed(tmp_path: Path) -> None:
    with valkey_server(tmp_path / "server", *DURABLE) as server:
        address = server.address("kills")
        sent: list[str] = []
        acknowledged: list[str] = []
        changed = threading.Condition()
        over = threading.Event()

        def call(caller: int) -> None:
            with Queue.connect(address, "mail", timeout=5) as q:
                number = 0
                while not over.is_set():
                    number += 1
                    payload = f"{caller}-{number}"
                    sent.append(payload)
                    try:
                        q.enqueue(payload)
                    except OsqueueError:
                        continue
                    with changed:
                        acknowledged.append(payload)
                        changed.notify_all()

        callers = [threading.Thread(target=call, args=(at,)) for at in range(CALLERS)]
        for thread in callers:
            thread.start()
        try:
            for _ in range(KILLS):
                with changed:
                    wished = len(acknowledged) + ACKNOWLEDGED_BETWEEN
                    assert changed.wait_for(lambda: len(acknowledged) >= wished, timeout=120)  # noqa: B023
                server.end()
                server.start()
        finally:
            over.set()
            for thread in callers:
                thread.join()
        there = drain(address)
        assert len(there) == len(set(there))
        assert set(acknowledged) <= set(there) <= set(sent)
        assert len(acknowledged) >= KILLS * ACKNOWLEDGED_BETWEEN


@contextmanager
def replicated(folder: Path) -> Iterator[tuple[ValkeyServer, ValkeyServer]]:
    """A primary and a replica that has caught up. Both flush always."""
    with (
        valkey_server(folder / "primary", *DURABLE) as primary,
        valkey_server(
            folder / "replica",
            *DURABLE,
            *("--replicaof", f"{HOST} {primary.port}", "--repl-diskless-sync-delay", "0"),
        ) as replica,
    ):
        assert primary.ask(b"SET", b"seen", b"1") == b"+OK"
        while replica.ask(b"GET", b"seen") != b"$1":
            threading.Event().wait(0.02)
        yield primary, replica


def fall_behind(primary: ValkeyServer, replica: ValkeyServer) -> None:
    """Once it has all there is, the replica hears nothing more: it is what a failover promotes."""
    while primary.info(OFFSETS)[b"master_repl_offset"] != replica.info(OFFSETS)[b"master_repl_offset"]:
        threading.Event().wait(0.02)
    assert replica.ask(b"REPLICAOF", b"NO", b"ONE") == b"+OK"


def test_a_failover_to_a_stale_replica_loses_acknowledged_jobs_in_silence(tmp_path: Path) -> None:
    """What the documentation warns of, and the doctor."""
    with replicated(tmp_path) as (primary, replica):
        with Queue.connect(primary.address("jobs"), "mail") as q:
            for number in range(20):
                q.enqueue(number)
            fall_behind(primary, replica)
            for number in range(20, 40):
                q.enqueue(number)
        primary.end()
        assert drain(replica.address("jobs")) == list(range(20))


def test_where_answers_wait_for_the_replica_no_acknowledged_job_is_lost(tmp_path: Path) -> None:
    with replicated(tmp_path) as (primary, replica):
        with Queue.connect(primary.address("jobs") + "?replicas=1", "mail", timeout=3) as q:
            for number in range(20):
                q.enqueue(number)
            fall_behind(primary, replica)
            with pytest.raises(OsqueueError):
                q.enqueue("is not acknowledged")
        primary.end()
        assert drain(replica.address("jobs")) == list(range(20))
