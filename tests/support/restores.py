"""A shard that is driven by hand, put back to a backup: its segments are copied as the flow would do it."""

from __future__ import annotations

from typing import Any

from osqueue.core.audit import imbalances, spans_of
from osqueue.core.encoding import decode_head, decode_index, encode_head, encode_segment
from osqueue.core.restore import (
    BackupFilter,
    Evidence,
    JobEnding,
    RestoreLoss,
    RestoreSeed,
    restore,
    seq_after,
)
from osqueue.core.state import PastAttempt, Span, State


def bring_back(shard: Any, backup: State, seen: int = 0, **known: Any) -> RestoreLoss:
    """Restore it; ``known``: fields of the evidence."""
    evidence = Evidence(tables=known.pop("tables", backup.tables), **known)
    seq = seq_after([backup.seq, seen])
    sieve = BackupFilter(evidence, seq, backup)
    chance = shard.chance
    life = RestoreSeed(
        seq, backup.seq, chance.getrandbits(64), chance.randbytes(16), chance.getrandbits(64), shard.now
    )
    spans: dict[str, tuple[Span, ...]] = {}
    for span in spans_of(backup):
        fresh = []
        for at, leaf in enumerate(leaves(shard, span, sieve)):
            dead = span in backup.dead.spans
            jobs = sieve.keep(shard.inside(leaf), tombstones=backup.tombstones, dead=dead)
            if jobs:
                name = f"segments/{backup.seq:012x}-{len(spans):016x}-{at:x}"
                shard.objects[name], pointer = encode_segment(jobs, name)
                fresh.append(pointer)
        spans[span.name] = tuple(fresh)
    made = restore(backup, life, evidence, sieve, spans)
    shard.objects.update((item.name, item.body) for item in made.objects)
    shard.state = decode_head(encode_head(made.state))
    assert imbalances(shard.state) == []
    shard.checked = False  # jobs dropped with cause are no longer as many as were counted in
    return made.loss


def leaves(shard: Any, span: Span, sieve: BackupFilter) -> list[Span]:
    """The segments below a pointer that are there."""
    if span.name in sieve.evidence.gone:
        sieve.miss(span)
        return []
    if span.level == 0:
        return [span]
    children = decode_index(shard.objects[span.name], span.name)
    return [leaf for child in children for leaf in leaves(shard, child, sieve)]


def ended(state: str, run: int, history: tuple[PastAttempt, ...] = ()) -> JobEnding:
    """How a job ended."""
    return JobEnding(state, run, 1, history)
