"""Operations on whole queues, and on the API itself."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict

from .. import __version__, limits
from ..commit.effects import Flow, QueueFlow, together
from ..contract.admin_schemas import (
    CancelMany,
    DeadGroups,
    DeadLetterAnswer,
    DeadLetters,
    EventPage,
    GroupWish,
    Page,
    Purge,
    QueueGroups,
    Queues,
    Redrive,
    Redriven,
    Settings,
)
from ..contract.content import PassThroughCodec
from ..contract.error_codes import fault_of
from ..contract.operations import HISTORY_MAX, QUEUES_MAX
from ..contract.schemas import Failure, Health
from ..core.archive_record import ArchiveRecord
from ..errors import OsqueueError, Rejected
from ..model import validation
from ..model.job import archived_view
from ..model.reports import CancelledMany, FlowUsage, Purged, ReapReport
from ..model.settings import said
from ..objects import archive
from ..objects.layout import REGISTER, unavailable
from ..operations.admin import AdminFlows
from ..operations.context import Writers
from ..operations.dead_letters import RedriveProgress, redrive_limit
from ..stores.base import List, Listed
from .answers import ANSWER_BYTES_MAX, answer_with, fitted, fitting
from .jobs import PAGE_DEFAULT
from .request import RequestContext

REDRIVE_MAX = 10_000  # letters in one request
REDRIVE_CHUNK = 1_000
PARTS_MAX = 64  # that one request for a page of history looks into
QUEUES_AT_ONCE = 32
TIME_S_MIN = 3.0  # left, or a page ends and a redrive stops here


# ── Queues ───────────────────────────────────────────────────────────────────
def list_queues(request: RequestContext) -> QueueFlow[Queues]:
    """One page of the queues' statistics."""
    query = request.query
    limit = validation.whole_number(query.get("limit", PAGE_DEFAULT), "limit", 1, QUEUES_MAX)
    after = query.get("cursor")
    if after is not None and not validation.is_queue_name(after):
        raise Rejected("cursor: pass the one that the last page answered, or none.", field="cursor")
    names, more = yield from _registered(after, limit)
    found: list[dict[str, Any]] = []
    while len(found) < len(names):
        if found and request.left < TIME_S_MIN:
            more = True
            break
        group = names[len(found) : len(found) + QUEUES_AT_ONCE]
        found += yield from together([_stats_of(request, name) for name in group])
    return Queues(queues=found, cursor=names[len(found) - 1] if more and found else None)


def _registered(after: str | None, limit: int) -> Flow[tuple[list[str], bool]]:
    names: list[str] = []
    place = REGISTER + (after or "")
    while True:
        reply = yield List(REGISTER, after=place, limit=limit - len(names))
        if not isinstance(reply, Listed):
            raise unavailable(reply, "the list of queues")
        found = (key.removeprefix(REGISTER) for key in reply.keys)
        names.extend(name for name in found if validation.is_queue_name(name))  # others are not ours
        if not reply.more or len(names) == limit:
            return names, reply.more
        place = reply.keys[-1]


def _stats_of(request: RequestContext, name: str) -> Flow[dict[str, Any]]:
    """A queue that cannot be read does not hide the others."""
    try:
        steering = AdminFlows(
            name, PassThroughCodec(), request.machine, Writers(_no_writer), request.store.place
        )
        return (yield from steering.stats())  # type: ignore[misc]
    except OsqueueError as error:
        return {"queue": name, **msgspec.to_builtins(Failure(error=fault_of(error)))}


def _no_writer(shard: int) -> Any:
    raise AssertionError("statistics are read, and nothing is written for them")


def stats(request: RequestContext) -> QueueFlow[dict[str, Any]]:
    """Jobs by state, counters and settings."""
    return (yield from request.warm.steering.stats())


def flow(request: RequestContext) -> QueueFlow[FlowUsage]:
    """All limits of the queue, and what is used of them."""
    return (yield from request.warm.steering.flow())


