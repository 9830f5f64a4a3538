"""Releases that share a folder: today's code, one that reads the next format, and one that writes it, as processes.

The two later ones are copies of the library with the changes that a real one would make. What is new is a field of the
head, ``stamps``: how many jobs of the kind ``stamped`` were ever claimed. Today's code does not know it, so it would
erase it. The simulator's profile ``upgrade`` plays the same with faults and in every order; here it is whole processes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import osqueue
from osqueue import NewerFormat
from osqueue.commit.writer import HEAD
from osqueue.objects.layout import root_of
from osqueue.stores.address import open_store
from osqueue.stores.base import Found, Get

LIBRARY = Path(osqueue.__file__).parent
JOBS = 15  # of each release that takes part
LEASE_S = 1.0  # the shortest that a release which is gone leaves behind
FORMAT_AT, HEAD_BEGINS = 20, 26  # in a head: behind its commit and its magic word, and behind its whole frame
REFUSAL = "the head has format 2; this release reads 1. Upgrade osqueue."
Changes = dict[str, tuple[tuple[str, str], ...]]

_KEPT = "            self.format,\n"
BETWEEN: Changes = {  # reads the next format, and keeps what it finds
    "core/encoding.py": (("FORMATS_READ = (1,)", "FORMATS_READ = (1, 2)"),),
    "core/state.py": (("\n\n\nKEYSUM_MASK", "\n    stamps: int = 0\n\n\nKEYSUM_MASK"),),
    "core/draft.py": ((_KEPT, f"{_KEPT}            stamps=state.stamps,\n"),),
}
_STAMPED = "sum(each.job.kind == 'stamped' for key, each in self.leases.items() if key not in state.leases)"
CARELESS: Changes = {  # uses what is new, and does not say so in the head
    **BETWEEN,
    "core/draft.py": ((_KEPT, f"{_KEPT}            stamps=state.stamps + {_STAMPED},\n"),),
}
NEXT: Changes = {  # the same, in the format that knows it
    **CARELESS,
    "core/draft.py": (
        (
            _KEPT,
            f"            2 if {_STAMPED} else self.format,\n            stamps=state.stamps + {_STAMPED},\n",
        ),
    ),
}

PROCESS = '''
import json, sys
from osqueue import OsqueueError, Queue

q = Queue.connect(sys.argv[1], "mail")
print(json.dumps(sys.modules["osqueue"].__file__), flush=True)
held = []

def work(kind, count):
    """Enqueue so many, and claim and complete so many: whoever's they are."""
    mine = [str(q.enqueue(f"{kind} {at}", kind=kind).job_id) for at in range(count)]
    done = []
    while len(done) < count:
        for lease in q.claim(1, wait=20):
            lease.complete(lease.payload)
            done.append(str(lease.job_id))
    return [mine, done]

def hold(kind, lease):
    """Claim a job and keep it."""
    q.enqueue("held", kind=kind)
    held.extend(q.claim(1, lease=lease))
    return str(held[-1].job_id)

def finish():
    """Complete the job that is held."""
    held.pop().complete("late")

def take():
    """Complete one job, as soon as there is one."""
    (lease,) = q.claim(1, wait=20)
    lease.complete("taken")
    return [str(lease.job_id), lease.attempt]

DO = {
    "work": work, "hold": hold, "finish": finish, "take": take,
    "enqueue": lambda kind: str(q.enqueue(kind, kind=kind).job_id),
    "claim": lambda: len(q.claim(1)), "stats": lambda: q.stats(), "reap": lambda: bool(q.reap()),
    "pause": q.pause, "result": lambda job: q.result(job),
}
for line in sys.stdin:
    name, *rest = json.loads(line)
    try:
        answer = {"ok": DO[name](*rest)}
    except OsqueueError as error:
        answer = {"code": error.code, "message": str(error)}
    print(json.dumps(answer), flush=True)
