"""A pacer over every store, blocking and awaited: what a user of interval queues relies on."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from osqueue import AsyncPacer, Conflict, NotFound, Pacer, Queue, Rejected, Throttled
from osqueue.client.pacing import PacerLister
from osqueue.clock import MACHINE
from osqueue.operations.pacer_access import PRICED, pacers
from osqueue.stores.address import is_remote
from tests.support.served import served

CALLERS = 8
LONG_GRACE_S = 600.0  # a busy machine is late, and nothing is to be reserved anew for it


class Awaited:
    """An AsyncPacer, its reservations and their methods, called as if they blocked."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: Any) -> None:
        self._loop, self._inner = loop, inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            answer = found(*args, **options)
            if inspect.isawaitable(answer):
                answer = self._loop.run_until_complete(answer)
            return Awaited(self._loop, answer) if hasattr(answer, "give_back") else answer

        return call


def apart(began: float, starts: list[float], interval: float, first: int = 0) -> bool:
    """Did nobody act before the slot? A machine that is busy may be late; clocks tell milliseconds."""
    return all(start - began > at * interval - 0.005 for at, start in enumerate(starts, first))


@pytest.fixture(params=["memory", "file", "s3", "serve", "lambda"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An address that names the same place for all callers: of a store, or of an API over one in memory."""
    kind: str = request.param
    if kind == "serve":
        with served(f"memory://{tmp_path.name}") as url:
            yield url
    elif kind == "lambda":
        request.getfixturevalue("aws_environment")
        functions = request.getfixturevalue("api_server")
        with functions.api_server(f"memory://{tmp_path.name}") as url:
            yield f"lambda://{functions.PREFIX}?endpoint={url}"
    else:
        yield address_of_store(kind, request, tmp_path)


def address_of_store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a store of this kind."""
    if kind == "memory":
        return f"memory://{tmp_path.name}"
    if kind == "file":
        return f"file://{tmp_path}/store"
    endpoint, bucket = request.getfixturevalue("s3_endpoint"), request.getfixturevalue("s3_bucket")
    return f"s3://{bucket}/some/prefix?endpoint={endpoint}"


@pytest.fixture(params=["blocking", "async"])
def connect(request: pytest.FixtureRequest, address: str) -> Iterator[Callable[..., Any]]:
    """Another process, as it were."""
    loop = asyncio.new_event_loop()

    def opened(name: str = "stripe", **options: Any) -> Any:
        options.setdefault("grace", LONG_GRACE_S)
        if request.param == "blocking":
            return Pacer.connect(address, name, **options)
        return Awaited(loop, AsyncPacer.connect(address, name, **options))

    yield opened
    loop.close()


def test_reservations_of_several_processes_are_one_interval_apart(connect: Any) -> None:
    one, other = connect(), connect()
    assert one.create(interval=60).interval == 60
    assert other.create(interval=5).interval == 60  # the one that there is
    found = [each.reserve() for each in (one, other, one, other)]
    assert [each.number for each in found] == [1, 2, 3, 4]
    assert [later.at - earlier.at for earlier, later in pairwise(found)] == [timedelta(seconds=60)] * 3
    status = one.status()
    assert (status.number, status.burst, status.paused) == (4, 1, False)
    assert status.ahead in (3, 4)  # the first slot comes when its answer can be there
    assert 0 < status.next_in <= 245


def test_who_waits_acts_at_his_slot_and_not_before(connect: Any) -> None:
    pacer = connect()
    pacer.create(interval=0.2)
    began = MACHINE.monotonic()
    for at in range(4):
        assert apart(began, [pacer.call(MACHINE.monotonic)], 0.2, at)


def test_create_keeps_resets_or_fails(connect: Any) -> None:
    pacer = connect()
    pacer.create(interval=1.2, if_exists="fail")
    with pytest.raises(Conflict, match="it exists"):
        pacer.create(interval=1, if_exists="fail")
    old = [pacer.reserve() for _ in range(3)]
    status = pacer.create(interval=0.01, burst=3, if_exists="reset")
    assert (status.interval, status.burst, status.ahead) == (0.01, 3, 0)
    old[1].wait()  # void: it has another one now
    assert old[1].number == 4


def test_a_pause_holds_everybody_and_moves_their_slots(connect: Any, address: str) -> None:
    pacer, operator = connect(), connect()
    pacer.create(interval=1.2)
    pacer.reserve()
    second = pacer.reserve()
    before = second.at
    assert operator.pause().paused
    assert operator.pause().paused_at == operator.status().paused_at
    third = pacer.reserve()
    assert not operator.resume().paused
    second.wait()
    assert second.number == 2
    third.wait()
    assert third.at - second.at == timedelta(seconds=1.2)
    assert second.at - before >= timedelta(
        seconds=0.4 if address.startswith(("memory:", "file:")) else PRICED.rest_ms / 1000
    )


def test_the_latest_reservation_is_given_back_for_the_next(connect: Any) -> None:
    pacer = connect()
    pacer.create(interval=60)
    first, second = pacer.reserve(), pacer.reserve()
    assert first.give_back() is False
    assert second.give_back() is True
    assert second.give_back() is False
    again = pacer.reserve()
    assert again.at == second.at
    assert again.number > second.number


def test_a_slot_too_far_ahead_is_refused_with_the_time_to_come_back(connect: Any) -> None:
    pacer = connect(max_ahead=90)
    pacer.create(interval=60)
    pacer.reserve()
    pacer.reserve()
    with pytest.raises(Throttled, match="Nothing was reserved") as refused:
        pacer.reserve()
    assert 0 < (refused.value.retry_after or 0) <= 35
    assert connect().reserve().number == 3


def test_a_burst_is_a_token_bucket_and_units_are_tokens(connect: Any) -> None:
    pacer = connect()
    pacer.create(interval=60, burst=3)
    start = pacer.reserve(units=2).at
    assert pacer.reserve().at - start < timedelta(seconds=60)
    assert pacer.reserve(units=3).seconds_left > 60
    with pytest.raises(Rejected, match="more than the pacer's burst, 3") as refused:
        pacer.reserve(units=4)
    assert refused.value.field == "units"


def test_a_pacer_that_does_not_exist_says_how_to_create_it(connect: Any) -> None:
    pacer = connect()
    for call in (pacer.reserve, pacer.status, pacer.pause, pacer.resume, pacer.remove):
        with pytest.raises(NotFound, match="Create it first"):
            call()


def test_a_removed_pacer_is_gone_for_those_who_wait_and_may_be_made_again(connect: Any) -> None:
    pacer = connect()
    pacer.create(interval=1.2)
    held = [pacer.reserve() for _ in range(2)]
    pacer.pause()
    connect().remove()
    with pytest.raises(NotFound):
        held[1].wait()
    assert pacer.create(interval=1).number == 0
    assert pacer.reserve().number == 1


def test_queues_and_pacers_of_one_name_do_not_meet(connect: Any, address: str) -> None:
    names = ("stripe", "0", "limits", "queues")
    for name in names:
        connect(name).create(interval=60)
        queue = Queue.connect(address, name)
        queue.enqueue(1)
        assert queue.stats()["queued"] == 1
        assert connect(name).reserve().number == 1
        queue.reap()
        assert connect(name).status().number == 1
    found = Pacer.connect(address, "stripe")
    if is_remote(address):
        listed = found._run(PacerLister(MACHINE, 5.0).pacers())
        assert [each.name for each in listed] == sorted(names)
    else:
        assert sorted(found._run(pacers())) == sorted(names)


def test_many_callers_at_once_get_each_a_slot_of_their_own(address: str) -> None:
    Pacer.connect(address, "stripe").create(interval=60)
    shared = Pacer.connect(address, "stripe", max_ahead=86_400)
    start = threading.Barrier(CALLERS)

    def take(at: int) -> Any:
        mine = shared if at % 2 else Pacer.connect(address, "stripe", max_ahead=86_400)
        start.wait()
        return [mine.reserve() for _ in range(3)]

    with ThreadPoolExecutor(CALLERS) as callers:
        found = sorted(
            (each for some in callers.map(take, range(CALLERS)) for each in some),
            key=lambda each: each.number,
        )
    assert [each.number for each in found] == list(range(1, 3 * CALLERS + 1))
    assert {later.at - earlier.at for earlier, later in pairwise(found)} == {timedelta(seconds=60)}


def test_decorated_functions_wait_for_their_turn_and_stay_what_they_are(address: str) -> None:
    pacer = Pacer.connect(address, "stripe", grace=LONG_GRACE_S)
    pacer.create(interval=0.05)
    began, starts = MACHINE.monotonic(), list[float]()

    @pacer
    def charge(order: int, *, by: str = "ada") -> str:
        """Take the money."""
        starts.append(MACHINE.monotonic())
        if order < 0:
            raise ValueError("no such order")
        return f"{order} by {by}"

    assert (charge(1), charge(2, by="bob")) == ("1 by ada", "2 by bob")
    with pytest.raises(ValueError, match="no such order"):
        charge(-1)
    with pacer.turn() as turn:
        starts.append(MACHINE.monotonic())
    assert turn.number == 4
    assert (charge.__name__, charge.__doc__) == ("charge", "Take the money.")
    assert apart(began, starts, 0.05)


def test_decorated_coroutine_functions_wait_without_holding_up_the_loop(address: str) -> None:
    async def run() -> None:
        pacer = AsyncPacer.connect(address, "stripe", grace=LONG_GRACE_S)
        await pacer.create(interval=0.05)
        began, starts = MACHINE.monotonic(), list[float]()

        @pacer
        async def charge(order: int) -> int:
            starts.append(MACHINE.monotonic())
            await asyncio.sleep(0)
            return order

        assert sorted(await asyncio.gather(*map(charge, range(6)))) == list(range(6))
        assert await pacer.call(charge.__wrapped__, 7) == 7  # type: ignore[attr-defined]
        async with pacer.turn() as turn:
            starts.append(MACHINE.monotonic())
        assert turn.number == 8
        assert apart(began, starts, 0.05)

    asyncio.run(run())


def test_what_cannot_be_paced_is_refused_by_name() -> None:
    blocking, awaited = Pacer.connect("memory://", "stripe"), AsyncPacer.connect("memory://", "stripe")

    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    for decorate, wrong, words in (
        (blocking, coroutine, "Use an AsyncPacer"),
        (blocking, generator, "Take a turn inside it"),
        (blocking, 7, "it is no function"),
        (awaited, len, "Use a Pacer"),
    ):
        with pytest.raises(Rejected, match=words) as refused:
            decorate(wrong)  # type: ignore[operator]
        assert refused.value.field == "function"
