"""A connection of a server without a network, on an event loop whose time a test sets forward."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from osqueue.asgi.connection import BoundedConnection
from osqueue.asgi.server import KEEP_ALIVE_S


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its time is the real one and what a test has added."""

    ahead = 0.0  # seconds

    def time(self) -> float:
        return super().time() + self.ahead


class Wire(asyncio.Transport):
    """The server's end of a connection: what it has said, and whether it has hung up."""

    def __init__(self, app: Any) -> None:
        super().__init__()
        self.said = b""
        self.closed = self.aborted = False
        config = uvicorn.Config(
            app,
            http=BoundedConnection,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        config.load()
        self._protocol = BoundedConnection(config, ServerState(), {})
        self._protocol.connection_made(self)

    # ── As the caller uses it ────────────────────────────────────────────────
    async def send(self, data: bytes) -> None:
        """The caller sends something, and the server does what follows at once."""
        self._protocol.data_received(data)
        await self.settle()

    def end(self) -> None:
        """The server ends."""
        self._protocol.shutdown()

    async def wait(self, seconds: float) -> None:
        """Time passes."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        loop.ahead += seconds
        await self.settle()

    async def settle(self) -> None:
        """All that is due is done."""
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def status(self) -> int:
        """Of the last answer; 0: there is none."""
        _, found, rest = self.said.rpartition(b"HTTP/1.1 ")
        return int(rest[:3]) if found else 0

    # ── As the server uses it ────────────────────────────────────────────────
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        assert not self.closed
        self.said += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        """Nothing is in between."""

    def resume_reading(self) -> None:
        """Nothing is in between."""
