"""Processes that this one starts for itself: the same Python with the same path, spoken to in pickles.

A child begins anew and takes nothing over, unlike a fork: threads of Rust and Arrow live in it as they do here. Nor
does it import the main program, as those of ``multiprocessing`` do: that may be a script, which would run once more.
It has a session of its own, because Ctrl-C is for whoever started it. When that one ends there is nothing more to read,
and the child ends as well.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import BinaryIO

_CODE = "import sys; sys.path[:] = {path!r}; from {module} import {name} as serve; serve()"


def start(serve: Callable[[], None]) -> subprocess.Popen[bytes]:
    """A child that runs a function of a module. Raises OSError."""
    if not sys.executable:
        raise OSError("this Python is part of another program, and cannot start a second one")
    code = _CODE.format(path=sys.path, module=serve.__module__, name=serve.__name__)
    return subprocess.Popen(  # noqa: S603 - this Python
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,  # a fork would copy what waits in a buffer, and send it once more
        start_new_session=True,
    )


def send(process: subprocess.Popen[bytes], message: object) -> None:
    """Tell a child something. Raises OSError where it has ended."""
    assert process.stdin is not None
    rest = memoryview(pickle.dumps(message))
    while rest:
        rest = rest[os.write(process.stdin.fileno(), rest) :]


def answers_of(process: subprocess.Popen[bytes]) -> BinaryIO:
    """Where a child's answers are read."""
    assert process.stdout is not None
    return os.fdopen(os.dup(process.stdout.fileno()), "rb")


def pipes() -> tuple[BinaryIO, BinaryIO]:
    """In a child: what it is told, and where its answers go. Whatever else is printed goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Not sys.stdin: what reads it in a thread would hold its buffer when Python ends, which aborts then.
    return os.fdopen(os.dup(0), "rb"), answers
