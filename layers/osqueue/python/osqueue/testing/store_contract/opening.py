"""What the rules are tried on, and how one that is broken is told."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import pytest

from ...stores.base import Found, Get, List, Listed, PutIfAbsent, Store, Written

PATIENCE = 600  # seconds for what surely comes: whoever waits that long has found a hang

F = TypeVar("F", bound=Callable[..., Any])
OpenStore = Callable[[], Store]


def rule(test: F) -> F:
    """A rule of the port: where it is broken, the failure ends with the words of this docstring."""

    @functools.wraps(test)
    def tell(*args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        try:
            return test(*args, **options)
        except Exception as error:
            error.add_note(f"\nThe rule of the store port that is broken:\n{inspect.getdoc(test)}")
            raise

    return cast("F", tell)


class StoreOpener:
    """The fixtures that the rules ask for."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        """A function that opens the store, empty at the start of each test; called again, the same one.

        It is pickled for other processes: a class or a function of a module, or a ``functools.partial`` of one.
        """
        raise NotImplementedError(
            "override the fixture open_store: it returns a function that opens your store"
        )

    @pytest.fixture
    def store(self, open_store: OpenStore) -> Iterator[Store]:
        """The store, opened."""
        opened = open_store()
        yield opened
        opened.close()

    @pytest.fixture
    def unreachable_store(self) -> Store:
        """The store when nothing answers: at a port where no server is, in a folder that may not be read."""
        pytest.skip("override the fixture unreachable_store to have this rule tried")


def create(store: Store, key: str, body: bytes = b"body") -> str:
    """Create an object; answers its version."""
    reply = store.perform(PutIfAbsent(key, body))
    assert isinstance(reply, Written), f"creating {key!r}: {reply}"
    return reply.version


def found(store: Store, key: str) -> Found:
    """The object under a key, which is there."""
    reply = store.perform(Get(key))
    assert isinstance(reply, Found), f"reading {key!r}: {reply}"
    return reply


def keys(store: Store, prefix: str, after: str = "", limit: int = 1000) -> tuple[str, ...]:
    """One page of a listing."""
    reply = store.perform(List(prefix, after, limit))
    assert isinstance(reply, Listed), f"listing {prefix!r}: {reply}"
    return reply.keys
