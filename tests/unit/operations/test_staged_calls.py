"""Calls that stage their jobs themselves: when they do, what becomes of them, and what a crowd of them writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from bench.crowds import measure
from osqueue.commit.effects import All, Pause, QueueFlow, Sleep, Submit
from osqueue.commit.request_status import CommitResult
from osqueue.commit.writer import Head, ShardWriter
from osqueue.core.job_ops import AttachSpans, JobSpec
from osqueue.core.ops import Code, outcome
from osqueue.core.state import Delayed, EventLog, Span, State
from osqueue.errors import Unavailable
from osqueue.model.codecs import JSON, Codec
from osqueue.operations.context import Writers
from osqueue.operations.enqueue import EnqueueFlows
from osqueue.operations.span_merges import SPANS_PER_MERGE
from osqueue.operations.staged_calls import DELAYED_SPANS_STAGED_MAX, stage_call
from osqueue.stores.base import Failed, Put, StoreReply, StoreRequest
from simulation.conditions import Faults
from simulation.machine import VirtualMachine
from simulation.truth import Truth
from simulation.world import World

HOUR_MS = 3_600_000
JOBS = 1_000


class Scene:
    """One writer that has just read a head on which writers collide."""

    def __init__(self) -> None:
        world = World(1, Faults())
        self.truth = Truth(world)
        self.machine = VirtualMachine(world, "w", 1)
        self.writer = ShardWriter("q/0/", "q", self.machine)
        self.writer.observed = False
        self.began = self.machine.monotonic()
        self.state = State(commit=b"\0" * 16, epoch=1, seq=5, hot=8, now_ms=self.machine.now_ms())
        self.submitted: list[Submit] = []

    def stage(self, news: list[JobSpec], code: Code = Code.SCHEDULED) -> Code | None:
        """Stage a call, whose request gets this outcome."""
        self.writer.head = Head(self.state, "v", self.machine.moment())
        writers = Writers(lambda _: self.writer)
        flows = EnqueueFlows("q", Codec(JSON), self.machine, writers, object())
        return self.run(stage_call(flows, news, 0, b"", self.began), code)

    def run(self, flow: QueueFlow[Code | None], code: Code) -> Code | None:
        reply: Any = None
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                done: Code | None = stop.value
                return done
            if isinstance(effect, Submit):
                self.submitted.append(effect)
                reply = CommitResult((outcome([code]),), self.state.now_ms)
            elif isinstance(effect, All):
                reply = tuple(self.truth.perform(each) for each in effect.requests)
            else:
                reply = self.truth.perform(effect)  # type: ignore[arg-type]


def jobs(count: int = JOBS, **fields: Any) -> list[JobSpec]:
    return [
        JobSpec(at.to_bytes(16, "big"), bytes(40), **{"delay_ms": HOUR_MS, **fields}) for at in range(count)
    ]


def spans(count: int) -> tuple[Span, ...]:
    return (Span("segments/000000000001-00-0", 0, 1, 0, 0, 9, 9, b"", b"", due_ms=1),) * count


@pytest.mark.parametrize("delay_ms", [HOUR_MS, 0])
def test_a_call_on_a_contended_head_is_sent_as_one_segment(delay_ms: int) -> None:
    scene = Scene()
    code = Code.SCHEDULED if delay_ms else Code.QUEUED
    assert scene.stage(jobs(delay_ms=delay_ms), code) is code
    ((attach,),) = [each.ops for each in scene.submitted]
    assert isinstance(attach, AttachSpans)
    (span,) = attach.spans
    assert span.count == JOBS
    assert attach.delayed == bool(delay_ms)
    if delay_ms:
        assert span.due_ms >= scene.machine.now_ms() + delay_ms


def test_a_store_that_fails_a_merge_holds_up_no_call_whose_jobs_are_in_the_queue() -> None:
    scene = Scene()
    pauses: list[Sleep] = []
    attached = False

    def perform(request: StoreRequest) -> StoreReply:
        if attached and isinstance(request, Put):
            return Failed(Unavailable("503"))
        return scene.truth.perform(request)

    def gather(own: Span) -> tuple[Span, ...]:
        """Make the own segment the eighth of its size."""
        body = scene.truth.read(f"q/0/{own.name}")
        assert body is not None
        others = [replace(own, name=f"segments/{at}") for at in range(SPANS_PER_MERGE - 1)]
        for other in others:
            scene.truth.perform(Put(f"q/0/{other.name}", body))
        return (*others, own)

    def drive(flow: QueueFlow[Code | None]) -> Code | None:
        nonlocal attached
        reply: Any = None
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            if isinstance(effect, Submit):
                (own,) = effect.ops[0].spans  # type: ignore[union-attr]
                scene.state = replace(scene.state, delayed=Delayed((), gather(own)))
                scene.writer.head = Head(scene.state, "w", scene.machine.moment())
                attached, reply = True, CommitResult((outcome([Code.SCHEDULED]),), scene.state.now_ms)
            elif isinstance(effect, Sleep):
                pauses.append(effect)
                reply = None
            elif isinstance(effect, All):
                reply = tuple(map(perform, effect.requests))
            else:
                reply = perform(effect)  # type: ignore[arg-type]

    scene.writer.head = Head(scene.state, "v", scene.machine.moment())
    flows = EnqueueFlows("q", Codec(JSON), scene.machine, Writers(lambda _: scene.writer), object())
    assert drive(stage_call(flows, jobs(), 0, b"", scene.began)) is Code.SCHEDULED
    assert 0 < len(pauses) < 10
    assert not [each for each in pauses if isinstance(each, Pause)]  # a call waits those with its time-out


def _seen(scene: Scene, **fields: Any) -> list[JobSpec]:
    scene.state = replace(scene.state, **fields)
    return jobs()


def _told(scene: Scene, name: str) -> list[JobSpec]:
    setattr(scene.writer, name, True)
    return jobs()


def _alone(scene: Scene) -> list[JobSpec]:
    scene.writer.shared = False
    return _seen(scene, hot=0)


KEPT: dict[str, Callable[[Scene], list[JobSpec]]] = {
    "few jobs": lambda scene: jobs(100),
    "some of them delayed": lambda scene: [*jobs(), *jobs(delay_ms=0)],
    "two lanes": lambda scene: [*jobs(delay_ms=0), *jobs(delay_ms=0, kind="a")],
    "a group": lambda scene: jobs(delay_ms=0, group="a"),
    "room in the head": lambda scene: jobs(500, delay_ms=0),
    "many delayed segments": lambda scene: _seen(scene, delayed=Delayed((), spans(DELAYED_SPANS_STAGED_MAX))),
    "a listener": lambda scene: _seen(scene, log=EventLog(until_ms=scene.state.now_ms + HOUR_MS)),
    "an observer in the process": lambda scene: _told(scene, "observed"),
    "a store with turns": lambda scene: _told(scene, "turns"),
    "no other writer": _alone,
}


@pytest.mark.parametrize("why", KEPT)
def test_jobs_go_with_the_request_where_staging_gains_nothing(why: str) -> None:
    scene = Scene()
    assert scene.stage(KEPT[why](scene)) is None
    assert not scene.submitted


@pytest.mark.parametrize(
    ("code", "answer"),
    [(Code.STALE, None), (Code.DELAYED_LIMIT, None), (Code.BATCH_OVER, Code.BATCH_OVER)],
)
def test_a_refused_segment_is_sent_again_with_the_request_or_reported(
    code: Code, answer: Code | None
) -> None:
    scene = Scene()
    assert scene.stage(jobs(), code) is answer
    assert len(scene.submitted) == 1


@pytest.mark.parametrize("delayed", [True, False])
def test_a_crowd_of_calls_writes_most_segments_once(delayed: bool) -> None:
    tally = measure(8, 2, JOBS, delayed)
    assert tally.refused == 0
    assert tally.enqueued == 8 * 2 * JOBS + 1
    assert tally.lost < 0.6  # 0.88 where every writer spills


def test_a_writer_alone_sends_the_requests_it_sent_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def after_the_first_call() -> int:
        """The first call does not know yet that no other writer is there."""
        return measure(1, 5, JOBS, delayed=True).requests - measure(1, 1, JOBS, delayed=True).requests

    requests = after_the_first_call()
    monkeypatch.setattr("osqueue.operations.staged_calls.STAGED_BYTES_MIN", 1 << 40)
    assert requests == after_the_first_call()
