"""Processes that serve together: who answers for which queue, what is refused before, what is left when one goes."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from osqueue.asgi.neighbours import VARIABLE, Neighbours, Place, serving_together
from osqueue.asgi.tokens import Identity
from osqueue.contract.error_codes import Forbidden
from osqueue.server.app import ApiRequest, ApiResponse
from osqueue.server.async_app import AsyncApi
from osqueue.stores.memory import MemoryStore
from tests.support.patience import PATIENCE

R = TypeVar("R")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose path is short enough for sockets, as the one of two processes that serve together."""
    place = Path(tempfile.mkdtemp(prefix="osq"))
    monkeypatch.setenv(VARIABLE, f"2 {place}")
    yield place
    shutil.rmtree(place)


def place() -> Place:
    found = Place.take()
    assert found is not None
    return found


def queue_of(home: int, at: Place) -> str:
    """The name of a queue whose home this is."""
    return next(name for name in map(str, range(100)) if at.home(f"/v1/queues/{name}/jobs") == home)


class Two:
    """Two that serve together, in one event loop, over one store."""

    def __init__(self) -> None:
        store = MemoryStore()
        self.here, self.there = (Neighbours(AsyncApi(store), place()) for _ in range(2))
        self.queue = queue_of(self.there.place.number, self.here.place)
        self.jobs = f"/v1/queues/{self.queue}/jobs"
        self.claims = f"/v1/queues/{self.queue}/claims"

    async def __aenter__(self) -> Two:
        for each in (self.here, self.there):
            await each.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for each in (self.here, self.there):
            await each.close()

    async def post(self, path: str, body: Any, **more: Any) -> ApiResponse:
        """Ask the first of them, about a queue of the second."""
        return await self.here.answer(ApiRequest("POST", path, (), json.dumps(body).encode(), **more))


def together(scene: Callable[[Two], Awaitable[R]]) -> R:
    async def run() -> R:
        async with Two() as two:
            return await asyncio.wait_for(scene(two), PATIENCE)

    return asyncio.run(run())


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        for _ in itertools.takewhile(lambda _: not what(), itertools.count()):
            await asyncio.sleep(0.01)


def read(response: ApiResponse) -> Any:
    return json.loads(response.body)


@pytest.mark.usefixtures("folder")
def test_numbers_are_taken_once_and_free_again() -> None:
    first, second = place(), place()
    assert {first.number, second.number} == {0, 1}
    assert Place.take() is None
    os.close(second._lock)
    assert place().number == second.number


def test_where_nobody_serves_together_there_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert Place.take() is None
    with serving_together(3):
        assert place().processes == 3
    assert VARIABLE not in os.environ


@pytest.mark.usefixtures("folder")
def test_each_queue_has_one_home_and_what_names_none_stays() -> None:
    first, second = place(), place()
    paths = [f"/v1/queues/{name}/jobs" for name in range(50)]
    assert [first.home(path) for path in paths] == [second.home(path) for path in paths]
    assert {first.home(path) for path in paths} == {0, 1}
    for at in (first, second):
        assert at.home("/healthz") == at.home("/v1/queues") == at.number


@pytest.mark.usefixtures("folder")
def test_a_request_is_answered_at_the_home_of_its_queue() -> None:
    async def scene(two: Two) -> Any:
        large = "x" * 200_000
        done = await two.post(two.jobs, {"payload": large})
        (job,) = read(await two.post(two.claims, {"worker": "w"}))["jobs"]
        assert done.notes["operation"] == "enqueue"
        return done.status, job["payload"] == large, two.here.api.store.requests, two.there.api.store.requests

    status, same, here, there = together(scene)
    assert (status, same) == (200, True)
    assert sum(here.values()) == 0
    assert there["put"] >= 2


@pytest.mark.usefixtures("folder")
def test_many_at_once_are_answered_each() -> None:
    async def scene(two: Two) -> list[int]:
        await two.post(two.jobs, {"payload": 0})
        answers = await asyncio.gather(*[two.post(two.jobs, {"payload": each}) for each in range(100)])
        return [each.status for each in answers]

    assert together(scene) == [200] * 100


