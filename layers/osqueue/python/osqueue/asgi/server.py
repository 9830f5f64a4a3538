"""One process that serves: uvicorn with the application, until a signal ends it.

At the first SIGTERM, SIGINT or SIGHUP it takes no more connections, answers waiting requests as if their time were
over, lets running requests finish for ``drain_s`` and sends slow sinks what is unsent. A second SIGTERM or SIGINT ends
it at once.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from msgspec import Struct

from ..client.transports.address import open_transport
from ..clock import MACHINE
from ..commit.driver import BlockingDriver
from ..election.upkeep import ReapRow, election_of, keep_up, one_pass
from ..errors import OsqueueError, Rejected, Unavailable
from ..events import Sink
from ..masking import printable
from ..objects.layout import registered
from ..queue.blocking import Queue
from ..server.async_app import AsyncApi
from ..signals import ending_signals, has_no_effect
from ..stores.address import open_store
from ..stores.counting import CountingStore
from ..stores.prices import bill_of
from .admission import Admission
from .app import ServerApp
from .connection import BoundedConnection
from .dashboard import Dashboard
from .heads import HeadMemory, RecentHeads
from .neighbours import Neighbours, Place
from .origin import is_local
from .overview import Overview
from .proxy import ApiProxy
from .tokens import TokenFile

THREADS = 64  # for requests to stores whose clients block
KEEP_ALIVE_S = 75  # of an idle connection: longer than clients and load balancers keep theirs
UPKEEP_S = 60.0
UPKEEP_TIMEOUT_S = 60.0  # of one request of a pass

log = logging.getLogger("osqueue.serve")


class ServeOptions(Struct, frozen=True):
    """How to serve."""

    store: str  # its address
    host: str = "127.0.0.1"
    port: int = 8080
    tokens: str | None = None  # the path of a file
    certificate: str | None = None  # paths of files in PEM
    key: str | None = None
    client_ca: str | None = None  # clients have to show a certificate of this authority
    drain_s: float = 30.0
    upkeep: bool = True
    read_only: bool = False
    window: float = 0.0  # seconds that an operation waits for those of other requests

    def __repr__(self) -> str:
        return f"ServeOptions({printable(self.store)})"


def check(options: ServeOptions) -> None:
    """Raises Rejected for what would let strangers in, or cannot be served."""
    open_store(options.store)
    if options.key is not None and options.certificate is None:
        raise Rejected("key: it goes with --certificate.", field="key")
    if options.client_ca is not None and options.certificate is None:
        raise Rejected(
            "client-ca: clients show certificates over TLS: give --certificate, too.", field="client-ca"
        )
    if not is_local(options.host) and options.tokens is None and options.client_ca is None:
        raise Rejected(
            f"host: whoever reaches {options.host} could do everything. Give --tokens (who may call, and what), or"
            " --client-ca; or listen on 127.0.0.1.",
            field="host",
        )
    if options.certificate is not None:
        _tls_of(options)
    if options.tokens is not None:
        TokenFile(options.tokens)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises Unavailable."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {host}:{port} ({error.strerror or error}). Choose another port; 0 picks a free one.",
            permanent=True,
        ) from None


def url_of(options: ServeOptions, listening: socket.socket) -> str:
    """Where the API is."""
    host, port = listening.getsockname()[:2]
    scheme = "http" if options.certificate is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def serve(
    options: ServeOptions, store: CountingStore, listening: socket.socket, sinks: tuple[Sink, ...] = ()
) -> None:
    """Serve a store on this socket until a signal comes. Raises Rejected."""
    tokens = None if options.tokens is None else TokenFile(options.tokens)
    admission = Admission(tokens, tokens is None and is_local(options.host), options.read_only)
    app = app_over(store, options, admission, sinks)
    _Server(_config_of(options, app), app).run(sockets=[listening])


def app_over(
    store: CountingStore, options: ServeOptions, admission: Admission, sinks: tuple[Sink, ...] = ()
) -> ServerApp:
    """The API of a store with its dashboard."""
    memory = HeadMemory(store)
    view = AsyncApi(RecentHeads(memory, memory))
    overview = Overview(view, memory, lambda: store.requests, bill_of(store, options.store))
    dashboard = Dashboard(overview, admission, printable(options.store, options=False))
    api = AsyncApi(memory, sinks=sinks, window=options.window)
    place = Place.take()
    return ServerApp(api, admission, dashboard, None if place is None else Neighbours(api, place))


def serve_proxy(options: ServeOptions, listening: socket.socket) -> None:
    """Serve the dashboard of an API elsewhere until a signal comes. Raises Rejected."""
    transport = open_transport(options.store)
    api = ApiProxy(transport)
    overview = Overview(api, None, lambda: transport.requests, dollars=None)
    api.on_change = overview.hurry
    admission = Admission(None, is_local(options.host), options.read_only)
    app = ServerApp(api, admission, Dashboard(overview, admission, printable(options.store, options=False)))
    _Server(_config_of(options, app), app).run(sockets=[listening])


def _config_of(options: ServeOptions, app: ServerApp) -> uvicorn.Config:
    config = uvicorn.Config(
        app.asgi,
        http=BoundedConnection,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(options.drain_s)),
        ws="none",
    )
    if options.certificate is not None:
        config.load()
        config.ssl = _tls_of(options)  # not every release takes one before
    return config


def _tls_of(options: ServeOptions) -> ssl.SSLContext:
    """Raises Rejected where a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    assert options.certificate is not None
    try:
        context.load_cert_chain(options.certificate, options.key)
        if options.client_ca is not None:
            context.load_verify_locations(options.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise Rejected(
            f"certificate: it, its key or the client CA cannot be used ({error.strerror or error}). All are files in"
            " PEM, and the key fits the certificate.",
            field="certificate",
        ) from None
    return context


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: ServerApp) -> None:
        super().__init__(config)
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "osqueue-io"))
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.drain()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Ours do not come again when all is over: that would be the death by a signal of a process that ended well."""
        numbers = ending_signals()
        before = [signal.signal(number, self.handle_exit) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not has_no_effect(sig, ending=self.should_exit):
            self.force_exit = self.should_exit
            self.should_exit = True


# ── Upkeep ───────────────────────────────────────────────────────────────────
class Upkeep:
    """A thread that does the upkeep of every queue of a store, if it is elected."""

    def __init__(self, store: CountingStore, sinks: tuple[Sink, ...] = (), every: float = UPKEEP_S) -> None:
        self._store = store
        self._sinks = sinks
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="osqueue-upkeep", daemon=True)

    def __enter__(self) -> Upkeep:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """End after the pass that is under way."""
        self._stop.set()
        self._thread.join(UPKEEP_TIMEOUT_S)

    def _run(self) -> None:
        election = election_of(self._store, None, self._every)
        while not self._stop.is_set():
            try:
                keep_up(
                    election,
                    lambda: one_pass(self._names(), self._open),
                    self._every,
                    self._stop,
                    _tell,
                    _trouble,
                )
            except Exception:
                log.exception("upkeep failed")
                self._stop.wait(self._every)

    def _names(self) -> list[str]:
        return BlockingDriver(self._store, MACHINE).run(registered())

    def _open(self, name: str) -> Queue[Any]:
        return Queue(self._store, name, timeout=UPKEEP_TIMEOUT_S, sinks=self._sinks)


def _tell(name: str, row: ReapRow | OsqueueError) -> None:
    if isinstance(row, OsqueueError):
        told = {"queue": name, "code": row.code, "reason": row.message}
        log.error("upkeep failed", extra={"told": told})
    else:
        log.info("reaped", extra={"told": {field: value for field, value in row.items() if value}})


def _trouble(error: OsqueueError) -> None:
    log.error("upkeep stands still", extra={"told": {"code": error.code, "reason": error.message}})
