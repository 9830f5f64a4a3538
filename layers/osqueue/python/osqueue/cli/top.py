"""``osqueue top``: all queues at a glance in a terminal, looked at again and again.

The main thread has the terminal: keys, its size, signals. Another asks the store, so that no key waits for an answer.
"""

from __future__ import annotations

import codecs
import os
import select
import signal
import socket
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from ..clock import MACHINE
from ..core.state import PROCESSING
from ..errors import OsqueueError
from ..masking import printable
from ..model.worker import WorkerStatus
from ..queue.blocking import Queue
from ..signals import ending_signals
from ..stores.address import is_remote
from .glance import (
    COLUMNS,
    Action,
    Line,
    Look,
    TopView,
    detail_of,
    glances,
    in_order,
    keys_of,
    lines_of,
    pause_after,
    pause_after_requests,
    pressed,
)
from .options import StoreCommand, duration, no_folder, open_at, queues_at, queues_of, store_arguments
from .output import Output, is_terminal
from .queues import LS_COLUMNS, each_queue, numbers_of, told
from .signals import ended_by

EVERY_S_MIN, EVERY_S_MAX = 0.5, 3600.0
HELD_SHOWN = 100  # running jobs of which the details of a queue tell who holds them
WORKERS_S = 30.0  # between two looks at who is registered, beside the others; longer where there are many
WORKERS_PER_SECOND = 1 / 3  # requests of these looks: a list, and a read for each worker
SORTS = {name.removesuffix("_seconds").removesuffix("_per_second"): name for name in COLUMNS}

Found = dict[str, "dict[str, Any] | OsqueueError"]

EPILOG = """\b
Examples:
  osqueue top s3://bucket/prefix
  osqueue top https://abc.execute-api.eu-west-1.amazonaws.com --every 10s
  osqueue top file:///var/lib/jobs --once --sort oldest
"""


class WatchedQueues:
    """The queues at an address, of a store or of an API, opened once for all looks."""

    def __init__(self, address: str, timeout: float) -> None:
        self.address = address
        self.timeout = timeout
        self.none = ""  # why there may be no queues
        self._open: dict[str, Queue[Any]] = {}
        self._workers: dict[str, tuple[float, list[WorkerStatus]]] = {}  # by queue, and until when it will do
        if is_remote(address):
            from ..client.transports.address import open_transport

            transport = open_transport(address)
            self.look: Callable[[], Found] = lambda: dict(map(told, queues_of(transport, timeout)))
            self._opened: Callable[[str], Queue[Any]] = lambda name: Queue.connect(
                address, name, timeout=timeout
            )
        else:
            store = open_at(address)
            self.none = no_folder(store)
            self.look = lambda: dict(numbers_of(self.queue(name)) for name in queues_at(store))
            self._opened = lambda name: Queue(store, name, timeout=timeout)

    def queue(self, name: str) -> Queue[Any]:
        """One of them."""
        if name not in self._open:
            self._open[name] = self._opened(name)
        return self._open[name]

    def detail(self, name: str) -> tuple[tuple[Line, ...], int]:
        """The lines on one of them, and about how many requests to the store they took."""
        queue = self.queue(name)
        flow = msgspec.structs.asdict(queue.flow())
        kinds = {kind: _fields(use) for kind, use in flow["kinds"].items()}
        flow |= {"kinds": kinds, "rate": _fields(flow["rate"]), "limiter": _fields(flow["limiter"])}
        jobs, more = queue.jobs(PROCESSING, HELD_SHOWN)
        reads = 2  # of each head, and of the settings: for the limits, and for the jobs
        lines = detail_of(name, flow, jobs, more is not None, self._registered(name))
        return lines, reads * (1 + max(1, len(flow["shards"])))

    def _registered(self, name: str) -> list[WorkerStatus]:
        """The workers of one of them, as of not long ago: what they hold now, its jobs tell."""
        until, found = self._workers.get(name, (float("-inf"), []))
        now = MACHINE.monotonic()
        if now >= until:
            found = self.queue(name).workers()
            self._workers[name] = now + max(WORKERS_S, (1 + len(found)) / WORKERS_PER_SECOND), found
        return found


def _fields(found: Any) -> dict[str, Any] | None:
    """A struct and those in it, their times as they are."""
    if found is None:
        return None
    return {
        name: _fields(value) if isinstance(value, msgspec.Struct) else value
        for name, value in msgspec.structs.asdict(found).items()
    }


