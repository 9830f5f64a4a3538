"""Looking at a queue and steering it: listing, cancel, settings, dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import limits, listing, validation
from ..core.ops import Cancel, Code, Configure, Redrive
from ..core.state import FAILED, Settings
from ..errors import Damaged, Rejected, Throttled
from ..job import Job
from ..keys import shard_of
from ..shards import QueueFlow, Submit, read_state, root_of
from ..tombstones import rewrite
from .asking import Asking

CANCEL_TRIES = 20  # looks for a job that moves while it is being cancelled


class Operating(Asking):
    """The flows of operators."""

    def cancel(self, text: str) -> QueueFlow[str]:
        """Cancel a waiting job, ask the worker of a running one."""
        for _ in range(CANCEL_TRIES):
            found = yield from self.locate(text)
            if found is None:
                return "not_found"
            shard, at = shard_of(found.key), found.sighting
            if at.row is not None and not at.expired((yield from self.moment(shard, found.state))):
                return at.state if at.state != FAILED else "not_found"
            if at.row is not None or at.state == FAILED:
                return "not_found"
            op = Cancel(found.key)
            if at.place is not None:
                if len(found.state.tombstones) >= limits.TOMBSTONES_MAX:
                    stage = yield from self.stage(shard)
                    settle = yield from rewrite(root_of(self.queue, shard), found.state, stage)
                    yield Submit(shard, settle)
                    continue
                place = at.place  # the reducer cannot see it there: this is the evidence
                op = Cancel(found.key, place.job, place.top.name, place.offset, place.index)
            answer = yield Submit(shard, (op,))
            code = answer.outcomes[0].code
            if code not in (Code.NOT_FOUND, Code.RETRY):
                return str(code.name.lower())
        raise Throttled("the queue moves too fast to cancel this job just now. Repeat it.")

    def jobs(
        self, state: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> QueueFlow[tuple[list[Job], str | None]]:
        """One page of live jobs and the cursor of the next."""
        count = (yield from self._settings()).shards
        return (yield from listing.page(self.queue, count, state, limit, cursor))

    def stats(self) -> QueueFlow[dict[str, Any]]:
        """Numbers over all shards."""
        count = (yield from self._settings()).shards
        states = []
        for shard in range(count):
            found = yield from read_state(self.queue, shard)
            if found is not None:
                states.append(found)
        return listing.statistics(self.queue, states, self.machine.now_ms())

    def configure(self, **wished: Any) -> QueueFlow[None]:
        """Change settings on every shard; answers when all have them."""
        op = settings_of(wished)
        yield from self.known_queue()
        settings = yield from self._settings()
        if op.shards is not None and op.shards < settings.shards:
            raise Rejected(
                f"shards: the queue has {settings.shards}; their number can only grow, or jobs would be out of reach.",
                field="shards",
            )
        done = 0
        while done < max(
            settings.shards, op.shards or 1
        ):  # again, if somebody else has made it grow meanwhile
            count = done = max(settings.shards, op.shards or 1)
            # The first shard last: it tells everybody how many there are. New ones get all settings there are.
            for shard in reversed(range(count)):
                new = shard >= settings.shards
                yield Submit(shard, (_copy(settings), op) if new else (op,))
            settings = yield from self._settings()

    def _settings(self) -> QueueFlow[Settings]:
        """The queue's settings as they are now."""
        state = yield from read_state(self.queue, 0)
        return state.settings if state is not None else Settings()

    def redrive(
        self,
        limit: int | None = None,
        kinds: Iterable[str] | None = None,
        error: str | None = None,
        dry_run: bool = False,
    ) -> QueueFlow[int]:
        """Queue dead jobs again, the oldest first; answers how many (or how many it would be)."""
        most = validation.whole(limit, "limit", 1, limits.ITEMS_PER_CALL_MAX) if limit is not None else None
        wanted = validation.kinds(kinds)
        part = "" if error is None else validation.text(error, "error", limits.ERROR_CHARS_MAX)
        count = (yield from self._settings()).shards
        moved = 0
        for shard in range(count):
            left = None if most is None else most - moved
            if left == 0:
                break
            if dry_run:
                moved += yield from listing.count_dead(self.queue, shard, wanted, part, left)
            else:
                moved += yield from self._redrive(shard, left, wanted, part)
        return moved

    def _redrive(
        self, shard: int, most: int | None, kinds: tuple[str, ...] | None, error: str
    ) -> QueueFlow[int]:
        state = yield from read_state(self.queue, shard)
        if state is None:
            return 0
        scan, moved = listing.dead_count(state), 0
        while scan > 0 and (most is None or moved < most):
            chunk = min(limits.ITEMS_PER_REQUEST_MAX, scan)
            room = chunk if most is None else min(chunk, most - moved)
            answer = yield Submit(shard, (Redrive(room, chunk, kinds, error),))
            (_, again), (code, looked) = answer.outcomes[0].runs
            moved += again
            scan -= looked
            if code == Code.UNREADABLE:
                raise Damaged(
                    f"{moved} jobs were queued again; the next ones lie in an object that is missing, damaged or of a"
                    " newer format. See docs/operations.md."
                )
            if not looked:
                break
        return moved


def _copy(settings: Settings) -> Configure:
    return Configure(**{field: getattr(settings, field) for field in Configure.__struct_fields__})


_SETTINGS = {
    "backoff_base": ("backoff_base_ms", 1, limits.DAY_MS),
    "backoff_cap": ("backoff_cap_ms", 1, limits.DELAY_MS_MAX),
    "dead_ttl": ("dead_ttl_ms", limits.MINUTE_MS, limits.DELAY_MS_MAX),
}


def settings_of(wished: Mapping[str, Any]) -> Configure:
    """Settings as callers name them, checked. Raises Rejected."""
    fields: dict[str, Any] = {}
    for name, value in wished.items():
        if name in _SETTINGS:
            field, least, most = _SETTINGS[name]
            fields[field] = validation.milliseconds(value, name, least, most)
        elif name == "shards":
            fields["shards"] = validation.whole(value, name, 1, limits.SHARDS_MAX)
        elif name == "paused":
            if not isinstance(value, bool):
                raise Rejected("paused: it is True or False.", field="paused")
            fields["paused"] = value
        else:
            known = ", ".join(sorted([*_SETTINGS, "shards", "paused"]))
            raise Rejected(f"{name}: no such setting. Known: {known}.", field=name)
    return Configure(**fields)
