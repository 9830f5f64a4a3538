"""What a server answers for the page: its files, who looks, and what is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from osqueue.asgi.admission import Admission
from osqueue.asgi.dashboard import FILES, POLICY, static_file
from osqueue.asgi.server import ServeOptions, app_over
from osqueue.asgi.tokens import TokenFile, digest_of
from osqueue.contract.operations import ROUTES
from osqueue.contract.roles import OPEN
from osqueue.stores.address import open_store

COMPRESSED_BYTES_MAX = 150_000


def client_of(tokens: TokenFile | None = None, read_only: bool = False) -> TestClient:
    return TestClient(
        app_over(
            open_store("memory://"), ServeOptions("memory://"), Admission(tokens, read_only=read_only)
        ).asgi
    )


@pytest.fixture
def client() -> Iterator[TestClient]:
    with client_of() as found:
        yield found


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    path = tmp_path / "tokens.toml"
    rows = [("reader", "read", '["mail"]'), ("boss", "operate", '["*"]'), ("producer", "enqueue", '["*"]')]
    path.write_text(
        "".join(
            f'[[token]]\nname = "{name}"\nsha256 = "{digest_of(name)}"\nroles = ["{role}"]\nqueues = {queues}\n'
            for name, role, queues in rows
        )
    )
    return TokenFile(path)


# ── Files ────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("path", FILES)
def test_files_come_with_a_strict_policy_and_are_not_sent_twice(client: TestClient, path: str) -> None:
    told = client.get(path)
    assert told.status_code == 200
    assert told.headers["content-security-policy"] == POLICY
    assert told.headers["x-content-type-options"] == "nosniff"
    again = client.get(path, headers={"if-none-match": told.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_policy_lets_nothing_in_but_the_page_itself() -> None:
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'")
    assert "http" not in POLICY


def test_the_page_is_small() -> None:
    assert sum(len(static_file(name).packed) for name, _ in FILES.values()) <= COMPRESSED_BYTES_MAX


def test_files_are_sent_as_they_are_to_those_who_want_that(client: TestClient) -> None:
    plain = client.get("/dashboard/app.js", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == static_file("app.js").body == gzip.decompress(static_file("app.js").packed)


def test_the_page_names_no_other_place() -> None:
    for name, _ in FILES.values():
        text = static_file(name).body.decode()
        for url in [part.split('"')[0].split("'")[0].split("`")[0] for part in text.split("http")[1:]]:
            assert url.startswith(("://www.w3.org/", "s://www.w3.org/")) or not url.startswith(
                ("://", "s://")
            ), url


# ── Who looks ────────────────────────────────────────────────────────────────
def me(client: TestClient, token: str | None = None) -> dict[str, object]:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    told = client.get("/dashboard/me", headers=headers)
    return {"status": told.status_code, **told.json()}


def test_without_tokens_everybody_may_do_everything(client: TestClient) -> None:
    assert me(client)["operations"] == [route.name for route in ROUTES]


def test_read_only_leaves_what_reads(tmp_path: Path) -> None:
    with client_of(read_only=True) as client:
        told = me(client)
        operations = told["operations"]
        assert isinstance(operations, list)
        assert told["read_only"] is True
        assert "list_jobs" in operations
        assert "status_many" in operations
        assert not {"redrive", "purge", "configure", "cancel", "enqueue", "claim"} & set(operations)


def test_read_only_refuses_every_operation_that_is_none_of_those() -> None:
    with client_of(read_only=True) as client:
        operations = me(client)["operations"]
        assert isinstance(operations, list)
        for route in ROUTES:
            names = {"queue": "mail", "id": "x", "group": "g", "schedule": "s", "batch": "b", "worker": "w"}
            path = route.path.format(**names, pacer="p")
            told = client.request(route.method, path, content=b"{}" if route.request else None)
            refused = told.status_code == 403 and "--read-only" in told.text
            assert refused == (route.name not in operations), route.name


def test_a_token_says_what_its_holder_may(tokens: TokenFile) -> None:
    with client_of(tokens) as client:
        assert me(client)["status"] == 401
        assert me(client, "wrong")["status"] == 401
        reader = me(client, "reader")
        assert (reader["name"], reader["queues"]) == ("reader", ["mail"])
        assert "redrive" not in str(reader["operations"])
        assert "redrive" in str(me(client, "boss")["operations"])


def test_read_only_binds_those_who_may_everything(tokens: TokenFile) -> None:
    with client_of(tokens, read_only=True) as client:
        operations = me(client, "boss")["operations"]
        assert isinstance(operations, list)
        assert "redrive" not in operations
        assert "stats" in operations
        told = client.post(
            "/v1/queues/mail/purge", headers={"authorization": "Bearer boss"}, json={"jobs": []}
        )
        assert told.status_code == 403


def test_the_stream_is_for_those_who_may_look(tokens: TokenFile) -> None:
    with client_of(tokens) as client:
        assert client.get("/dashboard/live").status_code == 401
        reader = {"authorization": "Bearer reader"}
        assert client.get("/dashboard/live", params={"queue": "other"}, headers=reader).status_code == 403


def test_files_are_open_to_those_who_have_no_token_yet(tokens: TokenFile) -> None:
    with client_of(tokens) as client:
        assert all(client.get(path).status_code == 200 for path in FILES)


def test_open_operations_stay_open(tokens: TokenFile) -> None:
    with client_of(tokens, read_only=True) as client:
        assert client.get("/healthz").status_code == 200
        assert set(OPEN) <= set(json.loads(json.dumps(me(client, "reader")["operations"])))
