"""The peer: ``jqueue`` 1.0.0, the one comparable queue on object storage, in an environment of its own.

It is compared with and never depended on. Its wheel declares Python 3.12 and runs on 3.11.
"""

from __future__ import annotations

import subprocess
import sys
import venv

from bench.fleet import ROOT

VERSION = "1.0.0"
FOLDER = ROOT / ".venv-peer"
PYTHON = FOLDER / "bin/python"
WORKER = ROOT / "bench/peer_worker.py"


def ensure() -> None:
    """Create the peer's environment unless it is there. Needs the network the first time."""
    stamp = FOLDER / f".jqueue-{VERSION}"
    if stamp.exists():
        return
    print(f"setting up jqueue {VERSION} in {FOLDER.name} …", file=sys.stderr)
    venv.create(FOLDER, with_pip=True, clear=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--ignore-requires-python"]
    subprocess.run([PYTHON, *install, f"jqueue=={VERSION}"], check=True)
    stamp.touch()


def command(*arguments: str | float) -> list[str]:
    """The command line of one of the peer's workers."""
    return [str(PYTHON), str(WORKER), *map(str, arguments)]
