"""The bodies of the API, as data: one struct for each kind of request and answer.

Times are RFC 3339 in UTC, durations seconds. Unknown fields are refused in requests, so that nothing a caller wishes
for is silently ignored; clients ignore unknown fields in answers.

**Contents** (payloads and results) are JSON values, and pass through the functions unread. What another serialiser
wrote travels as base64 in ``data``, with the serialiser's name in ``codec``.
"""

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Raw, Struct, UnsetType

from .. import limits
from ..model.job import Job
from ..model.job_options import OPTIONS, JobOptions, ViewedOptions
from ..model.worker import WorkerEntry


class RequestBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of requests."""


class ResponseBody(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of answers. A newer server may say more."""


class EncodedContent(Struct, frozen=True):
    """A payload or a result as it is stored, with the name of what serialised it."""

    data: bytes  # base64 in JSON
    codec: str


class NewUpload(RequestBody, frozen=True, kw_only=True):
    """A payload or a result that is too large for a request, by its length and its digest."""

    bytes: int
    sha256: str  # of the bytes, in hexadecimal


class Upload(ResponseBody, frozen=True, kw_only=True):
    """Where to PUT the bytes, once, with these headers; then a job or an ending names them as ``upload``."""

    upload: str
    url: str  # begins with a slash: of this API
    headers: dict[str, str]
    expires_at: datetime


class Download(ResponseBody, frozen=True, kw_only=True):
    """Where to GET a content that is too large for an answer, with these headers."""

    url: str  # begins with a slash: of this API
    headers: dict[str, str]
    bytes: int
    crc32: int
    codec: str  # what serialised it
    expires_at: datetime


class Fault(ResponseBody, frozen=True, kw_only=True):
    """Why something failed: of a whole request (as ``{"error": ...}``) or of one item of a batch."""

    code: str  # stable: see osqueue.errors
    message: str  # what happened and what to do
    retry_after: float | None = None  # seconds
    field: str | None = None  # which one is wrong
    job_id: str | None = None  # job_failed, wait_timeout
    type: str | None = None  # job_failed: the exception's class
    error: str | None = None  # job_failed: its message
    traceback: str | None = None  # job_failed: the end of its traceback


class Failure(ResponseBody, frozen=True, kw_only=True):
    """The body of every answer that is not a success."""

    error: Fault


# ── Enqueue ──────────────────────────────────────────────────────────────────
class NewJob(JobOptions, RequestBody, frozen=True):
    """One job to be queued. ``job_id`` is the key its client drew, so that a repeated request is the same job."""

    payload: Raw | UnsetType = UNSET
    data: bytes | UnsetType = UNSET  # base64: instead of ``payload``
    upload: str | UnsetType = UNSET  # what was uploaded: instead of ``payload``
    codec: str | None = None  # of ``data`` or ``upload``; None: the request's
    job_id: str | None = None


class NewJobs(RequestBody, frozen=True, kw_only=True):
    """Up to 1,000 jobs, queued in one commit. A bad item fails alone."""

    jobs: list[Raw]  # each a NewJob; decoded one by one
    codec: str = "json"


class Accepted(ResponseBody, frozen=True, kw_only=True):
    """What became of one job given to enqueue. ``completed`` with an ``error``: its result cannot be given here."""

    status: str  # "queued", "duplicate", "completed", "replaced", "postponed" or "rejected"
    job_id: str | None = None
    state: str | None = None
    result: Raw | UnsetType = UNSET  # completed
    data: bytes | UnsetType = UNSET
    codec: str | None = None  # of ``data``
    download: Download | UnsetType = UNSET  # instead of a result that is too large
    error: Fault | None = None  # rejected; completed: why there is no result


class AcceptedJobs(ResponseBody, frozen=True, kw_only=True):
    """One ``Accepted`` for each item, in order."""

    jobs: list[Accepted]


# ── Claim ────────────────────────────────────────────────────────────────────
class TurnClaim(RequestBody, frozen=True, kw_only=True):
    """Lease up to ``limit`` jobs that are there now."""

    worker: str = "api"
    limit: int = 1
    lease: float = limits.LEASE_MS_DEFAULT / 1000
    kinds: list[str] | None = None


class NewClaim(TurnClaim, frozen=True, kw_only=True):
    """Lease up to ``limit`` jobs. ``wait`` is how long to wait for the first."""

    wait: float = 0


class Leased(ViewedOptions, ResponseBody, frozen=True, kw_only=True):
    """A job in a worker's hands."""

    job_id: str
    token: str
    attempt: int
    run: int
    enqueued_at: datetime
    started_at: datetime
    expires_at: datetime
    lease: float  # seconds
    cancel_requested: bool = False
    schedule: str | None = None  # that made it
    parent: str | None = None  # the job, or the batch, with whose end it came
    scheduled_at: datetime | None = None  # its tick, or when it was to become claimable
    payload: Raw | UnsetType = UNSET
    data: bytes | UnsetType = UNSET
    codec: str | None = None  # of ``data``
    input: Raw | UnsetType = UNSET  # what the job before answered, where ``payload`` is not that
    encoded: dict[str, EncodedContent] = {}  # by name: an input that is not JSON
    downloads: dict[str, Download] = {}  # by name: a payload or an input that is too large
    error: Fault | None = None  # why the payload, or the input, cannot be given


class Leases(ResponseBody, frozen=True, kw_only=True):
    """The jobs leased; none, and why, and in how many seconds something may start."""

    jobs: list[Leased]
    reason: str | None = (
        # "empty", "paused", "rate_limited", "running_limit", "in_flight_limit", "groups_closed" or "group_limit"; of a
        # turn also "answer_full", by the jobs of its other claims
        None
    )
    retry_after: float | None = None
    scope: str | None = None  # "queue"; "kind": other kinds may start; "group": resume those that wait


