"""Processes that serve together: each queue is answered by one of them, its home, so that its callers share commits.

Whoever accepts a request about a queue hands it over to the queue's home, on a socket of this machine. That is for
speed alone. Any process may commit to any queue, so a request whose home cannot be reached is answered where it is.

    caller ──▶ process 2 ── this queue's home is 0 ──▶ process 0 ──▶ store
                  └───────── nobody answers there ─────────────────▶ store
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Struct

from ..contract.error_codes import Forbidden
from ..contract.route import QUEUES, Route
from ..contract.schemas import Fault
from ..server.app import ApiRequest, ApiResponse, failed, failure
from ..server.async_app import AsyncApi

VARIABLE = (
    "OSQUEUE_SERVE_TOGETHER"  # of the environment: how many serve together, and the folder of their sockets
)
AWAY_SECONDS = 1.0  # for which nobody tries again to reach a process that was not there
END_SECONDS = 5.0  # for which an end waits for what others asked
_LENGTH = struct.Struct(">I")

log = logging.getLogger("osqueue.serve")


class _Asked(Struct, array_like=True, frozen=True):
    """A request handed over; one without a method says that its caller hung up."""

    number: int
    method: str = ""
    path: str = ""
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    deadline_s: float = 0.0
    reads_only: bool = False  # the caller may not change the queue


class _Told(Struct, array_like=True, frozen=True):
    """Its answer."""

    number: int
    status: int
    body: bytes
    headers: dict[str, str]
    code: str
    notes: dict[str, Any]


_encode = msgspec.msgpack.Encoder().encode
_decode_asked = msgspec.msgpack.Decoder(_Asked).decode
_decode_told = msgspec.msgpack.Decoder(_Told).decode


@contextmanager
def serving_together(processes: int) -> Iterator[None]:
    """Let the processes that are started meanwhile serve together."""
    with TemporaryDirectory(prefix="osqueue-serve-") as folder:
        os.environ[VARIABLE] = f"{processes} {folder}"
        try:
            yield
        finally:
            del os.environ[VARIABLE]


class Place:
    """This process's number among those that serve together; free again when it ends, however it does."""

    def __init__(self, number: int, processes: int, folder: str, lock: int) -> None:
        self.number = number
        self.processes = processes
        self.folder = folder
        self._lock = lock

    @classmethod
    def take(cls) -> Place | None:
        """A free one; None where this process serves alone."""
        text, _, folder = os.environ.get(VARIABLE, "").partition(" ")
        for number in range(int(text or 0)):
            lock = os.open(f"{folder}/{number}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
            else:
                return cls(number, int(text), folder, lock)
        return None

    def home(self, path: str) -> int:
        """Whose the queue in a path is; this process's own, where it names none."""
        queue = path[len(QUEUES) + 1 :].partition("/")[0] if path.startswith(f"{QUEUES}/") else ""
        return crc32(queue.encode()) % self.processes if queue else self.number

    def socket(self, number: int) -> str:
        """Where a process of them listens."""
        return f"{self.folder}/{number}.socket"


class _Lost(Exception):
    """The other process ended, or never was there."""


class Neighbours:
    """Answers requests here or at the homes of their queues, and those that others hand over."""

    def __init__(self, api: AsyncApi, place: Place) -> None:
        self.api = api
        self.place = place
        self._server: asyncio.Server | None = None
        self._links: dict[int, asyncio.Task[_Link]] = {}
        self._away_until: dict[int, float] = {}  # on the monotonic clock, by process
        self._running: set[asyncio.Task[None]] = set()
        self._others: set[asyncio.StreamWriter] = set()  # who hand over requests here

    async def start(self) -> None:
        """Listen for the others. Where that cannot be they answer themselves."""
        path = self.place.socket(self.place.number)
        with suppress(FileNotFoundError):  # of one that was killed
            os.unlink(path)
        try:
            self._server = await asyncio.start_unix_server(self._serve, path)
        except OSError as error:  # its path may be too long for a socket
            log.warning(
                "processes do not share commits: cannot listen on %s (%s)", path, error.strerror or error
            )

    async def close(self) -> None:
        """Answer what others have asked, and hang up."""
        if self._server is not None:
            self._server.close()
        if self._running:
            await asyncio.wait(self._running, timeout=END_SECONDS)
        for other in list(self._others):
            other.close()
        for task in self._links.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().close()

    # ── Handing over ─────────────────────────────────────────────────────────
    async def answer(self, request: ApiRequest) -> ApiResponse:
        """The answer, from wherever it comes. Raises nothing."""
        home = self.place.home(request.path)
        if home == self.place.number or self._is_away(home):
            return await self.api.answer(request)
        try:
            self.api.permit(request)  # who calls is known here alone
        except Exception as error:  # noqa: BLE001 - told in the answer
            return failed(error, {})
        try:
            link = await self._link(home)
        except OSError:
            self._away_until[home] = self.api.machine.monotonic() + AWAY_SECONDS
            return await self.api.answer(request)
        try:
            return await link.ask(request, reads_only=not self.api.may_change(request))
        except _Lost:
            self._links.pop(home, None)
            return await self.api.answer(request) if request.method == "GET" else failure(_GONE)

    def _is_away(self, home: int) -> bool:
        return self.api.machine.monotonic() < self._away_until.get(home, 0.0)

    async def _link(self, home: int) -> _Link:
        task = self._links.get(home)
        if task is not None and task.done() and (task.cancelled() or task.exception() or task.result().lost):
            task = None
        if task is None:
            task = self._links[home] = asyncio.create_task(_Link.to(self.place.socket(home)))
        return await asyncio.shield(task)

    # ── For others ───────────────────────────────────────────────────────────
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks: dict[int, asyncio.Task[None]] = {}

        async def answer(asked: _Asked) -> None:
            permit = _permit_reads if asked.reads_only else None
            request = ApiRequest(asked.method, asked.path, asked.query, asked.body, asked.deadline_s, permit)
            found = await self.api.answer(request)
            told = _Told(asked.number, found.status, found.body, found.headers, found.code, found.notes)
            _write(writer, told)
            await writer.drain()

        def ended(task: asyncio.Task[None]) -> None:
            tasks.pop(int(task.get_name()), None)
            self._running.discard(task)
            if not task.cancelled():
                task.exception()  # the other one has gone: nobody is there to be told

        self._others.add(writer)
        try:
            while (data := await _read(reader)) is not None:
                asked = _decode_asked(data)
                if not asked.method:
                    if asked.number in tasks:
                        tasks[asked.number].cancel()
                    continue
                task = tasks[asked.number] = asyncio.create_task(answer(asked), name=str(asked.number))
                self._running.add(task)
                task.add_done_callback(ended)
        except asyncio.CancelledError:
            pass  # the loop ends; what calls this would tell of it as a defect
        finally:
            self._others.discard(writer)
            for task in list(tasks.values()):  # whose callers were that process's
                task.cancel()
            writer.close()


class _Link:
    """A connection to another process: requests in any number, answers as they come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[_Told]] = {}
        self.lost = False
        self._hearing = asyncio.create_task(self._hear(reader))

    @classmethod
    async def to(cls, path: str) -> _Link:
        """Connect. Raises OSError."""
        return cls(*(await asyncio.open_unix_connection(path)))

    async def ask(self, request: ApiRequest, reads_only: bool = False) -> ApiResponse:
        """Raises _Lost where no answer comes any more."""
        if self.lost:
            raise _Lost
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        asked = _Asked(
            *(number, request.method, request.path, tuple(request.query), request.body, request.deadline_s),
            reads_only=reads_only,
        )
        try:
            _write(self._writer, asked)
            told = await answer
        except asyncio.CancelledError:
            if not self.lost:
                _write(self._writer, _Asked(number))
            raise
        finally:
            self._waiting.pop(number, None)
        return ApiResponse(told.status, told.body, told.headers, told.code, told.notes)

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        try:
            while (data := await _read(reader)) is not None:
                told = _decode_told(data)
                answer = self._waiting.get(told.number)
                if answer is not None and not answer.done():
                    answer.set_result(told)
        finally:
            self.lost = True
            self._writer.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(_Lost())

    def close(self) -> None:
        """Hang up."""
        self._hearing.cancel()


def _permit_reads(route: Route, queue: str) -> None:
    """Raise Forbidden for the check whether the caller may change the queue: the request itself was permitted."""
    if route.name == "configure":
        raise Forbidden("this caller only reads.", permanent=True)


def _write(writer: asyncio.StreamWriter, message: Struct) -> None:
    data = _encode(message)
    writer.write(_LENGTH.pack(len(data)) + data)


async def _read(reader: asyncio.StreamReader) -> bytes | None:
    """The next message; None at the end."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


_GONE = Fault(
    code="unavailable",
    message="the process that was asked has ended. What was asked for may have been done.",
    retry_after=1.0,
)
