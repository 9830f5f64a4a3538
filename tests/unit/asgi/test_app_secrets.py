"""Every endpoint of a server whose store's address holds secrets, for every role: no answer and no log holds one."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from valkey.exceptions import AuthenticationError

from osqueue.asgi.admission import Admission
from osqueue.asgi.log import configure_logs
from osqueue.asgi.server import ServeOptions, app_over
from osqueue.asgi.tokens import TokenFile, digest_of
from osqueue.contract.examples import EXAMPLES
from osqueue.contract.operations import ROUTES
from osqueue.contract.roles import Role
from osqueue.stores.base import Failed, StoreReply, StoreRequest
from osqueue.stores.counting import CountingStore
from osqueue.stores.memory import MemoryStore
from osqueue.stores.valkey_faults import explained
from tests.support.secret_addresses import PLAIN, leaks

ADDRESS = f"valkey://u:{PLAIN}@127.0.0.1:1/0/p?archive=valkey://:{PLAIN}@127.0.0.1:1/0/a&password={PLAIN}"
PAGES = ("/", "/dashboard/me", "/dashboard/live?queue=-", "/metrics", "/readyz", "/transfers/x.y", "/nothing")
TOKENS = {each.value: f"{PLAIN}-{each.value}" for each in Role}


class RefusingStore(MemoryStore):
    def perform(self, request: StoreRequest) -> StoreReply:
        error = AuthenticationError(f"wrong password for valkey://u:{PLAIN}@127.0.0.1")
        return Failed(explained(error, "127.0.0.1:1", answered=False))

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    path = tmp_path / "tokens.toml"
    rows = (
        f'[[token]]\nname = "{role}"\nsha256 = "{digest_of(token)}"\nroles = ["{role}"]\nqueues = ["mail"]\n'
        for role, token in TOKENS.items()
    )
    path.write_text("".join(rows))
    return TokenFile(path)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    loggers = [logging.getLogger(name) for name in ("osqueue", "uvicorn")]
    before = [(each.handlers, each.propagate, each.level) for each in loggers]
    stream = io.StringIO()
    configure_logs("debug", stream)
    yield stream
    for each, (handlers, propagate, level) in zip(loggers, before, strict=True):
        each.handlers, each.propagate = handlers, propagate
        each.setLevel(level)


@pytest.mark.parametrize("store", [MemoryStore, RefusingStore])
def test_no_answer_and_no_line_of_the_log_holds_a_secret(
    store: type[MemoryStore], tokens: TokenFile, log: io.StringIO
) -> None:
    app = app_over(CountingStore(store()), ServeOptions(ADDRESS), Admission(tokens))
    statuses = set()
    with TestClient(app.asgi, raise_server_exceptions=False) as client:
        callers = [(token, {}) for token in (None, "unknown", *TOKENS.values())]
        for token, query in (*callers, (TOKENS["operate"], {"access_token": PLAIN})):
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            for page in PAGES:
                answer = client.get(page, headers=headers)
                assert not leaks(f"{answer.text} {answer.headers}"), page
            for route in ROUTES:
                names = {
                    "queue": "mail",
                    "id": "x",
                    "group": "g",
                    "schedule": "s",
                    "batch": "b",
                    "worker": "w",
                }
                path = route.path.format(**names, pacer="p")
                body, _ = EXAMPLES.get(route.name, (None, None))
                answer = client.request(route.method, path, headers=headers, json=body, params=query)
                statuses.add(answer.status_code)
                assert not leaks(f"{answer.text} {answer.headers}"), route.name
    assert {401, 403} <= statuses
    assert (200 in statuses) if store is MemoryStore else (503 in statuses)
    assert log.getvalue()
    assert not leaks(log.getvalue())


def test_only_a_caller_that_manages_every_queue_is_sent_the_place(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    rows = [
        *((role.value, role.value, "*") for role in Role),
        ("one", "operate", "mail"),
    ]
    path.write_text(
        "".join(
            f'[[token]]\nname = "{name}"\nsha256 = "{digest_of(name)}"\nroles = ["{role}"]\nqueues = ["{queue}"]\n'
            for name, role, queue in rows
        )
    )
    app = app_over(CountingStore(MemoryStore()), ServeOptions(ADDRESS), Admission(TokenFile(path)))
    with TestClient(app.asgi) as client:
        places = {
            name: client.get("/dashboard/me", headers={"authorization": f"Bearer {name}"}).json()["place"]
            for name, _, _ in rows
        }
    place = "valkey://***@127.0.0.1:1/0/p"
    assert places == {"read": None, "enqueue": None, "work": None, "operate": place, "one": None}
