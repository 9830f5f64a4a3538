"""Scenes of removals: who uses a queue while it is removed, and what becomes of the jobs that were accepted.

They have no head to judge by, since heads are what is removed. So a scene ends with a look through the eyes of a new
process: every job that was accepted and not removed can be claimed, no job of which its caller was told that nothing
was done, and the queue is known by name.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

from osqueue.commit.effects import All
from osqueue.core.encoding import is_removal_mark
from osqueue.errors import Conflict, OsqueueError
from osqueue.maintenance import removal
from osqueue.objects.layout import read_state, registered, root_of
from osqueue.queue.blocking import Queue
from osqueue.stores.base import (
    Delete,
    DeleteIfMatch,
    Get,
    List,
    Put,
    PutIfMatch,
    Refused,
    StoreReply,
    StoreRequest,
)
from osqueue.stores.memory import MemoryStore

from .conditions import ANNOUNCING
from .ledger import Violation
from .tight import limited

QUEUE = "scene"
HEAD = root_of(QUEUE, 0) + "head"
TRIES = 12  # calls of a process that has to hear what became of its queue, once for each shard

Flow = Generator[Any, Any, Any]


class OverheardStore(MemoryStore):
    """A store at which somebody acts beside a request, or answers it instead."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[StoreRequest], StoreReply | None] = lambda request: None
        self.after: Callable[[StoreRequest], object] = lambda request: None

    def perform(self, request: StoreRequest) -> StoreReply:
        """The reply to a request."""
        reply = self.before(request) or super().perform(request)
        self.after(request)
        return reply


class RemovalStage:
    """A store, and processes that use it."""

    def __init__(self, shards: int = 1) -> None:
        self.store = OverheardStore()
        self.operator = self.process()
        self.operator.configure(shards=shards)
        self.accepted: set[str] = set()
        self.denied: set[str] = set()  # payloads of which a caller was told that nothing was done
        self.sent = 0

    def process(self) -> Queue[Any]:
        """A process that knows nothing of the queue yet."""
        return Queue(self.store, QUEUE)

    def enqueue(self, process: Queue[Any], tries: int = 1, **options: Any) -> None:
        """Enqueue, once or until it is accepted."""
        for _ in range(tries):
            self.sent += 1
            payload = f"job {self.sent}"
            try:
                done = process.enqueue(payload, **options)
            except Conflict:
                self.denied.add(payload)
                continue
            except OsqueueError:
                continue
            if done.status == "queued" and done.job_id is not None:
                self.accepted.add(done.job_id)
                return

    def remove(
        self, when: Callable[[Any], bool] = lambda effect: False, act: Callable[[], Any] = int
    ) -> None:
        """Look, and remove; once, before the first effect that is wished, somebody acts."""
        found = self.operator._run(removal.look(QUEUE))
        before, self.accepted = self.accepted, set()
        try:
            self.operator._run(_interrupted(removal.remove(found, self.operator.machine, True), when, act))
        except Conflict:
            if found.heads[0].state is not None and self.epoch() == found.heads[0].state.epoch:
                self.accepted |= before  # it was left as it was, and did not begin again

    def epoch(self) -> int | None:
        """Of the first head; None: nobody can read it."""
        try:
            state = self.operator._run(read_state(QUEUE, 0))
        except OsqueueError:
            return None
        return None if state is None else state.epoch

    def judge(self) -> None:
        """Raises Violation where a job that was accepted is nowhere."""
        names = self.operator._run(registered())
        if self.accepted and names != [QUEUE]:
            raise Violation("the queue has jobs, and is not in the register")
        process = self.process()
        try:
            leases = [lease for _ in range(TRIES) for lease in process.claim(100)]
        except OsqueueError as error:
            raise Violation(f"nobody can use the queue: {error.message}") from None
        if lost := self.accepted - {lease.job_id for lease in leases}:
            raise Violation(f"{len(lost)} accepted jobs are nowhere")
        if denied := self.denied & {lease.payload for lease in leases}:
            raise Violation(f"{len(denied)} jobs are there of which a caller was told that nothing was done")


def _interrupted(flow: Flow, when: Callable[[Any], bool], act: Callable[[], Any]) -> Flow:
    reply: Any = None
    acted = False
    while True:
        try:
            effect = flow.send(reply)
        except StopIteration as stop:
            return stop.value
        if not acted and when(effect):
            acted = True
            act()
        reply = yield effect


def _stopped(flow: Flow, when: Callable[[Any], bool]) -> Flow:
    """Run a flow until an effect that is wished; answers that effect."""
    reply: Any = None
    while not when(effect := flow.send(reply)):
        reply = yield effect
    return effect


def _resumed(flow: Flow, effect: Any) -> Flow:
    """The rest of a flow that was stopped at an effect."""
    with suppress(StopIteration):
        while True:
            effect = flow.send((yield effect))


# ── When somebody acts ───────────────────────────────────────────────────────
def asked(effect: Any) -> bool:
    """The store is asked whether heads may be deleted: everything was shown, nothing is marked."""
    return isinstance(effect, DeleteIfMatch) and effect.version == removal.NO_VERSION


def deleted(effect: Any) -> bool:
    """The first objects are about to be deleted."""
    return isinstance(effect, Delete) and HEAD not in effect.keys


def listed(effect: Any) -> bool:
    """All heads are marked, and what there is is about to be listed."""
    return isinstance(effect, All) and isinstance(effect.requests[0], List)


def marked(effect: Any) -> bool:
    """All heads are marked, and those of other shards are about to be looked for."""
    return isinstance(effect, All) and isinstance(effect.requests[0], Get)


