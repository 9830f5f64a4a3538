"""What one replay is: its size, its pace and which jobs fail. Every process of the demo reads the same plan."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from demo.swf import SwfJob, read_jobs

LOG = Path(__file__).with_name("data") / "nasa-ipsc-1993.swf.gz"
QUEUE = "nasa-ipsc-1993"

# Time is compressed twice: three months of arrivals into 20 s, and a job's run time far less, so that the long
# jobs of the log still outlive a third of a lease and have to be kept alive by heartbeats.
ARRIVALS_FASTER = 400_000
RUNS_FASTER = 10_000

FAIL_ONCE_PERCENT = 2
FAIL_TWICE_PERCENT = 1
ATTEMPTS_MAX = 8  # failures and stalls both use attempts; none of the jobs may run out of them
BACKOFF_BASE_S = 0.2
BACKOFF_CAP_S = 2.0

ID_PERCENT = 10  # jobs that carry an id and are sent twice
WAIT_PERCENT = 2  # jobs, with ids as well, whose sender waits for the result
LAGS_S = (-1.0, -0.1, 0.0, 0.1, 1.0)  # when the rival sends such a job, after (or before) the producer
PATIENCE_S = 30.0  # of a caller who waits
HASTY_S = 0.1  # of the one whose job is the longest of all


class ReplayPlan(Struct, frozen=True):
    """One replay. Its folder holds the store, and apart from it what the processes write down for the check."""

    folder: str
    jobs: int  # the first so many of the log
    workers: int  # processes
    seed: int = 1  # decides which jobs fail and which worker is killed
    lease_s: float = 3.0
    slots: int = 96  # jobs that one worker runs at the same time
    url: str = ""  # of the local stack, once it runs; empty: everybody works on the store itself

    @property
    def store(self) -> Path:
        return Path(self.folder) / "store"

    @property
    def notes(self) -> Path:
        """The folder of the journals and of what the processes print."""
        return Path(self.folder) / "notes"

    @property
    def store_address(self) -> str:
        return f"file://{self.store}"

    @property
    def address(self) -> str:
        """Where the processes find the queue."""
        return self.url or self.store_address

    def journal(self, name: str) -> Path:
        return self.notes / f"{name}.jsonl"

    def output(self, name: str) -> Path:
        return self.notes / f"{name}.log"

    def worker_names(self) -> list[str]:
        return [f"worker-{number}" for number in range(1, self.workers + 1)]

    def failures(self, number: int) -> int:
        """How many of a job's first attempts fail."""
        chance = zlib.crc32(f"{self.seed}/{number}".encode()) % 100
        if chance < FAIL_TWICE_PERCENT:
            return 2
        return 1 if chance < FAIL_TWICE_PERCENT + FAIL_ONCE_PERCENT else 0


class IdSender(Struct, frozen=True):
    """Who sends a job that carries an id. Such a job is sent by the rival, too."""

    id: str
    lag_s: float  # when the rival sends it, after the producer
    timeout_s: float | None = None  # how long the producer's caller waits for the result; None: it does not


class Payload(Struct):
    """What the queue carries for each job. Short names: a payload is stored with every step of its job."""

    n: int  # the job's number in the log
    run: int  # seconds it ran


def jobs_of(plan: ReplayPlan) -> list[SwfJob]:
    """The jobs to replay, in the log's order."""
    return first(read_jobs(LOG), plan.jobs)


def callers_of(plan: ReplayPlan, jobs: Iterable[SwfJob]) -> dict[int, IdSender]:
    """The jobs that carry ids, by number, decided by number and seed. Somebody waits for the longest in any case."""
    callers = {}
    hasty = max(jobs := list(jobs), key=lambda job: job.run_s).number
    for number in (job.number for job in jobs):
        chance = zlib.crc32(f"{plan.seed}/caller/{number}".encode())
        percent, which = chance % 100, chance // 100 % len(LAGS_S)
        waits = percent < WAIT_PERCENT or number == hasty
        if waits or percent < WAIT_PERCENT + ID_PERCENT:
            patience = (HASTY_S if number == hasty else PATIENCE_S) if waits else None
            lag_s = LAGS_S[-1] if number == hasty else LAGS_S[which]  # else its result might be there at once
            callers[number] = IdSender(f"ipsc-{number}", lag_s, patience)
    return callers


def first(jobs: Iterable[SwfJob], count: int) -> list[SwfJob]:
    """The first so many jobs, or all when there are fewer."""
    return [job for job, _ in zip(jobs, range(count), strict=False)]


def save(plan: ReplayPlan) -> Path:
    """Write the plan where the other processes find it."""
    plan.notes.mkdir(parents=True, exist_ok=True)
    path = Path(plan.folder) / "plan.json"
    path.write_bytes(msgspec.json.encode(plan))
    return path


def load(path: str | Path) -> ReplayPlan:
    """Read the plan back."""
    return msgspec.json.decode(Path(path).read_bytes(), type=ReplayPlan)
