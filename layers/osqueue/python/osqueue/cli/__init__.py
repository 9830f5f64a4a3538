"""The command line: ``osqueue``. What it needs beyond the library is the extra ``cli``."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from io import TextIOWrapper
from typing import TextIO

NEEDED = ("click", "rich")
MISSING_EXTRA = (
    "error: not_installed: the command line needs {missing}, which this Python does not have."
    " Remedy: pip install 'osqueue[cli]'"
)


def main() -> None:
    """The console script."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(MISSING_EXTRA.format(missing=" and ".join(missing)), file=sys.stderr)
        raise SystemExit(2)
    try:
        from .app import app
    except KeyboardInterrupt:  # Ctrl-C before there is anything to stop
        raise SystemExit(130) from None
    if isinstance(sys.stdout, TextIOWrapper):
        # Escapes where a terminal lacks a character. A full disk fails the print, not the end of the program.
        sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)
    try:
        app(prog_name="osqueue")
    finally:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            _let_go(stream)


def _let_go(stream: TextIO) -> None:
    """What a stream did not take has been reported: Python is not to try again at its end, and fail once more."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
