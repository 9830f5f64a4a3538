"""Operations of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw

from .. import limits
from ..commit.effects import QueueFlow
from ..contract.content import content_of, fields_of, included_fields
from ..contract.error_codes import fault_of
from ..contract.functions import PAYLOAD_BYTES_MAX
from ..contract.schemas import (
    ClaimAnswer,
    CompletionResults,
    EncodedContent,
    Ending,
    Endings,
    ErrorDetails,
    HeartbeatRequest,
    HeartbeatResults,
    Held,
    ItemResult,
    Leased,
    Leases,
    NewClaim,
    NewTurn,
    TurnClaim,
    TurnResults,
)
from ..core.job_ops import Completion, LeaseBeat
from ..errors import OsqueueError, Rejected, Throttled
from ..model import validation
from ..model.fields import moment
from ..model.job import Done
from ..model.job_options import linked, viewed
from ..model.keys import job_id, key_of
from ..model.progress import beat_of
from ..operations.claims import ClaimResult, GrantedLease, claim_of
from ..operations.endings import AttemptEnd, ReleasedJob, aborted, failed, throttled
from .answer_room import FAULT_BYTES
from .flows import DownloadedLease, ServerFlows
from .reading import check_items, item_of
from .request import JOBS_NOTED_MAX, RequestContext
from .transfers import nothing_there, uploaded

T = TypeVar("T")
A = TypeVar("A")


# ── Claim ────────────────────────────────────────────────────────────────────
def claim(request: RequestContext) -> QueueFlow[Leases]:
    """Lease jobs."""
    body: NewClaim = request.read()
    flow = request.warm.flows.claim(
        body.limit, body.worker, request.wait_s(body.wait), body.lease, body.kinds
    )
    claimed = yield from flow
    _note(request, [], [claimed], worker=body.worker)
    return Leases(**_told(claimed))


def _told(claimed: ClaimResult) -> dict[str, Any]:
    """Of the answer to a claim."""
    return {
        "jobs": [_leased(each) for each in claimed.leases],
        "reason": claimed.reason,
        "retry_after": claimed.retry_after,
        "scope": claimed.scope,
    }


def _leased(granted: GrantedLease) -> Leased:
    lease = granted.lease
    job = lease.job
    more: dict[str, Any] = {}
    downloads = granted.downloads if isinstance(granted, DownloadedLease) else {}
    try:
        if isinstance(granted.payload, OsqueueError):
            raise granted.payload
        if "payload" not in downloads:
            more = fields_of(EncodedContent(granted.payload, job.codec), "payload")
        if isinstance(granted.input, OsqueueError):
            raise granted.input
        if granted.input is not None and job.links is not None and "input" not in downloads:
            more |= included_fields({"input": EncodedContent(granted.input, job.links.input_codec)})
            if why := more.pop("left_out", None):
                raise Rejected(why["input"], field="input")
    except OsqueueError as error:
        more = {"error": fault_of(error)}
    return Leased(
        job_id=job_id(job.key),
        token=lease.token,
        attempt=job.attempt,
        run=job.run,
        schedule=job.schedule or None,
        parent=linked(job, "parent"),
        scheduled_at=moment(job.scheduled_ms) if job.scheduled_ms else None,
        enqueued_at=moment(job.enqueued_ms),
        started_at=moment(lease.started_ms),
        expires_at=moment(lease.expires_ms),
        lease=lease.lease_ms / 1000,
        cancel_requested=lease.cancel,
        downloads=downloads,
        **viewed(job),
        **more,
    )


def _note(
    request: RequestContext, ended: Sequence[ItemResult], claimed: Sequence[ClaimResult], **more: Any
) -> None:
    """Note for the log how jobs ended and which were leased."""
    jobs = [each.lease.job for claim in claimed for each in claim.leases]
    if claimed:
        more["attempts"] = [job.attempt for job in jobs[:JOBS_NOTED_MAX]]
    if ended:
        more["refused"] = sum(not each.ok for each in ended)
    request.note([*(each.job_id for each in ended), *(job_id(job.key) for job in jobs)], **more)


# ── What workers say ─────────────────────────────────────────────────────────
class Readable(Generic[T]):
    """The items of a request that can be read; the others fail alone, in their places."""

    def __init__(self, items: Sequence[Raw], type: type[Any], read: Callable[[Any], T]) -> None:
        self.found: list[T] = []
        self._refused: list[OsqueueError | None] = []  # one for each item
        for item in items:
            try:
                self.found.append(read(item_of(item, type)))
                self._refused.append(None)
            except OsqueueError as error:
                self._refused.append(error)

    def answers(self, done: Iterable[A]) -> list[A | OsqueueError]:
        """One for each item: what became of it, or why it was refused."""
        rest = iter(done)
        return [next(rest) if error is None else error for error in self._refused]


def complete(request: RequestContext) -> QueueFlow[CompletionResults]:
    """How attempts ended."""
    body: Endings = request.read()
    flows = request.warm.flows
    endings = yield from _endings_in(body, flows)
    answers = _results(body.completions, endings.answers((yield from flows.end(endings.found))))
    _note(request, answers, [])
    return CompletionResults(completions=answers)


def turn(request: RequestContext) -> QueueFlow[TurnResults]:
    """How attempts ended, and claims. It fails as a whole only where nothing of it was done."""
    body: NewTurn = request.read()
    flows = request.warm.flows
    endings = yield from _endings_in(body, flows)
    check_items(body.claims, "claims")
    claims = Readable(
        body.claims, TurnClaim, lambda item: claim_of(item.limit, item.worker, item.lease, item.kinds)
    )
    beside = FAULT_BYTES * (len(body.completions) + len(body.claims))
    told, granted = yield from flows.turn(endings.found, claims.found, beside)
    done, claimed = _without_defects(told), _without_defects(granted)
    _raise_if_nothing_was_done([*done, *claimed])
    ended = [
        Done(job_id(item.key), False, "stale", error=each) if isinstance(each, OsqueueError) else each
        for item, each in zip(endings.found, done, strict=True)
    ]
    answers = _results(body.completions, endings.answers(ended))
    found = [each for each in claimed if isinstance(each, ClaimResult)]
    _note(request, answers, found, worker=claims.found[0].worker if claims.found else "")
    return TurnResults(
        completions=answers,
        claims=[
            ClaimAnswer(jobs=[], error=fault_of(each))
            if isinstance(each, OsqueueError)
            else ClaimAnswer(**_told(each))
            for each in claims.answers(claimed)
        ],
    )


def _without_defects(brought: Iterable[A | Exception]) -> list[A | OsqueueError]:
    """The answers; an error that nobody raised on purpose is that of the whole request."""
    found: list[A | OsqueueError] = []
    for each in brought:
        if isinstance(each, Exception) and not isinstance(each, OsqueueError):
            raise each
        found.append(each)
    return found


def _raise_if_nothing_was_done(brought: Sequence[object]) -> None:
    """Raises an error where there is nothing but errors: one that leaves open what was done goes before Throttled."""
    errors = [each for each in brought if isinstance(each, OsqueueError)]
    if errors and len(errors) == len(brought):
        raise next((each for each in errors if not isinstance(each, Throttled)), errors[0])


def heartbeat(request: RequestContext) -> QueueFlow[HeartbeatResults]:
    """Extend leases."""
    body: HeartbeatRequest = request.read()
    check_items(body.leases, "leases")
    if body.lease is not None:
        validation.lease_ms(body.lease)
    beats = Readable(body.leases, Held, _beat_of)
    done = yield from request.warm.flows.heartbeat_many(beats.found, body.lease)
    answers = _results(body.leases, beats.answers(done))
    _note(request, answers, [])
    return HeartbeatResults(leases=answers)


def _beat_of(item: Held) -> LeaseBeat:
    key, token = _holder(item)
    return beat_of(key, token, item.progress, item.note)


def _endings_in(body: Endings, flows: ServerFlows) -> QueueFlow[Readable[AttemptEnd]]:
    check_items(body.completions, "completions", body.codec)
    named = [_named(each).upload for each in body.completions if b'"upload"' in bytes(each)]
    read = (yield from uploaded(flows.queue, named)) if named else {}
    return Readable(body.completions, Ending, lambda item: _ending(flows, item, body.codec, read))


def _results(items: Sequence[Raw], answers: Iterable[Done | OsqueueError]) -> list[ItemResult]:
    """What became of each item, as it travels."""
    return [
        ItemResult(job_id=_job_id(item), ok=False, code="rejected", error=fault_of(each))
        if isinstance(each, OsqueueError)
        else ItemResult(
            job_id=each.job_id,
            ok=each.ok,
            code=each.code,
            cancel_requested=each.cancel_requested,
            error=None if each.error is None else fault_of(each.error),
        )
        for item, each in zip(items, answers, strict=True)
    ]


class _Named(msgspec.Struct):
    job_id: str = ""
    upload: str = ""


def _job_id(item: Raw) -> str:
    """Of an item that cannot be read otherwise."""
    return _named(item).job_id[: limits.ID_CHARS_MAX]


def _named(item: Raw) -> _Named:
    try:
        return msgspec.json.decode(item, type=_Named)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Named()


def _holder(item: Held | Ending) -> tuple[bytes, str]:
    return key_of(item.job_id), validation.text(item.token, "token", limits.TOKEN_CHARS_MAX, 1)


def _ending(
    flows: ServerFlows, item: Ending, codec: str, uploads: Mapping[str, bytes | OsqueueError]
) -> AttemptEnd:
    key, token = _holder(item)
    upload = UNSET if item.upload is UNSET else uploads.get(item.upload, nothing_there())
    if isinstance(upload, OsqueueError):
        raise upload
    content = content_of(item.result, item.data, codec, "result", PAYLOAD_BYTES_MAX, upload)
    ways = {
        "result": content is not None,
        "error": item.error is not UNSET,
        "release": item.release is not UNSET and item.release is not False,
        "throttle": item.throttle is not UNSET,
        "cancel": item.cancel is not UNSET,
    }
    given = [name for name, is_given in ways.items() if is_given]
    if len(given) > 1:
        raise Rejected(f"{given[1]}: an attempt ends in one way; {given[0]} is given, too.", field=given[1])
    for name in ("retry_in", "retry"):
        if getattr(item, name) != getattr(_NO_ERROR, name) and item.error is UNSET:
            raise Rejected(f"{name}: it goes with error.", field=name)
    if ways["error"]:
        error: Any = item.error
        if isinstance(error, ErrorDetails):
            error = {name: each for name, each in msgspec.structs.asdict(error).items() if each is not None}
        return failed(key, token, error, item.retry_in, item.retry, flows.machine.uniform())
    if not ways["throttle"] and (item.scope, item.why) != (_NO_ERROR.scope, _NO_ERROR.why):
        raise Rejected("scope, why: they go with throttle.", field="scope")
    if ways["throttle"]:
        return throttled(key, token, item.throttle, item.scope, item.why)
    if ways["release"]:
        if isinstance(item.release, datetime):
            at = validation.moment_ms(item.release, "release", limits.AT_MS_MAX)
            return ReleasedJob(key, token, 0, at)
        delay = 0 if item.release is True else item.release
        return ReleasedJob(key, token, validation.milliseconds(delay, "release", 0, limits.DELAY_MS_MAX))
    if ways["cancel"]:
        return aborted(key, token, item.cancel)
    if content is None or (content.data == b"null" and content.codec == "json"):
        return Completion(key, token)
    return Completion(key, token, content.data, content.codec)


_NO_ERROR = Ending(job_id="", token="")
