"""Power cuts between a write and its flush: somebody stands still there, and another answers from what it reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from osqueue.commit.writer import HEAD
from osqueue.election.base import PREFIX as ELECTIONS
from osqueue.errors import OsqueueError
from osqueue.objects.id_index import FOLDER as IDS

from .conditions import TIGHT
from .disk import File, Folder
from .ledger import Violation
from .posix import running
from .power import FOLDER, QUEUE, ROOT, PowerProcess, PowerRun, tight_slots
from .tight import limited

FROZEN_SECONDS = 30.0
BEGUN_SECONDS = 5.0  # by then whoever begins at once stands still, or waits

Act = Callable[[PowerProcess], None]


class PowerScene(Struct, frozen=True):
    """What two processes do."""

    place: (
        str  # a folder of the store, or a hot object: the first stands still when it is about to flush this
    )
    first: Act
    second: Act  # meanwhile
    before: Act = lambda process: None  # of the first


class _Frozen(PowerRun):
    """A run in which somebody stands still before a flush."""

    def __init__(self, scene: PowerScene) -> None:
        super().__init__(0)
        self.scene = scene
        self.waits = False

    def play(self) -> None:
        """The queue is there already; then the two."""
        first, second = (PowerProcess(self, name) for name in ("first", "second"))
        self.turns.kills = False
        with running(self.posix):
            for process in (first, second):
                process.under("known")
            self.scene.before(first)
            self.waits = True
            self.turns.start(lambda: self.scene.first(first))
            self.turns.start(lambda: self.scene.second(second))
            self.turns.run()
        if self.violation is not None:
            raise self.violation
        assert not self.waits, "nobody stood still"

    def flush(self, node: File | Folder) -> None:
        place = f"{FOLDER}/{self.scene.place}"
        if self.waits and self.posix.exists(place) and node is self.disk.find(place):
            self.waits = False
            self.turns.pause(FROZEN_SECONDS)
        super().flush(node)


def play(scene: PowerScene) -> str:
    """Play a scene; the violation, or nothing."""
    with limited(TIGHT), tight_slots():
        try:
            _Frozen(scene).play()
        except (Violation, OsqueueError) as violation:
            return str(violation)
    return ""


def _later(act: Act) -> Act:
    def acts(process: PowerProcess) -> None:
        process.machine.sleep(BEGUN_SECONDS)
        act(process)

    return acts


_ENQUEUE = partial(PowerProcess.under, name="wanted")
_HEAD = ROOT + HEAD

SCENES: dict[str, PowerScene] = {
    "claims meanwhile": PowerScene(_HEAD, _ENQUEUE, _later(PowerProcess.look_for_nothing)),
    "asks meanwhile": PowerScene(_HEAD, _ENQUEUE, _later(PowerProcess.look)),
    "waits meanwhile": PowerScene(  # with a result the head outgrows its file
        ROOT.rstrip("/"), _later(PowerProcess.complete_all), PowerProcess.wait, PowerProcess.claim_all
    ),
    "enqueues meanwhile": PowerScene(f"{IDS}{QUEUE}", _ENQUEUE, _later(_ENQUEUE)),
    "campaigns meanwhile": PowerScene(ELECTIONS.rstrip("/"), PowerProcess.stand, _later(PowerProcess.stand)),
}
