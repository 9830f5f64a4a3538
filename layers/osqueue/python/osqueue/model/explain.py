"""The story of a job in words: what happened to it and when, how it stands, and what comes next.

Pure: from the job as callers see it, and a few things about its queue. Times are UTC, absolute and relative.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from ..core.fingerprint import fingerprint
from ..core.state import (
    CANCELLED,
    COMPLETED,
    FAILED,
    FAILING,
    HISTORY_MAX,
    PROCESSING,
    QUEUED,
    RELEASED,
    SCHEDULED,
    STALLED,
)
from .job import Attempt, Job

QUEUE = "queue"
ARCHIVE = "archive"


class Step(Struct, frozen=True):
    """Something that happened."""

    at: datetime
    what: str


class JobContext(Struct, frozen=True):
    """What the view of a job leaves out about its queue and itself."""

    queue: str
    source: str = QUEUE  # or "archive": only the archive knows the job
    paused: bool = False
    paused_until: datetime | None = None  # when that ends by itself
    held: str = ""  # queued: why none of its kind starts now, and what lets one start
    turn: str = ""  # queued: what its turn goes by beside its priority, and how that stands
    ahead: int | None = None  # queued: about how many jobs are to be claimed before it
    dead_ttl: float = 0  # seconds: how long dead letters are kept
    scheduled_at: datetime | None = None  # when it was to become claimable, if not at once
    why: str = ""  # who cancelled it, or why
    made_by: str = ""  # which schedule made it, and for when
    consumers: tuple[str, ...] = ()  # queued: who is invoked for it, and how they stand
    stands_still: float = 0  # seconds by which the head is ahead of the store's clock


class Story(Struct, frozen=True):
    """What happened to a job and why. ``str()`` of it is the text for people."""

    job_id: str
    id: str | None  # the client's own id
    queue: str
    state: str
    source: str  # "queue" or "archive"
    told_at: datetime  # by the store's clock
    steps: tuple[Step, ...]  # in order
    now: str  # how it stands
    next: str  # what happens next, and when
    job: Job

    def lines(self) -> Iterator[str]:
        """The text, line by line. What clients and workers wrote is on one line each."""
        name = f" ({self.id})" if self.id is not None else ""
        yield f"job {self.job_id}{name} of queue {self.queue}: {self.state}"
        for step in self.steps:
            yield _one_line(f"  {iso(step.at)}  {step.what}, {distance_text(step.at, self.told_at)}")
        yield _one_line(f"now:  {self.now}")
        yield _one_line(f"next: {self.next}")

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


# ── Times ────────────────────────────────────────────────────────────────────
def iso(at: datetime) -> str:
    """A moment in UTC, to the millisecond."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration_text(seconds: float) -> str:
    """A length of time as people say it."""
    seconds = abs(seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if round(seconds) >= 2 * size:
            return f"{seconds / size:.1f} {unit}".replace(".0 ", " ")
    return f"{seconds:.1f} s".replace(".0 ", " ")


def distance_text(at: datetime, now: datetime) -> str:
    """How far a moment is from now."""
    gap = (at - now).total_seconds()
    return f"in {duration_text(gap)}" if gap > 0 else f"{duration_text(gap)} ago"


def when(at: datetime, now: datetime) -> str:
    """A moment, and how far it is from now."""
    return f"{iso(at)} ({distance_text(at, now)})"


# ── The past ─────────────────────────────────────────────────────────────────
def _about(job: Job) -> str:
    about = [f"kind {job.kind}"] if job.kind else []
    about += [f"{job.units:,} units"] if job.units > 1 else []
    return ", ".join([*about, f"priority {job.priority}", f"{job.payload_bytes:,} bytes"])


def _ended(attempt: Attempt) -> str:
    took = duration_text((attempt.ended_at - attempt.started_at).total_seconds())
    error = f": {error_text(attempt)}" if attempt.error else ""
    words = {
        FAILED: f"failed after {took}",
        STALLED: f"stalled: no heartbeat came, the lease ended after {took}",
        RELEASED: f"given back after {took}; the attempt does not count",
        COMPLETED: f"completed after {took}",
        CANCELLED: f"cancelled by its worker after {took}",
    }
    silent = ""
    if attempt.outcome == STALLED and attempt.heartbeat_at is not None:
        beaten = attempt.heartbeat_at > attempt.started_at
        silent = f" (last heartbeat {iso(attempt.heartbeat_at)})" if beaten else " (it never beat)"
    return words.get(attempt.outcome, f"{attempt.outcome} after {took}") + silent + error


def _replaced(job: Job) -> str:
    if not job.replaced:
        return ""
    times = "once" if job.replaced == 1 else f"{job.replaced:,} times"
    return f"; replaced {times} since by later jobs of its id, of which this is the last"


def error_text(attempt: Attempt) -> str:
    """An attempt's error, its type in front unless it stands there already."""
    error, kind = attempt.error or "", attempt.error_type or ""
    return error if not kind or error.startswith(kind) else f"{kind}: {error}"


def past_steps(job: Job, scheduled_at: datetime | None = None, made_by: str = "") -> list[Step]:
    """Everything that is known to have happened, in order."""
    name = f" under the id {job.id!r}" if job.id is not None else ""
    delayed = f", not to be claimed before {iso(scheduled_at)}" if scheduled_at is not None else ""
    delayed = f", {made_by}" if made_by else delayed
    found = [Step(job.enqueued_at, f"enqueued{name} ({_about(job)}){delayed}{_replaced(job)}")]
    if len(job.attempts) >= HISTORY_MAX and job.attempts[0].run > 1:  # a restore raises runs, too
        earlier = job.attempts[0].run - 1
        found.append(
            Step(job.attempts[0].started_at, f"(what came before, up to run {earlier}, is not shown)")
        )
    for attempt in job.attempts:
        found.append(Step(attempt.started_at, f"lease {attempt.run}: claimed by {attempt.worker}"))
        found.append(Step(attempt.ended_at, f"lease {attempt.run}: {_ended(attempt)}"))
    if job.state == PROCESSING and job.started_at:
        of = f"attempt {job.attempt} of {job.max_attempts}"
        found.append(Step(job.started_at, f"claimed by {job.worker} ({of})"))
        if job.heartbeat_at and job.heartbeat_at > job.started_at:
            found.append(Step(job.heartbeat_at, "last heartbeat"))
    elif job.finished_at is not None and job.state in (COMPLETED, CANCELLED):
        found.append(Step(job.finished_at, job.state))
    return found


def _redriven(job: Job) -> bool:
    """Did its attempts start from 1 again? The history has more than are counted."""
    used = sum(each.outcome in (FAILED, STALLED) for each in job.attempts)
    return used > job.attempt - (job.state == PROCESSING)


# ── The present and the future ───────────────────────────────────────────────
def explain_job(job: Job, about: JobContext, now: datetime) -> Story:
    """The whole story as of ``now``."""
    if about.source == ARCHIVE:
        present, following = _archived(job, about, now)
    else:
        words = {PROCESSING: _processing, QUEUED: _queued, SCHEDULED: _waiting, FAILING: _waiting}
        dead = job.state == FAILED and job.finished_at is None
        present, following = (_dead if dead else words.get(job.state, _over))(job, about, now)
    again = job.state in (QUEUED, PROCESSING, SCHEDULED, FAILING) and _redriven(job)
    return Story(
        job_id=job.job_id,
        id=job.id,
        queue=about.queue,
        state=job.state,
        source=about.source,
        told_at=now,
        steps=tuple(past_steps(job, about.scheduled_at, about.made_by)),
        now=present
        + ("; it was redriven, so its attempts count from 1 again" if again else "")
        + _still(about),
        next=following,
        job=job,
    )


def _still(about: JobContext) -> str:
    """That time does not pass for a job, and the remedy; "" where it passes."""
    if not about.stands_still:
        return ""
    remedy = f"osqueue doctor ADDRESS {about.queue} --fix-clock"
    return (
        f"; time stands still for {duration_text(about.stands_still)}, because a clock was ahead ({remedy!r})"
    )


def _tries(job: Job) -> str:
    return f"attempt {job.attempt + 1} of {job.max_attempts}"


def paused_text(until: datetime | None, now: datetime) -> str:
    """That something is paused, and until when."""
    return "is paused" if until is None else f"is paused until {when(until, now)}"


def resumed_text(until: datetime | None, what: str, option: str = "") -> str:
    """What ends a pause."""
    then = "" if until is None else "then, or until "
    return f"nothing is handed out until {then}somebody resumes {what} ('osqueue queue resume{option}')"


def _paused(about: JobContext, now: datetime) -> str:
    return f"; the queue {paused_text(about.paused_until, now)}" if about.paused else ""


def _queued(job: Job, about: JobContext, now: datetime) -> tuple[str, str]:
    if about.ahead is None:
        where = "queued"
    elif about.ahead == 0:
        where = "queued, and the next to be claimed"
    else:
        where = f"queued behind about {about.ahead:,} {'job' if about.ahead == 1 else 'jobs'}"
    if about.turn:
        where += f"; {about.turn}"
    if about.paused:
        return where + _paused(about, now), resumed_text(about.paused_until, "the queue")
    if about.held:
        now_, _, then = about.held.partition("; ")
        return f"{where}; {now_}", then
    kind = f" that takes jobs of kind {job.kind}" if job.kind else ""
    who = " or ".join([*about.consumers, f"a worker{kind}"])
    return where, f"{_tries(job)}, as soon as {who} claims it{_deadline(job, now)}"


def _deadline(job: Job, now: datetime) -> str:
    return "" if job.start_by is None else f"; unless it starts by {when(job.start_by, now)} it is cancelled"


def _processing(job: Job, about: JobContext, now: datetime) -> tuple[str, str]:
    assert job.started_at is not None
    assert job.expires_at is not None
    beat = job.heartbeat_at or job.started_at
    heard = f"last heartbeat {when(beat, now)}" if beat > job.started_at else "no heartbeat yet"
    of = f"attempt {job.attempt} of {job.max_attempts}{_progress(job, now)}"
    cancel = (
        "; a cancel was requested, its worker sees it at the next heartbeat" if job.cancel_requested else ""
    )
    limit = None if job.run_within is None else job.started_at + timedelta(seconds=job.run_within)
    if limit is not None:
        heard += f", its run-time limit of {duration_text(job.run_within or 0)} ends {when(limit, now)}"
    if job.cancel_requested:
        lost = "is cancelled"
    elif job.attempt >= job.max_attempts:
        lost = "is dead: it has no attempts left"
    elif limit is not None and job.expires_at >= limit:
        lost = "waits for its retry: the attempt has failed"
    else:
        lost = "goes back to the front of the queue"
    if job.expires_at <= now:
        present = f"the lease of {job.worker} ended {when(job.expires_at, now)}, {heard} ({of}){cancel}"
        return present, f"with the next write to the queue, or the next reap, the job {lost}"
    present = f"leased by {job.worker} until {when(job.expires_at, now)}, {heard} ({of}){cancel}"
    return (
        present,
        f"its worker finishes it or sends a heartbeat; else at {iso(job.expires_at)} the job {lost}",
    )


def _progress(job: Job, now: datetime) -> str:
    """How far its worker says that it is."""
    if job.told_at is None:
        return ""
    share = "" if job.progress is None else f", at {job.progress:.0%}"
    return f"{share}{f': {job.note}' if job.note else ''} ({distance_text(job.told_at, now)})"


def _waiting(job: Job, about: JobContext, now: datetime) -> tuple[str, str]:
    assert job.due_at is not None
    purpose = "retry" if job.state == FAILING else "its time"
    paused = _paused(about, now)
    if job.due_at > now:
        then = f"{_tries(job)}, when a worker claims it after {iso(job.due_at)}{_deadline(job, now)}"
        return f"waiting for {purpose} until {when(job.due_at, now)}{_postponed(job, now)}{paused}", then
    present = f"due since {when(job.due_at, now)}{paused}"
    return present, f"the next write to the queue, or the next reap, queues it ({_tries(job)})"


def _postponed(job: Job, now: datetime) -> str:
    return (
        ""
        if job.due_by_at is None
        else f", postponed by other calls until {when(job.due_by_at, now)} at the latest"
    )


def _dead(job: Job, about: JobContext, now: datetime) -> tuple[str, str]:
    last = job.attempts[-1] if job.attempts else None
    died = last.ended_at if last is not None else job.enqueued_at
    until = died + timedelta(seconds=about.dead_ttl)
    why = f"; {_cause(last)}" if last is not None else ""
    following = (
        f"kept until {when(until, now)} unless it is redriven ('osqueue dlq redrive'); then only the archive"
        " has its record"
        if until > now
        else "the next reap lets it go; after that only the archive has its record"
    )
    return (
        f"a dead letter since {when(died, now)}, after {job.attempt} of {job.max_attempts} attempts{why}",
        following,
    )


def _cause(last: Attempt) -> str:
    if last.outcome == STALLED:
        return f"its last lease, of {last.worker}, ended without a word"
    mark = fingerprint(last.error_type or "", last.error or "")
    return f"the last error was {error_text(last)} (fingerprint {mark})"


def _over(job: Job, about: JobContext, now: datetime) -> tuple[str, str]:
    assert job.finished_at is not None
    if job.state == FAILED:
        return (
            f"let go of as a dead letter {when(job.finished_at, now)}",
            "nothing; the archive has its record",
        )
    present = _ending(job, about, now)
    if job.replaced_by is not None:
        return (
            present,
            f"nothing; ask for job {job.replaced_by}. The archive gets the record of the last one alone",
        )
    if job.expires_at is None or job.expires_at <= now:
        return f"{present}; its result is not kept any more", "nothing; the archive has its record"
    thing = "its result" if job.state == COMPLETED else "its record"
    return (
        f"{present}; {thing} is kept until {when(job.expires_at, now)}",
        "nothing; after that only the archive has its record",
    )


def _ending(job: Job, about: JobContext, now: datetime) -> str:
    assert job.finished_at is not None
    if job.replaced_by is not None:
        return f"replaced {when(job.finished_at, now)} by a later job of its id, {job.replaced_by}"
    last = job.attempts[-1] if job.attempts else None
    held = last is not None and last.ended_at == job.finished_at
    if job.state == COMPLETED:
        return f"completed {when(job.finished_at, now)}" + (f" by {last.worker}" if last and held else "")
    by = f" by its worker {last.worker}" if last and held else " on request, while no worker held it"
    return f"cancelled {when(job.finished_at, now)}{by}" + (f": {about.why}" if about.why else "")


def _archived(job: Job, about: JobContext, now: datetime) -> tuple[str, str]:
    if job.state == FAILED:
        assert job.finished_at is not None
        last = job.attempts[-1] if job.attempts else None
        why = f"; {_cause(last)}" if last is not None else ""
        present = f"failed for good {when(job.finished_at, now)}{why}; it is no dead letter any more"
    else:
        present = f"{_ending(job, about, now)}; the queue has forgotten it"
    return present, "nothing; only the archive has its record"
