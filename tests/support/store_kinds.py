"""The stores that the contract is run over. A new store is one line in ``STORES``."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from osqueue.stores.base import (
    PutIfAbsent,
    PutIfMatch,
    Store,
    StoreReply,
    StoreRequest,
)
from osqueue.stores.file import FileStore
from osqueue.stores.memory import MemoryStore
from osqueue.stores.s3 import S3Store
from osqueue.stores.s3_boto import BotoStore
from osqueue.stores.split import SplitStore

Opener = Callable[[], Store]


def open_memory(name: str) -> Store:
    from osqueue.stores.memory import named

    return named(name)


def open_boto(bucket: str, prefix: str, endpoint: str) -> Store:
    import boto3

    return BotoStore(boto3.session.Session(), bucket, prefix, endpoint=endpoint)


def open_s3(bucket: str, prefix: str, endpoint: str) -> Store:
    return S3Store(bucket, prefix, endpoint=endpoint)


def open_address(address: str) -> Store:
    from osqueue.stores.address import open_store

    return open_store(address).inner


class Hot(Store):
    """Says of every object that it will be replaced again and again."""

    def perform(self, request: StoreRequest) -> StoreReply:
        return super().perform(heated(request))

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return await super().perform_async(heated(request))


def heated(request: StoreRequest) -> StoreRequest:
    return replace(request, hot=True) if isinstance(request, PutIfAbsent | PutIfMatch) else request


class HotMemoryStore(Hot, MemoryStore):
    pass


class HotFileStore(Hot, FileStore):
    pass


class HotS3Store(Hot, S3Store):
    pass


hot_memories: dict[str, HotMemoryStore] = {}


def open_hot_memory(name: str) -> Store:
    return hot_memories.setdefault(name, HotMemoryStore())


def open_hot_s3(bucket: str, prefix: str, endpoint: str) -> Store:
    return HotS3Store(bucket, prefix, endpoint=endpoint)


# What belongs to the second of two stores: of the keys that the contract uses some go there, in the middle of listings.
SECOND = ("b/", "ba/2", "p/1/", "odd/a ", "odd/b", "odd/a!", "é/", "counter", "clock/")


def open_split(first: str, second: str) -> Store:
    return SplitStore(open_address(first), open_address(second), SECOND)


STORES = (
    *("memory", "file", "file-nofsync", "s3", "s3-prefix", "s3-boto-prefix"),
    *("memory-hot", "file-hot", "file-nofsync-hot", "s3-hot"),
    *("valkey", "gs", "az"),
    *("split", "split-file", "split-mixed", "split-valkey"),
)
