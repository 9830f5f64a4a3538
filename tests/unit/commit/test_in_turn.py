"""A wait for the turn that the store fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from osqueue.commit.deadline import Deadline
from osqueue.commit.in_turn import commit_in_turn
from osqueue.commit.writer import ShardWriter
from osqueue.core.ops import Request
from osqueue.errors import Timeout, Unavailable
from osqueue.stores.base import Failed, TakeTurn
from tests.support.machines import VirtualMachine


def test_a_commit_whose_wait_for_the_turn_failed_names_the_cause(machine: VirtualMachine) -> None:
    writer = ShardWriter("queues/mail/0/", "mail", machine)
    deadline = Deadline(writer, machine.monotonic() + 1)
    steps: Any = SimpleNamespace(writer=writer, deadline=deadline)
    flow = commit_in_turn(steps, Request("", 0, 0, 0, 0, ()))
    assert isinstance(next(flow), TakeTurn)
    machine.sleep(1)
    with pytest.raises(StopIteration) as ended:
        flow.send(Failed(Timeout("the server 127.0.0.1:6379: no answer in time.")))
    assert ended.value.value is None  # it goes on without a turn
    with pytest.raises(Unavailable, match="no answer in time"):
        deadline.in_time()