def groups(request: RequestContext) -> QueueFlow[bytes]:
    """Groups that run, or that something holds, and why."""
    limit = validation.whole_number(request.query.get("limit", PAGE_DEFAULT), "limit", 1, QUEUES_MAX)
    found = yield from request.warm.steering.groups(limit)
    return fitted(len(found), lambda most: QueueGroups(groups=found[:most]))


def events(request: RequestContext) -> QueueFlow[bytes]:
    """Transitions of the queue's jobs, from a cursor on."""
    from ..operations.events import EVENTS_PER_PAGE_MAX, EventReader, since_of  # where somebody listens

    query = request.query
    limit = validation.whole_number(query.get("limit", EVENTS_PER_PAGE_MAX), "limit", 1, EVENTS_PER_PAGE_MAX)
    wait_s = request.wait_s(query.get("wait"))
    reader = EventReader(
        request.warm.flows, since_of(query.get("since")), creates=False, records=request.may_change
    )
    found = yield from reader.page(limit, wait_s)

    def page(most: int) -> EventPage:
        cursor = reader.cursor if most >= len(found) else found[most - 1].cursor
        return EventPage(events=found[:most], cursor=cursor)

    return fitted(limit, page)


def configure(request: RequestContext) -> QueueFlow[dict[str, Any]]:
    """Change settings; answers the statistics."""
    settings: Settings = request.read()
    changes = said(settings)
    if changes:
        yield from request.warm.steering.configure(**changes)
    return (yield from stats(request))


def cancel_many(request: RequestContext) -> QueueFlow[CancelledMany]:
    """Cancel all waiting jobs that match."""
    body: CancelMany = request.read()
    return (
        yield from request.warm.steering.cancel_many(
            body.kinds, body.group, body.enqueued_before, body.dry_run, body.batch
        )
    )


def configure_group(request: RequestContext) -> QueueFlow[dict[str, Any]]:
    """Change what one group has of its own; answers the statistics."""
    body: GroupWish = request.read()
    yield from request.warm.steering.configure(groups={request.path["group"]: asdict(body)})
    return (yield from stats(request))


# ── Dead letters ─────────────────────────────────────────────────────────────
def redrive(request: RequestContext) -> QueueFlow[Redriven]:
    """Queue dead letters again; stops in time, or where it cannot go on, and says whether it left some."""
    body: Redrive = request.read()
    redrive_limit(body.limit)
    flows = request.warm.steering
    which = (body.kinds, body.error)
    if body.dry_run:
        there = yield from flows.redrive(None, *which, True, body.fingerprint, jobs=body.jobs)
        return Redriven(jobs=min(there, body.limit or there), more=there > (body.limit or there))
    most = min(body.limit or REDRIVE_MAX, REDRIVE_MAX)
    done = RedriveProgress()
    try:
        while done.moved < most:
            mark = min(done.moved + REDRIVE_CHUNK, most)
            yield from flows.redrive(mark, *which, False, body.fingerprint, jobs=body.jobs, so_far=done)
            if done.moved < mark:
                return Redriven(jobs=done.moved)
            if request.left < TIME_S_MIN:
                return Redriven(jobs=done.moved, more=True)
        more = (yield from flows.redrive(1, *which, True, body.fingerprint, jobs=body.jobs)) > 0
    except OsqueueError:
        if not done.moved:
            raise
        more = True  # the answer has to name what is queued again by now; if the error stays, the next request meets it
    return Redriven(jobs=done.moved, more=more)


def dead_letters(request: RequestContext) -> QueueFlow[bytes]:
    """One page of dead letters."""
    query = request.query
    asked = query.get("include", "")
    flows = request.warm.steering

    def page(limit: int) -> QueueFlow[DeadLetters]:
        which = (query.get("kind"), query.get("error"), query.get("fingerprint"), asked)
        jobs, cursor = yield from flows.dead_letters(limit, query.get("cursor"), *which)
        return DeadLetters(jobs=[answer_with(DeadLetterAnswer, each) for each in jobs], cursor=cursor)

    if asked:
        request.note([], include=asked)
    return (yield from fitting(query.get("limit", PAGE_DEFAULT), page))


