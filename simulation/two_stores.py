"""Two stores, with clocks and faults of their own: heads in one, the archive and the backups in the other."""

from __future__ import annotations

from typing import Any

from osqueue.stores.base import StoreReply, StoreRequest
from osqueue.stores.split import SplitStore
from osqueue.stores.wrapped import PerformingStore

from .conditions import Latency, Profile
from .machine import HasTime
from .network import Network
from .truth import Truth
from .world import Deliver, World


class TrueStore(PerformingStore):
    """One of the two as it really is."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def perform(self, request: StoreRequest) -> StoreReply:
        """Let a request take effect now."""
        return self.truth.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        """The same."""
        return self.truth.perform(request)


class SplitTruth(Truth):
    """Both as they really are. For the checks they are one: each key is looked for where it belongs."""

    def __init__(self, world: HasTime, ahead_ms: int, archive_ahead_ms: int) -> None:
        super().__init__(world, ahead_ms)
        self.both = (Truth(world, ahead_ms), Truth(world, archive_ahead_ms))
        for each in self.both:
            each.watchers, each.mourners, each.damaged = self.watchers, self.mourners, self.damaged
        self.store = SplitStore(TrueStore(self.both[0]), TrueStore(self.both[1]))

    def at(self, key: str) -> Truth:
        """The store that a key belongs to."""
        return self.both[key.startswith(self.store.folders)]

    def perform(self, request: StoreRequest) -> StoreReply:
        return self.store.perform(request)

    def matches(self, key: str, version: str) -> bool:
        return self.at(key).matches(key, version)

    def swap(self, key: str, body: bytes) -> None:
        self.at(key).swap(key, body)

    def read(self, key: str) -> bytes | None:
        return self.at(key).read(key)

    def keys(self, prefix: str) -> list[str]:
        """All keys under a prefix, those that lie where they do not belong as well."""
        return sorted(key for each in self.both for key in each.keys(prefix))

    def fingerprint(self) -> int:
        return hash(tuple(each.fingerprint() for each in self.both))


class SplitNetwork:
    """Carries each request to its store, by the library's own rules, and those that are for both to either."""

    def __init__(self, world: World, truth: SplitTruth, latency: Latency) -> None:
        self.store = truth.store
        self.networks = {id(each): Network(world, each, latency) for each in truth.both}

    def send(self, request: StoreRequest, deliver: Deliver) -> None:
        """One request of a client: its parts one after the other, each with whatever befalls it."""
        steps = self.store.steps(request)

        def go_on(reply: Any) -> None:
            try:
                where, part = steps.send(reply)
            except StopIteration as stop:
                deliver(stop.value)
                return
            assert isinstance(where, TrueStore)
            self.networks[id(where.truth)].send(part, go_on)

        go_on(None)


def place_of(world: World, profile: Profile, seed: int) -> tuple[Truth, Network | SplitNetwork]:
    """What a run works on, and the way there."""
    ahead_ms, off_ms = profile.clients.store_ahead_ms, profile.clients.archive_off_ms
    if off_ms is None:
        one = Truth(world, ahead_ms)
        one.tick_ms = profile.latency.tick_ms
        return one, Network(world, one, profile.latency)
    both = SplitTruth(world, ahead_ms, ahead_ms + (off_ms if seed % 2 else -off_ms))
    return both, SplitNetwork(world, both, profile.latency)
