"""The process through which a child of a fork asks its store: it answers many at once, may be lost, and ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from osqueue.errors import Unavailable
from osqueue.stores.base import Deleted, DeleteIfMatch, Found, Get, Put, PutIfAbsent, Refused, Written
from osqueue.stores.file import FileStore
from osqueue.stores.forked import ForkedStore
from tests.support.patience import PATIENCE
from tests.support.replies import error_of


@pytest.fixture
def forked(tmp_path: Path) -> Iterator[ForkedStore]:
    """Over a folder, whose answers are as those of a cloud."""
    made = ForkedStore((FileStore, (str(tmp_path),)))
    yield made
    made.close()


def process_of(forked: ForkedStore) -> subprocess.Popen[bytes]:
    assert forked._process is not None
    return forked._process


def test_it_answers_many_at_once_and_bodies_of_any_size(forked: ForkedStore) -> None:
    bodies = {f"a/{number}": bytes([number]) * (1 << 2 * number) for number in range(11)}
    with ThreadPoolExecutor(8) as pool:
        written = list(pool.map(lambda key: forked.perform(PutIfAbsent(key, bodies[key])), bodies))
        read = list(pool.map(lambda key: forked.perform(Get(key)), bodies))
    assert [type(reply) for reply in written] == [Written] * len(bodies)
    assert [reply.body for reply in read if isinstance(reply, Found)] == list(bodies.values())
    assert forked.perform(PutIfAbsent("a/0", b"")) == Refused()


def test_one_that_is_lost_is_ambiguous_and_followed_by_another(forked: ForkedStore) -> None:
    forked.perform(Put("a", b"one"))
    lost = process_of(forked)
    os.kill(lost.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(forked.perform, Get("a"))
        os.kill(lost.pid, signal.SIGKILL)
        error = error_of(answer.result(PATIENCE))
    assert isinstance(error, Unavailable)
    assert not error.permanent
    found = forked.perform(Get("a"))
    while not isinstance(found, Found):  # written to a pipe whose reader had just gone
        found = forked.perform(Get("a"))
    assert process_of(forked) is not lost
    assert forked.perform(DeleteIfMatch("a", found.version)) == Deleted()


def test_it_ends_with_whoever_asks(forked: ForkedStore) -> None:
    forked.perform(Put("a", b"one"))
    process = process_of(forked)
    forked.close()
    assert process.wait(PATIENCE) == 0
    assert isinstance(forked.perform(Get("a")), Found)
