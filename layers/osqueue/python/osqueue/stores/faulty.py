"""Stores that misbehave on purpose, around a real one: for tests, benchmarks and simulations of an S3.

``SlowStore`` adds latency; ``FaultyStore`` fails before the effect or loses the reply after it.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import forks
from ..clock import MACHINE, Machine
from ..errors import Timeout, Unavailable
from .base import Failed, Hinted, Store, StoreReply, StoreRequest, Told, never_hinted
from .wrapped import WrappedStore


class SlowStore(WrappedStore):
    """Every request takes ``latency_ms`` more: half on the way there, half on the way back.

    The halves matter: what others do in the second half is newer than the reply, as on a network.
    """

    def __init__(self, inner: Store, latency_ms: float, machine: Machine = MACHINE) -> None:
        super().__init__(inner)
        self.remote = True
        self.turns = False  # nobody far away can tell that a holder has died
        self.look_pace = Store.look_pace
        self._half_s = latency_ms / 2000
        self._machine = machine

    def listen(self, key: str, told: Told) -> Hinted:
        return never_hinted  # as at the stores that it stands for

    def perform(self, request: StoreRequest) -> StoreReply:
        self._machine.sleep(self._half_s)
        reply = self.inner.perform(request)
        self._machine.sleep(self._half_s)
        return reply

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        import asyncio  # here, because blocking callers never need it

        await asyncio.sleep(self._half_s)
        reply = await self.inner.perform_async(request)
        await asyncio.sleep(self._half_s)
        return reply


class FaultInjector:
    """Draws the fate of requests: whether each fails, and whether its reply is lost."""

    def __init__(
        self, error_rate: float, lost_reply_rate: float, seed: int | None = None, machine: Machine = MACHINE
    ) -> None:
        self._error_rate = error_rate
        self._lost_reply_rate = lost_reply_rate
        self._uniform: Callable[[], float] = machine.uniform if seed is None else _SplitMix(seed).uniform
        self._lock = forks.lock()

    def draw(self) -> tuple[bool, bool]:
        """Does the next request fail? Is its reply lost?"""
        with self._lock:  # two draws for every request, so that one rate does not shift the other's luck
            return self._uniform() < self._error_rate, self._uniform() < self._lost_reply_rate


class FaultyStore(WrappedStore):
    """Some requests fail before they have an effect, some lose their reply after it.

    Both look the same to the caller, a ``Failed``, which is the point. With a seed the n-th request of
    this object always meets the same fate.
    """

    def __init__(
        self,
        inner: Store,
        error_rate: float = 0.0,
        lost_reply_rate: float = 0.0,
        seed: int | None = None,
        machine: Machine = MACHINE,
    ) -> None:
        super().__init__(inner)
        self._luck = FaultInjector(error_rate, lost_reply_rate, seed, machine)

    def perform(self, request: StoreRequest) -> StoreReply:
        fails, loses = self._luck.draw()
        return _error() if fails else self._deliver(self.inner.perform(request), loses)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        fails, loses = self._luck.draw()
        return _error() if fails else self._deliver(await self.inner.perform_async(request), loses)

    def _deliver(self, reply: StoreReply, loses: bool) -> StoreReply:
        return _loss() if loses else reply


# Each its own: an error is raised to a caller, who may add to it.
def _error() -> Failed:
    return Failed(Unavailable("injected error: the request had no effect (error_rate in the address)"))


def _loss() -> Failed:
    return Failed(
        Timeout("injected loss: the request arrived, its reply did not (lost_reply_rate in the address)")
    )


class _SplitMix:
    """SplitMix64: a seed's sequence is the same in every Python release."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def uniform(self) -> float:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((mixed ^ (mixed >> 31)) >> 11) / (1 << 53)


_MASK = (1 << 64) - 1
