"""Transports that misbehave on purpose, around a real one: what ``latency_ms`` and its kin in an address ask for."""

from __future__ import annotations

from abc import abstractmethod

from ...clock import MACHINE, Machine
from ...errors import Timeout, Unavailable
from ...stores.faulty import FaultInjector
from .base import ApiCall, CallOutcome, LostCall, Transfer, Transport


class WrappedTransport(Transport):
    """A transport around another."""

    def __init__(self, inner: Transport, machine: Machine = MACHINE) -> None:
        super().__init__(machine)
        self.inner = inner

    @property
    def place(self) -> object:
        return self.inner.place

    def carry(self, transfer: Transfer) -> CallOutcome:
        return self._wrapped(transfer)

    def send(self, call: ApiCall) -> CallOutcome:
        return self._wrapped(call)

    @abstractmethod
    def _wrapped(self, call: ApiCall | Transfer) -> CallOutcome:
        """What becomes of a call or a transfer."""

    def close(self) -> None:
        super().close()
        self.inner.close()


class SlowTransport(WrappedTransport):
    """Every call takes ``latency_ms`` more: half on the way there, half on the way back."""

    def __init__(self, inner: Transport, latency_ms: float, machine: Machine = MACHINE) -> None:
        super().__init__(inner, machine)
        self._half_s = latency_ms / 2000

    def _wrapped(self, call: ApiCall | Transfer) -> CallOutcome:
        self._machine.sleep(self._half_s)
        reply = self.inner.perform(call)
        self._machine.sleep(self._half_s)
        return reply

    async def send_async(self, call: ApiCall) -> CallOutcome:
        import asyncio  # here, because blocking callers never need it

        await asyncio.sleep(self._half_s)
        reply = await self.inner.perform_async(call)
        await asyncio.sleep(self._half_s)
        return reply


class FaultyTransport(WrappedTransport):
    """Some calls fail before they have an effect, some lose their answer after it. Callers cannot distinguish them."""

    def __init__(self, inner: Transport, luck: FaultInjector, machine: Machine = MACHINE) -> None:
        super().__init__(inner, machine)
        self._luck = luck

    def _wrapped(self, call: ApiCall | Transfer) -> CallOutcome:
        fails, loses = self._luck.draw()
        if fails:
            return _injected_error()
        reply = self.inner.perform(call)
        return _lost_answer() if loses else reply

    async def send_async(self, call: ApiCall) -> CallOutcome:
        fails, loses = self._luck.draw()
        if fails:
            return _injected_error()
        reply = await self.inner.perform_async(call)
        return _lost_answer() if loses else reply


# A new error each time: raising one adds a traceback to it, and perhaps words.
def _injected_error() -> LostCall:
    return LostCall(
        Unavailable("injected error: the call had no effect (error_rate in the address)", retry_after=0.1)
    )


def _lost_answer() -> LostCall:
    return LostCall(Timeout("injected loss: the call arrived, its answer did not (lost_reply_rate)"))
