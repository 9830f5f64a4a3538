"""A request whose time is over."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue.commit.effects import All, QueueFlow, Sleep
from osqueue.errors import Timeout, Unavailable
from osqueue.server.request import in_time
from osqueue.stores.base import Failed, Get, Missing
from tests.support.machines import VirtualMachine

BUSY = Failed(Unavailable("503 SlowDown"))


@pytest.mark.parametrize(
    ("effect", "reply", "named"),
    [
        (Get("head"), BUSY, "503 SlowDown"),
        (All((Get("a"), Get("b"))), (Missing(), BUSY), "503 SlowDown"),
        (Get("head"), Missing(), ""),
    ],
    ids=["one request", "several at once", "a reply"],
)
def test_a_request_that_takes_too_long_names_what_the_store_reported_last(
    machine: VirtualMachine, effect: Any, reply: Any, named: str
) -> None:
    def tried() -> QueueFlow[None]:
        while True:
            yield effect
            yield Sleep(1.0)

    def run() -> None:
        flow = in_time(tried(), machine, machine.monotonic() + 1.5)
        sent = next(flow)
        while True:
            if isinstance(sent, Sleep):
                machine.sleep(sent.seconds)
            sent = flow.send(None if isinstance(sent, Sleep) else reply)

    with pytest.raises(Timeout) as caught:
        run()
    assert caught.value.message.endswith(f"What it did so far may still hold. {named}".rstrip())
