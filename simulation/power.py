"""Power cuts: what a folder's store and its queue promised is kept by whatever the disk is left with.

Several processes use a queue in a folder, on the model of a disk, and come between one another at every system
call. Before each flush of a folder, or of what was written in place, and with each answer, it is asked what a power
cut would leave now: all of it old, all new, some single thing different, and some at random. That is enough for every
other moment: what may be left then may be left until the next flush as well, and by then no less has been promised.
(The flush of a file, which has no key yet, takes nothing away that matters.) Processes are killed, too.

Of what is left:

* An object whose write was answered is there, or what was written or deleted later. So is one that was read for an
  answer: whoever was told of it relies on it.
* All that the head refers to is there, whole.
* No version comes twice while the machine runs.

Now and then the power really goes. New processes then go on with what was left, and in the end every job that was
accepted is found, and none that was completed is there to be done.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from osqueue import Queue
from osqueue.commit.effects import All, AwaitNews, Effect, Flow, Sleep
from osqueue.commit.writer import HEAD
from osqueue.core.encoding import decode_head
from osqueue.election.blocking import Election
from osqueue.errors import OsqueueError
from osqueue.objects.inventory import walk
from osqueue.objects.layout import root_of
from osqueue.queue.lease import LeaseBase
from osqueue.stores import file_slots
from osqueue.stores.base import (
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    Missing,
    PutIfAbsent,
    PutIfMatch,
    StoreReply,
    StoreRequest,
    Written,
)
from osqueue.stores.file import FileStore
from osqueue.stores.file_slots import HEADER_BYTES

from .baton import Killed, PowerCut, Turns
from .conditions import TIGHT
from .disk import BLOCK_BYTES, Disk, File, Folder, Slot
from .ledger import Violation
from .machine import EPOCH_MS, VirtualMachine, source
from .posix import Posix, running
from .relied import NOTHING, KeyHistory, PromiseStore, Value
from .slots import read_by_store, shown
from .tight import limited

QUEUE = "power"
FOLDER = "/srv/jobs"
LOCKS = f"{FOLDER}/.osqueue/locks"
ROOT = root_of(QUEUE, 0)
PROCESSES = 4
ROUNDS = 12  # calls of each process, until the power goes
BOOTS = 3
SINGLES_MAX = 6  # slots that are looked at one by one, at each moment
SHARES_NEW = (0.2, 0.5, 0.8)  # of the slots, where all are at random
CUT = 0.007  # of all moments, at which the power really goes
KEPT_SECONDS = 3_600.0  # results outlive the run
NAME_SECONDS = 0.5  # for so long callers use one id, then all of them another
TICK_MS = 100  # the machine's clock stands still for so long, and then jumps

R = TypeVar("R")


class PowerReport(Struct):
    """What a run came to."""

    seed: int
    looks: int = 0  # moments at which it was asked what would be left
    left: int = 0  # disks that a power cut could have left
    cuts: int = 0  # of the power
    kills: int = 0  # of processes
    in_place: int = 0  # versions that were written in place
    calls: Counter[str] = Counter()  # that were answered
    violation: str = ""


def power_cuts(seed: int) -> PowerReport:
    """One run. A violation ends it and stands in the report."""
    run = PowerRun(seed)
    with limited(TIGHT), tight_slots():
        try:
            run.work()
        except (
            Violation,
            OsqueueError,
        ) as violation:  # a disk without faults has no error to tell of, in the end
            run.report.violation = str(violation)
    return run.report


@contextmanager
def tight_slots() -> Iterator[None]:
    """Slots of new files are soon outgrown."""
    real = file_slots.slot_bytes_for
    file_slots.slot_bytes_for = lambda body: (
        -(-(len(body) * 5 // 4 + HEADER_BYTES) // BLOCK_BYTES) * BLOCK_BYTES
    )
    try:
        yield
    finally:
        file_slots.slot_bytes_for = real


class _Machine(VirtualMachine):
    """A machine on which waiting gives others a turn, and whose wall clock is a coarse one."""

    def __init__(self, turns: Turns, name: str, seed: object) -> None:
        super().__init__(turns, name, seed)
        self._turns = turns

    def sleep(self, seconds: float) -> None:
        self._turns.pause(seconds)

    def now_ms(self) -> int:
        return _tick(self._turns.now)

    def name(self) -> str:
        return "somebody"


def _tick(now: float) -> int:
    """What the machine's clock shows, milliseconds since the Unix epoch."""
    return EPOCH_MS + int(now * 1000) // TICK_MS * TICK_MS


