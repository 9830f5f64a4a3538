"""Looking at a queue and steering it: status, listing, cancel, settings, dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import limits, listing, validation
from ..core.ops import Cancel, Code, Configure, Redrive
from ..core.state import FAILED, Settings, State
from ..errors import Damaged, Rejected, Throttled
from ..job import Job
from ..keys import key_of, shard_of
from ..segments import find
from ..shards import QueueFlow, Submit, read_state, root_of
from ..tombstones import rewrite
from .context import Context

CANCEL_TRIES = 20  # looks for a job that moves while it is being cancelled


class Operating(Context):
    """The flows of operators, and of callers who ask about their jobs."""

    def status(self, text: str) -> QueueFlow[Job | None]:
        """The job as the committed state shows it, or None."""
        key = key_of(text)
        state = yield from self._state(shard_of(key))
        if state is None:
            return None
        return (yield from listing.find_job(root_of(self.queue, shard_of(key)), state, key))

    def _state(self, shard: int) -> QueueFlow[State | None]:
        if shard >= limits.SHARDS_MAX:
            return None
        return (yield from read_state(self.queue, shard))

    def cancel(self, text: str) -> QueueFlow[str]:
        """Cancel a waiting job, ask the worker of a running one."""
        key = key_of(text)
        shard = shard_of(key)
        root = root_of(self.queue, shard)
        op = Cancel(key)
        for _ in range(CANCEL_TRIES):
            state = yield from self._state(shard)
            if state is None:
                return "not_found"
            answer = yield Submit(shard, (op,))
            code = answer.outcomes[0].code
            if code not in (Code.NOT_FOUND, Code.RETRY):
                return str(code.name.lower())
            # Not in the head itself: find the record in the backlog, and cancel it there by its evidence.
            state = yield from read_state(self.queue, shard)
            assert state is not None
            if len(state.tombstones) >= limits.TOMBSTONES_MAX:
                settle = yield from rewrite(root, state, (yield from self.stage(shard)))
                yield Submit(shard, settle)
                continue
            place = yield from find(root, listing.waiting_spans(state), key)
            if place is not None and key not in state.tombstones:
                op = Cancel(key, place.job, place.top.name, place.offset, place.index)
                continue
            found = yield from listing.find_job(root, state, key)
            if found is None or found.state == FAILED:
                return "not_found"
            op = Cancel(key)
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
        op = _configure(wished)
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


def _configure(wished: Mapping[str, Any]) -> Configure:
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
