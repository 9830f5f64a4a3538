"""What a restored head keeps of the life before, with one part let go of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue.core import event_log, groups, rates
from osqueue.core import restore as core_restore
from osqueue.core.settings import QueueSettings
from osqueue.core.state import NO_STARTS, EventLog, Hold, JobRecord, Starts, State
from osqueue.operations.events import EventReader

from ..ledger import Violation
from ..life_scenes import LIFE_SCENES
from ..repair_scenes import mended
from .control import Control, Detection, in_runs, patched

_holds, _sifted, _rows = groups.of_a_new_life, core_restore._sifted, EventReader._rows


def _none_awaited(
    holds: Mapping[str, Hold], settings: QueueSettings, awaited: Collection[bytes], dead: Iterable[JobRecord]
) -> dict[str, Hold]:
    return _holds(holds, settings, (), dead)


def _none_died(
    holds: Mapping[str, Hold], settings: QueueSettings, awaited: Collection[bytes], dead: Iterable[JobRecord]
) -> dict[str, Hold]:
    return _holds(holds, settings, awaited, ())


def _full(settings: QueueSettings, now_ms: int) -> Starts:
    return NO_STARTS


def _with_tickets(old: State, *rest: Any) -> State:
    return replace(_sifted(old, *rest), tickets=old.tickets)


def _counted_on(log: EventLog, seq: int) -> EventLog:
    return EventLog(log.until_ms, log.end) if log.until_ms else log


def _of_any_life(self: EventReader, shard: int, state: State, most: int) -> Any:
    return _rows(self, shard, replace(state, epoch=self.positions[shard].epoch), most)


def none_awaited() -> AbstractContextManager[None]:
    """No group of a restored head waits for a job that it waited for."""
    return patched((groups, "of_a_new_life", _none_awaited))


def none_died() -> AbstractContextManager[None]:
    """No group of a restored head stops at a job that has died since the backup."""
    return patched((groups, "of_a_new_life", _none_died))


def full_buckets() -> AbstractContextManager[None]:
    """The buckets of a restored head are full."""
    return patched((rates, "spent", _full))


def with_tickets() -> AbstractContextManager[None]:
    """A restored head keeps the tickets of its backup."""
    return patched((core_restore, "_sifted", _with_tickets))


def counted_on() -> AbstractContextManager[None]:
    """Positions of events go on from those of the backup."""
    return patched((event_log, "of_a_new_life", _counted_on))


def of_any_life() -> AbstractContextManager[None]:
    """A cursor counts in every life of its shard."""
    return patched((EventReader, "_rows", _of_any_life))


def in_life(name: str, words: str) -> Detection:
    """A scene of restored heads goes wrong."""

    def look() -> str:
        try:
            mended(LIFE_SCENES[name])
        except Violation as violation:
            return str(violation)
        return ""

    return Detection(name, look, words)


NO_HOLD = "does not wait for its job any more"
CONTROLS: tuple[Control, ...] = (
    Control(
        "a restored group waits for its job",
        none_awaited,
        (in_life("awaited in its copy", NO_HOLD), in_life("put off in its copy", NO_HOLD)),
    ),
    Control("a restored group stops at the dead", none_died, (in_life("died since its copy", NO_HOLD),)),
    Control(
        "restored buckets are empty",
        full_buckets,
        (in_life("started since its copy", "jobs of queue started in"),),
    ),
    Control(
        "tickets end with a life", with_tickets, (in_runs("consumers mended", "outlived its life", seed=3),)
    ),
    Control(
        "positions of a new life are new",
        counted_on,
        (in_runs("events mended", "two transitions|given before", seed=1),),
    ),
    Control("a cursor has its life", of_any_life, (in_runs("events mended", "that was over", seed=3),)),
)
