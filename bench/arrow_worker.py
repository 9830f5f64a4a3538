"""Writes archive records as Parquet: bytes and seconds. Runs where pyarrow is, and imports nothing of ours.

Prints ``ready``, waits for a line on standard input, works, and prints one line of JSON (see ``fleet.py``).
"""

from __future__ import annotations

import importlib
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

TIMED = 3


def main() -> None:
    arrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    records = [json.loads(line) for line in Path(sys.argv[1]).read_bytes().splitlines()]
    print("ready", flush=True)
    input()
    seconds = []
    size = 0
    for _ in range(TIMED):
        begun = time.perf_counter()
        out = io.BytesIO()
        parquet.write_table(arrow.Table.from_pylist(records), out, compression="zstd")
        seconds.append(time.perf_counter() - begun)
        size = out.tell()
    print(json.dumps({"bytes": size, "seconds": min(seconds), "records": len(records)}), flush=True)


if __name__ == "__main__":
    main()