class Asker:
    """Asks the store in a thread of its own, and rings when there is something new for the screen."""

    def __init__(self, place: WatchedQueues, every: float, ring: Callable[[], None]) -> None:
        self.every = every
        self.news: SimpleQueue[Callable[[TopView], TopView]] = SimpleQueue()
        self._place = place
        self._ring = ring
        self._asked: SimpleQueue[Action] = SimpleQueue()
        self._opened = ""  # the queue whose details are on the screen
        self._before: Look | None = None
        self._pause = every
        threading.Thread(target=self._run, daemon=True).start()  # daemon: nobody waits for it to quit

    def ask(self, action: Action) -> None:
        """Do something, and look again at once."""
        self._asked.put(action)

    def _run(self) -> None:
        while True:
            try:
                self._look()
            except OsqueueError as error:
                self._tell(f"{error.code}: {error.message}")
            try:
                action = self._asked.get(timeout=self._pause)
            except Empty:
                continue
            try:
                self._do(action)
            except OsqueueError as error:
                self._tell(f"{error.code}: {error.message}")

    def _do(self, action: Action) -> None:
        match action.name:
            case "detail":
                self._opened = action.queue
            case "look":
                self._opened = ""
            case "pause":
                self._place.queue(action.queue).pause()
                self._tell(f"{action.queue} is paused: running jobs finish, new ones are accepted.")
            case "resume":
                self._place.queue(action.queue).resume()
                self._tell(f"{action.queue} goes on.")

    def _look(self) -> None:
        if self._opened:
            lines, requests = self._place.detail(self._opened)
            self._pause = pause_after_requests(requests, self.every)
            self._put(lambda view: view if view.detail is None else replace(view, detail=lines))
            return
        now = Look(MACHINE.monotonic(), self._place.look())
        rows = glances(self._before, now)
        told = "" if rows else f"no queues at this address{self._place.none}"
        self._before, self._pause = now, pause_after(now, self.every)
        self._put(lambda view: replace(view, rows=rows, told=told or view.told))

    def _tell(self, text: str) -> None:
        self._put(lambda view: replace(view, told=text))

    def _put(self, change: Callable[[TopView], TopView]) -> None:
        self.news.put(change)
        self._ring()


@click.command(
    "top", short_help="All queues at a glance, live in a terminal.", cls=StoreCommand, epilog=EPILOG
)
@store_arguments(queue=False)
@click.option(
    "--every",
    type=duration,
    default=2.0,
    help="How long between two looks; longer where there are many queues.  [default: 2s]",
)
@click.option(
    "--sort", type=click.Choice(list(SORTS)), default="queued", show_default=True, help="The first order."
)
@click.option("--once", is_flag=True, help="Print the table and end, as where there is no terminal.")
@click.pass_obj
def top(output: Output, address: str, every: float, sort: str, once: bool, timeout: float) -> None:
    """All queues at a glance, live in a terminal: what waits, runs, fails and is dead, and rates in and out."""
    if not EVERY_S_MIN <= every <= EVERY_S_MAX:
        raise click.UsageError(f"--every: {every:g} s is not within {EVERY_S_MIN:g}s and {EVERY_S_MAX:g}s.")
    place = WatchedQueues(address, timeout)
    if once or not output.tables or not is_terminal(sys.stdin) or os.environ.get("TERM", "dumb") == "dumb":
        found = place.look()
        rows = in_order(glances(None, Look(0.0, found)), SORTS[sort], reverse=False)
        if rows:
            each_queue(output, ((row.queue, found[row.queue]) for row in rows), LS_COLUMNS)
        else:
            output.note(f"no queues at this address{place.none}")
        return
    _live(place, every, TopView(sort=SORTS[sort]))


def _live(place: WatchedQueues, every: float, view: TopView) -> None:
    """Show the screen until a key or a signal ends it."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)

    def screen() -> Group:
        width, height = console.size
        lines = lines_of(view, printable(place.address), every, width, height)
        return Group(*(Text(text, style, no_wrap=True, overflow="ellipsis") for text, style in lines))

    keyboard = sys.stdin.fileno()
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    ear, bell = socket.socketpair()
    with ear, bell, ended_by(*ending_signals(), signal.SIGQUIT) as ending, _keys(keyboard), _resized(bell):
        bell.setblocking(False)
        with Live(screen(), console=console, screen=True, auto_refresh=False) as live:
            asker = Asker(place, every, lambda: _ring(bell))
            while not ending.wait(None, keyboard, ear.fileno()):
                if _ready(ear.fileno()):
                    ear.recv(4096)
                while not asker.news.empty():
                    view = asker.news.get()(view)
                if _ready(keyboard):
                    data = os.read(keyboard, 4096)
                    if not data:  # the terminal is gone
                        return
                    for key in keys_of(decoder.decode(data)):
                        view, action = pressed(view, key)
                        if action is not None and action.name == "quit":
                            return
                        if action is not None:
                            asker.ask(action)
                live.update(screen(), refresh=True)


def _ready(file: int) -> bool:
    return bool(select.select([file], [], [], 0)[0])


def _ring(bell: socket.socket) -> None:
    with suppress(OSError):  # it rings already, or the screen is closed
        bell.send(b"!")


@contextmanager
def _keys(keyboard: int) -> Iterator[None]:
    """Keys come as they are pressed, and unseen; Ctrl-Z does not leave the shell with this screen."""
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        attributes = termios.tcgetattr(keyboard)
        attributes[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(keyboard, termios.TCSANOW, attributes)
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


@contextmanager
def _resized(bell: socket.socket) -> Iterator[None]:
    """The screen is drawn anew when the terminal has another size."""
    before = signal.signal(signal.SIGWINCH, lambda *_: _ring(bell))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
