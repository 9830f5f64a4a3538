"""A worker's turn: endings and claims in one call and one commit, each answered as if it had come alone."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue, limits
from osqueue.server.answers import ANSWER_BYTES_MAX
from osqueue.server.app import Api
from osqueue.server.flows import ServerFlows
from osqueue.stores.base import Found, Get, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from tests.support.caller import QUEUE, Caller
from tests.support.machines import VirtualMachine

TURNS = f"{QUEUE}/turns"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def caller(store: MemoryStore) -> Caller:
    return Caller(Api(store))


class Aimed(VirtualMachine):
    """Claims begin at the first shard, or where a test says."""

    first = 0.0

    def uniform(self) -> float:
        return self.first


def held(lease: dict[str, Any], **how: Any) -> dict[str, Any]:
    return {"job_id": lease["job_id"], "token": lease["token"], **how}


def shard_of(lease: dict[str, Any]) -> str:
    return str(lease["job_id"][-2:])


def payloads(answer: dict[str, Any]) -> list[Any]:
    return [each["payload"] for each in answer["jobs"]]


def asked(caller: Caller, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """What a turn answers, and the store's requests for it."""
    before = caller.api.store.requests
    done = caller.post(TURNS, body)
    assert done.status == 200, done.body
    after = caller.api.store.requests
    return done.body, {kind: after[kind] - before[kind] for kind in after if after[kind] > before[kind]}


# ── One commit ───────────────────────────────────────────────────────────────
def test_endings_of_every_kind_and_claims_of_several_are_one_put(caller: Caller, store: MemoryStore) -> None:
    for at in range(8):
        caller.enqueue(at, kind="even" if at % 2 == 0 else "odd")
    one, two, three, four = caller.claim(4)
    endings = [
        held(one, result={"n": 1}),
        held(two, error={"type": "Boom", "message": "no"}),
        held(three, release=60),
        held(four, cancel="asked"),
    ]
    claims = [{"worker": "eve", "limit": 1, "kinds": ["even"]}, {"limit": 5, "kinds": ["odd"], "lease": 60}]
    told, requests = asked(caller, {"completions": endings, "claims": claims})
    assert requests == {"put": 1}
    assert [each.get("code", "ok") for each in told["completions"]] == ["ok", "failing", "ok", "cancelled"]
    assert [payloads(each) for each in told["claims"]] == [[4], [5, 7]]
    assert [each["lease"] for each in told["claims"][1]["jobs"]] == [60, 60]
    queue: Queue[Any] = Queue(store, "mail")
    assert [job.worker for job in queue.jobs("processing")[0]] == ["eve", "api", "api"]


def test_a_claim_finds_the_place_that_an_ending_of_its_turn_has_freed(
    caller: Caller, store: MemoryStore
) -> None:
    Queue[Any](store, "mail").configure(max_running=1)
    for at in range(3):
        caller.enqueue(at)
    (lease,) = caller.claim(3)
    told, _ = asked(caller, {"completions": [held(lease)], "claims": [{"limit": 3}, {"limit": 3}]})
    assert [payloads(each) for each in told["claims"]] == [[1], []]
    assert told["claims"][1]["reason"] == "running_limit"


def test_endings_go_to_their_shards_and_the_claims_to_one_that_has_work(store: MemoryStore) -> None:
    queue: Queue[Any] = Queue(store, "mail")
    queue.configure(shards=4)
    for at in range(40):
        queue.enqueue(at)
    machine = Aimed()
    caller = Caller(Api(store, machine=machine))
    leases: list[dict[str, Any]] = []
    for machine.first in (0.0, 0.25, 0.5, 0.75):
        leases += caller.claim(2)
    assert {shard_of(each) for each in leases} == {"00", "01", "02", "03"}
    machine.first = 0.5
    before = queue.stats()["commits"]
    told, _ = asked(caller, {"completions": [held(each) for each in leases], "claims": [{"limit": 3}] * 2})
    assert all(each["ok"] for each in told["completions"])
    assert [len(each["jobs"]) for each in told["claims"]] == [3, 3]
    assert {shard_of(each) for claim in told["claims"] for each in claim["jobs"]} == {"02"}
    assert queue.stats()["commits"] - before == 4  # each shard heard its endings, and one of them the claims


