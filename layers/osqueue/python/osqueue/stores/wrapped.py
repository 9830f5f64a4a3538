"""A store around another store: the base of those that count, delay or fail."""

from __future__ import annotations

from abc import abstractmethod
from typing import cast

from .base import (
    Delete,
    Deleted,
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    List,
    Listed,
    Missing,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Reply,
    Request,
    Store,
    Unchanged,
    Written,
)


class WrappedStore(Store):
    """A store around another. Subclasses say what ``perform`` does; the seven methods follow from it."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.key_bytes_max = inner.key_bytes_max

    @abstractmethod
    def perform(self, request: Request) -> Reply: ...

    @abstractmethod
    async def perform_async(self, request: Request) -> Reply: ...

    def clock_ms(self) -> int | None:
        return self.inner.clock_ms()

    def close(self) -> None:
        self.inner.close()

    def get(self, request: Get) -> Found | Missing | Unchanged:
        return cast("Found | Missing | Unchanged", _definite(self.perform(request)))

    def put(self, request: Put) -> Written:
        return cast("Written", _definite(self.perform(request)))

    def put_if_absent(self, request: PutIfAbsent) -> Written | Refused:
        return cast("Written | Refused", _definite(self.perform(request)))

    def put_if_match(self, request: PutIfMatch) -> Written | Refused:
        return cast("Written | Refused", _definite(self.perform(request)))

    def list(self, request: List) -> Listed:
        return cast("Listed", _definite(self.perform(request)))

    def delete(self, request: Delete) -> Deleted:
        return cast("Deleted", _definite(self.perform(request)))

    def delete_if_match(self, request: DeleteIfMatch) -> Deleted | Refused:
        return cast("Deleted | Refused", _definite(self.perform(request)))


def _definite(reply: Reply) -> Reply:
    if isinstance(reply, Failed):
        raise reply.error
    return reply
