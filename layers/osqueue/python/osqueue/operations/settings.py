"""Looking at a queue and steering it: listing, cancel, settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import asdict, replace

from .. import limits
from ..commit.effects import QueueFlow, Submit
from ..core.drop_rules import preview
from ..core.groups import home_of
from ..core.job_ops import RunJobNow, SpanSwap
from ..core.ops import Code, Op
from ..core.queue_ops import CancelJobs, ChangeSettings, RecordEvents
from ..core.settings import QueueSettings
from ..core.state import FAILED, FAILING, QUEUED, SCHEDULED
from ..errors import Damaged, Rejected, Throttled
from ..model import validation
from ..model.batch import batch_key
from ..model.job import Job
from ..model.job_filter import JobFilter, JobPage, job_filter_of
from ..model.job_options import OPTIONS
from ..model.keys import key_of, shard_of
from ..model.reports import CancelledMany
from ..model.settings import change_of
from ..objects import listing, segment_rewrite
from ..objects.layout import is_registered, read_state, root_of
from .results import ResultFlows

CANCEL_TRIES = 20  # looks for a job that moves while it is being cancelled


class SettingsFlows(ResultFlows):
    """The flows of operators."""

    def cancel(self, text: str) -> QueueFlow[str]:
        """Cancel a waiting job, ask the worker of a running one."""
        for _ in range(CANCEL_TRIES):
            found = yield from self.locate(text)
            if found is None:
                return "not_found"
            shard, at = shard_of(found.key), found.location
            if at.row is not None:
                return "not_found" if at.expired((yield from self.moment(shard, found.state))) else at.state
            if at.state == FAILED:
                return FAILED
            settled: tuple[Op, ...] = ()
            if at.place is not None and segment_rewrite.many_tombstones(found.state):
                stage = yield from self.stage(shard)
                settled = yield from segment_rewrite.settle_tombstones(
                    root_of(self.queue, shard), found.state, stage
                )
                if settled and segment_rewrite.tombstones_full(
                    found.state
                ):  # first there has to be some room
                    yield Submit(shard, settled)
                    continue
            answer = yield Submit(shard, (at.evidence, *settled))
            code = answer.outcomes[0].code
            if code not in (Code.NOT_FOUND, Code.RETRY):
                return str(code.name.lower())
        raise Throttled("the queue moves too fast to cancel this job just now. Repeat it.")

    def cancel_many(
        self,
        kinds: Iterable[str] | None = None,
        group: str | None = None,
        enqueued_before: datetime | float | None = None,
        dry_run: bool = False,
        batch: str | None = None,
    ) -> QueueFlow[CancelledMany]:
        """Cancel all that match and wait, shard by shard, and ask those that run; or only count them."""
        op = cancel_of(kinds, group, enqueued_before, batch)
        total = CancelledMany()
        for shard in range((yield from self._settings()).shards):
            if op.batch and shard != shard_of(op.batch):  # where all its jobs are
                continue
            state = yield from read_state(self.queue, shard)
            if state is None:
                continue
            if dry_run:
                total += CancelledMany(*preview(state, op))
                continue
            answer = yield Submit(shard, (op,))
            outcome = answer.outcomes[0]
            if outcome.code == Code.CROWDED:
                done = ", those before it are done" if shard and not op.batch else ""
                raise Throttled(
                    f"{limits.DROP_RULES_MAX} calls like this are still at work in shard {shard}{done}. A reap brings"
                    " them on: repeat it then."
                )
            total += CancelledMany(*[count for _, count in outcome.runs])
        return total

    def run_now(self, text: str) -> QueueFlow[str]:
        """Let a delayed job be claimable at once; answers its state, "not_found" where there is no such job."""
        for _ in range(CANCEL_TRIES):
            found = yield from self.located_now(text)
            if found is None:
                return "not_found"
            shard, at = shard_of(found.key), found.location
            if at.row is not None:
                return "not_found" if at.expired((yield from self.moment(shard, found.state))) else at.state
            if at.state not in (SCHEDULED, FAILING):
                return at.state
            op = RunJobNow(found.key)
            if at.place is not None:  # the reducer cannot see it there: this is the evidence
                root, stage = root_of(self.queue, shard), (yield from self.stage(shard))
                stage.born = max(stage.born, found.state.seq)  # not older than the span that it replaces
                fresh, dropped = yield from segment_rewrite.span_without(
                    root, at.place.top, (found.key,), stage, segment_rewrite.marked(root, stage)
                )
                if not dropped:
                    continue
                op = RunJobNow(found.key, at.place.job, SpanSwap(at.place.top, fresh))
            answer = yield Submit(shard, (op,))
            code = answer.outcomes[0].code
            if code == Code.OK:
                return QUEUED
            if code not in (Code.NOT_FOUND, Code.RETRY, Code.STALE):
                return str(code.name.lower())
        raise Throttled("the queue moves too fast to find this job just now. Repeat it.")

    def jobs(
        self, state: str | None = None, limit: int = 100, cursor: str | None = None, **wished: Any
    ) -> QueueFlow[tuple[list[Job], str | None]]:
        """One page of live jobs and the cursor of the next."""
        page = yield from self.job_page(state, limit, cursor, **wished)
        return page.jobs, page.cursor

    def job_page(
        self, state: str | None, limit: int, cursor: str | None, **wished: Any
    ) -> QueueFlow[JobPage]:
        """The same, and how far the page has looked: only where jobs that match can be."""
        which = job_filter_of(self.machine.now_ms(), **wished)
        shards = () if which.id is not None else _shards_of(which, (yield from self._settings()))
        page = yield from listing.page(self.queue, shards, state, limit, cursor, which)
        if which.id is None:
            return page
        found = yield from self.located_now(which.id)
        if found is None or (yield from self._expired(found)):
            return page
        job = found.location.view()
        there = state in (None, job.state) and which.matches(job)
        return JobPage([job] if there else [], None, 1)

    def stats(self) -> QueueFlow[dict[str, Any]]:
        """Numbers over all shards."""
        count = (yield from self._settings()).shards
        states = []
        for shard in range(count):
            found = yield from read_state(self.queue, shard)
            if found is not None:
                states.append(found)
            elif shard or (yield from is_registered(self.queue)):
                raise Damaged(
                    f"queue {self.queue}: shard {shard} has no head: it is lost, or the first enqueue never came"
                    " through. 'osqueue doctor' tells which, and what to do before anybody enqueues."
                )
        return listing.statistics(self.queue, states, self.machine.now_ms())

    def configure(self, **wished: Any) -> QueueFlow[None]:
        """Change settings on every shard; answers when all have them."""
        op = change_of(wished)
        settings, recorded = yield from self._settings_and_record()
        if op.shards is not None and op.shards < settings.shards:
            raise Rejected(
                f"shards: the queue has {settings.shards}; their number can only grow, or jobs would be out of reach.",
                field="shards",
            )
        _refuse_small_limits(settings, op)
        if op.limiter:
            from .lending import refuse_missing

            yield from refuse_missing(op.limiter)
        yield from self.known_queue()
        if op.group_shards is not None or op.groups:
            op = yield from self._of_groups(settings, op)
        done = 0
        while done < max(
            settings.shards, op.shards or 1
        ):  # again, if somebody else has made it grow meanwhile
            count = done = max(settings.shards, op.shards or 1)
            op = replace(op, recorded=recorded)
            # The first shard last: it tells everybody how many there are. New ones get all settings there are.
            for shard in reversed(range(count)):
                op = replace(op, shard=shard)
                ops: tuple[Op, ...] = (op,)
                if shard >= settings.shards:
                    record = (RecordEvents(),) if recorded else ()
                    ops = (*record, ChangeSettings(**_copied(settings), recorded=recorded), op)
                answer = yield Submit(shard, ops)
                if answer.outcomes[-1].code == Code.RETRY:  # somebody has begun to listen meanwhile
                    done = 0
                if answer.outcomes[-1].code == Code.CROWDED and op.groups:
                    raise Throttled(
                        f"groups: {limits.GROUP_HOLDS_MAX:,} of a shard are paused or wait for a job, or"
                        f" {limits.GROUP_SETTINGS_MAX} have settings of their own. Resume some, or let go of what some"
                        " have: configure_group('old', running=None, rate=None, burst=None)."
                    )
                if answer.outcomes[-1].code == Code.CROWDED and op.consumers:
                    raise Rejected(
                        f"consumers: {limits.CONSUMERS_MAX} of a queue at most. Detach one: consumers={{'old': None}}.",
                        field="consumers",
                    )
                if answer.outcomes[-1].code == Code.CROWDED:
                    raise Rejected(
                        f"kinds: {limits.KINDS_MAX} kinds at most have settings of their own. Drop one: kinds={{'old':"
                        " None}.",
                        field="kinds",
                    )
            settings, recorded = yield from self._settings_and_record()

    def configure_group(self, group: str, wished: Mapping[str, Any]) -> QueueFlow[None]:
        """Change what one group has of its own, in the shard where it is at home."""
        yield from self.configure(groups={group: wished})

    def _of_groups(self, settings: QueueSettings, op: ChangeSettings) -> QueueFlow[ChangeSettings]:
        """The same change, as it holds for groups that are spread over some shards for good."""
        wished = op.group_shards
        if wished is not None and wished > max(settings.shards, op.shards or 1):
            raise Rejected(f"group_shards: the queue has {settings.shards} shards.", field="group_shards")
        if wished is None or settings.group_shards:
            wished = settings.group_shards or (yield from self.group_shards())
        if op.group_shards not in (None, wished):
            raise Rejected(
                f"group_shards: groups are spread over {wished} already, and their jobs are there. Use a new queue.",
                field="group_shards",
            )
        return replace(op, group_shards=wished)

    def _settings(self) -> QueueFlow[QueueSettings]:
        """The queue's settings as they are now."""
        return (yield from self._settings_and_record())[0]

    def _settings_and_record(self) -> QueueFlow[tuple[QueueSettings, bool]]:
        """The same, and whether the queue records its transitions."""
        state = yield from read_state(self.queue, 0)
        return (QueueSettings(), False) if state is None else (state.settings, state.log.until_ms > 0)


