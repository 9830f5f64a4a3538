"""Who purges jobs, and what may be read of them afterwards.

Every job carries a secret of its own, in its payload, its results, its errors and its records. Once a purge says
that the job is gone, nothing that the head, its backups or the archive lead to may hold it; once garbage was
collected, no object at all.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from osqueue.commit.effects import All, Flow
from osqueue.core.encoding import decode_head
from osqueue.errors import Damaged
from osqueue.objects.archive import ROOT as ARCHIVE
from osqueue.objects.backups import folder_of, is_purge
from osqueue.objects.inventory import walk

from .ledger import Violation
from .truth import Truth

if TYPE_CHECKING:
    from .invariants import Invariants

_VEIL = 0x5A  # a blank row keeps the job's key, so the secret is not part of it


def secret_of(key: bytes) -> bytes:
    """What nobody may read any more once the job is purged: sixteen letters."""
    return bytes(each ^ _VEIL for each in key[8:]).hex().encode()


def found(inv: Invariants, names: Iterable[str], key: bytes) -> list[str]:
    """The objects of these in which a job's secret can be read.

    Where contents lie beside the head only rows tell: those of a job that was forgotten stay for as long as what
    lies beside them in one object.
    """
    secret = secret_of(key)
    holders = []
    for name in names:
        data = inv.truth.read(name)
        if key in inv.adrift and name.startswith(f"{inv.root}bodies/"):
            continue
        if data is not None and secret in (gzip.decompress(data) if name.endswith(".gz") else data):
            holders.append(name)
    return holders


def reachable(inv: Invariants) -> set[str]:
    """Whatever the head and its backups lead to, these themselves, and the archive."""
    truth, state = inv.truth, inv.state
    assert state is not None
    backups = [name for name in truth.keys(folder_of(inv.queue, inv.shard)) if not is_purge(name)]
    states = []
    for name in backups:
        try:
            states.append(decode_head(truth.read(name) or b""))
        except Damaged:
            continue
    met = [_run(truth, walk(inv.root, each, deep=True)).names for each in (state, *states)]
    below = {inv.root + name for names in met for name in names}
    return {inv.root + "head", *backups, *truth.keys(ARCHIVE), *below}


def _run(truth: Truth, flow: Flow[Any]) -> Any:
    """A flow that takes no time."""
    reply: Any = None
    try:
        while True:
            effect = flow.send(reply)
            if isinstance(effect, All):
                reply = tuple(truth.perform(each) for each in effect.requests)
            else:
                assert not hasattr(effect, "seconds"), "nobody waits here"
                reply = truth.perform(effect)
    except StopIteration as stop:
        return stop.value


def check(inv: Invariants, key: bytes) -> None:
    """Nothing of a purged job can be read where anything leads."""
    if holders := found(inv, sorted(reachable(inv)), key):
        raise Violation(f"{key.hex()} was purged, and can be read in {', '.join(holders)}")
