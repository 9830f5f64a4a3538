"""The API as an ASGI application: what reaches it, who may, what is refused before it is read, and what is logged."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpx import Response
from starlette.testclient import TestClient

from osqueue.asgi.admission import Admission
from osqueue.asgi.app import ServerApp
from osqueue.asgi.readiness import LOOK_SECONDS, SUCCESS_SECONDS
from osqueue.asgi.tokens import TokenFile, digest_of
from osqueue.contract.functions import BODY_BYTES_MAX
from osqueue.errors import Unavailable
from osqueue.server.app import ApiRequest
from osqueue.server.async_app import AsyncApi
from osqueue.stores.base import Failed, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from tests.support.refusing import RefusingStore, head_reads

JOBS = "/v1/queues/mail/jobs"


def app_over(store: Any, tokens: TokenFile | None = None) -> ServerApp:
    return ServerApp(AsyncApi(store), Admission(tokens))


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(app_over("memory://").asgi) as found:
        yield found


# ── Requests ─────────────────────────────────────────────────────────────────
def test_a_job_goes_in_and_comes_out(client: TestClient) -> None:
    job_id = client.post(JOBS, json={"payload": {"to": "ada"}}).json()["job_id"]
    (lease,) = client.post("/v1/queues/mail/claims", json={"worker": "w"}).json()["jobs"]
    assert (lease["job_id"], lease["payload"]) == (job_id, {"to": "ada"})


def test_ids_with_strange_characters_reach_their_job(client: TestClient) -> None:
    client.post(JOBS, json={"payload": 1, "id": "a b+c"})
    assert client.get(f"{JOBS}/a%20b%2Bc").json()["id"] == "a b+c"


def test_queries_are_read(client: TestClient) -> None:
    client.post(JOBS, json={"payload": 1, "kind": "a&b"})
    client.post(JOBS, json={"payload": 1, "kind": "c"})
    assert len(client.get(JOBS, params={"kind": "a&b"}).json()["jobs"]) == 1


def test_a_body_that_is_too_large_is_refused_before_it_is_read(client: TestClient) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(10):
            yield b" " * 1_000_000

    told = client.post(JOBS, content=b" " * (BODY_BYTES_MAX + 1))
    assert (told.status_code, told.json()["error"]["code"]) == (413, "too_large")
    assert client.post(JOBS, content=endless()).status_code == 413


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nope", 404), ("PUT", JOBS, 405)])
def test_what_there_is_not(client: TestClient, method: str, path: str, status: int) -> None:
    told = client.request(method, path)
    assert told.status_code == status
    assert told.json()["error"]["message"]


@pytest.mark.parametrize(
    "path", ["/v1/queues/a%0Ab", "/v1/queues/a%0A/jobs", "/%0A", "//", "/readyz/", "/metrics/x"]
)
def test_whatever_the_path_it_is_the_api_that_answers(client: TestClient, path: str) -> None:
    told = client.get(path, follow_redirects=False)
    assert told.status_code in (404, 422)
    assert told.json()["error"]["message"]


# ── Who may ──────────────────────────────────────────────────────────────────
TOKENS = {
    "producer": ("enqueue", ["mail"]),
    "worker": ("work", ["m*"]),
    "reader": ("read", ["*"]),
    "boss": ("operate", ["*"]),
}


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    path = tmp_path / "tokens.toml"
    path.write_text(
        "".join(
            f'[[token]]\nname = "{name}"\nsha256 = "{digest_of(name)}"\n'
            f'roles = ["{role}"]\nqueues = {json.dumps(queues)}\n'
            for name, (role, queues) in TOKENS.items()
        )
    )
    return TokenFile(path)


@pytest.fixture
def guarded(tokens: TokenFile) -> Iterator[TestClient]:
    with TestClient(app_over("memory://", tokens).asgi) as found:
        yield found


def asked(client: TestClient, who: str | None, method: str, path: str, body: Any = None) -> Response:
    headers = {} if who is None else {"authorization": f"Bearer {who}"}
    return client.request(method, path, json=body, headers=headers)


CALLS = {
    "enqueue": ("POST", JOBS, {"payload": 1}),
    "claim": ("POST", "/v1/queues/mail/claims", {"worker": "w"}),
    "stats": ("GET", "/v1/queues/mail", None),
    "all queues": ("GET", "/v1/queues", None),
    "pause": ("PATCH", "/v1/queues/mail", {"paused": True}),
    "another queue": ("POST", "/v1/queues/other/jobs", {"payload": 1}),
}
MAY = {
    "producer": {"enqueue"},
    "worker": {"claim"},
    "reader": {"stats", "all queues"},
    "boss": set(CALLS),
}


@pytest.mark.parametrize("who", MAY)
@pytest.mark.parametrize("call", CALLS)
def test_a_token_allows_what_its_roles_and_queues_say(guarded: TestClient, who: str, call: str) -> None:
    told = asked(guarded, who, *CALLS[call])
    assert (told.status_code == 200) == (call in MAY[who]), told.json()
    if told.status_code != 200:
        assert (told.status_code, told.json()["error"]["code"]) == (403, "forbidden")
        assert who in told.json()["error"]["message"]


@pytest.mark.parametrize("who", [None, "stranger"])
def test_nobody_else_is_answered(guarded: TestClient, who: str | None) -> None:
    told = asked(guarded, who, *CALLS["stats"])
    assert (told.status_code, told.headers["www-authenticate"]) == (401, "Bearer")
    assert told.json()["error"]["code"] == "unauthorized"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json"])
def test_what_tells_of_no_queue_is_open(guarded: TestClient, path: str) -> None:
    assert asked(guarded, None, "GET", path).status_code == 200


# ── Whose page ───────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"host": "evil.example"}, "host"),
        ({"host": "127.0.0.1.evil.example:8080"}, "host"),
        ({"host": "[::1"}, "host"),
        ({"host": "evil@127.0.0.1"}, "host"),
        ({"host": "127.0.0.1/evil"}, "host"),
        ([("host", "127.0.0.1"), ("host", "evil.example")], "host"),
        ([("host", "127.0.0.1"), ("host", "127.0.0.1")], "host"),
        ({"host": "localhost:8080", "origin": "https://evil.example"}, "origin"),
        ({"host": "localhost:8080", "origin": "null"}, "origin"),
        ({"host": "localhost:8080", "origin": "http://localhost:9090"}, "origin"),
    ],
)
def test_pages_of_other_sites_do_not_reach_a_server_of_this_machine(
    headers: dict[str, str] | list[tuple[str, str]], field: str
) -> None:
    with TestClient(ServerApp(AsyncApi("memory://"), Admission(local_only=True)).asgi) as client:
        told = client.post(JOBS, content=b'{"payload": 1}', headers=headers)
    assert (told.status_code, told.json()["error"]["message"].partition(":")[0]) == (403, field)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "[::1]:8080"])
def test_its_own_pages_and_programs_do(host: str) -> None:
    with TestClient(ServerApp(AsyncApi("memory://"), Admission(local_only=True)).asgi) as client:
        for headers in ({"host": host}, {"host": host, "origin": f"http://{host}"}):
            assert client.post(JOBS, content=b'{"payload": 1}', headers=headers).status_code == 200


# ── Readiness ────────────────────────────────────────────────────────────────
class Silent(MemoryStore):
    """A store that does not answer."""

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        """Fail."""
        return Failed(Unavailable("nobody is there"))


def test_a_server_whose_store_is_silent_is_alive_and_not_ready() -> None:
    with TestClient(app_over(Silent()).asgi) as client:
        assert client.get("/healthz").status_code == 200
        told = client.get("/readyz")
    assert (told.status_code, told.json()["reason"]) == (503, "nobody is there")


def test_a_server_that_is_not_ready_shows_the_reason_to_managers_alone(tokens: TokenFile) -> None:
    with TestClient(app_over(Silent(), tokens).asgi) as client:
        reasons = [asked(client, name, "GET", "/readyz").json()["reason"] for name in ("boss", None)]
    assert reasons == ["nobody is there", "the store fails requests; the log has its error"]


def test_a_server_whose_store_refuses_what_calls_need_is_not_ready_until_it_allows_it(machine: Any) -> None:
    store = RefusingStore(MemoryStore(machine), head_reads)  # and allows a listing
    with TestClient(ServerApp(AsyncApi(store, machine=machine), Admission()).asgi) as client:
        store.refuses = True
        assert client.post(JOBS, content=b'{"payload": 1}').status_code == 503
        told = client.get("/readyz")
        assert (told.status_code, told.json()["reason"]) == (503, "403 AccessDenied (injected)")
        store.refuses = False
        assert client.post(JOBS, content=b'{"payload": 1}').status_code == 200
        assert client.get("/readyz").status_code == 200


def test_a_server_stays_ready_while_the_store_refuses_one_queue_of_two(machine: Any) -> None:
    def refused(request: StoreRequest) -> bool:
        return head_reads(request) and "/refused/" in request.key

    store = RefusingStore(MemoryStore(machine), refused)
    other = JOBS.replace("mail", "refused")
    with TestClient(ServerApp(AsyncApi(store, machine=machine), Admission()).asgi) as client:
        store.refuses = True
        assert client.post(JOBS, content=b'{"payload": 1}').status_code == 200
        assert client.post(other, content=b'{"payload": 1}').status_code == 503
        assert client.get("/readyz").status_code == 200
        machine.advance(SUCCESS_SECONDS)
        assert client.post(other, content=b'{"payload": 1}').status_code == 503
        assert client.get("/readyz").status_code == 503
        machine.advance(LOOK_SECONDS)
        assert client.get("/readyz").status_code == 200


def test_a_server_that_is_about_to_end_is_not_ready() -> None:
    app = app_over("memory://")
    with TestClient(app.asgi) as client:
        assert client.get("/readyz").status_code == 200
        app.drain()
        told = client.get("/readyz")
    assert (told.status_code, told.json()["status"]) == (503, "draining")


# ── Callers who hang up ──────────────────────────────────────────────────────
def test_what_a_claim_was_granted_is_given_back_when_its_caller_has_hung_up() -> None:
    """A claim waits; its caller goes; a job comes: it is there for the next one."""

    async def scene() -> int:
        app = app_over("memory://")
        gone = asyncio.Event()
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            if not sent:
                sent.append("body")
                return {"type": "http.request", "body": b'{"worker": "w", "wait": 20}'}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            raise AssertionError("nobody is there to hear")

        path = "/v1/queues/mail/claims"
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "root_path": ""}
        scope |= {"query_string": b"", "headers": []}
        waiting = asyncio.create_task(app.asgi(scope, receive, send))  # type: ignore[arg-type]
        await asyncio.sleep(0.5)
        gone.set()
        await waiting
        await app.api.answer(ApiRequest("POST", JOBS, (), b'{"payload": 1}'))
        told = await app.api.answer(ApiRequest("POST", path, (), b'{"worker": "v"}'))
        return len(json.loads(told.body)["jobs"])

    assert asyncio.run(scene()) == 1


# ── The log ──────────────────────────────────────────────────────────────────
def test_each_request_is_a_line_of_the_log_without_its_contents(
    guarded: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "osqueue.serve.access")
    asked(guarded, "boss", "POST", JOBS, {"payload": "secret-payload"})
    asked(guarded, "boss", "POST", "/v1/queues/none/claims", {"worker": "w"})
    asked(guarded, "stranger", *CALLS["stats"])
    lines = [(each.levelname, each.told) for each in caplog.records if hasattr(each, "told")]
    assert [level for level, _ in lines] == ["INFO", "DEBUG", "INFO"]
    enqueued, idle, unknown = (told for _, told in lines)
    assert (enqueued["operation"], enqueued["queue"], enqueued["token"]) == ("enqueue", "mail", "boss")
    assert (enqueued["status"], enqueued["job_count"]) == (200, 1)
    assert idle["job_count"] == 0
    assert (unknown["status"], unknown["code"]) == (401, "unauthorized")
    assert "secret-payload" not in repr(lines)
    assert "stranger" not in repr(lines)