def _shards_of(which: JobFilter, settings: QueueSettings) -> Iterable[int]:
    """Where jobs like this can be."""
    places = set(range(settings.shards))
    if which.batch is not None:
        places &= {shard_of(key_of(which.batch))}
    if which.group is not None:
        places &= {home_of(which.group, settings.group_shards)}
    return sorted(places)


def _copied(settings: QueueSettings) -> dict[str, Any]:
    """What another shard gets of settings: those of single groups hold where they are at home."""
    return {name: value for name, value in asdict(settings).items() if name != "overrides"}


def _refuse_small_limits(settings: QueueSettings, op: ChangeSettings) -> None:
    """Each shard has its share of a running limit: one of 0 would let its jobs wait for ever."""
    shards = max(settings.shards, op.shards or 1)
    kinds = {row.kind: row.max_running for row in settings.kinds if row.kind not in op.kinds_dropped}
    kinds |= {row.kind: row.max_running for row in op.kinds if row.max_running is not None}
    wished = {"max_running": settings.max_running if op.max_running is None else op.max_running}
    wished |= {f"kinds: {kind!r}: max_running": most for kind, most in kinds.items() if most is not None}
    consumers = [row for row in settings.consumers if row.name not in op.consumers_dropped]
    for row in (*consumers, *op.consumers):
        wished[f"consumers: {row.name!r}: max_concurrency"] = row.max_concurrency
    for name, most in wished.items():
        if 0 < most < shards:
            raise Rejected(
                f"{name}: {most} over {shards} shards would leave some of them none, and their jobs would never run."
                f" Allow {shards} at least, or use a queue of fewer shards.",
                field=name.partition(":")[0],
            )


def cancel_of(kinds: Any, group: Any, enqueued_before: Any, batch: Any = None) -> CancelJobs:
    """What is to be cancelled, checked. Raises Rejected."""
    names = validation.kinds(kinds)
    if names is not None and len(names) > limits.DROP_RULE_KINDS_MAX:
        raise Rejected(
            f"kinds: {len(names)}; name {limits.DROP_RULE_KINDS_MAX} at most in one call.", field="kinds"
        )
    whose = None if group is None else OPTIONS["group"].read(group)
    if whose == "":
        raise Rejected("group: name one, or leave it out for jobs of any and of none.", field="group")
    before = 0
    if enqueued_before is not None:
        before = max(1, validation.moment_ms(enqueued_before, "enqueued_before", limits.AT_MS_MAX))
    return CancelJobs(names, whose, before, b"" if batch is None else batch_key(batch))