@pytest.mark.usefixtures("folder")
def test_who_may_not_is_refused_before_anything_is_handed_over() -> None:
    def permit(route: Any, queue: str) -> None:
        raise Forbidden("no", permanent=True)

    async def scene(two: Two) -> tuple[int, int, int]:
        refused = await two.post(two.jobs, {"payload": 1}, permit=permit)
        nowhere = await two.post(f"{two.jobs}/a/b/c", {})
        return refused.status, nowhere.status, sum(two.there.api.store.requests.values())

    assert together(scene) == (403, 404, 0)


@pytest.mark.usefixtures("folder")
def test_whose_caller_hangs_up_is_not_worked_for_any_more() -> None:
    async def scene(two: Two) -> int:
        waiting = asyncio.create_task(two.post(two.claims, {"worker": "w", "wait": 20}))
        await until(lambda: bool(two.there._running))
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        await until(lambda: not two.there._running)
        await two.post(two.jobs, {"payload": 1})
        return len(read(await two.post(two.claims, {"worker": "v"}))["jobs"])

    assert together(scene) == 1


@pytest.mark.usefixtures("folder")
def test_a_home_that_is_not_there_keeps_nobody_waiting() -> None:
    async def scene(two: Two) -> tuple[int, dict[str, int]]:
        await two.there.close()
        with suppress(FileNotFoundError):  # since Python 3.13 the event loop removes the socket itself
            os.unlink(two.there.place.socket(two.there.place.number))
        done = await two.post(two.jobs, {"payload": 1})
        return done.status, two.here.api.store.requests

    status, here = together(scene)
    assert status == 200
    assert here["put"] >= 1


@pytest.mark.usefixtures("folder")
def test_a_home_that_goes_while_it_is_asked_is_told_as_one() -> None:
    """Whether it was done nobody knows: the caller is told so, and the next request is answered here."""

    async def scene(two: Two) -> tuple[ApiResponse, ApiResponse]:
        waiting = asyncio.create_task(two.post(two.claims, {"worker": "w", "wait": 20}))
        await until(lambda: bool(two.there._running))
        link = await two.here._link(two.there.place.number)
        link._writer.transport.abort()
        os.unlink(two.there.place.socket(two.there.place.number))
        return await waiting, await two.post(two.jobs, {"payload": 1})

    lost, after = together(scene)
    assert (lost.status, read(lost)["error"]["code"]) == (503, "unavailable")
    assert after.status == 200


@pytest.mark.usefixtures("folder")
def test_a_look_is_taken_again_where_its_home_goes() -> None:
    async def scene(two: Two) -> ApiResponse:
        done = read(await two.post(two.jobs, {"payload": 1, "delay": 600}))
        path = f"{two.jobs}/{done['job_id']}/result"
        waiting = asyncio.create_task(two.here.answer(ApiRequest("GET", path, (("wait", "1"),))))
        await until(lambda: bool(two.there._running))
        link = await two.here._link(two.there.place.number)
        link._writer.transport.abort()
        return await waiting

    assert together(scene).status == 202


@pytest.mark.usefixtures("folder")
def test_a_folder_whose_path_is_too_long_for_sockets_is_said_and_does_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> int:
        here = Neighbours(AsyncApi("memory://"), place())
        here.place.folder = f"{here.place.folder}/{'x' * 200}"
        await here.start()
        answers = [await here.answer(ApiRequest("GET", f"/v1/queues/{name}")) for name in range(4)]
        await here.close()
        return sum(each.status == 200 for each in answers)

    assert asyncio.run(scene()) == 4
    assert "do not share commits" in caplog.text


@pytest.mark.usefixtures("folder")
def test_a_reader_has_no_events_recorded_by_another_process() -> None:
    async def scene(two: Two) -> None:
        await two.post(two.jobs, {"jobs": [{"payload": 1}]})
        events = f"/v1/queues/{two.queue}/events"
        for permit, status in ((Identity(read_only=True).permit, 409), (None, 200)):
            told = await two.here.answer(ApiRequest("GET", events, permit=permit))
            assert (told.status, two.here._links != {}) == (status, True)

    together(scene)
