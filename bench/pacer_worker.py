"""A process whose threads use one pacer: when each acted, and what its slot was. See ``fleet.py``."""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor

from osqueue import Pacer, Throttled

NAME = "api"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("seconds", type=float)
    parser.add_argument("callers", type=int)
    arguments = parser.parse_args()
    pacer = Pacer.connect(arguments.address, NAME)
    pacer.status()
    print("ready", flush=True)
    input()
    end = time.monotonic() + arguments.seconds

    def act(_: int) -> list[tuple[int, float, float]]:
        """Slot after slot: number, seconds of the slot, seconds of the start."""
        found = []
        while time.monotonic() < end:
            try:
                with pacer.turn() as turn:
                    found.append((turn.number, time.time(), turn.at.timestamp()))
            except Throttled:
                continue
        return found

    with ThreadPoolExecutor(arguments.callers) as pool:
        starts = [start for some in pool.map(act, range(arguments.callers)) for start in some]
    print(json.dumps({"starts": starts, "requests": pacer.requests}))


if __name__ == "__main__":
    main()
