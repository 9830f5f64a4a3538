"""What a worker says to its queue: claims, heartbeats and endings, as flows that block or await alike.

Whatever is said at the same time about the same shard goes in one commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..commit.effects import QueueFlow, Submit
from ..commit.request_status import CommitResult
from ..errors import Rejected
from ..model.job import Done
from ..model.validation import error_details
from ..operations.claims import ClaimResult, lease_lost
from .job import WorkerJob
from .logs import log, log_failure
from .outcomes import RunAborted, RunCompleted, RunFailed, RunOutcome, RunReleased, RunThrottled, Tally

ShardChoice = int | None  # a shard, or None for those who speak to all of them
Ended = tuple[WorkerJob[Any], RunOutcome]
Answered = Done | Exception
ClaimWish = tuple[int, Sequence[str] | None]  # up to so many jobs, of which kinds


class WorkerReporter:
    """One worker's counter at one queue."""

    def __init__(self, queue: Any, name: str | None, lease: float) -> None:
        self._flows = queue._flows
        self._apart = queue.transport is None  # over an API the shards are its own affair
        self.machine = queue.machine
        self.name = name
        self.lease = lease  # seconds

    @property
    def claims_ride(self) -> bool:
        """Does a claim cost nothing beside endings? Over an API it is a call of its own."""
        return self._apart

    def place(self, job: WorkerJob[Any]) -> ShardChoice:
        """Where endings and heartbeats of a job are reported. A place that does not answer delays no other."""
        return job.key[15] if self._apart else 0

    def claims_at(self) -> ShardChoice:
        """Where claims are made: a queue of one shard hears them together with the endings."""
        return None if self._apart and self._flows.shards_seen() > 1 else 0

    def turn(
        self, ended: Sequence[Ended], claims: Sequence[ClaimWish]
    ) -> QueueFlow[tuple[list[Answered], list[ClaimResult | Exception]]]:
        """Say how jobs ended and claim new ones: up to so many of some kinds, or of any; answers each item, each claim.

        An exception in place of an answer means that nobody knows yet: say it again later.
        """
        asking = [self._flows.claim(limit, self.name, 0, self.lease, kinds) for limit, kinds in claims]
        return self.turn_with(ended, asking)

    def turn_with(
        self, ended: Sequence[Ended], claims: Sequence[QueueFlow[ClaimResult]]
    ) -> QueueFlow[tuple[list[Answered], list[ClaimResult | Exception]]]:
        """The same with claims that are made already."""
        groups: dict[Any, list[int]] = {}
        for at, (_, ending) in enumerate(ended):
            groups.setdefault(_group(ending), []).append(at)
        flows = [self._say([ended[at] for at in places]) for places in groups.values()]
        answers = yield from submit_together([*flows, *claims])
        done: dict[int, Answered] = {}
        for places, answer in zip(groups.values(), answers[: len(groups)], strict=True):
            for order, at in enumerate(places):
                done[at] = answer if isinstance(answer, Exception) else answer[order]
        return [done[at] for at in range(len(ended))], answers[len(groups) :]

    def _say(self, ended: Sequence[Ended]) -> QueueFlow[list[Done]]:
        """Endings of one group; one that the queue rejects fails its own job and no other."""
        try:
            return (yield from self._write(ended))
        except Rejected as error:
            if len(ended) > 1:
                found = []
                for each in ended:
                    found.extend((yield from self._say([each])))
                return found
            job, ending = ended[0]
            if isinstance(ending, RunFailed):
                raise  # it is plain text already: nothing to put in its place
            return (yield from self._write([(job, RunFailed(error_details(error)))]))

    def _write(self, ended: Sequence[Ended]) -> QueueFlow[list[Done]]:
        held = [(job.key, job.token) for job, _ in ended]
        endings: list[Any] = [ending for _, ending in ended]
        flows = self._flows
        done: list[Done]
        match ended[0][1]:
            case RunCompleted():
                results = [(*who, each.result) for who, each in zip(held, endings, strict=True)]
                done = yield from flows.complete_many(results)
            case RunFailed(retry_in=retry_in, retry=retry):
                errors = [(*who, each.error) for who, each in zip(held, endings, strict=True)]
                done = yield from flows.fail_many(errors, retry_in, retry)
            case RunReleased(delay=delay, until=until):
                done = yield from flows.release_many(held, delay, until)
            case RunThrottled(seconds=seconds, scope=scope, why=why):
                done = yield from flows.throttle_many(held, seconds, scope, why)
            case RunAborted(why=why):
                done = yield from flows.abort_many(held, why)
        return done

    def beat(self, jobs: Sequence[WorkerJob[Any]]) -> QueueFlow[list[WorkerJob[Any]]]:
        """Extend leases, all in one commit; answers the jobs whose lease is lost."""
        sent_at = self.machine.monotonic()
        answers = yield from self._flows.heartbeat_many([job.beat() for job in jobs])
        lost = []
        for job, done in zip(jobs, answers, strict=True):
            if not done.ok:
                lost.append(job)
                continue
            job.extended(sent_at)
            if done.cancel_requested:
                job.cancelled.set()
        return lost

    def beat_one(self, job: WorkerJob[Any]) -> QueueFlow[None]:
        """A heartbeat that a handler asked for. Raises LeaseLost."""
        if job.lease_lost or (yield from self.beat([job])):
            job.lease_lost.set()
            raise lease_lost(job.job_id)


