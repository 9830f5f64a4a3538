"""Connections to a Valkey server: whose answer a caller gets when calls are interrupted."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from osqueue.stores.valkey import ValkeyStore
from osqueue.stores.valkey_place import place_in


class Connection:
    """A connection to a server that answers each command with its last argument, though its caller be interrupted."""

    def __init__(self) -> None:
        self.answers: deque[Any] = deque()
        self.interruptions = 1

    def pack_commands(self, commands: Any) -> list[bytes]:
        self.answers.extend(command[-1] for command in commands)
        return []

    def send_packed_command(self, packed: Any) -> None:
        pass

    def read_response(self) -> Any:
        if self.interruptions:
            self.interruptions -= 1
            raise KeyboardInterrupt
        return self.answers.popleft()

    def disconnect(self) -> None:
        self.answers.clear()


class Pool:
    """A pool of one connection."""

    def __init__(self) -> None:
        self.connection = Connection()

    def get_connection(self, name: str) -> Connection:
        return self.connection

    def release(self, connection: Connection) -> None:
        pass


def test_the_answer_to_an_interrupted_call_is_not_taken_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pool of the client looks for unread answers, but one may come after that look."""
    store = ValkeyStore(place_in("valkey", "127.0.0.1:1", {}))
    pool = Pool()
    monkeypatch.setattr(store, "_open", lambda: pool)
    with pytest.raises(KeyboardInterrupt):
        store._exchange([("GET", b"first")])
    assert store._exchange([("GET", b"second")]) == [b"second"]
