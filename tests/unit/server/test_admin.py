"""Whole queues over the API: statistics, settings, dead letters, the archive, erasing, upkeep."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from datetime import datetime
from typing import Any

import pytest

from osqueue import Queue
from osqueue.errors import OsqueueError, Throttled, Timeout, Unavailable, Unknown
from osqueue.objects.layout import root_of
from osqueue.server.app import Api
from osqueue.server.openapi import STATS
from osqueue.stores.base import Failed, Put, PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from tests.support.caller import JOBS, QUEUE, Caller


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def caller(store: MemoryStore) -> Caller:
    return Caller(Api(store))


def bury(caller: Caller, count: int, **options: Any) -> list[str]:
    """Dead letters; their ids."""
    items = [{"payload": n, "max_attempts": 1, **options} for n in range(count)]
    ids: list[str] = []
    for at in range(0, count, 250):
        caller.post(JOBS, {"jobs": items[at : at + 250]})
        leases = caller.claim(250)
        ends = [{"job_id": each["job_id"], "token": each["token"], "error": "boom"} for each in leases]
        caller.post(f"{QUEUE}/completions", {"completions": ends})
        ids += [each["job_id"] for each in leases]
    return ids


# ── Numbers and settings ─────────────────────────────────────────────────────
def test_statistics_are_those_of_the_library_and_as_the_contract_says(
    store: MemoryStore, caller: Caller
) -> None:
    caller.enqueue(1)
    told = caller.get(QUEUE).body
    mine = Queue(store, "mail").stats()
    assert {**told, "oldest_seconds": 0} == {**mine, "oldest_seconds": 0}
    assert told.keys() | {"error"} == STATS["properties"].keys()


def test_a_group_gets_limits_of_its_own_by_its_path(caller: Caller) -> None:
    told = caller.ask("PATCH", f"{QUEUE}/groups/customer-7", {"running": 5, "rate": [50, 60], "paused": True})
    assert told.body["groups"] == {"customer-7": {"running": 5, "rate": [50, 60.0]}}
    told = caller.ask("PATCH", f"{QUEUE}/groups/customer-7", {"running": None, "rate": None})
    assert told.body["groups"] == {}
    refused = caller.ask("PATCH", f"{QUEUE}/groups/customer-7", {"running": -1})
    assert (refused.status, refused.body["error"]["field"]) == (422, "running")


def test_settings_change_one_by_one_and_the_answer_shows_them(caller: Caller) -> None:
    paused = caller.ask("PATCH", QUEUE, {"paused": True, "dead_ttl": 600}).body
    assert (paused["paused"], paused["settings"]["dead_ttl"]) == (True, 600)
    caller.enqueue(1)
    assert caller.post(f"{QUEUE}/claims", {}).body == {"jobs": [], "reason": "paused", "scope": "queue"}
    commits = caller.get(QUEUE).body["commits"]
    assert caller.ask("PATCH", QUEUE, {}).body["commits"] == commits  # nothing to change
    assert caller.ask("PATCH", QUEUE, {"paused": False}).body["settings"]["dead_ttl"] == 600
    assert len(caller.claim()) == 1


@pytest.mark.parametrize(
    ("settings", "code", "field"),
    [
        ({"paused": "yes"}, "rejected", "paused"),
        ({"shards": 65}, "rejected", "shards"),
        ({"dead_ttl": 1}, "rejected", "dead_ttl"),
        ({"colour": "red"}, "rejected", "colour"),
        ({"rate_limit": 5}, "not_supported", "rate_limit"),
        ({"interval": 5}, "not_supported", "interval"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(
    caller: Caller, settings: dict[str, Any], code: str, field: str
) -> None:
    refused = caller.ask("PATCH", QUEUE, settings)
    assert (refused.status, refused.code, refused.field) == (422, code, field)


def test_what_is_no_queue_hides_none_from_the_list(store: MemoryStore, caller: Caller) -> None:
    for name in ("A", "B", "z z"):
        store.perform(Put(f"queues/{name}", b""))
    caller.enqueue(1)
    assert [each["queue"] for each in caller.get("/v1/queues", limit=1).body["queues"]] == ["mail"]


def test_queues_are_listed_page_by_page(caller: Caller) -> None:
    names = [f"q{n}" for n in range(5)]
    for name in names:
        caller.post(f"/v1/queues/{name}/jobs", {"payload": 1})
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = caller.get("/v1/queues", limit=2, **cursor).body
        seen += [each["queue"] for each in page["queues"]]
        assert all(each["queued"] == 1 for each in page["queues"])
        if "cursor" not in page:
            break
        cursor = {"cursor": page["cursor"]}
    assert seen == names


def test_a_queue_that_cannot_be_read_hides_no_other(store: MemoryStore, caller: Caller) -> None:
    for name in ("bad", "good"):
        caller.post(f"/v1/queues/{name}/jobs", {"payload": 1})
    store.perform(Put(f"{root_of('bad', 0)}head", b"not a head"))
    bad, good = caller.get("/v1/queues").body["queues"]
    assert (bad["queue"], bad["error"]["code"]) == ("bad", "damaged")
    assert good["queued"] == 1
    assert caller.get("/v1/queues/bad").status == 503


# ── Dead letters ─────────────────────────────────────────────────────────────
def test_dead_letters_are_listed_and_grouped(caller: Caller) -> None:
    ids = bury(caller, 3, kind="welcome")
    page = caller.ask("GET", f"{QUEUE}/dead", query=[("limit", "2"), ("kind", "welcome"), ("kind", "x")]).body
    rest = caller.get(f"{QUEUE}/dead", limit=2, cursor=page["cursor"]).body
    assert [each["job_id"] for each in [*page["jobs"], *rest["jobs"]]] == ids
    (group,) = caller.get(f"{QUEUE}/dead/groups").body["groups"]
    assert (group["count"], group["error"], group["kinds"]) == (3, "boom", {"welcome": 3})
    assert caller.get(f"{QUEUE}/dead", fingerprint=group["fingerprint"]).body["jobs"] != []
    assert caller.get(f"{QUEUE}/dead", kind="other").body["jobs"] == []
    assert caller.get(f"{QUEUE}/dead", error="other").body["jobs"] == []


def test_a_redrive_says_how_many_and_whether_it_left_some(caller: Caller) -> None:
    bury(caller, 5)
    redrive = f"{QUEUE}/redrive"
    assert caller.post(redrive, {"dry_run": True}).body == {"jobs": 5}
    assert caller.post(redrive, {"dry_run": True, "limit": 5}).body == {"jobs": 5}
    assert caller.post(redrive, {"dry_run": True, "limit": 2}).body == {"jobs": 2, "more": True}
    assert caller.post(redrive, {"limit": 2}).body == {"jobs": 2, "more": True}
    assert caller.post(redrive, {"limit": 3}).body == {"jobs": 3}
    assert caller.post(redrive).body == {"jobs": 0}
    assert len(caller.claim(10)) == 5


def test_one_redrive_moves_so_many_and_no_more(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osqueue.server.admin.REDRIVE_MAX", 20)
    monkeypatch.setattr("osqueue.server.admin.REDRIVE_CHUNK", 8)
    bury(caller, 21)
    assert caller.post(f"{QUEUE}/redrive", {"limit": 1_000}).body == {"jobs": 20, "more": True}
    assert caller.post(f"{QUEUE}/redrive", {"limit": 1_000}).body == {"jobs": 1}


class Closing(MemoryStore):
    """Takes so many commits, and then no more."""

    commits: int | None = None

    def perform(self, request: StoreRequest) -> StoreReply:
        """Answer, or refuse."""
        if self.commits is not None and isinstance(request, PutIfMatch) and request.key.endswith("/head"):
            if not self.commits:
                return Failed(Unavailable("closed", permanent=True))
            self.commits -= 1
        return super().perform(request)


@pytest.mark.parametrize("by", ["all", "fingerprint"])
@pytest.mark.parametrize(("shards", "commits", "moved"), [(1, 2, 16), (4, 1, 5), (4, 2, 8)])
def test_a_redrive_that_breaks_off_tells_what_it_queued_again(
    monkeypatch: pytest.MonkeyPatch, shards: int, commits: int, moved: int, by: str
) -> None:
    monkeypatch.setattr("osqueue.server.admin.REDRIVE_CHUNK", 8)
    store = Closing()
    Queue(store, "mail").configure(shards=shards)
    caller = Caller(Api(store))
    for _ in range(4):
        bury(caller, 5)
    (group,) = caller.get(f"{QUEUE}/dead/groups").body["groups"]
    asked = {} if by == "all" else {"fingerprint": group["fingerprint"]}
    store.commits = commits
    assert caller.post(f"{QUEUE}/redrive", asked).body == {"jobs": moved, "more": True}
    refused = caller.post(f"{QUEUE}/redrive", asked)
    assert (refused.status, refused.code) == (503, "unavailable")
    store.commits = None
    assert caller.post(f"{QUEUE}/redrive", asked).body == {"jobs": 20 - moved}


@pytest.mark.parametrize("error", [Throttled("too many writers"), Unknown("silence"), Timeout("too late")])
def test_a_redrive_whose_last_look_fails_tells_what_it_queued_again(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, error: OsqueueError
) -> None:
    def count_dead(*about: Any) -> Any:
        raise error
        yield

    monkeypatch.setattr("osqueue.operations.dead_letters.count_dead", count_dead)
    bury(caller, 5)
    assert caller.post(f"{QUEUE}/redrive", {"limit": 4}).body == {"jobs": 4, "more": True}


# ── The archive ──────────────────────────────────────────────────────────────
def archived(caller: Caller, count: int) -> list[str]:
    ids = [caller.enqueue(n) for n in range(count)]
    for lease in caller.claim(count):
        caller.end(lease, result=1)
    caller.post(f"{QUEUE}/reap")
    return ids


def through(caller: Caller, **query: Any) -> list[dict[str, Any]]:
    """Every page of the history."""
    pages = [caller.get(f"{QUEUE}/history", **query).body]
    while "cursor" in pages[-1]:
        pages.append(caller.get(f"{QUEUE}/history", cursor=pages[-1]["cursor"], **query).body)
    return pages


def test_history_goes_page_by_page_and_never_across_parts(caller: Caller) -> None:
    first, second = archived(caller, 5), archived(caller, 3)
    pages = [page for page in through(caller, limit=2) if page["jobs"]]
    assert [each["job_id"] for page in pages for each in page["jobs"]] == [*first, *second]
    assert [len(page["jobs"]) for page in pages] == [2, 2, 1, 2, 1]
    assert len({page["part"] for page in pages}) == 2
    assert all(each["state"] == "completed" for page in pages for each in page["jobs"])


def test_history_tells_of_a_window_alone(machine: Any) -> None:
    caller = Caller(Api(MemoryStore(machine), machine=machine))
    archived(caller, 2)
    seconds = datetime.fromisoformat(through(caller)[0]["jobs"][1]["finished_at"]).timestamp()
    assert sum(len(page["jobs"]) for page in through(caller, until=seconds - 3600)) == 0
    assert sum(len(page["jobs"]) for page in through(caller, since=seconds - 1, until=seconds + 1)) == 2
    assert caller.get(f"{QUEUE}/history", since=2, until=1).field == "until"


def test_large_records_make_shorter_pages(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osqueue.server.admin.ANSWER_BYTES_MAX", 2_500)
    ids = archived(caller, 6)
    pages = [page for page in through(caller) if page["jobs"]]
    assert len(pages) > 1
    assert [each["job_id"] for page in pages for each in page["jobs"]] == ids


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "!!",
        urlsafe_b64encode(b'["archive/queue=other/x",0]').decode(),
        urlsafe_b64encode(b'["../../etc/passwd",0]').decode(),
        urlsafe_b64encode(b'[0,"x"]').decode(),
        "\u0660",
    ],
)
def test_a_cursor_of_somebody_elses_is_refused(caller: Caller, cursor: str) -> None:
    refused = caller.get(f"{QUEUE}/history", cursor=cursor)
    assert (refused.status, refused.field) == (422, "cursor")


# ── Erasing, upkeep, the API itself ──────────────────────────────────────────
def test_a_purge_erases_and_refuses_what_is_being_worked_on(caller: Caller) -> None:
    job = caller.enqueue("secret", id="order-7")
    done = caller.post(f"{QUEUE}/purge", {"jobs": ["order-7"]}).body
    assert (done["jobs"], done["cancelled"]) == ([job], 1)
    assert caller.get(f"{JOBS}/{job}").status == 404
    busy = caller.enqueue(1)
    caller.claim()
    assert caller.post(f"{QUEUE}/purge", {"jobs": [busy]}).code == "conflict"
    assert caller.post(f"{QUEUE}/purge", {"jobs": ["nobody"]}).code == "not_found"


def test_a_reap_reports_what_it_did(caller: Caller) -> None:
    caller.enqueue(1)
    caller.end(caller.claim()[0], result=1)
    report = caller.post(f"{QUEUE}/reap").body
    assert (report["archived"], report["saved"]) == (1, 1)


def test_health_asks_nothing_of_the_store(caller: Caller) -> None:
    assert caller.get("/healthz").body["status"] == "ok"
    assert set(caller.api.store.requests.values()) == {0}
