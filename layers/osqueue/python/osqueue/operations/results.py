"""What became of a job: status, result, how long the result lives, and waiting for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from .. import limits
from ..commit.effects import AwaitNews, Flow, QueueFlow, Submit, together
from ..commit.retry import HEAD_READ, ask, impatient
from ..commit.writer import HEAD
from ..core import state as stored
from ..core.job_ops import SetResultTtl
from ..core.ops import Code
from ..core.state import CANCELLED, FAILED, State
from ..errors import (
    Damaged,
    Expired,
    JobCancelled,
    JobFailed,
    NotFinished,
    NotFound,
    OsqueueError,
    Throttled,
    WaitTimeout,
    copy_of,
)
from ..model import validation
from ..model.included import JobDetails, include_of
from ..model.job_options import OPTIONS
from ..model.keys import is_key, job_id, key_of, shard_of
from ..objects import finished_tables, id_index
from ..objects.layout import root_of
from ..objects.lookup import JobLocation, find_in_state, seek, seek_many
from ..objects.segments import find_many, read_bodies
from ..stores.base import Failed, Get
from . import waiters
from .include import bytes_asked, included
from .waiters import SEARCH_SECONDS_MAX, CompletionBoard, JobWaiter
from .waiting import WaitFlows

AMEND_TRIES = 20
PAGE_BYTES = 64 * 1024 * limits.KB  # what a page of jobs with their contents may take of a caller's memory
CLOCK_REFUSED_SECONDS = 60.0  # until the store's time is asked again
OVER = waiters.OVER


class LocatedJob(Struct, frozen=True):
    """A job that was found, and the state of its shard then."""

    key: bytes
    state: State
    location: JobLocation

    def now(self) -> LocatedJob:
        """The job as it stands by its head: see ``JobLocation.at``."""
        return LocatedJob(self.key, self.state, self.location.at(self.state))


class ResultFlows(WaitFlows):
    """The flows of callers who ask about their jobs, by job id or by their own id."""

    page_bytes = PAGE_BYTES  # of contents in one answer about many jobs
    content_bytes_max: int | None = None  # of one of them; None: any
    clock_again = float("-inf")  # monotonic seconds: the store's time is not measured before

    def locate(self, text: str) -> QueueFlow[LocatedJob | None]:
        """The job of this id: a job id of ours, or else the newest job enqueued under a client's id."""
        if is_key(text):
            found = yield from self._seek(key_of(text))
            if found is not None:
                return found
        (entry,) = yield from id_index.read(self.queue, [validation.job_name(text)])
        if entry is None:
            return None
        found = yield from self._seek(entry.key)
        if found is None and entry.restarts:  # nobody has enqueued the other yet
            found = yield from self._seek(entry.restarts)
        return (yield from self._followed(found))

    def _followed(self, found: LocatedJob | None) -> Flow[LocatedJob | None]:
        """The job that an id stands for: whoever replaced the one of its entry may not have come to tell the entry."""
        while found is not None and (row := found.location.row) is not None and row.successor is not None:
            key, state = row.successor, found.state
            try:
                location = yield from find_in_state(root_of(self.queue, shard_of(key)), state, key)
                found = None if location is None else LocatedJob(key, state, location)
            except NotFound:  # the head has moved on
                found = yield from self._seek(key)
        return found

    def located_now(self, text: str) -> QueueFlow[LocatedJob | None]:
        """The same as it stands by the time of its head: see ``JobLocation.at``."""
        found = yield from self.locate(text)
        return None if found is None else found.now()

    def _seek(self, key: bytes) -> Flow[LocatedJob | None]:
        if shard_of(key) >= limits.SHARDS_MAX:
            return None
        state, location = yield from seek(self.queue, shard_of(key), key)
        return None if state is None or location is None else LocatedJob(key, state, location)

    def _locate_many(self, names: Collection[str]) -> QueueFlow[dict[str, LocatedJob]]:
        """The same of many, by these ids: each shard's head is read once, or twice where ids of clients are asked."""
        keys = {name: key_of(name) for name in names if is_key(name)}
        there = yield from self._seek_all(keys.values())
        theirs = [name for name in names if keys.get(name) not in there]
        entries = yield from id_index.read(self.queue, [validation.job_name(name) for name in theirs])
        known = {name: entry for name, entry in zip(theirs, entries, strict=True) if entry is not None}
        keys.update((name, entry.key) for name, entry in known.items())
        there.update((yield from self._seek_all({entry.key for entry in known.values()})))
        behind = {
            name: each.restarts for name, each in known.items() if each.key not in there and each.restarts
        }
        if behind:  # nobody has enqueued those yet
            keys.update(behind)
            there.update((yield from self._seek_all(set(behind.values()))))
        found = {name: there[key] for name, key in keys.items() if key in there}
        for name in theirs:
            followed = yield from self._followed(found.pop(name, None))
            found.update({} if followed is None else {name: followed})
        return found

    def _seek_all(self, keys: Collection[bytes]) -> Flow[dict[bytes, LocatedJob]]:
        shards: dict[int, list[bytes]] = {}
        for key in keys:
            if shard_of(key) < limits.SHARDS_MAX:
                shards.setdefault(shard_of(key), []).append(key)
        found: dict[bytes, LocatedJob] = {}
        for shard, here in shards.items():
            state, there = yield from seek_many(self.queue, shard, here)
            if state is not None:
                found.update((key, LocatedJob(key, state, location)) for key, location in there.items())
        return found

    def status(self, text: str, include: str | Iterable[str] = ()) -> QueueFlow[JobDetails | None]:
        """The job as the committed state shows it; None when there is none, or its result has expired."""
        wanted = include_of(include)
        found = yield from self.located_now(text)
        if found is None or (yield from self._expired(found)):
            return None
        (details,) = yield from self._details([found], wanted)
        return details

    def status_many(
        self, texts: Sequence[str], include: str | Iterable[str] = ()
    ) -> QueueFlow[list[JobDetails | None]]:
        """The same of the first of many, in their order: as many as ``page_bytes`` has room for, and at least one."""
        wanted = include_of(include)
        names = [validation.job_name(text) for text in texts]
        there = yield from self._locate_many(dict.fromkeys(names))
        there = {name: each.now() for name, each in there.items()}
        for name, each in list(there.items()):
            if (yield from self._expired(each)):
                del there[name]
        room = self.page_bytes
        fitting: list[LocatedJob | None] = []
        for found in map(there.get, names):
            room -= 0 if found is None else bytes_asked(found.location, wanted)
            if room < 0 and fitting:
                break
            fitting.append(found)
        details = iter((yield from self._details([each for each in fitting if each is not None], wanted)))
        return [None if each is None else next(details) for each in fitting]

    def _details(self, found: Sequence[LocatedJob], include: Sequence[str]) -> Flow[list[JobDetails]]:
        """Jobs as callers see them, with what was asked for."""
        shards: dict[int, list[int]] = {}
        for at, each in enumerate(found):
            shards.setdefault(shard_of(each.key), []).append(at)
        details: dict[int, JobDetails] = {}
        for shard, places in shards.items():
            here = [found[at].location for at in places]
            more = yield from self.included(shard, here, include)
            for at, location, fields in zip(places, here, more, strict=True):
                details[at] = JobDetails(**asdict(location.view()), **fields)
        return [details[at] for at in range(len(found))]

    def included(
        self, shard: int, found: Sequence[JobLocation], include: Sequence[str]
    ) -> Flow[list[dict[str, Any]]]:
        """What was asked for beside jobs of one shard."""
        if not include:
            return [{} for _ in found]
        return (
            yield from included(
                root_of(self.queue, shard), self.codec, found, include, self.content_bytes_max
            )
        )

    def _expired(self, found: LocatedJob) -> Flow[bool]:
        if found.location.row is None:
            return False
        return found.location.expired((yield from self.moment(shard_of(found.key), found.state)))

    def moment(self, shard: int, state: State) -> Flow[int]:
        """The time by the store's clock, milliseconds."""
        writer = self.writers[shard]
        now = self.machine.monotonic()
        if writer.clock_is_due() and now >= self.clock_again:
            reply = yield from writer.measure_clock()  # if that fails, the state's own time is used
            if isinstance(reply, Failed) and reply.error.permanent:  # as for a caller that may only read
                self.clock_again = now + CLOCK_REFUSED_SECONDS
        return writer.now_ms(state)

    # ── Results ──────────────────────────────────────────────────────────────
    def result(self, text: str) -> QueueFlow[Any]:
        """The result, or an error that says why there is none."""
        found = yield from self.located_now(text)
        if found is None:
            raise NotFound(
                f"job {text}: no such job in this queue. It never was, or was forgotten"
                f" {limits.EXPIRED_KNOWN_MS // limits.HOUR_MS} h after its result expired; the archive may tell."
            )
        if found.location.state not in OVER:
            raise NotFinished(f"job {text} is {found.location.state}. Ask again later, or wait for it.")
        if (yield from self._expired(found)):
            raise _expired(text)
        return (yield from self.result_of(found.key, found.location))

    def result_of(self, key: bytes, location: JobLocation) -> Flow[Any]:
        """The result of a job that is over; raises JobFailed or JobCancelled."""
        job, row, text = location.job, location.row, job_id(key)
        if location.state == FAILED:
            raise _failure(text, job)
        if location.state == CANCELLED:
            why = f": {row.why}" if row is not None and row.why else ""
            raise JobCancelled(f"job {text} was cancelled{why}")
        assert row is not None
        if not row.result and not row.codec:
            return None
        (data,) = yield from read_bodies(root_of(self.queue, shard_of(key)), [row.result])
        if isinstance(data, NotFound):
            raise (yield from self._gone(key, row, data))
        if isinstance(data, OsqueueError):
            raise data
        return self.codec.decode(data, row.codec or job.codec, field="result")

    def _gone(self, key: bytes, row: stored.FinishedJob, missing: NotFound) -> Flow[Damaged | Expired]:
        """Why the result that a row names is not there: lost, or collected since the row was read."""
        found = yield from self._seek(key)
        kept = None if found is None else found.location.row
        if found is None or kept is None or kept.result != row.result or (yield from self._expired(found)):
            return _expired(job_id(key))
        return Damaged(
            f"job {job_id(key)}: its result is lost. osqueue doctor tells what else is. ({missing.message})"
        )

    def update_result_ttl(self, text: str, ttl: float) -> QueueFlow[None]:
        """Let a job's result live for ``ttl`` seconds from now on, or from its end on if it has not finished."""
        ttl_ms = OPTIONS["result_ttl"].read(ttl)
        for _ in range(AMEND_TRIES):
            found = yield from self.locate(text)
            if found is None:
                raise NotFound(f"job {text}: no such job in this queue.")
            at = found.location
            if at.state == FAILED:
                raise NotFinished(
                    f"job {text} failed: it has no result, and is kept for the queue's dead_ttl."
                )
            if at.row is not None and at.row.successor is not None:
                raise NotFinished(
                    f"job {text} was replaced by job {job_id(at.row.successor)}, which will have the result."
                )
            op = SetResultTtl(found.key, ttl_ms)
            if at.table:
                op = SetResultTtl(found.key, ttl_ms, at.row, at.table, seen=found.state.seq)
            elif at.place is not None:
                place = at.place
                op = SetResultTtl(
                    found.key,
                    ttl_ms,
                    span=place.top.name,
                    offset=place.offset,
                    index=place.index,
                    vector=place.vector,
                )
            answer = yield Submit(shard_of(found.key), (op,))
            code = answer.outcomes[0].code
            if code == Code.OK:
                return
            if code == Code.EXPIRED:
                raise Expired(f"job {text}: its result is not kept any more.")
            if code == Code.CROWDED:
                raise Throttled(
                    f"job {text}: too many unfinished jobs had their TTL changed. Repeat it later."
                )
        raise Throttled(f"job {text}: it moves too fast to change its TTL just now. Repeat it.")

    # ── Waiting ──────────────────────────────────────────────────────────────
    def wait(self, key: bytes, timeout: float) -> QueueFlow[Any]:
        """The result of a job once it is over, or WaitTimeout. Raises at once what waiting does not mend.

        A commit of this process wakes it. For those of others somebody looks at the head, by a conditional GET, for
        all who wait for this shard here: see ``head_board``.
        """
        began = now = self.machine.monotonic()
        until = now + timeout
        board = self.hearing_board(shard_of(key))
        with board.joined(key, self.pace(), now, until + SEARCH_SECONDS_MAX) as waiter:
            while True:
                waiter.news = False
                location = yield from self._news(board, waiter)
                now = self.machine.monotonic()
                over = now >= until or self.closing
                if location is None and over:
                    yield from self.look((board,), waiter.pace)
                    location = yield from self._news(board, waiter)
                if location is not None:
                    return (yield from self._told(key, location))
                if board.silence is not None and board.refused_since(began):
                    raise copy_of(board.silence)
                if over:
                    raise _too_late(job_id(key), board)
                at = board.look_at(waiter, now)
                if at > now:
                    yield AwaitNews(waiter, min(at, until) - now)
                else:
                    yield from self.look((board,), waiter.pace)

    def _told(self, key: bytes, location: JobLocation) -> QueueFlow[Any]:
        """The result of a job that a head of this process has told of, perhaps before its writer had flushed it."""
        writer = self.writers[shard_of(key)]
        if writer.flushes:
            reply = yield from ask(Get(writer.root + HEAD, length=0, flushed=True), HEAD_READ)
            if isinstance(reply, Failed):
                raise reply.error
        return (yield from self.result_of(key, location))

    def _news(self, board: CompletionBoard, waiter: JobWaiter) -> QueueFlow[JobLocation | None]:
        """What the heads seen here since this caller came tell, and what lies outside them, read for all who wait."""
        search = board.begin(waiter, self.machine.monotonic())
        if search is not None:
            root = root_of(self.queue, shard_of(waiter.key))
            try:
                for batch in search.batches():
                    looks = [_ends_in(root, each, keys, search.known) for each, keys in batch]
                    answers = yield from impatient(together(looks))
                    for (each, _), answer in zip(batch, answers, strict=True):
                        search.note(each.name, answer)
                search.whole = True
            finally:
                board.end(search, self.machine.monotonic())
            if search.complaint is not None and search.complaint.permanent and waiter.found is None:
                raise search.complaint
        return waiter.found


