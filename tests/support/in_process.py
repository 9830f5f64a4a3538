"""An API in this very process, as a transport: what a queue asks of it, and no network in between."""

from __future__ import annotations

from typing import Any

from osqueue.client.transports.base import ApiAnswer, ApiCall, CallOutcome, Transport, path_of
from osqueue.clock import MACHINE, Machine
from osqueue.server.app import Api, ApiRequest


class InProcess(Transport):
    """Remembers the names of the operations that were asked for."""

    def __init__(self, store: Any, machine: Machine = MACHINE) -> None:
        super().__init__(machine)
        self.api = Api(store, machine=machine)
        self.routes: list[str] = []

    @property
    def place(self) -> object:
        return self

    def send(self, call: ApiCall) -> CallOutcome:
        self.routes.append(call.route.name)
        answer = self.api.answer(ApiRequest(call.route.method, path_of(call), call.query, call.body))
        return ApiAnswer(answer.status, answer.body)
