"""Pacer: the public face, with methods that block.

from osqueue import Pacer

stripe = Pacer.connect("file://jobs", "stripe")
stripe.create(interval=0.25)


@stripe
def charge(order): ...  # at most four starts a second, wherever it is called
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from ..queue.blocking import BlockingRunner
from ..queue.flow_methods import Blocking
from .base import PacerBase, ReservationBase, refuse_function

P = ParamSpec("P")
R = TypeVar("R")


class Reservation(Blocking, ReservationBase):
    """A slot that was reserved: wait for it, or give it back."""


class Pacer(BlockingRunner, PacerBase):
    """A pacer, with methods that block. One object may be used by many threads; they share its commits."""

    def reserve(self, units: int = 1) -> Reservation:
        """Take the next free slot, and return at once. It counts for ``units`` starts, at most the burst.

        Raises NotFound (there is no such pacer), Throttled (the slot would be further away than ``max_ahead``:
        nothing was taken, and ``retry_after`` says when), Rejected, Timeout or Unavailable (at worst a slot is a gap).
        """
        return Reservation(self, self._run(self._flows.reserve(units)))

    @contextmanager
    def turn(self, units: int = 1) -> Iterator[Reservation]:
        """Wait for a turn, then run the block: ``with pacer.turn():``. Raises what ``reserve`` does."""
        yield Reservation(self, self._run(self._flows.take(units)), spent=True)

    def call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Wait for a turn, then call a function with these arguments; returns or raises what it does."""
        _check(function)
        self._run(self._flows.take())
        return function(*args, **kwargs)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function: each call of it waits for a turn first."""
        _check(function)

        @functools.wraps(function)
        def paced(*args: P.args, **kwargs: P.kwargs) -> R:
            self._run(self._flows.take())
            return function(*args, **kwargs)

        return paced

    def close(self) -> None:
        """Release connections. The object may be used again."""
        self._place.close()

    def __enter__(self) -> Pacer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _check(function: Any) -> None:
    """What is called is over when it returns, or its turn would mean nothing."""
    from inspect import (  # here: who only reserves does not pay for it
        iscoroutinefunction,
        isgeneratorfunction,
    )

    if not callable(function):
        raise refuse_function(function, "it is no function. Pass one, with its arguments behind it.")
    if iscoroutinefunction(function):
        raise refuse_function(function, "it is a coroutine function. Use an AsyncPacer of the same name.")
    if isgeneratorfunction(function):
        raise refuse_function(
            function, "it is a generator, whose work begins later. Take a turn inside it: with pacer.turn()."
        )
