"""Somebody who talks to an Api: JSON in, status and JSON out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from osqueue.clock import MACHINE, Machine
from osqueue.model.keys import KeySource, job_id
from osqueue.server.app import Api, ApiRequest, ApiResponse

QUEUE = "/v1/queues/mail"
JOBS = f"{QUEUE}/jobs"


class Told(Struct):
    """An answer, read."""

    status: int
    body: Any
    response: ApiResponse

    @property
    def code(self) -> str:
        """Of a failure."""
        return str(self.body["error"]["code"])

    @property
    def field(self) -> str | None:
        """That a failure names."""
        found: str | None = self.body["error"].get("field")
        return found


class Caller:
    """Talks to one Api."""

    def __init__(self, api: Api | None = None, machine: Machine = MACHINE, **options: Any) -> None:
        self.api = api or Api("memory://", machine=machine, **options)
        self._keys = KeySource(MACHINE)
        self._turn = 0

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Sequence[tuple[str, str]] = (),
        deadline_s: float = 20.0,
    ) -> Told:
        """Send a request; bytes go as they are, everything else as JSON."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        response = self.api.answer(ApiRequest(method, path, tuple(query), data, deadline_s))
        return Told(response.status, json.loads(response.body) if response.body else None, response)

    def get(self, path: str, **query: Any) -> Told:
        """GET."""
        return self.ask("GET", path, query=[(name, str(value)) for name, value in query.items()])

    def post(self, path: str, body: Any = None, **query: Any) -> Told:
        """POST."""
        return self.ask("POST", path, body, [(name, str(value)) for name, value in query.items()])

    def key(self) -> str:
        """A job id, as clients draw them."""
        self._turn = (self._turn + 1) % 256
        return job_id(self._keys.draw(self._turn)[0])

    def enqueue(self, payload: Any = None, **options: Any) -> str:
        """Queue a job; its id."""
        done = self.post(JOBS, {"payload": payload, **options})
        assert done.status == 200, done.body
        return str(done.body["job_id"])

    def claim(self, limit: int = 1, **options: Any) -> list[dict[str, Any]]:
        """Lease jobs."""
        done = self.post(f"{QUEUE}/claims", {"worker": "ada", "limit": limit, **options})
        assert done.status == 200, done.body
        jobs: list[dict[str, Any]] = done.body["jobs"]
        return jobs

    def end(self, lease: dict[str, Any], **how: Any) -> dict[str, Any]:
        """Say how an attempt ended; what was answered."""
        item = {"job_id": lease["job_id"], "token": lease["token"], **how}
        done = self.post(f"{QUEUE}/completions", {"completions": [item]})
        assert done.status == 200, done.body
        told: dict[str, Any] = done.body["completions"][0]
        return told