class PowerRun:
    """One machine, its disk, and the queue in a folder on it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.report = PowerReport(seed, calls=Counter())
        self.chance = source("power", seed)
        self.accepted: set[str] = set()  # jobs whose enqueue was answered
        self.completed: set[str] = set()
        self.ids: dict[str, str] = {}
        self.violation: Violation | None = None
        self.boots = 0
        self.after: Disk | None = None  # what the latest power cut left
        self.disk = Disk()
        self._boot(0.0)

    def _boot(self, now: float) -> None:
        self.boots += 1
        self.turns = Turns(self.chance, now)
        self.turns.kills = True
        self.history = KeyHistory(ROOT + HEAD)
        self.posix = Posix(self.disk, lambda: _tick(self.turns.now) * 1_000_000)
        for path, each in self.disk.files():
            if not _is_own(path):
                body, version = _shown(each)
                self.history.add(_key(path), Value(body, True), version)
                self.history.floor[_key(path)] = 1
        self._name_head()
        self.posix.named = self._named
        self.posix.written = self._written
        self.posix.owner = self.turns.running
        self.posix.turn = self.turns.call
        self.posix.before_flush = self.flush

    # ── The course of a run ──────────────────────────────────────────────────
    def work(self) -> None:
        """Processes at work, as often as the machine is started; then what is left of the work."""
        while True:
            for at in range(PROCESSES):
                self.turns.start(partial(self._processes, at))
            with running(self.posix):
                self.turns.run()
            if self.violation is not None:
                raise self.violation
            if self.after is None:
                break
            self.disk, self.after = self.after, None
            self._boot(self.turns.now + 60.0)
        self.posix.before_flush = lambda node: None
        self.turns.kills = False
        with running(self.posix), suppress(PowerCut):  # with which a violation ends whatever runs
            PowerProcess(self, "end").account()
        if self.violation is not None:
            raise self.violation

    def _processes(self, at: int) -> None:
        """A process, and another whenever it is killed."""
        for life in itertools.count():
            try:
                return PowerProcess(self, f"{self.boots}.{at}.{life}").program()
            except Killed:
                self.report.kills += 1
                self.posix.end(self.turns.running())
                self.turns.revive()

    # ── Watching ─────────────────────────────────────────────────────────────
    def _named(self, path: str, file: File | None) -> None:
        """A path stands for something else now."""
        if _is_own(path):
            return
        if file is None:
            self._note(path, NOTHING, None)
        else:
            body, version = _shown(file)
            self._note(path, Value(body, file.flushed == file.data), version)

    def _written(self, file: File) -> None:
        """A file was changed in place, and may show another version now."""
        body, version = _shown(file)
        for path, each in self.disk.files():
            if each is file and not _is_own(path) and (_key(path), version) not in self.history.at:
                self.report.in_place += 1
                self._note(path, Value(body, True), version)

    def _note(self, path: str, value: Value, version: str | None) -> None:
        """A path stands for this from now on."""
        try:
            self.history.add(_key(path), value, version)
            if path == f"{FOLDER}/{ROOT}{HEAD}":
                self._name_head()
        except Violation as violation:
            self._fail(violation)

    def _name_head(self) -> None:
        """Find out what the head refers to."""
        body = self._read(Get(ROOT + HEAD))
        if isinstance(body, Found):
            met = self._now(walk(ROOT, decode_head(body.body), deep=True))
            for trouble in met.broken.values():
                raise Violation(f"the head was written before what it refers to: {trouble}")
            self.history.names[body.body] = frozenset(ROOT + name for name in met.names)

    def _now(self, flow: Flow[R]) -> R:
        """Run a flow that only reads, on the disk as it is, without a turn for anybody."""
        reply: Any = None
        while True:
            try:
                effect: Effect = flow.send(reply)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            if isinstance(effect, Sleep):
                reply = None
            elif isinstance(effect, All):
                reply = tuple(self._read(each) for each in effect.requests)
            else:
                reply = self._read(effect)

    def _read(self, request: StoreRequest) -> StoreReply:
        assert isinstance(request, Get)
        if not self.posix.exists(f"{FOLDER}/{request.key}"):
            return Missing()
        file = self.disk.find(f"{FOLDER}/{request.key}")
        assert isinstance(file, File)
        start = request.start or 0
        end = None if request.length is None else start + request.length
        body, version = _shown(file)
        return Found(body[start:end], version, 0)

    def flush(self, node: File | Folder) -> None:
        """Something is about to be flushed."""
        if node.past:
            self.look()

    def look(self) -> None:
        """What would a power cut leave now?"""
        self.report.looks += 1
        left = self.disk
        try:
            for choose in self._cuts():
                left = self._judged(self.disk.survivor(choose))
        except Violation as violation:
            self._fail(violation)
        if self.boots < BOOTS and self.chance.random() < CUT:
            self.report.cuts += 1
            self.after = left
            self.turns.switch_off()

    def _cuts(self) -> list[Callable[[Slot, int], int]]:
        slots: dict[Slot, int] = {}

        def newest(slot: Slot, count: int) -> int:
            slots[slot] = count
            return count - 1

        self.disk.survivor(newest)
        self.disk.survivor(lambda slot, count: slots.setdefault(slot, count) and 0)
        found = [newest, lambda slot, count: 0]
        for single in self.chance.sample(list(slots), min(SINGLES_MAX, len(slots))):
            found.append(
                _but(single, lambda count: self.chance.randrange(count - 1), lambda count: count - 1)
            )
            found.append(_but(single, lambda count: self.chance.randrange(1, count), lambda count: 0))
        return found + [
            _mixed(self.chance, share) for share in self.chance.sample(SHARES_NEW, len(SHARES_NEW))
        ]

    def _judged(self, left: Disk) -> Disk:
        self.report.left += 1
        files = [(path, file) for path, file in left.files() if not _is_own(path)]
        found = {_key(path): read_by_store(file.data, file.mtime_ns) for path, file in files}
        self.history.judge(found)
        return left

    def _fail(self, violation: Violation) -> None:
        self.violation = self.violation or violation
        self.turns.switch_off()


def _but(single: Slot, this: Callable[[int], int], rest: Callable[[int], int]) -> Callable[[Slot, int], int]:
    return lambda slot, count: this(count) if slot == single else rest(count)


def _mixed(chance: random.Random, share: float) -> Callable[[Slot, int], int]:
    """Each slot is new with this probability, or as it was once."""
    return lambda slot, count: count - 1 if chance.random() < share else chance.randrange(count)


class _PatientQueue(Queue[Any]):
    """A queue whose callers wait in virtual time. Nobody here wakes them."""

    def _await(self, effect: AwaitNews) -> None:
        self.machine.sleep(effect.seconds)


class PowerProcess:
    """A process that uses the queue, in calls that block."""

    def __init__(self, run: PowerRun, name: str) -> None:
        self.run = run
        self.dice = source("power", run.seed, name)
        machine = _Machine(run.turns, name, f"power/{run.seed}")
        store = FileStore(FOLDER, machine=machine, network=True)
        self.store = PromiseStore(store, run.history)
        self.queue: Queue[Any] = _PatientQueue(self.store, QUEUE, machine=machine)
        self.machine = machine
        self.leases: Sequence[LeaseBase[Any]] = ()

    def program(self) -> None:
        """One call after the other."""
        choices = (
            *[self.enqueue] * 2,
            *[self.under_an_id] * 3,
            *[self.work] * 3,
            self.look,
            self.reap,
            self.remove,
            *[self.tidy] * 2,
        )
        for _ in range(ROUNDS):
            self.machine.sleep(self.dice.expovariate(2.0))
            self.dice.choice(choices)()

    def call(self, name: str, call: Callable[[], R]) -> R | None:
        """What was answered, which is relied on from now on; None for an error."""
        self.store.relied.clear()
        try:
            answer = call()
        except OsqueueError as error:
            self.run.report.calls[f"{name}: {error.code}"] += 1
            return None
        self.store.answered(name)
        self.run.report.calls[name] += 1
        self.run.look()
        return answer

    # ── Calls ────────────────────────────────────────────────────────────────
    def enqueue(self) -> None:
        """Some jobs, small and large."""
        jobs = [{"payload": "x" * self.dice.choice((3, 90))} for _ in range(self.dice.choice((1, 1, 2, 12)))]
        options = {"result_ttl": KEPT_SECONDS, "max_attempts": 100}
        done = self.call("enqueue", lambda: self.queue.enqueue_many([{**job, **options} for job in jobs]))
        self.run.accepted.update(each.job_id for each in done or () if each.job_id is not None)

    def under_an_id(self) -> None:
        """A job that others want as well, and all get."""
        self.under(f"name{self.run.turns.now // NAME_SECONDS:.0f}")

    def under(self, name: str) -> None:
        """A job under this id."""
        done = self.call(
            "id",
            lambda: self.queue.enqueue(name, id=name, result_ttl=KEPT_SECONDS, max_attempts=100),
        )
        if done is not None and done.job_id is not None:
            self.run.accepted.add(done.job_id)
            known = self.run.ids.setdefault(name, done.job_id)
            if known != done.job_id:
                self.run._fail(Violation(f"{name} was promised to be {known}, and became {done.job_id}"))

    def tidy(self) -> None:
        """Remove the lock files, as an operator may who takes them for leftovers."""
        with suppress(FileNotFoundError), self.run.posix.scandir(LOCKS) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    self.run.posix.unlink(entry.path)

    def stand(self) -> None:
        """Take one step in an election."""
        election = Election(self.store, QUEUE, "somebody", machine=self.machine)
        self.call("campaign", election.campaign)

    def work(self) -> None:
        """Claim, and complete most of it."""
        leases: Sequence[LeaseBase[Any]] = (
            self.call("claim", lambda: self.queue.claim(self.dice.choice((1, 5)))) or ()
        )
        for lease in leases:
            self._not_again(lease.job_id)
        for lease in leases:
            if self.dice.random() < 0.8:
                result = "y" * self.dice.choice((1, 150))
                self.complete(lease, result)

    def complete(self, lease: Any, result: str) -> None:
        """Complete a job."""
        if self.call("complete", lambda: (lease.complete(result), True)) is not None:
            self.run.completed.add(lease.job_id)

    def claim_all(self) -> None:
        """Claim whatever is there."""
        self.leases = self.call("claim", lambda: self.queue.claim(20)) or ()

    def complete_all(self) -> None:
        """Complete it."""
        for lease in self.leases:
            self.complete(lease, "done")

    def wait(self) -> None:
        """Wait for the result of a job that others do."""
        self.call("wait", lambda: self.queue.enqueue_and_wait("known", id="known", timeout=60))

    def look_for_nothing(self) -> None:
        """Claim what is not there."""
        self.call("claim", lambda: self.queue.claim(kinds=["none"]))

    def look(self) -> None:
        """Ask for a job."""
        if self.run.accepted:
            job_id = self.dice.choice(sorted(self.run.accepted))
            completed = job_id in self.run.completed  # before it is asked
            job = self.call("status", lambda: self.queue.status(job_id))
            if job is not None and completed and job.state != "completed":
                self.run._fail(Violation(f"{job_id} was completed, and is {job.state}"))

    def reap(self) -> None:
        """Move what is finished on, and collect garbage. Nobody relies on what it says."""
        self.store.relied.clear()
        try:
            self.queue.reap()
            self.run.report.calls["reap"] += 1
        except OsqueueError as error:
            self.run.report.calls[f"reap: {error.code}"] += 1

    def remove(self) -> None:
        """Replace something, and take it away, which must stay away, as a purge does, and as ids are freed."""
        key = f"ids/of-others/{self.machine.bits(64):016x}"
        written = self._written(PutIfAbsent(key, b"x"))
        for _ in range(2):
            written = self._written(PutIfMatch(key, b"y", written.version))
        self.store.perform(DeleteIfMatch(key, written.version))
        self.run.look()

    def _written(self, request: PutIfAbsent | PutIfMatch) -> Written:
        """Perform a write that no other process disturbs. Raise its error, which is a violation here."""
        reply = self.store.perform(request)
        if isinstance(reply, Failed):
            raise reply.error
        assert isinstance(reply, Written), f"{request.key}: {reply}"
        return reply

    def _not_again(self, job_id: str) -> None:
        if job_id in self.run.completed:
            self.run._fail(Violation(f"{job_id} was completed, and is claimed again"))

    # ── The end ──────────────────────────────────────────────────────────────
    def account(self) -> None:
        """Every job that was accepted is there, and is completed once."""
        self.machine.sleep(600.0)  # every lease is over
        while leases := self.queue.claim(20):
            for lease in leases:
                if lease.job_id in self.run.completed:
                    raise Violation(f"{lease.job_id} was completed, and is claimed again")
                self.queue.complete_many([lease])
                self.run.completed.add(lease.job_id)
        for job_id in sorted(self.run.accepted):
            job = self.queue.status(job_id)
            if job is None or job.state != "completed":
                raise Violation(f"{job_id} was accepted, and is lost: {job}")


def _is_own(path: str) -> bool:
    """Is it the store's own: a lock, or a file that no key names?"""
    return not path.startswith(f"{FOLDER}/") or path.startswith(f"{FOLDER}/.osqueue/")


def _key(path: str) -> str:
    return path.removeprefix(f"{FOLDER}/")


def _shown(file: File) -> tuple[bytes, str]:
    """What a file holds, and its version."""
    body, version = shown(file.data)
    return body, version or f"{file.mtime_ns:x}-{file.number:x}"