def test_an_idle_turn_writes_nothing(caller: Caller) -> None:
    caller.end({"job_id": caller.enqueue(1), "token": "t"})
    caller.claim()
    told, requests = asked(caller, {"claims": [{"kinds": ["none"]}]})
    assert told == {"completions": [], "claims": [{"jobs": [], "reason": "empty"}]}
    assert "put" not in requests
    assert asked(caller, {"claims": []}) == ({"completions": [], "claims": []}, {})


# ── What makes no sense ──────────────────────────────────────────────────────
def test_bad_items_fail_alone_in_their_places(caller: Caller) -> None:
    for at in range(3):
        caller.enqueue(at)
    one, two = caller.claim(2)
    endings = [{"job_id": 7}, held(one), held(two, result=1, error="no"), {"token": "t"}]
    claims = [{"limit": 0}, {"limit": 1}, {"wait": 5}, 7]
    told, requests = asked(caller, {"completions": endings, "claims": claims})
    assert requests == {"put": 1}
    assert [each.get("code", "ok") for each in told["completions"]] == [
        "rejected",
        "ok",
        "rejected",
        "rejected",
    ]
    assert [each["error"]["field"] for each in told["completions"] if not each["ok"]] == [
        "job_id",
        "error",
        "job_id",
    ]
    bad, good, waits, strange = told["claims"]
    assert (bad["error"]["field"], bad["jobs"]) == ("limit", [])
    assert payloads(good) == [2]
    assert waits["error"]["message"] == "wait: no such field. Known: worker, limit, lease, kinds."
    assert strange["error"]["code"] in ("rejected", "malformed")


@pytest.mark.parametrize("field", ["completions", "claims"])
def test_a_thousand_items_are_taken_and_one_more_are_not(caller: Caller, field: str) -> None:
    item = {"completions": {"job_id": caller.enqueue(1), "token": "t"}, "claims": {"kinds": ["none"]}}[field]
    most = limits.ITEMS_PER_REQUEST_MAX
    assert caller.post(TURNS, {"claims": [], field: [item] * most}).status == 200
    refused = caller.post(TURNS, {"claims": [], field: [item] * (most + 1)})
    assert (refused.status, refused.field) == (422, field)


# ── When a shard does not answer ─────────────────────────────────────────────
class Troubled(MemoryStore):
    """A store in which some heads are not what was written."""

    broken: tuple[str, ...] = ()

    def perform(self, request: StoreRequest) -> StoreReply:
        """Answer, or do not."""
        reply = super().perform(request)
        return (
            Found(b"not a head", "v", 0)
            if isinstance(request, Get) and request.key.endswith(self.broken)
            else reply
        )


@pytest.fixture
def troubled() -> Troubled:
    """A queue of two shards with jobs in both."""
    store = Troubled()
    queue: Queue[Any] = Queue(store, "mail")
    queue.configure(shards=2)
    for at in range(8):
        queue.enqueue(at)
    return store


def test_endings_that_their_shard_did_not_hear_are_to_be_said_again_and_the_claim_is_answered(
    troubled: Troubled,
) -> None:
    machine = Aimed()
    machine.first = 0.9
    (lease,) = Caller(Api(troubled, machine=machine)).claim()
    machine.first = 0.0
    troubled.broken = ("/1/head",)
    caller = Caller(Api(troubled, machine=machine))
    told = caller.post(TURNS, {"completions": [held(lease), {}], "claims": [{"limit": 2}]}).body
    again, bad = told["completions"]
    assert (again["job_id"], again["ok"], again["code"]) == (lease["job_id"], False, "stale")
    assert (again["error"]["code"], bad["error"]["field"]) == ("damaged", "job_id")
    assert len(told["claims"][0]["jobs"]) == 2
    troubled.broken = ()
    assert Caller(Api(troubled)).end(lease)["ok"]