def resulting_state(ending: RunOutcome, done: Done) -> str:
    """What an ending made of its job: completed, failing, failed, cancelled, released, lost; stale: say it again."""
    if not done.ok:
        return "stale" if done.code == "stale" else "lost"
    if done.code in ("failing", "failed", "cancelled"):
        return done.code
    return "completed" if isinstance(ending, RunCompleted) else "released"


def hear(
    ended: Sequence[Ended], answers: Sequence[Answered], tally: Tally, traceback: bool = False
) -> tuple[list[Ended], Exception | None]:
    """Count what became of endings; answers those to be said again, and what kept the queue from hearing them."""
    again: list[Ended] = []
    problem: Exception | None = None
    for (job, ending), done in zip(ended, answers, strict=True):
        if isinstance(done, Rejected):
            log.error("job %s: its ending was rejected: %s", job.job_id, done)
            tally.lost += 1
        elif isinstance(done, Exception):
            problem = done
            again.append((job, ending))
        elif (name := resulting_state(ending, done)) == "stale":  # staged too long ago, or nobody can tell
            again.append((job, ending))
        elif name == "lost":
            count_lost(job, tally)
        else:
            setattr(tally, name, getattr(tally, name) + 1)
            if isinstance(ending, RunFailed) and name in ("failing", "failed"):
                log_failure(job, ending, name, traceback)
    return again, problem


def count_lost(job: WorkerJob[Any], tally: Tally) -> None:
    """A lease was lost, and with it what its handler did."""
    if job.timed_out:  # the queue keeps the job's limit as well, and was faster
        if job.attempt < job.max_attempts:
            tally.failing += 1
        else:
            tally.failed += 1
        return
    tally.lost += 1
    log.warning("job %s: the lease of attempt %d was lost; its result is discarded", job.job_id, job.attempt)


def _group(ending: RunOutcome) -> Any:
    match ending:
        case RunCompleted():
            return RunCompleted
        case RunFailed(retry_in=retry_in, retry=retry):
            return RunFailed, retry_in, retry
        case _:
            return ending


# ── Several flows, one commit ────────────────────────────────────────────────
def submit_together(flows: Sequence[QueueFlow[Any]]) -> QueueFlow[list[Any]]:
    """Run flows side by side, what they submit to one shard in one commit; answers each one's value or its error."""
    found: list[Any] = [None] * len(flows)
    waiting: dict[int, Any] = {}

    def go_on(at: int, reply: Any, error: Exception | None = None) -> None:
        waiting.pop(at, None)
        try:
            waiting[at] = flows[at].send(reply) if error is None else flows[at].throw(error)
        except StopIteration as stop:
            found[at] = stop.value
        except Exception as failure:  # noqa: BLE001 - it is this flow's answer; its caller decides
            found[at] = failure

    for at in range(len(flows)):
        go_on(at, None)
    while waiting:
        alone = [(at, effect) for at, effect in waiting.items() if not _joins(effect)]
        for at, effect in alone:
            try:
                reply = yield effect
            except Exception as failure:  # noqa: BLE001 - it belongs to the flow that waits for it
                go_on(at, None, failure)
            else:
                go_on(at, reply)
        if alone:
            continue
        shard = next(iter(waiting.values())).shard
        joined = [(at, effect) for at, effect in waiting.items() if effect.shard == shard]
        try:
            answer: CommitResult = yield Submit(shard, tuple(op for _, effect in joined for op in effect.ops))
        except Exception as failure:  # noqa: BLE001 - it belongs to the flows that wait for it
            for at, _ in joined:
                go_on(at, None, failure)
            continue
        start = 0
        for at, effect in joined:
            end = start + len(effect.ops)
            go_on(at, CommitResult(answer.outcomes[start:end], answer.now_ms))
            start = end
    return found


def _joins(effect: Any) -> bool:
    return isinstance(effect, Submit) and bool(effect.ops) and effect.timeout is None and not effect.look
