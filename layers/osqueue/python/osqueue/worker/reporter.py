"""What a worker says to its queue: claims, heartbeats and endings, as flows that block or await alike.

Whatever is said at the same time about the same shard goes in one commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..commit.effects import QueueFlow
from ..errors import Rejected
from ..model.job import Done
from ..model.validation import error_details
from ..operations.claims import ClaimResult, claim_of
from ..operations.endings import AttemptEnd, aborted, failed, lease_lost, released, throttled
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
        name = self.machine.name() if self.name is None else self.name
        ops = [claim_of(limit, name, self.lease, kinds) for limit, kinds in claims]
        answers, found = yield from self._flows.turn([self._ending(*each) for each in ended], ops)
        return (yield from self._again_alone(ended, answers)), found

    def _again_alone(self, ended: Sequence[Ended], answers: Sequence[Answered]) -> QueueFlow[list[Answered]]:
        """The answers, once each ending that was refused has been said alone."""
        found = list(answers)
        for at, answer in enumerate(answers):
            if isinstance(answer, Rejected):
                found[at] = yield from self._say_alone(*ended[at])
        return found

    def _say_alone(self, job: WorkerJob[Any], outcome: RunOutcome) -> QueueFlow[Answered]:
        """An ending that was refused, perhaps for the size of all: refused alone, it fails its own job."""
        (answer,), _ = yield from self._flows.turn([self._ending(job, outcome)], [])
        if isinstance(answer, Rejected) and not isinstance(outcome, RunFailed):
            failure = RunFailed(error_details(answer))
            (answer,), _ = yield from self._flows.turn([self._ending(job, failure)], [])
        found: Answered = answer
        return found

    def _ending(self, job: WorkerJob[Any], outcome: RunOutcome) -> AttemptEnd:
        """What is said of an outcome; one that cannot be said fails its job."""
        try:
            return self._said(job, outcome)
        except Rejected as error:
            return self._said(job, RunFailed(error_details(error)))

    def _said(self, job: WorkerJob[Any], outcome: RunOutcome) -> AttemptEnd:
        held = job.key, job.token
        flows = self._flows
        match outcome:
            case RunCompleted(result=result):
                return flows.completion(*held, flows.encode_result(result))  # type: ignore[no-any-return]
            case RunFailed(error=error, retry_in=retry_in, retry=retry):
                return failed(*held, error, retry_in, retry, self.machine.uniform())
            case RunReleased(delay=delay, until=until):
                return released(*held, delay, until)
            case RunThrottled(seconds=seconds, scope=scope, why=why):
                return throttled(*held, seconds, scope, why)
            case RunAborted(why=why):
                return aborted(*held, why)

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
