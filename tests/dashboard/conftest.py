"""The page in a real browser: one browser and one server for a module."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserType, Page, expect, sync_playwright

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
STEP_S = 60  # within which a page answers, and shows what is waited for
TEST_S = 300  # then the browser is ended: some calls of Playwright have no limit of their own
expect.set_options(timeout=STEP_S * 1000)
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


class Browsers:
    """The browser that tests share, begun anew after one that had to be ended."""

    def __init__(self, chromium: BrowserType, path: str) -> None:
        self._chromium = chromium
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._running = self._chromium.launch(executable_path=self._path, args=ARGUMENTS)
        told = self._running.new_browser_cdp_session().send("SystemInfo.getProcessInfo")
        self._process: int = next(each["id"] for each in told["processInfo"] if each["type"] == "browser")

    @contextmanager
    def limited(self, seconds: float) -> Iterator[Browser]:
        """The browser, for so long: then it is ended, and whatever waits for one of its pages fails."""
        if not self._running.is_connected():
            self._begin()
        guard = threading.Timer(seconds, os.kill, (self._process, signal.SIGKILL))
        guard.daemon = True
        guard.start()
        try:
            yield self._running
        finally:
            guard.cancel()

    def close(self) -> None:
        self._running.close()


@pytest.fixture(
    scope="module"
)  # Playwright keeps an event loop in this thread, in which other tests would not start one
def browsers() -> Iterator[Browsers]:
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("there is no Chromium here. Debian: apt-get install -y chromium")
    with sync_playwright() as playwright:
        found = Browsers(playwright.chromium, path)
        yield found
        found.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("dashboard")) as found:
        yield found


Opener = Callable[..., Page]


@pytest.fixture
def opened(browsers: Browsers) -> Iterator[Opener]:
    """Opens a page; a mistake of its scripts, or what its policy refused, fails the test."""
    with browsers.limited(TEST_S) as browser:
        yield from opening(browser)


def opening(browser: Browser) -> Iterator[Opener]:
    contexts = []
    mistakes: list[str] = []

    def note(message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            mistakes.append(message.text)

    def open_page(
        url: str, path: str = "", phone: bool = False, dark: bool = False, own_clock: bool = False
    ) -> Page:
        context = browser.new_context(
            viewport=PHONE if phone else DESKTOP,  # type: ignore[arg-type]
            color_scheme="dark" if dark else "light",
        )
        contexts.append(context)
        context.set_default_timeout(STEP_S * 1000)
        page = context.new_page()
        if own_clock:  # which a test can stop
            page.clock.install()
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        page.on("console", note)
        page.goto(f"{url}/{path}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert browser.is_connected(), f"the browser was ended after {TEST_S} seconds: a call waited for a page"
    assert not mistakes


@pytest.fixture
def page(opened: Opener, server: Served) -> Callable[..., Page]:
    """Opens a page of the module's server."""
    return lambda path="", **more: opened(server.url, path, **more)


def broken_rules(page: Page) -> dict[str, Any]:
    """The rules of axe-core that a page breaks, and where."""
    page.evaluate((MODULES / "axe-core/axe.min.js").read_text(encoding="utf-8"))
    told = page.evaluate("axe.run()")
    return {each["id"]: [node["html"] for node in each["nodes"]] for each in told["violations"]}


def scroll_width(page: Page) -> int:
    """How wide a page is, with what is beside its window."""
    return int(page.evaluate("document.documentElement.scrollWidth"))
