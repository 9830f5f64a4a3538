"""Places for large contents, and requests that name them."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from osqueue import Queue
from osqueue.contract.functions import CONTENT_BYTES_MAX
from osqueue.contract.operations import BY_NAME
from osqueue.contract.roles import Role, may
from osqueue.objects.layout import root_of
from osqueue.server.app import Api
from osqueue.stores.base import Delete, List, Put
from osqueue.stores.memory import MemoryStore
from osqueue.stores.relay import Relay
from tests.support.caller import JOBS, QUEUE, Caller

LARGE = b'"%s"' % (b"x" * 300_000)
PLACE = f"{QUEUE}/uploads"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def caller(store: MemoryStore, machine: Any) -> Caller:
    return Caller(Api(store, machine=machine))


def announced(caller: Caller, data: bytes = LARGE, queue: str = QUEUE) -> Any:
    return caller.post(f"{queue}/uploads", {"bytes": len(data), "sha256": digest(data)}).body


def send(caller: Caller, place: Any, data: bytes = LARGE) -> int:
    relay, store = Relay(caller.api.machine), caller.api.store
    return relay.carry_out(store, relay.open(store, "PUT", place["url"]), data).status


def uploaded(caller: Caller, data: bytes = LARGE, queue: str = QUEUE) -> str:
    place = announced(caller, data, queue)
    assert send(caller, place, data) == 200
    name: str = place["upload"]
    return name


def test_a_job_has_what_was_uploaded(caller: Caller) -> None:
    assert caller.post(JOBS, {"upload": uploaded(caller)}).body["status"] == "queued"
    (job,) = caller.claim()
    assert job["payload"] == "x" * 300_000


def test_a_job_has_a_copy_so_nothing_that_happens_to_the_upload_changes_it(
    caller: Caller, store: MemoryStore
) -> None:
    name = uploaded(caller)
    caller.post(JOBS, {"upload": name})
    store.delete(Delete((f"{root_of('mail', 0)}uploads/{name}",)))
    (job,) = caller.claim()
    assert len(job["payload"]) == 300_000


def test_a_request_that_is_repeated_is_the_same_job(caller: Caller) -> None:
    job = {"upload": uploaded(caller), "job_id": caller.key()}
    first, second = caller.post(JOBS, job).body, caller.post(JOBS, job).body
    assert first["job_id"] == second["job_id"]
    assert len(caller.claim(10)) == 1


def test_an_ending_has_what_was_uploaded(caller: Caller) -> None:
    caller.post(JOBS, {"payload": 1})
    (job,) = caller.claim()
    ended = caller.end(job, upload=uploaded(caller))
    assert ended["ok"]
    assert caller.get(f"{JOBS}/{job['job_id']}/result").body["result"] == "x" * 300_000


def test_where_nobody_could_carry_it_out_there_is_no_place(caller: Caller, store: MemoryStore) -> None:
    """Over a directory bucket of S3, which signs nothing that lasts, behind functions, which relay nothing."""
    caller.post(JOBS, {"payload": 1})
    store.ordered = False
    refused = Caller(Api(store, machine=caller.api.machine)).post(
        PLACE, {"bytes": len(LARGE), "sha256": digest(LARGE)}
    )
    assert (refused.status, refused.body["error"]["code"]) == (422, "not_supported")
    assert "its store signs no requests" in refused.body["error"]["message"]


def test_in_a_turn_as_well(caller: Caller) -> None:
    caller.post(JOBS, {"payload": 1})
    (job,) = caller.claim()
    ending = {"job_id": job["job_id"], "token": job["token"], "upload": uploaded(caller)}
    told = caller.post(f"{QUEUE}/turns", {"completions": [ending], "claims": []})
    assert told.body["completions"][0]["ok"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "../../head",
        "../bodies/000000000001-0000000000000001-1",
        "000000000000-0000000000000000-5/../../head",
        "000000000001-00000000000000AA-5",
        "000000000001-00000000000000aa-5",
    ],
)
def test_what_the_api_did_not_give_is_refused(caller: Caller, name: str) -> None:
    told = caller.post(JOBS, {"upload": name})
    assert (told.status, told.code, told.field) == (422, "rejected", "upload")
    assert "POST /v1/queues/{queue}/uploads" in told.body["error"]["message"]
    caller.post(JOBS, {"payload": 1})
    (job,) = caller.claim()
    ended = caller.end(job, upload=name)
    assert (ended["ok"], ended["error"]["field"]) == (False, "upload")


def test_what_was_announced_and_never_sent_is_refused(caller: Caller) -> None:
    told = caller.post(JOBS, {"upload": announced(caller)["upload"]})
    assert (told.code, told.field) == ("rejected", "upload")
    assert "never sent" in told.body["error"]["message"]


def test_what_has_another_length_is_refused(caller: Caller, store: MemoryStore) -> None:
    name = announced(caller)["upload"]
    store.put(Put(f"{root_of('mail', 0)}uploads/{name}", LARGE + b" "))  # a server that compares nothing
    told = caller.post(JOBS, {"upload": name})
    assert (told.code, told.field) == ("rejected", "upload")
    assert "300,002 bytes that were announced" in told.body["error"]["message"]


def test_what_was_uploaded_to_another_queue_is_not_there(caller: Caller) -> None:
    name = uploaded(caller, queue="/v1/queues/other")
    assert caller.post(JOBS, {"upload": name}).field == "upload"


def test_a_bad_upload_fails_alone(caller: Caller) -> None:
    items = [{"payload": 1}, {"upload": "x"}, {"upload": uploaded(caller)}]
    done = caller.post(JOBS, {"jobs": items}).body["jobs"]
    assert [each["status"] for each in done] == ["queued", "rejected", "queued"]


def test_what_is_no_json_needs_the_name_of_what_wrote_it(caller: Caller) -> None:
    name = uploaded(caller, b"\xc1" * 10)
    told = caller.post(JOBS, {"upload": name})
    assert (told.status, told.field) == (422, "upload")
    caller.post(JOBS, {"upload": name, "codec": "mine"})
    (job,) = caller.claim()
    assert job["codec"] == "mine"


@pytest.mark.parametrize("other", [{"payload": 1}, {"data": "AA=="}])
def test_a_job_has_one_content(caller: Caller, other: dict[str, Any]) -> None:
    assert caller.post(JOBS, {"upload": uploaded(caller), **other}).field == "upload"


@pytest.mark.parametrize("bytes", [0, -1, CONTENT_BYTES_MAX + 1])
def test_a_length_out_of_bounds_is_refused(caller: Caller, bytes: int) -> None:
    told = caller.post(PLACE, {"bytes": bytes, "sha256": "0" * 64})
    assert (told.status, told.field) == (422, "bytes")
    assert caller.post(PLACE, {"bytes": CONTENT_BYTES_MAX, "sha256": "0" * 64}).status == 200


@pytest.mark.parametrize("text", ["", "0" * 63, "A" * 64, "0" * 65])
def test_a_digest_that_is_none_is_refused(caller: Caller, text: str) -> None:
    assert caller.post(PLACE, {"bytes": 5, "sha256": text}).field == "sha256"


def test_one_request_names_no_more_than_a_function_holds(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [uploaded(caller) for _ in range(3)]
    monkeypatch.setattr("osqueue.server.transfers.CONTENT_BYTES_MAX", 2 * len(LARGE))
    done = caller.post(JOBS, {"jobs": [{"upload": name} for name in names]}).body["jobs"]
    assert [each["status"] for each in done] == ["queued", "queued", "rejected"]
    assert done[2]["error"]["code"] == "too_large"


def test_the_first_upload_makes_its_queue_known_so_that_upkeep_finds_it(
    caller: Caller, store: MemoryStore
) -> None:
    announced(caller)
    assert store.list(List("queues/")).keys == ("queues/mail",)


def test_who_brings_jobs_and_who_works_may_upload_and_who_reads_may_not() -> None:
    allowed = {role for role in Role if may(role, BY_NAME["upload"])}
    assert allowed == {Role.ENQUEUE, Role.WORK, Role.OPERATE}


def test_a_download_is_of_its_content_alone_though_others_lie_beside_it(store: MemoryStore) -> None:
    q = Queue[Any](store, "mail")
    q.enqueue_many([{"payload": letter * 4_500_000} for letter in "a"] + [{"payload": "b" * 2_000}])
    caller = Caller(Api(store))
    large, small = caller.claim(2)
    told = large["downloads"]["payload"]
    relay = Relay(caller.api.machine)
    answer = relay.carry_out(store, relay.open(store, "GET", told["url"]))
    assert answer.body == b'"%s"' % (b"a" * 4_500_000)
    assert small["payload"] == "b" * 2_000


def grow_old(q: Queue[Any], machine: Any, hours: float) -> None:
    q.enqueue("before")
    machine.advance(hours * 3_600)
    q.enqueue("after")
    q.reap()


def test_an_upload_that_nobody_names_lives_for_a_day_and_is_collected_then(
    caller: Caller, store: MemoryStore, machine: Any
) -> None:
    q = Queue[Any](store, "mail", machine=machine)
    q.enqueue("first")
    grow_old(q, machine, 30)
    caller.get(f"{JOBS}/x")  # this server saw the queue then
    grow_old(q, machine, 30)
    grow_old(q, machine, 30)
    name = uploaded(caller)
    grow_old(q, machine, 22)
    assert caller.post(JOBS, {"upload": name}).status == 200
    grow_old(q, machine, 30)
    assert caller.post(JOBS, {"upload": name}).field == "upload"
    assert store.list(List(f"{root_of('mail', 0)}uploads/")).keys == ()


def test_a_purge_takes_uploads_along(caller: Caller, store: MemoryStore) -> None:
    job = caller.post(JOBS, {"upload": uploaded(caller)}).body["job_id"]
    caller.post(f"{QUEUE}/purge", {"jobs": [job]})
    assert store.list(List(f"{root_of('mail', 0)}uploads/")).keys == ()
