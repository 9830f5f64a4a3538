"""Operations that read: every one of them sends the store reads alone, whoever calls and whatever it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from osqueue import Pacer, Queue
from osqueue.asgi.tokens import Identity, Token
from osqueue.aws_lambda.scopes import ScopedCaller
from osqueue.contract.operations import BY_NAME, ROUTES
from osqueue.contract.roles import Role, may
from osqueue.contract.route import Route
from osqueue.errors import Unavailable
from osqueue.server.app import Api, ApiRequest
from osqueue.server.request import Permit
from osqueue.stores.base import Failed, Get, List, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore

READS = [route for route in ROUTES if may(Role.READ, route)]
QUERIES: dict[str, tuple[dict[str, Any], ...]] = {
    "list_jobs": ({"state": "failed"}, {"group": "g"}, {"id": "one"}, {"worker": "w"}),
    "status": ({"include": "payload"},),
    "result": ({"wait": 0.01},),
    "events": ({"wait": 0.01}, {"since": 1.0}),
    "dead_letters": ({"include": "payload"},),
    "history": ({"since": 1.0},),
}
READER = Identity(Token("reader", "", (Role.READ,))).permit
PERMITS = {
    "token": READER,
    "--read-only": Identity(read_only=True).permit,
    "operator under --read-only": Identity(Token("boss", "", (Role.OPERATE,)), read_only=True).permit,
    "scope": ScopedCaller("osqueue/", (("*", Role.READ),)).permit,
}


@dataclass
class Site:
    """A queue with jobs in every state, and a store that lets nobody write from now on."""

    store: ReadableStore
    jobs: list[str]
    batch: str


class ReadableStore(WrappedStore):
    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.writable = True
        self.writes: list[StoreRequest] = []

    def perform(self, request: StoreRequest) -> StoreReply:
        if self.writable or isinstance(request, Get | List):
            return self.inner.perform(request)
        self.writes.append(request)
        return Failed(Unavailable("403 AccessDenied", permanent=True))

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


@pytest.fixture
def site() -> Site:
    store = ReadableStore(MemoryStore())
    with Queue[Any](store, "mail") as q:
        rows = [{"payload": n, "kind": "k", "max_attempts": 1} for n in range(4)]
        jobs = [each.job_id for each in q.enqueue_many(rows)]
        q.claim()[0].complete("x" * 2_000)
        q.claim()[0].fail("no")
        q.claim(worker="w")
        jobs += [q.enqueue(9, id="one", group="g").job_id, q.enqueue(9, delay=60).job_id]
        with q.batch("b") as batch:
            batch.enqueue(1)
        q.schedule("s", "@daily", 1)
        q.reap()
    Pacer(store, "p").create(1)
    store.writable = False
    return Site(store, [each for each in jobs if each], batch.id)


def ask(
    site: Site, permit: Permit | None, name: str, job: str = "", query: dict[str, Any] | None = None
) -> Any:
    route = BY_NAME[name]
    path = route.path.format(queue="mail", id=job, schedule="s", batch=site.batch, pacer="p")
    body = msgspec.json.encode({"jobs": site.jobs}) if route.request else b""
    pairs = tuple((key, str(value)) for key, value in (query or {}).items())
    return Api(site.store).answer(ApiRequest(route.method, path, pairs, body, 5.0, permit))


@pytest.mark.parametrize("route", READS, ids=lambda route: route.name)
def test_an_operation_that_reads_sends_no_write(route: Route, site: Site) -> None:
    jobs = site.jobs if "{id}" in route.path else [""]
    statuses = set()
    for job in jobs:
        for query in ({}, *QUERIES.get(route.name, ())):
            statuses.add(ask(site, READER, route.name, job, query).status)
    assert site.store.writes == []
    assert statuses <= {200, 202, 404, 409}, statuses
    assert statuses == {409} if route.name == "events" else 200 in statuses


@pytest.mark.parametrize("permit", PERMITS.values(), ids=PERMITS)
def test_a_reader_is_sent_events_once_a_caller_that_may_change_the_queue_has_read_them(
    permit: Permit, site: Site
) -> None:
    refused = ask(site, permit, "events")
    assert b"events are not recorded on queue mail" in refused.body
    site.store.writable = True
    assert ask(site, Identity(Token("boss", "", (Role.OPERATE,))).permit, "events").status == 200
    Queue[Any](site.store, "mail").enqueue(1)
    site.store.writable = False
    found = ask(site, permit, "events", query={"since": 1.0})
    assert found.status == 200
    assert [each["name"] for each in msgspec.json.decode(found.body)["events"]] == ["queued"]
    assert site.store.writes == []


def test_reads_of_a_queue_object_send_no_write(site: Site) -> None:
    q = Queue[Any](site.store, "mail", timeout=0.05)
    job = site.jobs[0]
    reads = [
        q.stats,
        q.jobs,
        q.flow,
        q.groups,
        q.workers,
        q.schedules,
        q.batches,
        q.dead_letters,
        q.dead_letter_groups,
        lambda: list(q.history()),
        lambda: list(q.history(since=datetime(2000, 1, 1, tzinfo=UTC))),
        lambda: q.status(job, include="payload"),
        lambda: q.status_many(site.jobs),
        lambda: q.result(job),
        lambda: q.story(job),
        lambda: q.why(site.jobs[3]),
        lambda: q.batch_status(site.batch),
        lambda: next(q.watch(job)),
        lambda: q.redrive(dry_run=True),
    ]
    for read in reads:
        read()
    assert site.store.writes == []
