"""Operations of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw

from .. import limits
from ..commit.effects import QueueFlow
from ..contract.content import content_of, fields_of, included_fields
from ..contract.error_codes import fault_of
from ..contract.functions import PAYLOAD_BYTES_MAX
from ..contract.schemas import (
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
)
from ..core.job_ops import Completion, FailedAttempt, LeaseBeat
from ..errors import OsqueueError, Rejected
from ..model import validation
from ..model.fields import moment
from ..model.job import Done
from ..model.job_options import linked, viewed
from ..model.keys import job_id, key_of
from ..model.progress import beat_of
from ..operations.claims import GrantedLease, throttle_of
from .flows import AbortedJob, ReleasedJob, ServerFlows
from .reading import check_items, item_of
from .request import RequestContext

T = TypeVar("T")


# ── Claim ────────────────────────────────────────────────────────────────────
def claim(request: RequestContext) -> QueueFlow[Leases]:
    """Lease jobs."""
    body: NewClaim = request.read()
    flow = request.warm.flows.claim(
        body.limit, body.worker, request.wait_s(body.wait), body.lease, body.kinds
    )
    claimed = yield from flow
    jobs = [each.lease.job for each in claimed.leases]
    request.note(
        [job_id(job.key) for job in jobs], worker=body.worker, attempts=[job.attempt for job in jobs[:20]]
    )
    return Leases(
        jobs=[_leased(each) for each in claimed.leases],
        reason=claimed.reason,
        retry_after=claimed.retry_after,
        scope=claimed.scope,
    )


def _leased(granted: GrantedLease) -> Leased:
    lease = granted.lease
    job = lease.job
    more: dict[str, Any] = {}
    try:
        if isinstance(granted.payload, OsqueueError):
            raise granted.payload
        more = fields_of(EncodedContent(granted.payload, job.codec), "payload")
        if isinstance(granted.input, OsqueueError):
            raise granted.input
        if granted.input is not None and job.links is not None:
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
        **viewed(job),
        **more,
    )


# ── What workers say ─────────────────────────────────────────────────────────
def complete(request: RequestContext) -> QueueFlow[CompletionResults]:
    """How attempts ended."""
    endings: Endings = request.read()
    check_items(endings.completions, "completions", endings.codec)
    flows = request.warm.flows

    def read(item: Ending) -> Any:
        return _ending(flows, item, endings.codec)

    done = yield from _results(request, endings.completions, Ending, read, flows.end)
    return CompletionResults(completions=done)


def heartbeat(request: RequestContext) -> QueueFlow[HeartbeatResults]:
    """Extend leases."""
    beats: HeartbeatRequest = request.read()
    check_items(beats.leases, "leases")
    length = beats.lease
    if length is not None:
        validation.lease_ms(length)
    flows = request.warm.flows

    def send(held: Sequence[Any]) -> QueueFlow[list[Done]]:
        return flows.heartbeat_many(held, length)

    return HeartbeatResults(leases=(yield from _results(request, beats.leases, Held, _beat_of, send)))


def _beat_of(item: Held) -> LeaseBeat:
    key, token = _holder(item)
    return beat_of(key, token, item.progress, item.note)


def _results(
    request: RequestContext,
    items: list[Raw],
    type: type[T],
    read: Callable[[T], Any],
    send: Callable[[Sequence[Any]], QueueFlow[list[Done]]],
) -> QueueFlow[list[ItemResult]]:
    """What became of each item. Those that cannot be read fail alone, in their places."""
    results: list[ItemResult | None] = []
    found: list[Any] = []
    for item in items:
        try:
            found.append(read(item_of(item, type)))
            results.append(None)
        except OsqueueError as error:
            results.append(ItemResult(job_id=_job_id(item), ok=False, code="rejected", error=fault_of(error)))
    done = iter((yield from send(found)) if found else ())
    answers = [_answer(next(done)) if each is None else each for each in results]
    request.note([each.job_id for each in answers], refused=sum(not each.ok for each in answers))
    return answers


def _answer(done: Done) -> ItemResult:
    fault = None if done.error is None else fault_of(done.error)
    return ItemResult(
        job_id=done.job_id, ok=done.ok, code=done.code, cancel_requested=done.cancel_requested, error=fault
    )


class _WithJobId(msgspec.Struct):
    job_id: str = ""


def _job_id(item: Raw) -> str:
    """Of an item that cannot be read otherwise."""
    try:
        return msgspec.json.decode(item, type=_WithJobId).job_id[: limits.ID_CHARS_MAX]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _holder(item: Held | Ending) -> tuple[bytes, str]:
    return key_of(item.job_id), validation.text(item.token, "token", limits.TOKEN_CHARS_MAX, 1)


def _ending(flows: ServerFlows, item: Ending, codec: str) -> Any:
    key, token = _holder(item)
    content = content_of(item.result, item.data, codec, "result", PAYLOAD_BYTES_MAX)
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
        return _failure(flows, item, key, token)
    if not ways["throttle"] and (item.scope, item.why) != (_NO_ERROR.scope, _NO_ERROR.why):
        raise Rejected("scope, why: they go with throttle.", field="scope")
    if ways["throttle"]:
        return ReleasedJob(key, token, 0, 0, *throttle_of(item.throttle, item.scope, item.why))
    if ways["release"]:
        if isinstance(item.release, datetime):
            at = validation.moment_ms(item.release, "release", limits.AT_MS_MAX)
            return ReleasedJob(key, token, 0, at)
        delay = 0 if item.release is True else item.release
        return ReleasedJob(key, token, validation.milliseconds(delay, "release", 0, limits.DELAY_MS_MAX))
    if ways["cancel"]:
        return AbortedJob(key, token, validation.error_text(item.cancel))
    if content is None or (content.data == b"null" and content.codec == "json"):
        return Completion(key, token)
    return Completion(key, token, content.data, content.codec)


_NO_ERROR = Ending(job_id="", token="")


def _failure(flows: ServerFlows, item: Ending, key: bytes, token: str) -> FailedAttempt:
    error: Any = item.error
    if isinstance(error, ErrorDetails):
        error = {name: each for name, each in msgspec.structs.asdict(error).items() if each is not None}
    details = validation.error_details(error)
    wait = -1
    if item.retry_in is not None:
        wait = validation.milliseconds(item.retry_in, "retry_in", 0, limits.DELAY_MS_MAX)
    return FailedAttempt(
        key, token, details.text, wait, flows.machine.uniform(), not item.retry, details.type, details.trace
    )
