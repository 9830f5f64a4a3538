"""The turns of a folder among processes: a holder that is killed, and one that is stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue
from osqueue.commit.writer import HEAD
from osqueue.objects.layout import root_of
from osqueue.stores.base import TakeTurn, Turn

HOLDER = """
import os, sys, time
from osqueue import Queue
from osqueue.commit.writer import HEAD
from osqueue.objects.layout import root_of
from osqueue.stores.base import TakeTurn
q = Queue.connect(sys.argv[1], "mail")
turn = q.store.perform(TakeTurn(root_of("mail", 0) + HEAD, b"", 1.0))
if "forks" in sys.argv and os.fork():
    time.sleep(60)  # the child says when it is there, with a copy of the turn
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}"


@pytest.fixture
def holder(address: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has the turn, and does nothing."""
    queue(address)
    command = [sys.executable, "-c", HOLDER, address]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def queue(address: str) -> Queue[Any]:
    """A queue that two others have used before, so that nobody thinks to be alone."""
    for at in range(2):
        Queue[Any].connect(address, "mail").enqueue(at)
    return Queue.connect(address, "mail")


def test_the_turn_of_a_killed_process_is_free(address: str, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    assert queue(address).enqueue("here").status == "queued"


def test_the_turn_of_a_killed_process_is_free_although_its_child_lives(address: str) -> None:
    q = queue(address)
    command = [sys.executable, "-c", HOLDER, address, "forks"]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.kill()
        process.wait()
        turn = q.store.perform(TakeTurn(root_of("mail", 0) + HEAD, b"", 0.0))
        assert isinstance(turn, Turn)


@pytest.mark.parametrize("stopped", [False, True])
def test_whoever_keeps_the_turn_keeps_nobody_from_the_queue(
    address: str, holder: subprocess.Popen[str], stopped: bool
) -> None:
    if stopped:
        holder.send_signal(signal.SIGSTOP)
    q = queue(address)
    assert q.enqueue("here").status == "queued"
    leases = q.claim(10)
    q.complete_many(leases)
    assert [lease.payload for lease in leases] == [0, 1, 0, 1, "here"]


def test_whoever_waits_at_a_channel_that_dies_ends_nobody_by_a_signal(tmp_path: Path) -> None:
    """A program that takes SIGPIPE as the system means it to."""
    code = """
import os, signal, sys
from osqueue.stores.base import PassTurn, TakeTurn
from osqueue.stores.file import FileStore
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
store = FileStore(sys.argv[1], fsync=False)
turns = store._turns
from osqueue.stores.file_turns import WaitingNote
turn = store.take_turn(TakeTurn("a/head", b"", 1.0))
os.mkfifo(f"{turns.folder}/00000000000000ff.channel")
for kind in (1, 2):
    turns._send(WaitingNote(b"00000000000000ff", b""), kind, b"late")
store.pass_turn(PassTurn(turn))
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