# ── What workers say ─────────────────────────────────────────────────────────
class ErrorDetails(RequestBody, frozen=True, kw_only=True):
    """An attempt's error, as it is kept with the job."""

    message: str
    type: str | None = None
    traceback: str | None = None


class Ending(RequestBody, frozen=True, kw_only=True):
    """How an attempt ended: a ``result``, nothing, ``error``, ``release``, ``throttle`` or ``cancel``.

    A result may come as ``data`` or as ``upload``.
    """

    job_id: str
    token: str
    result: Raw | UnsetType = UNSET
    data: bytes | UnsetType = UNSET
    upload: str | UnsetType = UNSET  # what was uploaded: instead of ``result``
    error: str | ErrorDetails | UnsetType = UNSET
    retry_in: float | None = None  # with ``error``: seconds; else the queue's back-off
    retry: bool = True  # with ``error``: false makes it a dead letter at once
    release: bool | float | datetime | UnsetType = UNSET  # true: to the front; seconds; or a time
    throttle: float | UnsetType = UNSET  # it goes back, and for so many seconds nothing of its kind starts
    scope: str = "kind"  # of ``throttle``; "queue": nothing at all
    why: str = ""  # of ``throttle``
    cancel: str | UnsetType = UNSET  # why the job ends as cancelled


class Endings(RequestBody, frozen=True, kw_only=True):
    """Up to 1,000 endings, committed together. A bad item fails alone."""

    completions: list[Raw]  # each an Ending; decoded one by one
    codec: str = "json"


class NewTurn(Endings, frozen=True, kw_only=True):
    """Up to 1,000 endings and up to 1,000 claims, committed together. A bad item fails alone."""

    completions: list[Raw] = []
    claims: list[Raw]  # each a TurnClaim; decoded one by one


class Held(RequestBody, frozen=True, kw_only=True):
    """One lease, and what is new of its job's progress: from 0 to 1, and up to 80 characters."""

    job_id: str
    token: str
    progress: float | None = None
    note: str | None = None


class HeartbeatRequest(RequestBody, frozen=True, kw_only=True):
    """Up to 1,000 leases to extend, by ``lease`` seconds from now or by their own length."""

    leases: list[Raw]  # each a Held; decoded one by one
    lease: float | None = None


class ItemResult(ResponseBody, frozen=True, kw_only=True):
    """What became of one item of a worker's request."""

    job_id: str
    ok: bool
    code: str = "ok"  # "ok", "lease_lost", "failing", "failed", "cancelled", "stale" or "rejected"
    cancel_requested: bool = False
    error: Fault | None = None


class CompletionResults(ResponseBody, frozen=True, kw_only=True):
    """One ``ItemResult`` for each item, in order."""

    completions: list[ItemResult]


class ClaimAnswer(Leases, frozen=True, kw_only=True):
    """What a claim of a turn brought; with ``error``: nothing, and why."""

    error: Fault | None = None


class TurnResults(CompletionResults, frozen=True, kw_only=True):
    """One ``ItemResult`` for each ending and one ``ClaimAnswer`` for each claim, in order.

    An ending that is "stale" with an ``error`` has perhaps not been committed: say it again.
    """

    claims: list[ClaimAnswer]


class HeartbeatResults(ResponseBody, frozen=True, kw_only=True):
    """One ``ItemResult`` for each item, in order."""

    leases: list[ItemResult]


class NewWorkerEntry(WorkerEntry, RequestBody, frozen=True):
    """What a worker says of itself. After three times ``every`` seconds without another word it is lost."""


# ── Jobs ─────────────────────────────────────────────────────────────────────
class Jobs(ResponseBody, frozen=True, kw_only=True):
    """One page of live jobs, the cursor of the next, and how many jobs it looked at, also such as do not match."""

    jobs: list[Job]
    cursor: str | None = None
    looked_at: int = 0


class JobAnswer(Job, frozen=True):
    """A job with its timeline, and what was asked for beside it. Contents that are not JSON stand in ``encoded``."""

    payload: Raw | UnsetType = UNSET
    traceback: str | UnsetType | None = UNSET
    result: Raw | UnsetType = UNSET
    encoded: dict[str, EncodedContent] | UnsetType = UNSET  # by name
    left_out: dict[str, str] | UnsetType = UNSET  # what cannot be given, by name, and why


class StatusRequest(RequestBody, frozen=True, kw_only=True):
    """Up to 1,000 jobs to look at, by job id or client's id."""

    jobs: list[str]
    include: list[str] = []  # "payload", "traceback", "result"


class JobAnswers(ResponseBody, frozen=True, kw_only=True):
    """The first of the jobs that were asked for, in order, as many as fit; null for one that is not there."""

    jobs: list[JobAnswer | None]


class Result(ResponseBody, frozen=True, kw_only=True):
    """What a completed job answered."""

    job_id: str
    result: Raw | UnsetType = UNSET
    data: bytes | UnsetType = UNSET
    codec: str | None = None
    download: Download | UnsetType = UNSET  # instead of one that is too large


class Cancelled(ResponseBody, frozen=True, kw_only=True):
    """What cancelling did."""

    status: str  # "cancelled", "processing" (its worker is told), "completed" or "failed"


class JobState(ResponseBody, frozen=True, kw_only=True):
    """The state that a job is in now."""

    state: str


class JobChange(RequestBody, frozen=True, kw_only=True):
    """What may be changed of a job."""

    result_ttl: Annotated[float, OPTIONS["result_ttl"].about]


class Health(ResponseBody, frozen=True, kw_only=True):
    """The function runs."""

    status: str
    version: str
