"""Two servers of one store, one of them killed again and again, while callers bring jobs and work on them: a soak.

    python -m bench.kills [ADDRESS] [--seconds 120] [--seed 1]

Callers speak plain HTTP, as clients of any language do, and turn to the other server where one does not answer. Every
answer is judged. In the end every job that was acknowledged is there, completed once, with the result of the completion
that was acknowledged. Ends with 1 where anything was otherwise.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import urllib3
from msgspec import Struct, field

from osqueue import Queue
from osqueue.clock import MACHINE
from osqueue.model.keys import KeySource, job_id

QUEUE = "kills"
ROUTE = f"/v1/queues/{QUEUE}"
PRODUCERS, WORKERS, ASKERS = 4, 4, 1
KILLS_MIN = 2  # however short it is
LEASE_S = 3  # of a worker; a claim whose answer is lost holds its jobs for so long
AHEAD_MAX = 200  # acknowledged jobs that are not completed, from which on producers wait
FORGOTTEN_SHARE = 0.02  # of claims, whose worker says nothing any more
PATIENCE_S = 300.0  # for an answer, a start and an end; whoever waits so long has found a hang
PASSING = (429, 503)  # and their answers say when to come again
ATTEMPTS_MAX = 1000  # a job is tried again however often its workers were cut off


class KillReport(Struct):
    """What happened."""

    seconds: float = 0.0  # of killing
    kills: int = 0
    answers: Counter[str] = field(default_factory=Counter)  # by operation and status
    broken: int = 0  # connections to servers that had been killed
    acknowledged: int = 0  # jobs
    completed: int = 0  # jobs whose completion was acknowledged
    late: int = 0  # completions after their lease had ended
    faults: list[str] = []  # what must not be

    def lines(self) -> list[str]:
        """For people."""
        rate = self.completed / self.seconds if self.seconds else 0.0
        answers = ", ".join(f"{count:,} {name}" for name, count in sorted(self.answers.items()))
        done = f"{self.completed:,} completed ({rate:.0f} jobs/s), {self.late:,} completions after their lease ended"
        return [
            f"{self.kills} kills in {self.seconds:.0f} s, {self.broken:,} connections broke",
            f"answers: {answers}",
            f"{self.acknowledged:,} jobs acknowledged, {done}",
            f"{len(self.faults)} faults",
            *self.faults[:20],
        ]


class KilledServer:
    """One run of ``osqueue serve``, until it is killed."""

    def __init__(self, address: str, log: Path) -> None:
        self.killed = False  # set before it is
        self._log = log.open("wb")
        command = [sys.executable, "-m", "osqueue", "serve", address, "--port", "0", "--json"]
        self._process = subprocess.Popen(
            [*command, "--log-level", "warning"], stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            raise RuntimeError(f"a server did not begin: {log.read_text()[-2000:]}")
        self.url: str = json.loads(said)["url"]

    def end(self, number: int) -> int:
        """Send a signal, and wait for the end; its exit code."""
        self.killed = True
        self._process.send_signal(number)
        try:
            return self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._log.close()


class KillSoak:
    """One soak: its servers, its callers, and what they were told."""

    def __init__(self, address: str, folder: Path, seed: int) -> None:
        self.address = address
        self.report = KillReport()
        self.acknowledged: dict[str, int] = {}  # job ids, and the payload
        self.completions: dict[
            str, list[str]
        ] = {}  # by job id, the results whose completion was acknowledged
        self._folder = folder
        self._chance = random.Random(seed)
        self.lock = threading.Lock()
        self._closed = threading.Event()  # no more jobs
        self._over = threading.Event()
        self._logs: list[Path] = []
        self.servers = [self._begun(), self._begun()]

    def _begun(self) -> KilledServer:
        self._logs.append(self._folder / f"server-{len(self._logs)}.log")
        return KilledServer(self.address, self._logs[-1])

    def fault(self, what: str) -> None:
        """Note what must not be."""
        with self.lock:
            self.report.faults.append(what)

    def run(self, seconds: float) -> KillReport:
        """Kill for so long, let the queue become empty, and account for every job."""
        roles = [
            *[(self._produce, number) for number in range(PRODUCERS)],
            *[(self._work, number) for number in range(WORKERS)],
            *[(self._ask_for_results, number) for number in range(ASKERS)],
        ]
        threads = [
            threading.Thread(target=self._guarded, args=(role, number, self._chance.getrandbits(32)))
            for role, number in roles
        ]
        try:
            for thread in threads:
                thread.start()
            self._kill(seconds)
            self._closed.set()
            self._drain()
        finally:
            self._closed.set()
            self._over.set()
            for thread in threads:
                thread.join(PATIENCE_S)
            codes = [server.end(signal.SIGTERM) for server in self.servers]
        if any(codes):
            self.fault(f"servers that were asked to end ended with {codes}")
        for log in self._logs:
            if "Traceback" in (text := log.read_text()):
                self.fault(f"a server failed: {text[text.index('Traceback') - 200 :][:2000]}")
        self._account()
        return self.report

    def _kill(self, seconds: float) -> None:
        began = time.monotonic()
        while self.report.kills < KILLS_MIN or time.monotonic() - began < seconds:
            time.sleep(self._chance.uniform(0.3, 2.0))
            victim = self._chance.randrange(2)
            self.servers[victim].end(signal.SIGKILL)
            self.report.kills += 1
            time.sleep(self._chance.uniform(0.0, 1.0))
            self.servers[victim] = self._begun()
        self.report.seconds = time.monotonic() - began

    def _drain(self) -> None:
        until = time.monotonic() + PATIENCE_S
        caller = PlainCaller(self, 0)
        while time.monotonic() < until:
            told = caller.ask("stats", "GET", ROUTE)
            if told and not sum(told[1][state] for state in ("queued", "processing", "scheduled", "failing")):
                return
            time.sleep(0.2)
        self.fault(f"jobs were left after {PATIENCE_S:g} s without a kill")

    def _account(self) -> None:
        queue: Queue[Any] = Queue.connect(self.address, QUEUE)
        ids = list(self.acknowledged)
        found = dict(zip(ids, queue.status_many(ids, include=["result"]), strict=True))
        self.report.acknowledged = len(ids)
        self.report.completed = len(self.completions)
        counters = queue.stats()["counters"]
        self.report.faults += faults_of(ids, self.completions, found, counters)

    # ── Callers ──────────────────────────────────────────────────────────────
    def _guarded(self, role: Callable[[PlainCaller, str], None], number: int, seed: int) -> None:
        name = f"{role.__name__}-{number}"
        try:
            role(PlainCaller(self, seed), name)
        except Exception as error:  # noqa: BLE001 - told, and the soak ends
            self.fault(f"{name} failed: {error!r}")

    def _produce(self, caller: PlainCaller, name: str) -> None:
        """Bring jobs, each until it is acknowledged: under an id of its own, or a job id that is drawn here."""
        keys = KeySource(MACHINE)
        number = 0
        while not self._closed.is_set():
            if len(self.acknowledged) - len(self.completions) > AHEAD_MAX:
                time.sleep(0.02)
                continue
            number += 1
            drawn = number % 2 == 0
            who = {"job_id": job_id(keys.draw(number % 256)[0])} if drawn else {"id": f"{name}-{number}"}
            job = {"payload": number, "max_attempts": ATTEMPTS_MAX, **who}
            told = caller.until_told("enqueue", f"{ROUTE}/jobs", job)
            if told["job_id"] in self.acknowledged:
                self.fault(f"{who} and another one are both {told['job_id']}")
            self.acknowledged[told["job_id"]] = number

    def _work(self, caller: PlainCaller, name: str) -> None:
        """Claim jobs, and complete them until that is answered."""
        while not self._over.is_set():
            wish = {"worker": name, "limit": caller.chance.randint(1, 10), "wait": 0.5, "lease": LEASE_S}
            told = caller.ask("claim", "POST", f"{ROUTE}/claims", wish)
            if not told or not told[1]["jobs"] or caller.chance.random() < FORGOTTEN_SHARE:
                continue
            held = [(lease["job_id"], lease["token"]) for lease in told[1]["jobs"]]
            results = {job: f"{name} {token}" for job, token in held}
            endings = [{"job_id": job, "token": token, "result": results[job]} for job, token in held]
            done = caller.until_told("complete", f"{ROUTE}/completions", {"completions": endings})
            for each in done["completions"]:
                job, ok = each["job_id"], each["ok"]
                if not ok and each["code"] != "lease_lost":
                    self.fault(f"a completion was answered {each}")
                with self.lock:
                    self.report.late += not ok
                    if ok:
                        self.completions.setdefault(job, []).append(results[job])

    def _ask_for_results(self, caller: PlainCaller, name: str) -> None:
        """Ask for results: what was acknowledged is there, whichever server is asked."""
        while not self._over.is_set():
            with self.lock:
                known = list(self.completions)[-100:]
            if not known:
                time.sleep(0.05)
                continue
            job = caller.chance.choice(known)
            told = caller.ask("result", "GET", f"{ROUTE}/jobs/{job}/result")
            if told and (told[0] != 200 or told[1]["result"] not in self.completions[job]):
                self.fault(f"{job}: {self.completions[job]} was acknowledged, and the result is {told}")


class PlainCaller:
    """Somebody who calls whichever server comes to mind."""

    def __init__(self, soak: KillSoak, seed: int) -> None:
        self.chance = random.Random(seed)
        self._soak = soak
        self._http = urllib3.PoolManager(retries=False, timeout=PATIENCE_S)

    def ask(self, name: str, method: str, path: str, body: Any = None) -> tuple[int, Any] | None:
        """Status and answer of one call; None: there was none, or it may be sent again."""
        soak, server = self._soak, self.chance.choice(self._soak.servers)
        data = None if body is None else json.dumps(body)
        try:
            answer = self._http.request(method, server.url + path, body=data)
        except urllib3.exceptions.HTTPError as error:
            if server.killed:
                with soak.lock:
                    soak.report.broken += 1
            else:
                soak.fault(f"{name}: a server that was not killed broke off: {error!r}")
            return None
        with soak.lock:
            soak.report.answers[f"{name} {answer.status}"] += 1
        if answer.status in PASSING and answer.headers.get("retry-after", "").isdigit():
            return None
        if answer.status not in (200, 202):
            soak.fault(f"{name} was answered {answer.status} {answer.headers}: {answer.data[:500]!r}")
            return None
        return answer.status, answer.json()

    def until_told(self, name: str, path: str, body: Any) -> Any:
        """The answer, however often it takes."""
        until = time.monotonic() + PATIENCE_S
        while (told := self.ask(name, "POST", path, body)) is None:
            if time.monotonic() > until:
                raise TimeoutError(f"no answer for {PATIENCE_S:g} s")
            time.sleep(0.02)
        return told[1]


def faults_of(
    acknowledged: Sequence[str],
    completions: Mapping[str, Sequence[str]],
    found: Mapping[str, Any],
    counters: Mapping[str, int],
) -> list[str]:
    """What is wrong with jobs that were acknowledged, given those that are there in the end.

    Every caller went on until it was answered, so no job was enqueued that none of them knows.
    """
    faults = []
    for job in acknowledged:
        there, results = found[job], set(completions.get(job, ()))
        if there is None:
            faults.append(f"{job}: its enqueue was acknowledged, and it is not there")
        elif len(results) > 1:
            faults.append(f"{job}: {len(results)} completions were acknowledged: {sorted(results)}")
        elif there.state != "completed":
            faults.append(f"{job}: it is {there.state}")
        elif results and there.result not in results:
            faults.append(f"{job}: {results} was acknowledged, and the result is {there.result!r}")
    return faults + [
        f"{counters[name]:,} jobs were {name}, of {len(acknowledged):,} acknowledged"
        for name in ("enqueued", "completed")
        if counters[name] != len(acknowledged)
    ]


def soak(address: str, seconds: float, seed: int) -> KillReport:
    """Kill servers of the store at an address for so long. Jobs are in its queue ``kills``, which is a new one."""
    with TemporaryDirectory(prefix="osqueue-kills-") as folder:
        return KillSoak(address, Path(folder), seed).run(seconds)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.kills", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("address", nargs="?", help="of a store; a folder of its own by default")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to kill (120)")
    parser.add_argument("--seed", type=int, default=1, help="what is killed when, and who calls whom (1)")
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="osqueue-kills-") as folder:
        report = soak(arguments.address or f"file://{folder}/jobs", arguments.seconds, arguments.seed)
    print("\n".join(report.lines()))
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
