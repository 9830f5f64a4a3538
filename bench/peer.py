"""The peers, in an environment of their own: they are compared with and never depended on.

``jqueue`` is the one comparable queue on object storage; its wheel declares Python 3.12 and runs on 3.11. The others
are what one takes on a single machine, on SQLite, and on a Redis server.
"""

from __future__ import annotations

import subprocess
import sys
import venv

from bench.fleet import ROOT

VERSIONS = {
    "jqueue": "1.0.0",
    "litequeue": "0.9",
    "huey": "3.5.4",
    "persist-queue": "1.1.0",
    "rq": "2.6.0",
    "arq": "0.26.3",
}
FOLDER = ROOT / ".venv-peer"
PYTHON = FOLDER / "bin/python"
WORKER = ROOT / "bench/peer_worker.py"
EMBEDDED = ROOT / "bench/embedded_peers.py"
ON_VALKEY = ROOT / "bench/valkey_peers.py"


def ensure() -> None:
    """Create the peers' environment unless it is there. Needs the network the first time."""
    packages = [f"{name}=={version}" for name, version in VERSIONS.items()]
    stamp = FOLDER / f".{'-'.join(packages)}"
    if stamp.exists():
        return
    print(f"setting up {', '.join(packages)} in {FOLDER.name} …", file=sys.stderr)
    venv.create(FOLDER, with_pip=True, clear=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--ignore-requires-python"]
    subprocess.run([PYTHON, *install, *packages], check=True)
    stamp.touch()


def command(*arguments: str | float) -> list[str]:
    """The command line of one of the peer's workers."""
    return [str(PYTHON), str(WORKER), *map(str, arguments)]


def embedded() -> list[str]:
    """The command line of a worker of the embedded ones, which is told by its orders what to do."""
    return [str(PYTHON), str(EMBEDDED)]


def on_valkey() -> list[str]:
    """The same of those on a Redis or Valkey server."""
    return [str(PYTHON), str(ON_VALKEY)]