def _ends_in(
    root: str, place: stored.TableRef | stored.Span, keys: list[bytes], known: Collection[str]
) -> Flow[dict[bytes, JobLocation] | OsqueueError]:
    """The jobs of these keys that are over in one table, or among the dead letters of one segment."""
    try:
        if isinstance(place, stored.TableRef):
            kept = yield from finished_tables.find_many(root, (place,), keys, known)
            return {
                key: JobLocation(each.row.state, each.row.job, row=each.row, table=place.name)
                for key, each in kept.items()
            }
        dead = yield from find_many(root, place, keys)
        return {key: JobLocation(FAILED, each.job, place=each) for key, each in dead.items()}
    except OsqueueError as error:
        return error


def _too_late(text: str, board: CompletionBoard) -> WaitTimeout:
    why = ""
    if board.silence is not None:
        why = f" The latest look at the queue brought no answer: {board.silence.message}"
    elif board.damage is not None:
        why = f" Something that may tell of it cannot be read: {board.damage.message}"
    return WaitTimeout(
        f"job {text} was not finished in time. It goes on; read its result later.{why}", job_id=text
    )


def _expired(text: str) -> Expired:
    return Expired(
        f"job {text}: its result is not kept any more. The archive has its record, once a reap has written it."
    )


def _failure(text: str, job: stored.JobRecord) -> JobFailed:
    last = job.history[-1] if job.history else None
    error = last.error or f"its lease ended ({last.outcome})" if last is not None else ""
    kind = last.error_type if last is not None else ""
    return JobFailed(
        f"job {text} failed after {job.attempt} attempts: {error}",
        job_id=text,
        type=kind,
        error=error.removeprefix(f"{kind}: "),
        traceback=job.trace,
    )