def unlisted(effect: Any) -> bool:
    """The name is about to leave the register."""
    return isinstance(effect, Delete) and effect.keys == (f"queues/{QUEUE}",)


# ── Scenes ───────────────────────────────────────────────────────────────────
def used_since_it_was_shown(stage: RemovalStage) -> None:
    """A job is accepted after the queue was shown."""
    caller = stage.process()
    stage.enqueue(caller)
    stage.remove(asked, lambda: stage.enqueue(caller))


def used_while_it_is_deleted(stage: RemovalStage) -> None:
    """A job is enqueued, under the id of an old one, while objects are being deleted."""
    caller = stage.process()
    stage.enqueue(caller, id="a")
    stage.remove(deleted, lambda: stage.enqueue(stage.process(), id="a"))


def used_while_it_is_unlisted(stage: RemovalStage) -> None:
    """A job is enqueued just before the queue leaves the register."""
    stage.enqueue(stage.process())
    stage.remove(unlisted, lambda: stage.enqueue(stage.process()))


def removed_by_two(stage: RemovalStage) -> None:
    """Another removal comes to its end, and the queue begins again, before the first one lists what it deletes."""
    stage.enqueue(stage.process())

    def take_and_begin() -> None:
        other = stage.process()
        other._run(removal.remove(other._run(removal.look(QUEUE)), other.machine, False))
        stage.enqueue(stage.process(), id="a")

    stage.remove(listed, take_and_begin)


def changed_in_its_last_shard(stage: RemovalStage) -> None:
    """The last head changes once the others are marked."""
    stage.operator.configure(shards=3)
    caller = stage.process()
    for _ in range(3):
        stage.enqueue(caller)
    last = root_of(QUEUE, 2) + "head"

    def is_last(effect: Any) -> bool:
        return getattr(effect, "key", "") == last and not isinstance(effect, Get | DeleteIfMatch)

    def change() -> None:
        found: Any = stage.store.perform(Get(last))
        stage.store.perform(Put(last, found.body))  # as a commit would: another version

    stage.remove(is_last, change)


def put_back_at_a_second_try(stage: RemovalStage) -> None:
    """The same, and the store refuses at first to put a head back, as it may where two write at once."""
    marks: list[StoreRequest] = []

    def refuse_once(request: StoreRequest) -> StoreReply | None:
        if isinstance(request, PutIfMatch) and request.key == HEAD:
            if is_removal_mark(request.body):
                marks.append(request)
            elif marks:
                stage.store.before = lambda request: None
                return Refused()
        return None

    stage.store.before = refuse_once
    changed_in_its_last_shard(stage)


def announced_before_the_marks(stage: RemovalStage) -> None:
    """A caller has announced its operation when it meets a mark; then the head is put back, for a shard was added."""
    caller, other, operator = stage.process(), stage.process(), stage.operator
    empty: Any = stage.store.perform(Get(HEAD))
    stage.enqueue(caller)
    removals: list[tuple[Flow, Any]] = []

    def win_first(request: StoreRequest) -> None:
        if isinstance(request, PutIfMatch) and request.key == HEAD:
            stage.store.before, stage.store.after = lambda request: None, begin_to_remove
            stage.enqueue(other)

    def begin_to_remove(request: StoreRequest) -> None:
        if isinstance(request, Put) and request.key.startswith("intents/"):
            stage.store.after = lambda request: None
            flow = removal.remove(operator._run(removal.look(QUEUE)), operator.machine, True)
            removals.append((flow, operator._run(_stopped(flow, marked))))

    with limited(ANNOUNCING):
        stage.store.before = win_first
        stage.enqueue(caller)
        (stopped,) = removals
        stage.store.perform(Put(root_of(QUEUE, 1) + "head", empty.body))
        with suppress(Conflict):
            operator._run(_resumed(*stopped))
        operator.reap()  # which finishes what was announced


def grown_beside_the_marks(stage: RemovalStage) -> None:
    """A process that adds shards dies after its first commit, when the queue was shown."""

    def grow() -> None:
        found: Any = stage.store.perform(Get(HEAD))
        stage.store.perform(Put(root_of(QUEUE, 2) + "head", found.body))

    stage.remove(asked, grow)
    heads = stage.operator._run(removal.look(QUEUE)).heads
    if heads[0].version is None and any(head.version for head in heads):
        raise Violation("a shard of a removed queue is left")


def known_from_before(stage: RemovalStage) -> None:
    """A process that knew the queue goes on as if nothing had happened."""
    caller = stage.process()
    stage.enqueue(caller)
    stage.remove()
    stage.enqueue(caller, TRIES)


def known_with_more_shards(stage: RemovalStage) -> None:
    """A process that knew more shards meets a queue of the same name that has but one."""
    stage.operator.configure(shards=4)
    caller = stage.process()
    stage.enqueue(caller)
    stage.remove()
    stage.enqueue(stage.process())
    for _ in range(TRIES):
        stage.enqueue(caller)


SCENES: dict[str, Callable[[RemovalStage], None]] = {
    "used since it was shown": used_since_it_was_shown,
    "used while it is deleted": used_while_it_is_deleted,
    "used while it is unlisted": used_while_it_is_unlisted,
    "removed by two": removed_by_two,
    "changed in its last shard": changed_in_its_last_shard,
    "put back at a second try": put_back_at_a_second_try,
    "announced before the marks": announced_before_the_marks,
    "grown beside the marks": grown_beside_the_marks,
    "known from before": known_from_before,
    "known with more shards": known_with_more_shards,
}


def play(name: str) -> RemovalStage:
    """Play a scene, and judge what it left. Raises Violation."""
    stage = RemovalStage()
    SCENES[name](stage)
    stage.judge()
    return stage
