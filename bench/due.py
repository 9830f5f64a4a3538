"""What jobs that become due cost 8 writers on one shard: bytes of segments, and the share of them that is garbage.

In virtual time on S3's latencies, with the real commit code: delayed jobs in a staged bulk become due at once, more of
them than the head holds. Each writer enqueues, or claims and completes, back to back. Garbage is what no committed head
ever named: staged for a swap that was lost. Also how long a writer alone needs until it can claim the last of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from bench.row import BenchOptions, Figure, at_most, ratio
from osqueue.commit.effects import Flow, Sleep
from osqueue.commit.protocol import commit
from osqueue.commit.writer import ShardWriter
from osqueue.core.audit import spans_of
from osqueue.core.encoding import decode_head, decode_index, encode_segment, staged_name
from osqueue.core.job_ops import AttachSpans, ClaimJobs, CompleteJobs, Completion, EnqueueJobs, JobSpec
from osqueue.core.state import JobRecord, Span
from osqueue.stores.base import Put, StoreRequest
from simulation.conditions import S3, Faults
from simulation.machine import VirtualMachine
from simulation.network import Network
from simulation.truth import Truth
from simulation.world import Process, World

ROOT = "bench/0/"
SEGMENTS = f"{ROOT}segments/"
WRITERS = 8
JOBS = 20_000
SEGMENTS_COUNT = 4
PAYLOAD = bytes(200)
DUE_SECONDS = 5.0
SECONDS_MAX = 3_600.0
KB = 1024
GARBAGE_MAX = 0.10


class DueTally(Struct):
    """What was written, until the last due job had left the delayed segments, or was claimed."""

    written: int = 0  # bytes of segments, however often one was
    objects: dict[str, int] = {}  # bytes of each
    named: set[str] = set()  # those that some head named
    seconds: float = 0.0
    commits: int = 0

    @property
    def garbage(self) -> float:
        """The share of the bytes in segments that no head ever named."""
        lost = sum(size for name, size in self.objects.items() if name not in self.named)
        return ratio(lost, sum(self.objects.values())) if self.objects else 0.0


def run(options: BenchOptions) -> Iterator[Figure]:
    jobs = max(1_000, int(JOBS * options.scale))
    crowd = measure(WRITERS, jobs, workers=WRITERS // 2)
    note = f"{crowd.commits:,} commits in {crowd.seconds:,.0f} s"
    stored = sum(crowd.objects.values())
    yield Figure(f"{WRITERS} writers, segments sent", crowd.written / jobs, "bytes a due job", note=note)
    yield Figure(f"{WRITERS} writers, segments stored", stored / jobs, "bytes a due job")
    yield at_most(f"{WRITERS} writers, garbage of what is stored", crowd.garbage, GARBAGE_MAX, "of the bytes")
    alone = measure(1, jobs, workers=1)
    note = f"{alone.commits:,} commits"
    yield Figure("a worker alone, to claim them all", alone.seconds, "s", note=note)
    yield Figure("a worker alone, segments sent", alone.written / jobs, "bytes a due job")


def measure(writers: int, jobs: int, workers: int, seed: int = 1) -> DueTally:
    """Let writers go on until all jobs have left the delayed segments and, where all of them work, have ended."""
    world = World(seed, Faults(), events_max=10**9)
    truth = Truth(world)
    network = Network(world, truth, S3)
    tally = DueTally()
    done = False

    def watch(request: StoreRequest, key: str, body: bytes) -> None:
        nonlocal done
        if key.startswith(SEGMENTS):
            tally.objects[key] = len(body)
        elif key == f"{ROOT}head":
            state = decode_head(body)
            tally.commits = state.seq
            tally.named |= set(names(truth, spans_of(state)))
            waits = state.delayed.spans or state.delayed.jobs
            done = not waits and state.seq > 2 and (workers < writers or state.counters.completed >= jobs)

    def send(request: StoreRequest, deliver: object) -> None:
        if isinstance(request, Put) and request.key.startswith(SEGMENTS):
            tally.written += len(request.body)
        network.send(request, deliver)  # type: ignore[arg-type]

    truth.watchers.append(watch)
    machine = VirtualMachine(world, "bulk", seed)
    Process(world, send, bulk(machine, jobs)).start()
    world.run(lambda: tally.commits > 0, 60.0)
    tally.written, tally.objects = 0, {}
    for at in range(writers):
        machine = VirtualMachine(world, f"w{at}", seed)
        program = work(machine) if at < workers else produce(machine)
        Process(world, send, program).start(DUE_SECONDS)
    world.run(lambda: done, SECONDS_MAX)
    tally.seconds = world.now - DUE_SECONDS
    return tally


def names(truth: Truth, spans: Iterator[Span], root: str = ROOT) -> Iterator[str]:
    """Every segment and index that these lead to."""
    for span in spans:
        yield root + span.name
        if span.level and (data := truth.read(root + span.name)) is not None:
            yield from names(truth, iter(decode_index(data, span.name)), root)


def key_of(machine: VirtualMachine) -> bytes:
    return machine.now_ms().to_bytes(6, "big") + machine.bits(80).to_bytes(10, "big")


def bulk(machine: VirtualMachine, jobs: int) -> Flow[None]:
    """Attach delayed jobs, in several segments that become due side by side."""
    writer = ShardWriter(ROOT, "bench", machine)
    now = machine.now_ms()
    spans = []
    for part in range(SEGMENTS_COUNT):
        late = [
            JobRecord(key_of(machine), PAYLOAD, now, due_ms=now + int(DUE_SECONDS * 1000) + at // 100)
            for at in range(jobs // SEGMENTS_COUNT)
        ]
        name = staged_name("segments", 1, machine.bits(64), part)
        data, span = encode_segment(late, name)
        yield Put(ROOT + name, data)
        spans.append(span)
    yield from commit(writer, (AttachSpans(0, "", tuple(spans), delayed=True),), machine.monotonic() + 60.0)


def produce(machine: VirtualMachine) -> Flow[None]:
    """Enqueue a job, again and again."""
    writer = ShardWriter(ROOT, "bench", machine)
    while True:
        op = EnqueueJobs((JobSpec(key_of(machine), PAYLOAD),))
        yield from commit(writer, (op,), machine.monotonic() + 60.0)


def work(machine: VirtualMachine) -> Flow[None]:
    """Claim ten jobs and complete them with the next claim, again and again."""
    writer = ShardWriter(ROOT, "bench", machine)
    ended: tuple[Completion, ...] = ()
    while True:
        ops = (
            (CompleteJobs(ended), ClaimJobs(10, machine.name(), 60_000))
            if ended
            else (ClaimJobs(10, machine.name(), 60_000),)
        )
        answer = yield from commit(writer, ops, machine.monotonic() + 60.0)
        leases = answer.outcomes[-1].leases
        ended = tuple(Completion(lease.job.key, lease.token) for lease in leases)
        if not leases:
            yield Sleep(0.2)
