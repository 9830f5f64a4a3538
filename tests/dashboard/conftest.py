"""The page in a real browser: one browser and one server for a module."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from osqueue import Queue
from tests.support.patience import PATIENCE
from tests.support.places import ROOT

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
expect.set_options(timeout=PATIENCE * 1000)
MODULES = ROOT / "dashboard/node_modules"


class Served:
    """A running server of ``osqueue dashboard`` or ``osqueue serve``, and the store below it."""

    def __init__(self, folder: Path, command: str = "dashboard", *more: str, address: str = "") -> None:
        self.folder = folder
        self._address = address or f"file://{folder}/store"
        self._command = [sys.executable, "-m", "osqueue", command, self._address, *more, "--json"]
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start, at the port it had before."""
        self.process = subprocess.Popen(
            [*self._command, "--port", str(self.port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]
        self.port = int(self.url.rpartition(":")[2])

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def queue(self, name: str) -> Queue[Any]:
        """A queue over the server: what is committed there, the page sees at once."""
        return Queue.connect(self.url, name)

    def beside(self, name: str) -> Queue[Any]:
        """A queue of another process than the server's."""
        return Queue.connect(f"file://{self.folder}/store", name)


@contextmanager
def served(*arguments: Any, **more: Any) -> Iterator[Served]:
    found = Served(*arguments, **more)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.end()


@pytest.fixture(
    scope="module"
)  # Playwright keeps an event loop in this thread, in which other tests would not start one
def browser() -> Iterator[Browser]:
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("there is no Chromium here. Debian: apt-get install -y chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("dashboard")) as found:
        yield found


Opener = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Opener]:
    """Opens a page; a mistake of its scripts, or what its policy refused, fails the test."""
    contexts = []
    mistakes: list[str] = []

    def note(message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            mistakes.append(message.text)

    def open_page(url: str, path: str = "", phone: bool = False, dark: bool = False) -> Page:
        context = browser.new_context(
            viewport=PHONE if phone else DESKTOP,  # type: ignore[arg-type]
            color_scheme="dark" if dark else "light",
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE * 1000)
        page = context.new_page()
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        page.on("console", note)
        page.goto(f"{url}/{path}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not mistakes


@pytest.fixture
def page(opened: Opener, server: Served) -> Callable[..., Page]:
    """Opens a page of the module's server."""
    return lambda path="", **more: opened(server.url, path, **more)
