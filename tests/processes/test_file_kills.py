"""A folder whose writer is killed, at any moment, holds old or new content and nothing half."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from osqueue.stores.base import Found, Get, List, Put
from osqueue.stores.file import FileStore
from tests.support.replies import version_of

KILLS = 12

# Runs in a process of its own until it is killed. Each body says its number throughout, and its length.
WRITER = """
import sys
from osqueue.stores.base import *
from osqueue.stores.file import FileStore
store = FileStore(sys.argv[1], fsync=sys.argv[3] == "fsync")
number = int(sys.argv[2])
print("started", flush=True)
while True:
    number += 1
    body = (b"%08d" % number) * (1 + number % 5000)
    head = store.get(Get("q/head"))
    if isinstance(head, Found):
        store.put_if_match(PutIfMatch("q/head", body, head.version))
    else:
        store.put_if_absent(PutIfAbsent("q/head", body))
    store.put(Put("q/last", body))
    store.put_if_absent(PutIfAbsent(f"q/segments/{number:08d}", body))
    print(number, flush=True)
"""


@pytest.mark.parametrize("flush", ["fsync", "no fsync"])
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
