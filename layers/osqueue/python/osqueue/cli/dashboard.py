"""``osqueue dashboard``: a page about the queues at an address, on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Any

import click

from ..errors import NotInstalled
from ..masking import printable
from ..stores.address import is_remote, open_store
from ..stores.counting import CountingStore
from .crew import PARENT, end_with_parent
from .options import StoreCommand, as_text, complete_address, json_option
from .output import Output

HOST = "127.0.0.1"

EPILOG = """\b
Examples:
  osqueue dashboard s3://bucket/prefix
  osqueue dashboard https://id.execute-api.eu-west-1.amazonaws.com --read-only
  osqueue dashboard lambda://osqueue-prod --port 0
"""


@click.command(
    "dashboard", short_help="A page about the queues, on this machine.", cls=StoreCommand, epilog=EPILOG
)
@click.argument("address", shell_complete=complete_address)
@click.option("--port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="0: a free one.")
@click.option("--read-only", is_flag=True, help="Refuse everything but reads.")
@json_option
@click.pass_obj
def dashboard(output: Output, /, address: str, port: int, read_only: bool, **more: Any) -> None:
    """Show the queues at an address in a browser: what waits, runs and fails, live, and what to do about it.

    Listens on 127.0.0.1 alone. It works on a store, and on an API with the credentials of this shell, so that a
    deployed bundle needs no public page. It does no upkeep. Runs until SIGTERM, SIGHUP or Ctrl-C.
    """
    try:
        from ..asgi.log import configure_logs
        from ..asgi.server import ServeOptions, listen, serve, serve_proxy, url_of
    except ImportError as error:
        raise NotInstalled(
            f"osqueue dashboard needs the package {error.name}: pip install 'osqueue[serve]'",
            field="dashboard",
        ) from None
    end_with_parent()
    text = as_text(address, "address")
    options = ServeOptions(text, HOST, port, drain_s=1.0, upkeep=False, read_only=read_only)
    configure_logs("warning")
    store = None if is_remote(text) else CountingStore(open_store(text))
    with listen(HOST, port) as listening:
        _say(output, url_of(options, listening), printable(options.store))
        if store is None:
            serve_proxy(options, listening)
        else:
            serve(options, store, listening)


class DashboardProcess:
    """A dashboard of an API in a process of its own, which begins when somebody first asks where it is."""

    def __init__(self) -> None:
        self.address = ""  # of the API
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._url: str | None = None

    def url(self) -> str | None:
        """Where it is; None where it cannot be, as when its packages are missing."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                command = [
                    sys.executable,
                    "-m",
                    "osqueue",
                    "dashboard",
                    self.address,
                    "--port",
                    "0",
                    "--json",
                ]
                self._process = subprocess.Popen(  # noqa: S603 - this program
                    command,
                    stdin=subprocess.PIPE,  # it ends when this does
                    stdout=subprocess.PIPE,
                    env={**os.environ, PARENT: "1"},
                )
                assert self._process.stdout is not None
                said = self._process.stdout.readline()
                self._url = json.loads(said).get("url") if said else None
            return self._url

    def end(self) -> None:
        """End it, where it has begun."""
        with self._lock:
            if self._process is not None:
                self._process.terminate()
                self._process.communicate()


def _say(output: Output, url: str, address: str) -> None:
    if output.tables:
        output.text(f"osqueue dashboard: {url} shows {address}. Ctrl-C ends it.")
    else:
        output.document({"url": url, "address": address, "process": os.getpid()})
