"""A transport that answers what a test tells it to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from osqueue import Timeout, Unavailable
from osqueue.client.transports.base import ApiAnswer, ApiCall, CallOutcome, LostCall, Transport

BROKEN = LostCall(Unavailable("the connection broke"))
REFUSED = LostCall(Unavailable("no connection"), sent=False)
LATE = LostCall(Timeout("no answer in time"))
KEY = "01890a5d-ac96-774b-bcce-b302099a8001"
NOW = "2030-01-31T08:00:00Z"

Say = CallOutcome | Callable[[ApiCall], CallOutcome]


class Scripted(Transport):
    """Answers what a test tells it to, the last of it again and again."""

    def __init__(self, says: Iterable[Say], machine: Any) -> None:
        super().__init__(machine)
        self.says = list(says)
        self.calls: list[ApiCall] = []

    @property
    def place(self) -> object:
        return self

    def send(self, call: ApiCall) -> CallOutcome:
        self.calls.append(call)
        say = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        return say(call) if callable(say) else say

    @property
    def bodies(self) -> list[Any]:
        return [msgspec.json.decode(call.body) if call.body else None for call in self.calls]

    @property
    def routes(self) -> list[str]:
        return [call.route.name for call in self.calls]


def ok(body: Any = None, status: int = 200) -> ApiAnswer:
    return ApiAnswer(status, b"" if body is None else msgspec.json.encode(body))


def fault(code: str, status: int, **more: Any) -> ApiAnswer:
    return ok({"error": {"code": code, "message": f"it is {code}", **more}}, status)


def accepts(call: ApiCall) -> ApiAnswer:
    jobs = msgspec.json.decode(call.body)["jobs"]
    done = [{"status": "queued", "job_id": each["job_id"], "state": "queued"} for each in jobs]
    return ok({"jobs": done})


JOB: dict[str, Any] = {
    "job_id": KEY,
    "token": "t-0",
    "attempt": 2,
    "max_attempts": 3,
    "run": 5,
    "priority": 1,
    "enqueued_at": NOW,
    "started_at": NOW,
    "expires_at": NOW,
    "lease": 30.0,
    "kind": "k",
    "payload": {"to": "ada"},
}


def leased(**more: Any) -> ApiAnswer:
    job = {**JOB, **more}
    return ok({"jobs": [{name: each for name, each in job.items() if each is not None}]})


def told(**more: Any) -> ApiAnswer:
    return ok({"completions": [{"job_id": KEY, "ok": True, **more}]})


def turned(ended: Iterable[Any], claims: Iterable[Any]) -> ApiAnswer:
    """A turn that went well: of as many endings, with these answers to its claims."""
    return ok({"completions": [{"job_id": KEY, "ok": True} for _ in ended], "claims": list(claims)})
