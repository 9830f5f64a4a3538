"""A folder whose writer is killed, at any moment, holds old or new content and nothing half."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from osqueue.stores.base import Found, Get, List, Put, PutIfAbsent
from osqueue.stores.file import FileStore
from tests.support.replies import version_of

KILLS = 12

# Runs in a process of its own until it is killed. Each body says its number throughout, and its length.
WRITER = """
import sys
from osqueue.stores.base import *
from osqueue.stores.file import FileStore
store = FileStore(sys.argv[1], fsync="no" not in sys.argv[3])
hot = "hot" in sys.argv[3]
number = int(sys.argv[2])
print("started", flush=True)
while True:
    number += 1
    body = (b"%08d" % number) * (1 + number % 5000)
    head = store.get(Get("q/head"))
    if isinstance(head, Found):
        store.put_if_match(PutIfMatch("q/head", body, head.version, hot=hot))
    else:
        store.put_if_absent(PutIfAbsent("q/head", body, hot))
    store.put(Put("q/last", body))
    store.put_if_absent(PutIfAbsent(f"q/segments/{number:08d}", body))
    print(number, flush=True)
"""


@pytest.mark.parametrize("flush", ["fsync", "no fsync", "hot, fsync", "hot, no fsync"])
def test_a_killed_writer_leaves_old_or_new_content_and_nothing_half(tmp_path: Path, flush: str) -> None:
    root = tmp_path / "store"
    store = FileStore(root)
    acknowledged = 0
    for turn in range(KILLS):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root), str(acknowledged), flush],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "started\n"
        if turn % 2:  # however slow the disk is, some commits are acknowledged
            acknowledged = int(writer.stdout.readline())
        time.sleep(0.005 + turn * 0.003)  # kills fall on different steps
        os.kill(writer.pid, signal.SIGKILL)
        for line in writer.stdout:
            if line.endswith("\n"):
                acknowledged = int(line)
        writer.stdout.close()
        writer.wait()

        listed = store.list(List("q/"))
        for key in listed.keys:
            found = store.get(Get(key))
            assert isinstance(found, Found)
            number = int(found.body[:8])
            assert found.body == (b"%08d" % number) * (1 + number % 5000), key
            if key == "q/head":
                assert number >= acknowledged, "an acknowledged commit is gone"
        assert set(listed.keys) >= {f"q/segments/{n:08d}" for n in range(1, acknowledged + 1)} or listed.more
        # The dead hold no lock, and the store goes on.
        version_of(store.perform(Put("after-the-kill", b"x")))
    assert acknowledged > 0


# Counts in a hot object, as one of several. Each body says its number throughout.
COUNTER = """
import sys
from osqueue.stores.base import *
from osqueue.stores.file import FileStore
store = FileStore(sys.argv[1], fsync=sys.argv[2] == "fsync")
print("started", flush=True)
while True:
    head = store.get(Get("q/head"))
    number = int(head.body[:8]) + 1
    assert head.body == head.body[:8] * (len(head.body) // 8)
    body = (b"%08d" % number) * (1 + number * 37 % 700)
    if isinstance(store.put_if_match(PutIfMatch("q/head", body, head.version, hot=True)), Written):
        print(number, flush=True)
"""
COUNTERS = 3
COUNTER_KILLS = 10


@pytest.mark.parametrize("flush", ["fsync", "no fsync"])
def test_of_several_that_count_and_are_killed_none_counts_twice(tmp_path: Path, flush: str) -> None:
    store = FileStore(tmp_path, flush == "fsync")
    version_of(store.perform(PutIfAbsent("q/head", b"%08d" % 0, hot=True)))

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", COUNTER, str(tmp_path), flush]
        counter = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert counter.stdout is not None
        assert counter.stdout.readline() == "started\n"
        return counter

    counted: list[int] = []

    def end(counter: subprocess.Popen[str]) -> None:
        os.kill(counter.pid, signal.SIGKILL)
        assert counter.stdout is not None
        counted.extend(int(line) for line in counter.stdout if line.endswith("\n"))
        counter.stdout.close()
        counter.wait()

    counters = [start() for _ in range(COUNTERS)]
    for turn in range(COUNTER_KILLS):
        time.sleep(0.003 + turn * 0.002)
        end(counters.pop(0))
        counters.append(start())
    for counter in counters:
        end(counter)
    assert len(counted) == len(set(counted)) > COUNTER_KILLS, "a count is given to two"
    found = store.get(Get("q/head"))
    assert isinstance(found, Found)
    number = int(found.body[:8])
    assert found.body == (b"%08d" % number) * (1 + number * 37 % 700)
    # Who was killed may have counted without saying so.
    assert max(counted) <= number <= len(counted) + COUNTER_KILLS + COUNTERS
