"""Callers of the library: few ids, many who use them, and everything that can be asked of a job by its id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from osqueue.commit.effects import Flow, QueueFlow
from osqueue.errors import OsqueueError
from osqueue.model.keys import key_of
from osqueue.operations.waiters import OVER

from .clients import Client
from .promises import Ask, Promises
from .restarts import restart_of
from .uniques import unique_of

TTLS_SECONDS = (2.0, 20.0, 60.0, 300.0)
WAITS_SECONDS = (0.0, 5.0, 60.0)


class Caller:
    """One client that enqueues under ids and asks what became of it."""

    def __init__(self, client: Client, promises: Promises, names: int) -> None:
        self.client = client
        self.flows = client.flows
        self.dice = client.dice
        self.promises = promises
        self.names = [f"id-{at}" for at in range(names)]
        self.count = 0
        self.known: list[str] = []  # job ids it was told

    def program(self, rounds: int, pause_seconds: float) -> Flow[None]:
        """One call after the other, now and then several in quick succession."""
        calls: list[tuple[float, Callable[[], Flow[Ask]]]] = [
            (0.40, self.enqueue),
            (0.45, self.enqueue_many),
            (0.60, self.enqueue_and_wait),
            (0.75, self.result),
            (0.80, self.status),
            (0.90, self.update_result_ttl),
            (1.00, self.cancel),
        ]
        for _ in range(rounds):
            if self.dice.random() < 0.7:
                yield from self.client.pause(pause_seconds)
            roll = self.dice.random()
            yield from next(call for share, call in calls if roll < share)()

    def ask(self, kind: str, text: str, flow: QueueFlow[Any], payload: Any = None) -> Flow[Ask]:
        """Run one call of the library, and judge what it answers."""
        client = self.client
        ask = Ask(client.name, kind, text, payload, client.world.now)
        try:
            ask.answer = yield from client.run(flow)
        except OsqueueError as error:
            ask.error = error
        ask.ended = client.world.now
        told = "answered" if ask.error is None else type(ask.error).__name__
        client.book.asked[f"{kind} {getattr(ask.answer, 'status', told)}"] += 1
        self.promises.judge(ask)
        return ask

    # ── Enqueue ──────────────────────────────────────────────────────────────
    def payload(self) -> dict[str, Any]:
        """Unlike any other."""
        self.count += 1
        return {"of": self.client.name, "n": self.count, "pad": "x" * self.dice.choice((0, 0, 100))}

    def options(self, name: str) -> dict[str, Any]:
        """Short-lived results, few attempts."""
        found: dict[str, Any] = {
            "id": name,
            "result_ttl": self.dice.choice(TTLS_SECONDS),
            "max_attempts": self.dice.choice((1, 2)),
        }
        if self.dice.random() < 0.2:
            found["delay"] = self.dice.choice((1.0, 20.0))
        if self.client.restarts:
            return found | restart_of(self.dice, self.client.restarts, name)
        return found | unique_of(self.dice, self.client.uniques) if self.client.uniques else found

    def enqueue(self) -> Flow[Ask]:
        """One job under an id."""
        return self.enqueue_under(self.dice.choice(self.names))

    def enqueue_under(self, name: str) -> Flow[Ask]:
        """One job under this id."""
        payload = self.payload()
        ask = yield from self.ask("enqueue", name, self.flows.enqueue(payload, self.options(name)), payload)
        if ask.error is None:
            self.known.append(ask.answer.job_id)
        return ask

    def enqueue_many(self) -> Flow[Ask]:
        """The same id twice in one call."""
        name, payload = self.dice.choice(self.names), self.payload()
        items = [{"payload": payload, **self.options(name)} for _ in range(2)]
        return (yield from self.ask("enqueue_many", name, self.flows.enqueue_many(items), payload))

    def enqueue_and_wait(self) -> Flow[Ask]:
        """One job under an id, and its result."""
        name, payload = self.dice.choice(self.names), self.payload()
        flow = self._enqueue_and_wait(payload, self.options(name), self.dice.choice(WAITS_SECONDS))
        return (yield from self.ask("enqueue_and_wait", name, flow, payload))

    def _enqueue_and_wait(self, payload: Any, options: dict[str, Any], seconds: float) -> QueueFlow[Any]:
        done = yield from self.flows.enqueue(payload, options)
        if done.status == "completed":
            return done.result
        if done.state in OVER:
            return (yield from self.flows.result(done.job_id or ""))
        return (yield from self.flows.wait(key_of(done.job_id or ""), seconds))

    # ── Questions ────────────────────────────────────────────────────────────
    def text(self) -> str:
        """An id, or a job's."""
        if self.known and self.dice.random() < 0.3:
            return self.dice.choice(self.known[-5:])
        return self.dice.choice(self.names)

    def result(self) -> Flow[Ask]:
        """What a job answered."""
        text = self.text()
        return (yield from self.ask("result", text, self.flows.result(text)))

    def status(self) -> Flow[Ask]:
        """Where a job is."""
        text = self.text()
        return (yield from self.ask("status", text, self.flows.status(text)))

    def update_result_ttl(self) -> Flow[Ask]:
        """Another TTL, longer or shorter."""
        text, ttl = self.text(), self.dice.choice((1.0, 30.0, 400.0))
        return (yield from self.ask("update_result_ttl", text, self.flows.update_result_ttl(text, ttl)))

    def cancel(self) -> Flow[Ask]:
        """Cancel by id; now and then, enqueue anew at once."""
        text = self.text()
        ask = yield from self.ask("cancel", text, self.flows.cancel(text))
        if text in self.names and self.dice.random() < 0.5:
            yield from self.enqueue_under(text)
        return ask
