"""What tests have done to pieces of work, here and in other processes, which find it in this module.

    python -m tests.pipeline.pieces FOLDER

shares two pieces that never end with one other process, and says when both have begun.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from osqueue.errors import Rejected
from osqueue.pipeline.engines import helpers
from osqueue.pipeline.engines.helpers import Helpers
from tests.support.patience import PATIENCE

ENDLESS = 2 * PATIENCE  # longer than any test waits

T = TypeVar("T")
R = TypeVar("R")


def meet(folder: Path) -> list[int]:
    """Wait until two processes are here; answers which."""
    (folder / str(os.getpid())).touch()
    until = time.monotonic() + PATIENCE
    while len(there := [int(path.name) for path in folder.iterdir()]) < 2:
        assert time.monotonic() < until, "nobody else has come"
        time.sleep(0.005)
    return there


def together(folder: Path, function: Callable[[T], R], piece: T) -> R:
    """Apply a function once another process does, too."""
    meet(folder)
    return function(piece)


def numbered(piece: int) -> tuple[int, int]:
    """A piece, and the process that did it."""
    return piece, os.getpid()


def refuse(folder: Path, here: int, piece: int) -> None:
    """Elsewhere, a piece cannot be done."""
    meet(folder)
    if os.getpid() != here:
        raise Rejected("no", field="piece")


class Unsent(Exception):
    """An error that cannot be made again from its words."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


def fail(folder: Path, here: int, how: str, piece: int) -> None:
    """Elsewhere, a piece fails in a way that does not pass from process to process."""
    meet(folder)
    if os.getpid() == here:
        return
    if how == "exits":
        sys.exit(3)
    if how == "is unsent":
        raise Unsent("this", "that")
    raise LookupError(lambda: None)  # which cannot be pickled


def interrupt(folder: Path, here: int, piece: int) -> None:
    """Ctrl-C while another process is at work."""
    meet(folder)
    if os.getpid() == here:
        raise KeyboardInterrupt
    time.sleep(ENDLESS)


def die(folder: Path, here: int, function: Callable[[T], R], piece: T) -> R:
    """Elsewhere, the process is killed when it has done its piece and has not said so."""
    done = together(folder, function, piece)
    if os.getpid() != here:
        os.kill(os.getpid(), signal.SIGKILL)
    return done


def stay(folder: Path, here: int, piece: int) -> None:
    """Never end."""
    meet(folder)
    if os.getpid() == here:
        print("ready", flush=True)
    time.sleep(ENDLESS)


if __name__ == "__main__":
    helpers.ALONE_SECONDS = 0
    from tests.pipeline import pieces  # by the name under which the other process finds it

    Helpers(1).share(partial(pieces.stay, Path(sys.argv[1]), os.getpid()), range(2))
