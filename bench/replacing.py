"""Ways to replace an object of some KB in a folder, flushed: ``python -m bench.replacing [FOLDER] [ROUNDS]``.

All of them take turns, one replacement each, so that a disk which is shared or tired is so for all. The figures are
replacements a second, and those over raw writes in place, each flushed. Every body is another one: a database that
is given what it has may write nothing.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from osqueue.stores.base import PutIfAbsent, PutIfMatch, Written
from osqueue.stores.file import FileStore

BODY_BYTES = 4_000
ROUNDS = 400
SLOT_BYTES = 32_768


def main() -> None:
    """Measure, and print."""
    where = sys.argv[1] if len(sys.argv) > 1 else "."
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    with tempfile.TemporaryDirectory(dir=where) as folder:
        ways: dict[str, Callable[[bytes], object]] = {
            "raw write in place, fdatasync": raw(folder),
            "temporary file and rename": store(folder, "plain", hot=False),
            "two slots, one write": store(folder, "hot", hot=True),
            "body, flush, header, flush": apart(folder),
            "SQLite, WAL, synchronous=FULL": sqlite(folder, "wal"),
            "SQLite, DELETE journal, FULL": sqlite(folder, "delete"),
        }
        took: dict[str, list[float]] = {name: [] for name in ways}
        used: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, replace in ways.items():
                body = os.urandom(BODY_BYTES)
                began, worked = time.perf_counter(), time.process_time()
                replace(body)
                took[name].append(time.perf_counter() - began)
                used[name].append(time.process_time() - worked)
    base = statistics.mean(took["raw write in place, fdatasync"])
    for name, seconds in took.items():
        mean = statistics.mean(seconds)
        middle = statistics.median(seconds)
        cpu = statistics.median(used[name]) * 1e6
        print(
            f"{name:32} {1 / mean:6.0f}/s  median {middle * 1e3:5.2f} ms  {base / mean:5.2f} of raw  {cpu:5.0f} us CPU"
        )


def raw(folder: str) -> Callable[[bytes], object]:
    """What the disk does: a page in place, in one place and another."""
    descriptor = os.open(f"{folder}/raw", os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, bytes(2 * SLOT_BYTES), 0)
    os.fsync(descriptor)
    places = [0, SLOT_BYTES]

    def replace(body: bytes) -> None:
        places.reverse()
        os.pwrite(descriptor, body, places[0])
        os.fdatasync(descriptor)

    return replace


def apart(folder: str) -> Callable[[bytes], object]:
    """The body first, then the header that makes it count: without checksums, each has to be flushed by itself."""
    descriptor = os.open(f"{folder}/apart", os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, bytes(4096 + 2 * SLOT_BYTES), 0)
    os.fsync(descriptor)
    places = [4096, 4096 + SLOT_BYTES]

    def replace(body: bytes) -> None:
        places.reverse()
        os.pwrite(descriptor, body, places[0])
        os.fdatasync(descriptor)
        os.pwrite(descriptor, places[0].to_bytes(8, "little"), 0)
        os.fdatasync(descriptor)

    return replace


def store(folder: str, key: str, hot: bool) -> Callable[[bytes], object]:
    """This library's store."""
    made = FileStore(folder)
    first = made.put_if_absent(PutIfAbsent(key, b"", hot))
    assert isinstance(first, Written)
    versions = [first.version]

    def replace(body: bytes) -> None:
        written = made.put_if_match(PutIfMatch(key, body, versions[0], hot=hot))
        assert isinstance(written, Written)
        versions[0] = written.version

    return replace


def sqlite(folder: str, mode: str) -> Callable[[bytes], object]:
    """One row of one table, compared and swapped."""
    database = sqlite3.connect(f"{folder}/{mode}.db", isolation_level=None)
    database.execute(f"PRAGMA journal_mode={mode}")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE objects (key TEXT PRIMARY KEY, version INTEGER, body BLOB) WITHOUT ROWID")
    database.execute("INSERT INTO objects VALUES ('head', 0, zeroblob(?))", (BODY_BYTES,))
    versions = [0]

    def replace(body: bytes) -> None:
        done = database.execute(
            "UPDATE objects SET body=?, version=version+1 WHERE key='head' AND version=?", (body, versions[0])
        )
        assert done.rowcount == 1
        versions[0] += 1

    return replace


if __name__ == "__main__":
    main()
