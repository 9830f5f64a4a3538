"""The server as ``osqueue serve`` runs it, on uvicorn in a thread of the tests: one for all, with an API for each test.

with served("memory://") as url: ...
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import Any

import uvicorn

from osqueue.asgi.admission import Admission
from osqueue.asgi.app import ApiEndpoint
from osqueue.asgi.connection import BoundedConnection
from osqueue.asgi.server import listen
from osqueue.asgi.tokens import TokenFile
from osqueue.clock import MACHINE, Machine
from osqueue.server.async_app import AsyncApi

_NUMBERS = count()


class Stages:
    """An ASGI application of several APIs, each behind a path of its own, as a stage of a gateway is."""

    def __init__(self) -> None:
        self.endpoints: dict[str, ApiEndpoint] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Ask the one that the path names."""
        if scope["type"] != "http":
            return
        stage, _, _ = scope["path"][1:].partition("/")
        cut = len(stage) + 1
        inner = {**scope, "path": scope["path"][cut:], "raw_path": scope["raw_path"][cut:]}
        await self.endpoints[stage](inner, receive, send)


@lru_cache(maxsize=1)
def _running() -> tuple[Stages, str]:
    """The one server of this process; it ends with it."""
    stages = Stages()
    listening = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        stages, http=BoundedConnection, log_config=None, access_log=False, lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    return stages, f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def served(store: Any, machine: Machine = MACHINE, tokens: TokenFile | None = None) -> Iterator[str]:
    """Serve a store, or the one at an address, while the block lasts; gives the base URL."""
    stages, url = _running()
    stage = f"t{next(_NUMBERS)}"
    api = AsyncApi(store, machine=machine)
    stages.endpoints[stage] = ApiEndpoint(api, Admission(tokens))
    try:
        yield f"{url}/{stage}"
    finally:
        del stages.endpoints[stage]
        api.store.close()