def test_endings_are_heard_though_a_claim_fails(troubled: Troubled) -> None:
    machine = Aimed()
    (lease,) = Caller(Api(troubled, machine=machine)).claim()
    machine.first = 0.9
    troubled.broken = ("/1/head",)
    caller = Caller(Api(troubled, machine=machine))
    told = caller.post(TURNS, {"completions": [held(lease)], "claims": [{"limit": 1}, {"limit": 1}]}).body
    assert told["completions"] == [{"job_id": lease["job_id"], "ok": True}]
    assert [(each["jobs"], each["error"]["code"]) for each in told["claims"]] == [([], "damaged")] * 2


def test_a_turn_of_which_nothing_was_done_fails_as_a_whole(troubled: Troubled) -> None:
    machine = Aimed()
    (lease,) = Caller(Api(troubled, machine=machine)).claim()
    troubled.broken = ("/0/head",)
    caller = Caller(Api(troubled, machine=machine))
    for body in ({"completions": [held(lease)], "claims": [{}]}, {"claims": [{}]}):
        told = caller.post(TURNS, body)
        assert (told.status, told.code) == (503, "damaged")


def test_a_defect_is_told_as_one(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(*_: Any) -> Any:
        raise ValueError

    caller.enqueue(1)
    monkeypatch.setattr(ServerFlows, "claim_in", defect)
    assert caller.post(TURNS, {"claims": [{}]}).code == "internal"


# ── Room ─────────────────────────────────────────────────────────────────────
def test_the_claims_of_a_turn_share_one_answer_and_what_finds_no_room_goes_back(
    caller: Caller, store: MemoryStore
) -> None:
    queue: Queue[Any] = Queue(store, "mail")
    large = "x" * (ANSWER_BYTES_MAX * 2 // 5)  # two of them fit
    for kind in "aabbc":
        queue.enqueue(large if kind != "c" else "small", kind=kind)
    lease = caller.claim(kinds=["c"])[0]
    claims = [{"limit": 1, "kinds": ["a"]}, {"limit": 2, "kinds": ["b"]}, {"limit": 1, "kinds": ["a"]}]
    done = caller.post(TURNS, {"completions": [held(lease)], "claims": claims})
    one, two, three = done.body["claims"]
    assert [len(each["jobs"]) for each in (one, two, three)] == [1, 1, 0]
    assert three["reason"] == "answer_full"
    assert len(done.response.body) <= ANSWER_BYTES_MAX
    stats = queue.stats()
    assert (stats["processing"], stats["queued"], stats["completed"]) == (2, 2, 1)


def test_what_is_leased_too_late_to_be_answered_is_given_back_and_the_endings_are_told(machine: Any) -> None:
    store = Late(machine)
    caller = Caller(Api(store, machine=machine), machine)
    caller.enqueue("small")
    (lease,) = caller.claim()
    caller.enqueue("x" * 5_000)
    store.late = True
    told = caller.post(TURNS, {"completions": [held(lease)], "claims": [{"lease": 40_000}]}).body
    assert told["completions"][0]["ok"]
    assert told["claims"][0]["error"]["code"] == "timeout"
    stats = caller.get(QUEUE).body
    assert (stats["queued"], stats["processing"], stats["completed"]) == (1, 0, 1)


class Late(MemoryStore):
    """A store with which time passes where a payload is read."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.machine, self.late = machine, False

    def perform(self, request: StoreRequest) -> StoreReply:
        """Answer, late."""
        if self.late and isinstance(request, Get) and "/bodies/" in request.key:
            self.machine.advance(25)
        return super().perform(request)
