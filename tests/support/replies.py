"""What a store's reply holds, where only one kind of reply is right."""

from __future__ import annotations

from osqueue.errors import OsqueueError
from osqueue.stores.base import Failed, StoreReply, Written


def version_of(reply: StoreReply) -> str:
    assert isinstance(reply, Written), reply
    return reply.version


def error_of(reply: StoreReply) -> OsqueueError:
    assert isinstance(reply, Failed), reply
    return reply.error
