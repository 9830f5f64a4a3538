"""Where S3's clients find credentials: a container's endpoint, played by a server that also plays S3."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from osqueue.stores.base import DeleteIfMatch, Get, StoreRequest
from osqueue.stores.s3 import S3Store

VERSION = '"0123456789abcdef0123456789abcdef"'
TOKEN = "what only this container knows"


class Role:
    """What the server does: credentials for whoever has the token, and a note of whose key a request is signed with."""

    def __init__(self) -> None:
        self.address = ""
        self.expires = datetime.now(UTC) + timedelta(minutes=16)
        self.signed: list[str] = []

    def answer(self, path: str, authorization: str) -> bytes:
        if path == "/credentials":
            if authorization != TOKEN:
                return b"{}"
            role = {"AccessKeyId": "OFTHEROLE", "SecretAccessKey": "s", "Token": "t"}
            return json.dumps({**role, "Expiration": self.expires.isoformat()}).encode()
        self.signed += re.findall(r"Credential=(\w+)/", authorization)
        return b""


@pytest.fixture
def role(aws_environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Role]:
    told = Role()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = told.answer(self.path, self.headers["Authorization"])
            self.send_response(204 if self.command == "DELETE" else 200)
            self.send_header("ETag", VERSION)
            self.send_header("Last-Modified", "Tue, 01 Jan 2030 00:00:00 GMT")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.address = f"http://127.0.0.1:{server.server_port}"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{told.address}/credentials")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield told
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=["a variable, as on EMR Serverless", "a file, as on EKS"])
def token(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """How the container is told its token."""
    if "variable" in request.param:
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", TOKEN)
    else:
        path = tmp_path / "token"
        path.write_text(TOKEN, encoding="utf-8")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(path))


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize("asked", [Get("a"), DeleteIfMatch("a", VERSION)], ids=["obstore", "boto3"])
def test_requests_are_signed_as_the_role_of_the_container(asked: StoreRequest, role: Role) -> None:
    store = S3Store("some-bucket", endpoint=role.address)
    store.perform(asked)
    store.close()
    assert role.signed == ["OFTHEROLE"]


def test_credentials_are_used_no_longer_than_they_are_good(
    role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just before boto3 would get new ones, which it does from 15 minutes before the end."""
    import obstore.store

    given: dict[str, Any] = {}
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", TOKEN)
    monkeypatch.setattr(obstore.store, "S3Store", lambda _, **options: given.update(options))
    S3Store("some-bucket", endpoint=role.address)._clients.kept()
    assert given["credential_provider"]()["expires_at"] <= role.expires
