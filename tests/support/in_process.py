"""An API in this very process, as a transport: what a queue asks of it, and no network in between."""

from __future__ import annotations

from typing import Any

from osqueue.client.transports.base import ApiAnswer, ApiCall, CallOutcome, Transfer, Transport, path_of
from osqueue.clock import MACHINE, Machine
from osqueue.server.app import Api, ApiRequest
from osqueue.stores.relay import Relay, RelayRefusal


class InProcess(Transport):
    """Remembers the names of the operations that were asked for."""

    def __init__(self, store: Any, machine: Machine = MACHINE) -> None:
        super().__init__(machine)
        self.api = Api(store, machine=machine)
        self.routes: list[str] = []
        self.transfers: list[Transfer] = []
        self.relay = Relay(machine)

    @property
    def place(self) -> object:
        return self

    def carry(self, transfer: Transfer) -> CallOutcome:
        self.transfers.append(transfer)
        try:
            ticket = self.relay.open(self.api.store, transfer.method, transfer.url)
        except RelayRefusal as refusal:
            return ApiAnswer(refusal.answer.status, refusal.answer.body)
        answer = self.relay.carry_out(self.api.store, ticket, transfer.body)
        return ApiAnswer(answer.status, answer.body)

    def send(self, call: ApiCall) -> CallOutcome:
        self.routes.append(call.route.name)
        answer = self.api.answer(ApiRequest(call.route.method, path_of(call), call.query, call.body))
        return ApiAnswer(answer.status, answer.body)
