"""Bulks of many processes with one check removed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from ... import batches, garbage
from ...batches import Batch, Batches, Known
from ...commit.effects import Flow
from ...core import reduce
from ...core.draft import Draft
from ...core.ops import AttachAll, Code, Op, Outcome, Request, outcome
from ...core.state import State
from ...errors import Unknown
from ...shards import QueueFlow
from ...stores.base import Delete, Put
from .control import Control, dispatched, in_interleavings, in_runs, in_scene, patched


def receipt_ignored() -> AbstractContextManager[None]:
    """Every run of a batch decides anew what it is."""

    def read(self: Any, batch_id: str) -> Flow[Known | None]:
        yield from ()
        return None

    def decide(self: Any, batch: Batch) -> Flow[Known]:
        yield from ()
        return Known(batch, "")

    return patched((Batches, "read", read), (Batches, "decide", decide))


def identity_of_each_run() -> AbstractContextManager[None]:
    """Who sends the requests of a batch speaks with a voice of their own."""

    def identify(self: Any, ops: tuple[Op, ...], state: State) -> Request:
        request = batches.identified(self.machine, state, ops)
        self.env = request.env
        return request

    return patched((batches._FixedWriter, "identify", identify))


def refusals_unspent() -> AbstractContextManager[None]:
    """A bulk that is refused is so by the head as it is, and nothing is written."""
    real = reduce._APPLY[AttachAll]

    def attach_all(draft: Draft, op: AttachAll) -> Outcome:
        before = draft.changed
        answer = real(draft, op)
        if answer.code != Code.QUEUED:
            draft.changed = before
        return answer

    return dispatched(AttachAll, attach_all)


def half_a_bulk() -> AbstractContextManager[None]:
    """The parts of a bulk join one after the other, until one is refused."""

    def attach_all(draft: Draft, op: AttachAll) -> Outcome:
        for part in op.parts:
            answer = reduce._attach(draft, part)
            if answer.code not in (Code.QUEUED, Code.SCHEDULED):
                return answer
        return outcome([Code.QUEUED])

    return dispatched(AttachAll, attach_all)


def staged_collected_at_once() -> AbstractContextManager[None]:
    """What nobody refers to is collected however young it is."""
    return patched((garbage, "born_of", lambda name: 0))


def decided_again() -> AbstractContextManager[None]:
    """What a batch is, the last of its runs decides."""
    return patched((batches, "PutIfAbsent", Put))


def rewritten_whatever_it_says() -> AbstractContextManager[None]:
    """What is left of a batch is written down, even if another run has done so since."""
    return patched((batches, "PutIfMatch", lambda key, body, version: Put(key, body)))


def removed_whatever_it_says() -> AbstractContextManager[None]:
    """A batch that was refused, or is to be forgotten, is removed, even if it is another one by now."""
    return patched((batches, "DeleteIfMatch", lambda key, version: Delete((key,))))


def unknown_counts_as_in() -> AbstractContextManager[None]:
    """A shard has its part if nobody can tell whether it has."""
    real = Batches._commit

    def commit(self: Batches, shard: int, request: Request, batch: Batch) -> QueueFlow[Code]:
        try:
            return (yield from real(self, shard, request, batch))
        except Unknown:
            return Code.QUEUED

    return patched((Batches, "_commit", commit))


def removed_though_partly_in() -> AbstractContextManager[None]:
    """A batch begins anew if any shard refuses its part."""
    real = Batches._refuse

    def refuse(self: Batches, known: Known, refused: Sequence[Any]) -> QueueFlow[None]:
        yield from real(self, replace(known, batch=replace(known.batch, shards=len(refused))), refused)

    return patched((Batches, "_refuse", refuse))


def forgotten_at_any_age() -> AbstractContextManager[None]:
    """A batch is forgotten by the next pass."""
    return patched((batches, "KEPT_MS", 0))


CONTROLS: tuple[Control, ...] = (
    Control(
        "batches decided once",
        decided_again,
        (in_interleavings("two runs of a batch", "joined shard 0 a second time|is done, and it is not"),),
    ),
    Control(
        "batches rewritten conditionally",
        rewritten_whatever_it_says,
        (in_scene("refused in part", "joined shard 1 a second time"),),
    ),
    Control(
        "batches removed conditionally",
        removed_whatever_it_says,
        (
            in_scene("refused and loaded", "ended as if it had never been"),
            in_scene("finished as it is forgotten", "ended as if it had never been"),
        ),
    ),
    Control(
        "batches of which nobody can tell",
        unknown_counts_as_in,
        (in_scene("silent for too long", "says that a batch is done, and it is not"),),
    ),
    Control(
        "batches that are partly in",
        removed_though_partly_in,
        (in_scene("refused in part", "ended as if it had never been"),),
    ),
    Control(
        "batches known for long",
        forgotten_at_any_age,
        (in_scene("known for a while", "ended as if it had never been"),),
    ),
    Control(
        "receipt",
        receipt_ignored,
        (
            in_runs("loads", "joined shard . a second time"),
            in_interleavings("two runs of a batch", "joined shard 0 a second time"),
        ),
    ),
    Control(
        "identity of a batch",
        identity_of_each_run,
        (
            in_runs("loads", "joined shard . a second time"),
            in_interleavings("two runs of a batch", "joined shard 0 a second time"),
        ),
    ),
    Control("collected by age", staged_collected_at_once, (in_runs("loads", "invariant 8", seed=4),)),
    Control(
        "spent refusals",
        refusals_unspent,
        (in_scene("refused and resumed", "ended as if it had never been"),),
    ),
    Control(
        "all or nothing", half_a_bulk, (in_scene("refused and resumed", "bulks of 1 jobs were told of"),)
    ),
)