def dead_letter_groups(request: RequestContext) -> QueueFlow[bytes]:
    """Dead letters by the error they died of."""
    query = request.query
    found = yield from request.warm.steering.dead_letter_groups(query.get("kind"), query.get("error"))
    return fitted(len(found), lambda limit: DeadGroups(groups=found[:limit], more=limit < len(found)))


# ── Erasing ──────────────────────────────────────────────────────────────────
def purge(request: RequestContext) -> QueueFlow[Purged]:
    """Erase jobs for good."""
    body: Purge = request.read()
    for each in body.jobs:
        validation.job_name(each)
    done = yield from request.warm.steering.purge(body.jobs, body.dead_only)
    request.note(done.jobs)
    return done


# ── The archive ──────────────────────────────────────────────────────────────
def history(request: RequestContext) -> QueueFlow[bytes]:
    """One page of archived jobs, of one part. So a reader finds repeated records by neighbouring hours."""
    query = request.query
    limit = validation.whole_number(query.get("limit", HISTORY_MAX), "limit", 1, HISTORY_MAX)
    window = archive.window(query.get("since"), query.get("until"))
    part, at = _read_cursor(request.name, query.get("cursor"))
    for _ in range(PARTS_MAX):
        if not part or at < 0:
            names = yield from archive.parts(request.name, window[0], part)
            if not names:
                return msgspec.json.encode(Page(jobs=[], part=part))
            part, at = names[0], 0
        (records,) = yield from archive.read([part])
        page, at = _take(records, at, limit, window)
        if page or request.left < TIME_S_MIN:
            return msgspec.json.encode(
                Page(jobs=page, part=part, cursor=_write_cursor(part, at))  # type: ignore[arg-type]
            )
    return msgspec.json.encode(Page(jobs=[], part=part, cursor=_write_cursor(part, at)))


def _take(
    records: Sequence[ArchiveRecord], at: int, limit: int, window: tuple[int | None, int | None]
) -> tuple[list[msgspec.Raw], int]:
    """The next records of a part that are wanted, encoded, and where to go on; -1: with the next part."""
    since, until = window
    page: list[msgspec.Raw] = []
    room = ANSWER_BYTES_MAX - limits.KB
    while at < len(records) and len(page) < limit:
        finished = records[at].finished_ms
        if (since is None or finished >= since) and (until is None or finished < until):
            encoded = msgspec.json.encode(archived_view(records[at]))
            room -= len(encoded) + 1
            if room < 0 and page:
                return page, at
            page.append(msgspec.Raw(encoded))
        at += 1
    return page, at if at < len(records) else -1


def _write_cursor(part: str, at: int) -> str:
    return urlsafe_b64encode(msgspec.json.encode((part, at))).decode().rstrip("=")


def _read_cursor(queue: str, cursor: str | None) -> tuple[str, int]:
    if cursor is None:
        return "", 0
    try:
        data = urlsafe_b64decode((cursor + "=" * (-len(cursor) % 4)).encode("ascii"))
        part, at = msgspec.json.decode(data, type=tuple[str, int])
        folder = archive.folder_of(queue)
        if part.startswith(folder) and part[len(folder) :].isascii() and len(part) <= 512:
            return part, at
    except (ValueError, msgspec.MsgspecError):
        pass  # said below
    raise Rejected("cursor: pass the one that the last page answered, or none.", field="cursor")


# ── Upkeep ───────────────────────────────────────────────────────────────────
def reap(request: RequestContext) -> QueueFlow[ReapReport]:
    """One pass over a queue."""
    return (yield from request.warm.steering.reap())


# ── The API itself ───────────────────────────────────────────────────────────
def openapi(request: RequestContext) -> QueueFlow[bytes]:
    """The contract."""
    from .openapi import document_bytes

    yield from ()
    return document_bytes()


def health(request: RequestContext) -> QueueFlow[Health]:
    """The function runs. It does not read the store."""
    yield from ()
    return Health(status="ok", version=__version__)
