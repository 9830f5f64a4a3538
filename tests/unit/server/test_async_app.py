"""The server for coroutines: shared commits, waits that hold no thread, and an end that keeps nobody waiting."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from osqueue.clock import MACHINE, Machine
from osqueue.server.app import ApiRequest, ApiResponse
from osqueue.server.async_app import AsyncApi
from osqueue.stores.base import Put, PutIfAbsent, PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from tests.support.caller import JOBS, QUEUE
from tests.support.patience import PATIENCE

R = TypeVar("R")


class Slow(MemoryStore):
    """A store that takes a moment for each request, as one elsewhere does."""

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        """Carry out a request."""
        await asyncio.sleep(0.02)
        return self.perform(request)


class Standing(Machine):
    """A machine whose time stands still."""

    def __init__(self) -> None:
        self._moment = MACHINE.monotonic()

    def monotonic(self) -> float:  # type: ignore[override]
        """Seconds."""
        return self._moment


def served(
    scene: Callable[[AsyncApi], Awaitable[R]], store: Any = "memory://", machine: Machine = MACHINE
) -> R:
    async def run() -> R:
        return await scene(AsyncApi(store, machine=machine))

    return asyncio.run(run())


async def post(api: AsyncApi, path: str, body: Any, **query: Any) -> ApiResponse:
    pairs = tuple((name, str(value)) for name, value in query.items())
    return await api.answer(ApiRequest("POST", path, pairs, json.dumps(body).encode()))


def read(response: ApiResponse) -> Any:
    return json.loads(response.body)


def test_those_who_call_at_the_same_time_share_commits() -> None:
    async def scene(api: AsyncApi) -> tuple[set[int], int]:
        await post(api, JOBS, {"payload": 0})  # the first makes the queue
        answers = await asyncio.gather(*[post(api, JOBS, {"payload": each}) for each in range(100)])
        return {each.status for each in answers}, api.store.requests["put"]

    statuses, puts = served(scene, Slow(MACHINE))
    assert statuses == {200}
    assert puts <= 10


def test_those_who_wait_hold_no_thread_and_look_together() -> None:
    """A hundred who wait for a job: the first that comes goes to one of them, and nobody has a thread."""

    async def scene(api: AsyncApi) -> tuple[int, int, list[int]]:
        await post(api, JOBS, {"payload": 0})
        await post(api, f"{QUEUE}/claims", {"worker": "w"})
        threads = threading.active_count()
        body = {"worker": "w", "wait": 20}
        waiting = [asyncio.create_task(post(api, f"{QUEUE}/claims", body)) for _ in range(100)]
        await asyncio.sleep(0.5)
        more = threading.active_count() - threads
        gets = api.store.requests["get"]
        await asyncio.sleep(1.0)
        looks = api.store.requests["get"] - gets
        await post(api, JOBS, {"payload": 1})
        done, _ = await asyncio.wait(waiting, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        api.end_waits()
        found = [len(read(each)["jobs"]) for each in await asyncio.gather(*waiting)]
        assert done
        return more, looks, found

    more, looks, found = served(scene, Slow(MACHINE))
    assert more == 0
    assert looks <= 20  # one looks for all
    assert sum(found) == 1


def test_those_who_ask_again_while_others_wait_cost_no_request() -> None:
    """Idle workers ask again and again; by what one of them has seen just now all are told that nothing is there."""

    async def scene(api: AsyncApi) -> tuple[int, int]:
        await post(api, JOBS, {"payload": 0})
        await post(api, f"{QUEUE}/claims", {"worker": "w"})
        claims = f"{QUEUE}/claims"
        waiting = asyncio.create_task(post(api, claims, {"worker": "w", "wait": 20}))
        await asyncio.sleep(0.3)
        gets = api.store.requests["get"]
        for _ in range(20):
            answers = await asyncio.gather(
                *[post(api, claims, {"worker": "w", "wait": 0.02}) for _ in range(10)]
            )
            assert all(read(each) == {"jobs": [], "reason": "empty"} for each in answers)
        asked = api.store.requests["get"] - gets
        await post(api, JOBS, {"payload": 1})
        (job,) = read(await asyncio.wait_for(waiting, PATIENCE))["jobs"]
        return asked, job["payload"]

    asked, payload = served(scene, Slow(MACHINE))
    assert payload == 1
    assert asked <= 20  # of 200 claims; one who waits looks, at most ten times a second


def test_a_queue_that_grows_is_claimed_from_as_a_whole_by_those_who_wait() -> None:
    async def scene(api: AsyncApi) -> list[int]:
        await post(api, JOBS, {"payload": 0})
        await post(api, f"{QUEUE}/claims", {"worker": "w"})
        body = {"worker": "w", "wait": 20}
        waiting = [asyncio.create_task(post(api, f"{QUEUE}/claims", body)) for _ in range(2)]
        await asyncio.sleep(0.2)
        await api.answer(ApiRequest("PATCH", QUEUE, (), b'{"shards": 3}'))
        await asyncio.sleep(0.2)
        for number in range(6):
            await post(api, JOBS, {"payload": number})
        answers = [await asyncio.wait_for(each, PATIENCE) for each in waiting]
        return [len(read(each)["jobs"]) for each in answers]

    assert served(scene) == [1, 1]


def test_an_end_commits_what_waits_for_a_window() -> None:
    async def main() -> None:
        api = AsyncApi(MemoryStore(), window=10.0)
        queue = api.queue("mail")
        queue._group(0).window.start_by((), 0.0, meets=True)
        waiting = asyncio.create_task(post(api, JOBS, {"payload": 1}))
        while queue._group(0)._hurry is None:  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0)
        api.end_waits()
        assert (await asyncio.wait_for(waiting, PATIENCE)).status == 200
        assert api.queue("texts").window == 0
        await api.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["claim", "result", "enqueue", "events"])
def test_an_end_answers_whoever_waits_as_if_the_time_were_over(kind: str) -> None:
    async def scene(api: AsyncApi) -> ApiResponse:
        job = read(await post(api, JOBS, {"payload": 1, "delay": 600}))["job_id"]
        calls: dict[str, ApiRequest] = {
            "claim": ApiRequest("POST", f"{QUEUE}/claims", (), b'{"worker": "w", "wait": 20}'),
            "result": ApiRequest("GET", f"{JOBS}/{job}/result", (("wait", "20"),)),
            "enqueue": ApiRequest("POST", JOBS, (("wait", "20"),), b'{"payload": 2, "delay": 600}'),
            "events": ApiRequest("GET", f"{QUEUE}/events", (("wait", "20"),)),
        }
        waiting = asyncio.create_task(api.answer(calls[kind]))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        api.end_waits()
        answer = await asyncio.wait_for(waiting, PATIENCE)
        later = await asyncio.wait_for(
            api.answer(calls[kind]), PATIENCE
        )  # who comes now does not wait either
        assert later.status == answer.status
        return answer

    answer = served(scene, machine=Standing())
    if kind == "claim":
        assert (answer.status, read(answer)["jobs"]) == (200, [])
    elif kind == "events":
        assert (answer.status, read(answer)["events"]) == (200, [])
    else:
        assert (answer.status, read(answer)["error"]["code"]) == (202, "wait_timeout")


def test_a_defect_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryStore):
        async def perform_async(self, request: StoreRequest) -> StoreReply:
            if isinstance(request, Put | PutIfAbsent | PutIfMatch):
                raise ZeroDivisionError("of ours")
            return self.perform(request)

    async def scene(api: AsyncApi) -> ApiResponse:
        return await post(api, JOBS, {"payload": "of the caller"})

    answer = served(scene, Broken(MACHINE))
    assert (answer.status, read(answer)["error"]["code"]) == (500, "internal")
    assert b"of ours" not in answer.body
    assert "of ours" in caplog.text
    assert "of the caller" not in caplog.text
