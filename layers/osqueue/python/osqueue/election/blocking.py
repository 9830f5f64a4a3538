"""Election: the election with methods that block; a thread beats while a block of code leads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

from ..commit.driver import BlockingDriver
from ..commit.effects import Flow
from ..queue.flow_methods import Blocking
from ..stores.base import Store
from .base import ElectionBase

T = TypeVar("T")


class Election(Blocking, ElectionBase):
    """A candidate in an election, with methods that block. One object may be used by many threads.

    >>> election = Election.connect("memory://", "reports")
    >>> election.campaign()
    'elected'
    """

    def __init__(self, store: Store, name: str, candidate: str | None = None, **options: Any) -> None:
        super().__init__(store, name, candidate, **options)
        self._driver = BlockingDriver(self.store, self.machine)

    def _run(self, flow: Flow[T]) -> T:
        return self._driver.run(flow)

    @contextlib.contextmanager
    def lead(self, timeout: float | None = None) -> Iterator[int]:
        """Wait to be elected, then lead for as long as the block lasts; yields the fence, and resigns at the end.

        A thread sends heartbeats meanwhile. The block has to look at ``is_leader`` before each effect: a leadership
        that is lost does not come back in it. Raises Timeout when not elected within ``timeout`` seconds, and what
        ``campaign`` raises.
        """
        fence = self._run(self._await_leadership(timeout))
        try:
            beats = threading.Thread(
                target=self._run, args=(self._keep_leading(fence),), name=f"election-{self.name}", daemon=True
            )
            beats.start()
            yield fence
        finally:
            self._run(self._step_down())
