"""Contents beside the head: which object each lies in, and how much of them is in memory twice."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import limits
from osqueue.commit.effects import All
from osqueue.core.rows import BodyRef
from osqueue.objects import staging
from osqueue.objects.staging import StagingArea
from osqueue.stores.base import Put, Written

LARGE = limits.BODY_BYTES_MAX + 1


def staged(machine: Any, contents: list[bytes]) -> tuple[list[Any], list[list[Put]]]:
    """Return where each content is placed, and the writes, those at once together."""
    flow = StagingArea("jobs/", 7, machine).bodies(contents)
    writes: list[list[Put]] = []
    reply: Any = None
    while True:
        try:
            effect = flow.send(reply)
        except StopIteration as stop:
            return stop.value, writes
        puts = list(effect.requests if isinstance(effect, All) else [effect])
        writes.append(puts)
        reply = [Written("1") for _ in puts] if isinstance(effect, All) else Written("1")


def test_a_content_with_an_object_of_its_own_is_not_copied(machine: Any) -> None:
    contents = [bytes([at]) * LARGE for at in range(3)]
    _, writes = staged(machine, contents)
    bodies = [put.body for some in writes for put in some]
    assert all(body is data for body, data in zip(bodies, contents, strict=True))


@pytest.mark.parametrize(
    "sizes", [[2_000] * 5, [10, 2_000, 1_024, 1_025], [LARGE, 2_000, LARGE - 1, 2_000], [5], []]
)
def test_each_content_is_where_its_reference_points(machine: Any, sizes: list[int]) -> None:
    contents = [bytes([at + 1]) * size for at, size in enumerate(sizes)]
    placed, writes = staged(machine, contents)
    objects = {put.key.removeprefix("jobs/"): put.body for some in writes for put in some}
    for data, place in zip(contents, placed, strict=True):
        assert isinstance(place, BodyRef) == (len(data) > limits.INLINE_BYTES_MAX)
        if isinstance(place, BodyRef):
            assert objects[place.name][place.start : place.start + place.length] == data
    assert sum(map(len, objects.values())) == sum(size for size in sizes if size > limits.INLINE_BYTES_MAX)


def test_few_joined_bodies_are_in_memory_at_once(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "WRITTEN_AT_ONCE_BYTES", 10_000)
    monkeypatch.setattr(limits, "BODY_BYTES_MAX", 4_000)
    _, writes = staged(machine, [b"x" * 2_000] * 20)
    assert [sum(len(put.body) for put in some) for some in writes] == [12_000, 12_000, 12_000, 4_000]
