"""pyarrow, for what the archive would be as Parquet: in the peer's environment, never a dependency of ours."""

from __future__ import annotations

import subprocess
import sys

from bench import peer
from bench.fleet import ROOT

VERSION = "21.0.0"
WORKER = ROOT / "bench/arrow_worker.py"


def ensure() -> None:
    """Install it unless it is there. Needs the network the first time; raises CalledProcessError without."""
    peer.ensure()
    stamp = peer.FOLDER / f".pyarrow-{VERSION}"
    if stamp.exists():
        return
    print(f"setting up pyarrow {VERSION} in {peer.FOLDER.name} …", file=sys.stderr)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    subprocess.run([peer.PYTHON, *install, f"pyarrow=={VERSION}"], check=True)
    stamp.touch()


def command(*arguments: str | float) -> list[str]:
    """The command line of its worker."""
    return [str(peer.PYTHON), str(WORKER), *map(str, arguments)]
