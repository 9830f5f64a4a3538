"""Headers: their bounds, and what the archive, events, bulks, purges and the command line do with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from osqueue import Queue, Rejected, limits
from osqueue.cli.app import app
from osqueue.events import Event
from osqueue.stores.base import Get, List
from osqueue.stores.memory import MemoryStore
from tests.support.caller import Caller

SECRET = "ada@example.com"
FULL = {
    f"{at:02}": "v" * (limits.HEADERS_BYTES_MAX // limits.HEADERS_MAX - 2) for at in range(limits.HEADERS_MAX)
}


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def q(store: MemoryStore, machine: Any) -> Queue[Any]:
    return Queue(store, "mail", machine=machine)


GOOD: list[dict[str, str]] = [
    {},
    FULL,
    {"n" * limits.HEADER_NAME_CHARS_MAX: "v" * limits.HEADER_VALUE_CHARS_MAX},
    {"a b~!": "größe"},
]
BAD: list[Any] = [
    5,
    "a=b",
    ["a"],
    {5: "b"},
    {"a": 5},
    {"a": None},
    {"": "b"},
    {"é": "b"},
    {"a\n": "b"},
    {"a": "b\n"},
    {"a": "\ud800"},
    {"n" * (limits.HEADER_NAME_CHARS_MAX + 1): ""},
    {"a": "v" * (limits.HEADER_VALUE_CHARS_MAX + 1)},
    {**FULL, "15": FULL["15"] + "v"},
    {"a": "é" * 200, **{f"h{at}": "é" * 200 for at in range(5)}},
    {f"{at:02}": "" for at in range(limits.HEADERS_MAX + 1)},
]


@pytest.mark.parametrize("headers", GOOD, ids=lambda value: repr(value)[:30])
def test_headers_within_their_bounds_are_taken(q: Queue[Any], headers: Any) -> None:
    q.enqueue(1, headers=headers)
    (lease,) = q.claim()
    assert lease.headers == headers


@pytest.mark.parametrize("headers", BAD, ids=lambda value: repr(value)[:30])
def test_headers_out_of_bounds_are_refused_by_name(q: Queue[Any], headers: Any) -> None:
    with pytest.raises(Rejected, match=r"^headers: ") as caught:
        q.enqueue(1, headers=headers)
    assert caught.value.field == "headers"
    assert len(caught.value.message) < 300
    assert q.requests["put"] == 0


@pytest.mark.parametrize("headers", [{"é": "b"}, {"a": "v" * 257}, {f"h{at}": "" for at in range(17)}])
def test_the_api_refuses_them_in_the_same_words(q: Queue[Any], headers: Any) -> None:
    with pytest.raises(Rejected) as caught:
        q.enqueue(1, headers=headers)
    told = Caller().post("/v1/queues/mail/jobs", {"payload": 1, "headers": headers})
    assert (told.status, told.body["error"]["message"]) == (422, caught.value.message)


def test_none_is_no_headers(q: Queue[Any]) -> None:
    q.enqueue(1, headers=None)
    assert q.claim()[0].headers == {}


def test_a_bulk_of_segments_keeps_them(q: Queue[Any]) -> None:
    q.enqueue_many([{"payload": at, "headers": {"at": str(at)}} for at in range(1_500)])
    leases = q.claim(1_000)
    assert leases
    assert all(lease.headers == {"at": str(lease.payload)} for lease in leases)


def test_heads_stay_bounded_however_long_the_headers_are(q: Queue[Any]) -> None:
    for _ in range(5):
        q.enqueue_many([{"payload": 1, "headers": FULL}] * 200)
    done = 0
    while leases := q.claim(1_000):
        done += sum(each.ok for each in q.complete_many(leases))
    assert done == 1_000


def test_events_tell_their_names_alone(q: Queue[Any]) -> None:
    told: list[Event] = []
    q.on_event(told.append)
    q.enqueue(1, headers={"tenant": SECRET, "trace": "x"})
    q.claim()[0].complete()
    assert told
    assert {each.headers for each in told} == {("tenant", "trace")}
    assert SECRET not in repr(told)


def test_the_archive_tells_of_them(q: Queue[Any], machine: Any) -> None:
    q.enqueue(1, headers={"tenant": "a"})
    q.claim()[0].complete()
    machine.advance(3_600 * 24)
    q.reap()
    machine.advance(3_600 * 24)
    q.reap()
    assert [job.headers for job in q.history()] == [{"tenant": "a"}]


@pytest.mark.parametrize("archived", [False, True])
def test_a_purge_forgets_them(q: Queue[Any], store: MemoryStore, machine: Any, archived: bool) -> None:
    job_id = q.enqueue(1, headers={SECRET: SECRET}).job_id or ""
    q.claim()[0].complete()
    if archived:
        machine.advance(3_600 * 24)
        q.reap()
    assert holders(store)
    q.purge(job_id)
    assert not holders(store)


def holders(store: MemoryStore) -> list[str]:
    """The objects in which the secret can be read."""
    keys = store.perform(List("")).keys  # type: ignore[union-attr]
    return [key for key in keys if SECRET.encode() in store.perform(Get(key)).body]  # type: ignore[union-attr]


def test_the_command_line_takes_and_prints_them(tmp_path: Path) -> None:
    def run(*args: str) -> Any:
        done = CliRunner().invoke(app, args, env={"OSQUEUE_ADDRESS": f"file://{tmp_path}/jobs?fsync=off"})
        return done, (json.loads(done.stdout) if done.exit_code == 0 else done.stderr)

    _, told = run("enqueue", "mail", "1", "--header", "tenant=a", "--header", "query=x=1")
    wanted = {"tenant": "a", "query": "x=1"}
    assert run("job", "show", "mail", told["job_id"])[1]["headers"] == wanted
    assert run("claim", "mail")[1]["headers"] == wanted
    for wrong in (["tenant"], ["a=1", "--header", "a=2"]):
        done, said = run("enqueue", "mail", "1", "--header", *wrong)
        assert done.exit_code == 2
        assert "NAME=VALUE" in said or "twice" in said
