"""A stand-in for a service of AWS on loopback: it keeps what it is sent, and answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

ACCEPTED = (202, b"")


class Received(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes
    connection: object  # which of the client's it came over

    @property
    def event(self) -> Any:
        return json.loads(self.body)


class AwsStandIn:
    """``answers`` are given in order, the last one for ever; ``at_once`` is how many came at the same time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.received: list[Received] = []
        self.answers: list[tuple[int, bytes]] = [ACCEPTED]
        self.gate: threading.Barrier | None = None  # of requests that wait for each other
        self.close_after = False  # each connection ends with its answer, unsaid

    def answer(self, request: Received) -> tuple[int, bytes]:
        self.received.append(request)
        if self.gate is not None:
            self.gate.wait(10)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def aws_stand_in() -> Iterator[AwsStandIn]:
    """One that runs while the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, told = stand_in.answer(Received(self.path, headers, body, self.client_address))
            closes = stand_in.close_after  # before the client has its answer, goes on, and perhaps changes it
            self.send_response(status)
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)
            self.close_connection = closes

        do_PUT = do_POST  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        stand_in = AwsStandIn(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield stand_in
        finally:
            server.shutdown()
            thread.join()
