"""Merges of delayed segments by clients: of segments at random, which may have changed when the request comes."""

from __future__ import annotations

from osqueue.commit.effects import Flow, Sleep
from osqueue.errors import OsqueueError
from osqueue.objects.staging import StagingArea
from osqueue.operations.span_merges import staged_merge

from .clients import Client

STALLS_SECONDS = (0.5, 5.0, 400.0)


def merge_spans(client: Client, pause_seconds: float) -> Flow[None]:
    """Merge some delayed segments after the other; now and then stall before the request."""
    dice, writer = client.dice, client.writer
    while True:
        yield from client.pause(pause_seconds)
        state = yield from client.head()
        if state is None or len(state.delayed.spans) < 2:
            continue
        taken = tuple(dice.sample(state.delayed.spans, dice.choice((2, 2, len(state.delayed.spans)))))
        try:
            merge = yield from staged_merge(taken, StagingArea(writer.root, state.seq, writer.machine))
        except OsqueueError:
            continue
        if dice.random() < 0.3:
            yield Sleep(dice.choice(STALLS_SECONDS))
        yield from client.call(merge)