'''


class Release:
    """A process that runs one release, and does what it is told."""

    def __init__(self, place: Path, address: str) -> None:
        command = [sys.executable, "-c", PROCESS, address]
        self.process = subprocess.Popen(
            command,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(place)},
        )
        assert Path(self._line()).parent == place / "osqueue"  # it is that release that runs

    def _line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def begin(self, *what: Any) -> None:
        """Have it do something; ``answer`` waits for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        found = self._line()
        assert "ok" in found, found
        return found["ok"]

    def do(self, *what: Any) -> Any:
        self.begin(*what)
        return self.answer()

    def refused(self, *what: Any) -> str:
        """What it says why it does not do this."""
        self.begin(*what)
        found = self._line()
        assert found["code"] == NewerFormat.code, found
        return str(found["message"])


def changed(place: Path, changes: Changes) -> Path:
    """A copy of the library with these changes; what may be imported lies in the folder that is returned."""
    # With the compiled modules, which are as good as long as their sources keep their times.
    shutil.copytree(LIBRARY, place / "osqueue")
    for name, pairs in changes.items():
        path = place / "osqueue" / name
        text = path.read_text(encoding="utf-8")
        for old, new in pairs:
            assert text.count(old) == 1, f"{name}: {old}"
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where each release lies."""
    changes = {"between": BETWEEN, "next": NEXT, "careless": CARELESS}
    copies = {name: changed(tmp_path_factory.mktemp(name), each) for name, each in changes.items()}
    return {"today": LIBRARY.parent, **copies}


Start = Callable[..., list[Release]]


@pytest.fixture
def start(places: dict[str, Path], address: str) -> Iterator[Start]:
    """Starts releases by their names."""
    running: list[Release] = []

    def run(*names: str) -> list[Release]:
        running.extend(Release(places[name], address) for name in names)
        return running[-len(names) :]

    yield run
    for each in running:
        each.process.kill()
        each.process.communicate()


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}"


class Head(NamedTuple):
    """What stands in the head, as one reads it who knows every field."""

    format: int
    stamps: int


Look = Callable[[], Head]


@pytest.fixture
def look(address: str) -> Look:
    """Reads the head, whoever wrote it."""

    def read() -> Head:
        found = open_store(address).perform(Get(root_of("mail", 0) + HEAD))
        assert isinstance(found, Found)
        fields = msgspec.msgpack.decode(found.body[HEAD_BEGINS:])
        return Head(int.from_bytes(found.body[FORMAT_AT : FORMAT_AT + 2], "big"), fields.get("stamps", 0))

    return read


def files(folder: Path) -> dict[str, bytes]:
    """Everything that is stored, without the locks."""
    found = (path for path in folder.rglob("*") if path.is_file() and ".osqueue" not in path.parts)
    return {str(path): path.read_bytes() for path in found}


def together(releases: list[Release], kind: str) -> None:
    """All of them enqueue, claim and complete at once; nothing is lost, and nothing done twice."""
    for each in releases:
        each.begin("work", kind, JOBS)
    found = [each.answer() for each in releases]
    enqueued, done = ([job for one in found for job in one[at]] for at in (0, 1))
    assert len(set(enqueued)) == len(releases) * JOBS
    assert sorted(done) == sorted(enqueued)
    assert {releases[0].do("result", job)[: len(kind)] for job in done} == {kind}


def test_todays_code_and_one_that_reads_the_next_format_work_side_by_side(start: Start, look: Look) -> None:
    releases = start("today", "between")
    together(releases, "plain")
    together(releases, "stamped")
    assert look() == (1, 0)


def test_what_nobody_uses_yet_keeps_no_release_out(start: Start, look: Look) -> None:
    together(start("today", "between", "next"), "plain")
    assert look() == (1, 0)


def test_a_release_that_only_reads_the_next_format_keeps_what_is_new(start: Start, look: Look) -> None:
    between, newest = releases = start("between", "next")
    together(releases, "stamped")
    form, stamps = look()
    assert form == 2
    assert stamps
    for at in range(1, 4):
        newest.do("work", "stamped", 1)
        assert look() == (2, stamps + at)
        between.do("work", "stamped", 1)
        between.do("work", "plain", 1)
        assert look() == (2, stamps + at)


def test_a_rollback_to_the_release_before_loses_nothing(start: Start, look: Look) -> None:
    (newest,) = start("next")
    newest.do("work", "stamped", 2)
    held = newest.do("hold", "stamped", LEASE_S)
    waiting = [newest.do("enqueue", "stamped") for _ in range(3)]
    newest.process.kill()
    first, second = start("between", "between")
    taken = [first.do("take") for _ in (held, *waiting)]
    assert sorted(taken) == sorted([[held, 2], *([job, 1] for job in waiting)])
    together([first, second], "stamped")
    assert look() == (2, 3)


def test_todays_code_refuses_a_head_that_it_would_erase_and_leaves_it_alone(
    start: Start, look: Look, tmp_path: Path
) -> None:
    today, newest = start("today", "next")
    held = today.do("hold", "plain", LEASE_S)
    newest.do("work", "stamped", 1)
    before = files(tmp_path)
    for what in (["enqueue", "plain"], ["claim"], ["finish"], ["reap"], ["pause"], ["stats"]):
        assert today.refused(*what) == REFUSAL
    assert files(tmp_path) == before
    assert look() == (2, 1)
    assert newest.do("take") == [held, 2]  # its lease ran out
    assert newest.do("result", held) == "taken"
    together(start("between", "next"), "plain")
    assert newest.do("stats")["counters"]["enqueued"] == 2 + 2 * JOBS


def test_without_its_format_what_is_new_would_be_erased(start: Start, look: Look) -> None:
    """The control: this is what the format is for."""
    today, careless = start("today", "careless")
    careless.do("work", "stamped", 1)
    assert look() == (1, 1)
    today.do("work", "plain", 1)
    assert look() == (1, 0)
