"""What calls that enqueue 100 and 1,000 jobs cost when 8 writers make them on one shard, in virtual time.

The real flows and the real commit code run in the simulator on S3's measured latencies. Every writer has a head of
its own, as separate processes have, and calls ``enqueue_many`` back to back. Lost are the bytes of segments that were
sent for a swap that another writer won: no committed head ever named them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bench.due import names
from bench.row import BenchOptions, Figure, at_most, ratio
from osqueue.commit.effects import AwaitNews, Flow, QueueFlow, RemoteRequest, Submit
from osqueue.commit.protocol import commit
from osqueue.commit.writer import HEAD, ShardWriter
from osqueue.core.audit import spans_of
from osqueue.core.encoding import decode_head
from osqueue.model.codecs import JSON, Codec
from osqueue.objects.layout import root_of
from osqueue.operations.context import Writers
from osqueue.operations.enqueue import EnqueueFlows
from osqueue.stores.base import Found, Put, PutIfAbsent, PutIfMatch, StoreReply, StoreRequest
from simulation.conditions import S3, Faults
from simulation.machine import VirtualMachine
from simulation.network import Network
from simulation.truth import Truth
from simulation.world import Deliver, Process, World

QUEUE = "bench"
ROOT = root_of(QUEUE, 0)
SEGMENTS = f"{ROOT}segments/"
LATENCY = replace(S3, bytes_per_second=50e6)  # of one connection
WRITERS = 8
CALLS = 20  # of each writer
NOTE_BYTES = 60  # of a payload
DELAY_SECONDS = 3_600
SPREAD_SECONDS = 86_400
CALL_SECONDS_MAX = 120.0
SECONDS_MAX = 3_600.0
LOST_MAX = 0.10
STAGED_JOBS_MIN = 1_000  # of a call, for which the goal is meant


class CallTally(Struct, kw_only=True):
    """What one crowd of calls came to."""

    calls: int = 0
    refused: int = 0  # jobs
    enqueued: int = 0  # jobs, by the newest head
    seconds: float = 0.0
    staged: int = 0  # bytes of segments sent
    sent: int = 0  # bytes of every kind
    read: int = 0  # bytes
    requests: int = 0
    objects: dict[str, int] = {}  # bytes of each segment stored
    named: set[str] = set()  # segments that some head named
    spans: int = 0  # delayed, most in one head

    @property
    def committed(self) -> int:
        """Bytes of segments that some committed head named."""
        return sum(size for name, size in self.objects.items() if name in self.named)

    @property
    def lost(self) -> float:
        """The share of the bytes sent in segments that no head ever named."""
        return 1 - ratio(self.committed, self.staged) if self.staged else 0.0


def run(options: BenchOptions) -> Iterator[Figure]:
    """Measure each size of a call, delayed and at once, by one writer and by the crowd."""
    most = max(4, int(CALLS * options.scale))
    late = ((True, 1_000, most // 4), (True, 1_000, most))
    for delayed, jobs, calls in ((False, 100, most), (False, 1_000, most), (True, 100, most), *late):
        what = f"{jobs:,} {'delayed jobs' if delayed else 'jobs'} a call"
        for writers in (1, WRITERS):
            tally = measure(writers, calls, jobs, delayed)
            title = f"{what}, {writers} writer{'s' * (writers > 1)}"
            mb = f"{tally.staged / 1e6:,.1f} MB staged, {tally.committed / 1e6:,.1f} MB committed"
            note = f"{mb}, {tally.sent / 1e6:,.1f} MB sent, {tally.read / 1e6:,.1f} MB read"
            lost = f"{title}, lost"
            if jobs >= STAGED_JOBS_MIN:
                yield at_most(lost, tally.lost, LOST_MAX, "of the staged bytes", note)
            else:
                yield Figure(lost, tally.lost, "of the staged bytes", note=note)
            each = f"{tally.requests / tally.calls:,.1f} requests a call, {tally.spans} delayed segments"
            yield Figure(f"{title}, {tally.calls} calls", tally.seconds, "s", note=each)


def measure(writers: int, calls: int, jobs: int, delayed: bool, seed: int = 1) -> CallTally:
    """Let each writer make its calls."""
    world = World(seed, Faults(), events_max=10**9)
    truth = Truth(world)
    network = Network(world, truth, LATENCY)
    tally = CallTally()

    def watch(request: StoreRequest, key: str, body: bytes) -> None:
        if key.startswith(SEGMENTS):
            tally.objects[key] = len(body)
        elif key == ROOT + HEAD:
            state = decode_head(body)
            tally.named |= set(names(truth, spans_of(state), ROOT))
            tally.enqueued = state.counters.enqueued
            tally.spans = max(tally.spans, len(state.delayed.spans))

    def send(request: StoreRequest, deliver: Deliver) -> None:
        if isinstance(request, Put | PutIfAbsent | PutIfMatch):
            tally.sent += len(request.body)
            tally.staged += len(request.body) if request.key.startswith(SEGMENTS) else 0
        tally.requests += 1

        def count(reply: StoreReply) -> None:
            tally.read += len(reply.body) if isinstance(reply, Found) else 0
            deliver(reply)

        network.send(request, count)

    truth.watchers.append(watch)
    opener = VirtualMachine(world, "opener", seed)
    Process(world, send, producer(opener, tally, 1, 1, False)).start()
    world.run(lambda: tally.calls == 1, SECONDS_MAX)
    world.run(lambda: False, 10.0)
    began = world.now
    tally = CallTally()
    for at in range(writers):
        machine = VirtualMachine(world, f"w{at}", seed)
        Process(world, send, producer(machine, tally, calls, jobs, delayed)).start(machine.uniform() / 10)
    world.run(lambda: tally.calls == writers * calls, SECONDS_MAX)
    tally.seconds = world.now - began
    return tally


def producer(machine: VirtualMachine, tally: CallTally, calls: int, jobs: int, delayed: bool) -> Flow[None]:
    """Enqueue that many jobs a call."""
    writers = Writers(lambda _: ShardWriter(ROOT, QUEUE, machine))
    writers[0].observed = False  # no observer in this process
    flows = EnqueueFlows(QUEUE, Codec(JSON), machine, writers, object())
    for _ in range(calls):
        items: list[dict[str, Any]] = [
            {"payload": f"{machine.bits(4 * NOTE_BYTES):0{NOTE_BYTES}x}"} for _ in range(jobs)
        ]
        if delayed:
            for item in items:
                item["delay"] = DELAY_SECONDS + machine.uniform() * SPREAD_SECONDS
        done = yield from performed(flows.enqueue_many(items), writers, machine)
        tally.refused += sum(each.error is not None for each in done)
        tally.calls += 1


def performed(flow: QueueFlow[Any], writers: Writers, machine: VirtualMachine) -> Flow[Any]:
    """Run one of the library's flows over the commit layer."""
    value: Any = None
    while True:
        try:
            effect = flow.send(value)
        except StopIteration as stop:
            return stop.value
        if isinstance(effect, Submit):
            deadline = machine.monotonic() + CALL_SECONDS_MAX
            value = yield from commit(writers[effect.shard], effect.ops, deadline)
        else:
            assert not isinstance(effect, AwaitNews | RemoteRequest)
            value = yield effect
