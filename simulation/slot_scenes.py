"""Hot objects: reads in the middle of which writers come, and writers that die in the middle of a write.

Every place for them is tried.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

from msgspec import Struct

from osqueue.stores.base import Found, Get, PutIfAbsent, PutIfMatch, Written
from osqueue.stores.file import FileStore

from .baton import Killed
from .disk import Disk, File
from .machine import VirtualMachine
from .posix import Posix, running

KEY = "q/head"
BYTES = 600  # more than one block
WRITES_MAX = 3  # until the last writer dies: more than slots
IN_PLACE_CALLS_MAX = 8  # of one write
_SECRET = b"secret"


class Interruption(Struct, frozen=True):
    """When writers come, and what they do."""

    before: int  # versions there have been, so that either slot is the current one
    call: int  # of the reader, at which they come
    writes: int  # that are completed
    dies_at: int  # the call in place at which the writer after these dies
    known: int  # versions back from the current one, which the reader knows; 0: it asks for any


def reads_between() -> str:
    """What goes wrong in one of these reads; nothing, if all is well."""
    for before, known, writes, dies_at in itertools.product(
        (2, 3, 4), (0, 1, 2), range(WRITES_MAX + 1), range(IN_PLACE_CALLS_MAX)
    ):
        for call in itertools.count():
            scene = _Scene(Interruption(before, call, writes, dies_at, known))
            trouble = scene.play()
            if trouble:
                return trouble
            if not scene.interrupted:
                break  # the reader makes no more calls
    return ""


def left_behind() -> str:
    """What stays of a version that was replaced by a shorter one, whose writer died; nothing, if all is well."""
    for dies_at in itertools.count():
        scene = _Scene(Interruption(0, 0, 0, dies_at, 0))
        with running(scene.posix):
            scene.write(_SECRET * BYTES)
            scene.write(b"")
            if not scene.is_killed(b"the shorter one"):
                return ""
            for _ in range(2):  # by others, who go on in the same file, since nothing is flushed
                scene.write(b"next")
        file = scene.posix.disk.find(f"/srv/jobs/{KEY}")
        assert isinstance(file, File)
        if _SECRET in file.data:
            return f"a writer died at {dies_at}: what it replaced is still there"
    return ""


class _Scene:
    def __init__(self, plan: Interruption) -> None:
        self.plan = plan
        self.interrupted = False
        self.posix = Posix(Disk(), lambda: 0)
        self.who = "writer"
        self.posix.owner = lambda: self.who
        machine = VirtualMachine(SimpleNamespace(now=0.0), "machine", "slots")
        self.stores = [FileStore("/srv/jobs", False, machine, network=True) for _ in range(2)]
        self.versions: list[str] = []

    def play(self) -> str:
        """Let the reader read; what is wrong about its answer."""
        plan, reader = self.plan, self.stores[1]
        with running(self.posix):
            for _ in range(plan.before):
                self.write(_body(len(self.versions)))
            first = len(self.versions) - 1
            known = self.versions[-plan.known] if plan.known else None
            calls = itertools.count()
            self.who = "reader"
            self.posix.turn = lambda name: self._interrupt() if next(calls) == plan.call else None
            answer = reader.get(Get(KEY, unless=known))
            if isinstance(answer, Found):
                latest = _body(len(self.versions))  # the one who died may have written all of it
                bodies = {version: _body(number) for number, version in enumerate(self.versions)}
                if answer.body != bodies.get(answer.version, latest):
                    return f"{plan}: {answer.version} has not the body it was written with"
                version: str | None = answer.version
            else:
                version = known
            if version in self.versions[:first]:
                return f"{plan}: {version} had been replaced before the read began"
        return ""

    def _interrupt(self) -> None:
        """The writers come."""
        self.interrupted = True
        self.posix.turn = lambda name: None
        self.who = "writer"
        for _ in range(self.plan.writes):
            self.write(_body(len(self.versions)))
        self.is_killed(_body(len(self.versions)))
        self.who = "reader"

    def is_killed(self, body: bytes) -> bool:
        """A writer begins; does it die before it is done?"""
        left = itertools.count(self.plan.dies_at, -1)

        def dies(name: str) -> None:
            if name == "write in place" and not next(left):
                raise Killed

        self.posix.turn = dies
        try:
            self.write(body)
        except Killed:
            self.posix.end("writer")
            return True
        finally:
            self.posix.turn = lambda name: None
        return False

    def write(self, body: bytes) -> None:
        """Write the next version."""
        store = self.stores[0]
        if not self.versions:
            written = store.put_if_absent(PutIfAbsent(KEY, body, hot=True))
        else:
            current = store.get(Get(KEY, length=0))
            assert isinstance(current, Found)
            written = store.put_if_match(PutIfMatch(KEY, body, current.version))
        assert isinstance(written, Written), written
        self.versions.append(written.version)


def _body(number: int) -> bytes:
    """Some are empty: of these a checksum says nothing."""
    return b"" if number % 4 == 1 else (b"%d." % number * BYTES)[:BYTES]
