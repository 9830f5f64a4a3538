"""The environment of processes that meet a slower disk: each of their flushes takes some milliseconds longer.

Disks differ in nothing as much as in how long a flush takes: 0.1 ms where the host's memory answers for them, a
millisecond or two on network volumes, four and more on what stands under many desks. A comparison on one disk alone
says little about the others.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bench.fleet import ROOT

SOURCE = ROOT / "bench/slow_flush.c"


def environment(flush_ms: int, folder: Path) -> dict[str, str]:
    """What to add to a process's environment; what is built for it lies in ``folder``. Needs Linux and a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise ValueError("the part slow-disk needs a C compiler called cc (Debian: apt install gcc)")
    library = folder / "slow_flush.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "FLUSH_MS": str(flush_ms)}
