"""Turning a flow into a method: one that blocks, or a coroutine. So no method is written twice."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from ..commit.effects import QueueFlow

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


def blocking(flow: Callable[Concatenate[S, P], QueueFlow[R]]) -> Callable[Concatenate[S, P], R]:
    """A method that runs the flow on the calling thread; its object offers ``_run``."""

    @functools.wraps(flow)
    def method(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        found: R = self._run(flow(self, *args, **kwargs))
        return found

    _named(method, flow)
    return cast("Callable[Concatenate[S, P], R]", method)


def awaiting(
    flow: Callable[Concatenate[S, P], QueueFlow[R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """A coroutine method that runs the flow on the event loop; its object offers an async ``_run``."""

    @functools.wraps(flow)
    def method(self: Any, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        coroutine: Coroutine[Any, Any, R] = self._run(flow(self, *args, **kwargs))
        return coroutine

    _named(method, flow)
    return cast("Callable[Concatenate[S, P], Coroutine[Any, Any, R]]", method)


def _named(method: Callable[..., Any], flow: Callable[..., Any]) -> None:
    """Name a method as its users do, also in the error for a wrong argument."""
    method.__name__ = method.__name__.removeprefix("_")
    method.__qualname__ = flow.__qualname__ = method.__name__
