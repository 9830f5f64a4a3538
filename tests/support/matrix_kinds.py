"""The servers of Valkey and Redis of the fault matrix, and clients that wait for a moment only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from osqueue.stores import address as addresses
from osqueue.stores import faults, objects, valkey
from osqueue.stores.valkey_place import PASSWORD_VARIABLES
from tests.support import valkey_server
from tests.support.fault_listeners import HOST, listen_resp
from tests.support.fault_switch import FaultSwitch
from tests.support.matrix_stores import HUNG_S, SECRET, Place, StoreKind, numbers
from tests.support.valkey_server import ValkeyServer


class ValkeyKind(StoreKind):
    """A Valkey or Redis server, some of whose faults it makes itself."""

    name = "valkey"
    schemes = addresses.VALKEY
    own_clock = True
    absent: ClassVar = {"missing": "it has no bucket"}
    names: ClassVar = {
        "refused": "NOPERM",
        "throttled": "BUSY",
        "hung": "no answer in time",
        "cut": "[Cc]onnection",
        "credentials": "NOAUTH|Connection closed by server",
        "rotated": "NOAUTH|Connection closed by server",
        "gone": "Connection refused|Connection closed by server",
        "full": "OOM",
    }
    begins: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "refused": ("ACL SETUSER default -@all",),
        "credentials": ("ACL SETUSER default resetpass >{0}2", "CLIENT KILL TYPE normal"),
        "rotated": ("ACL SETUSER default resetpass >{0}2", "CLIENT KILL TYPE normal"),
    }
    ends: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "refused": ("ACL SETUSER default +@all",),
        "credentials": ("ACL SETUSER default resetpass >{0}",),
    }

    def __init__(self, given: Callable[[str], Any], folder: Path) -> None:
        if valkey_server.BINARY is None:
            pytest.skip(valkey_server.HOW_TO_INSTALL)
        self.server = ValkeyServer(folder)
        self.server.start()
        self.admin = connection(self.server.port)
        self.admin.execute_command("ACL SETUSER rival on +@all ~* &* >" + SECRET)
        self.admin.execute_command(f"AUTH rival {SECRET}")

    def close(self) -> None:
        self.admin.close()
        self.server.end()

    @contextlib.contextmanager
    def open(self, switch: FaultSwitch, patch: pytest.MonkeyPatch) -> Iterator[Place]:
        number = next(numbers)
        password = f"{SECRET}-{number}-"
        patch.setenv(PASSWORD_VARIABLES[0], password)
        self.ask(f"ACL SETUSER default resetpass >{password} +@all")
        listener = listen_resp(self.server.port, switch)

        def begin(fault: str) -> None:
            if fault == "gone":
                listener.refuse()
            for command in self.begins.get(fault, ()):
                self.ask(command.format(password))

        def end(fault: str) -> None:
            if fault == "gone":
                listener.open()
            if fault == "rotated":
                nonlocal password
                password += "2"
                patch.setenv(PASSWORD_VARIABLES[0], password)
            for command in self.ends.get(fault, ()):
                self.ask(command.format(password))

        switch.on_begin, switch.on_end = begin, end
        try:
            yield Place(
                self,
                f"valkey://{HOST}:{listener.port}/0/matrix/{number}",
                f"valkey://rival:{SECRET}@{HOST}:{self.server.port}/0/matrix/{number}",
                switch,
            )
        finally:
            listener.refuse()

    def ask(self, command: str) -> None:
        self.admin.execute_command(*command.split())


def connection(port: int) -> Any:
    from valkey import Valkey

    return Valkey(HOST, port, single_connection_client=True)


def shorten_silence(patch: pytest.MonkeyPatch) -> None:
    """Let clients wait for a reply for a moment only."""
    patch.setattr(faults, "REQUEST_TIMEOUT_S", HUNG_S)
    patch.setattr(valkey, "REQUEST_TIMEOUT_S", HUNG_S)
    begin = objects.ObjectStore.__init__

    def begin_impatient(self: Any, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        self.timeouts = faults.Timeouts(request_s=HUNG_S)

    patch.setattr(objects.ObjectStore, "__init__", begin_impatient)
