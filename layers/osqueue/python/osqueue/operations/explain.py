"""What happened to a job, and why: from the committed state, or from the archive where only that knows it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from shlex import quote

from msgspec.structs import replace

from .. import crontab, limits
from ..commit.effects import QueueFlow
from ..core.ageing import since_ms
from ..core.archive_record import ArchiveRecord
from ..core.gate import Closed, gate_of
from ..core.group_rates import group_allowance
from ..core.labels import group_digest
from ..core.ops import Code
from ..core.pauses import without_ended
from ..core.rates import burst_of, group_bucket_of
from ..core.rows import BatchRow
from ..core.scheduling import find
from ..core.settings import KindSettings, QueueSettings
from ..core.state import (
    CANCELLED,
    COMPLETED,
    FAILED,
    FAILING,
    QUEUED,
    Backlog,
    JobRecord,
    Lane,
    Links,
    State,
    waiting,
)
from ..errors import NotFound
from ..model import validation
from ..model.explain import (
    ARCHIVE,
    JobContext,
    Story,
    duration_text,
    explain_job,
    iso,
    paused_text,
    resumed_text,
    when,
)
from ..model.fields import moment
from ..model.job import archived_view
from ..model.keys import drawn_ms, is_key, job_id, key_of, shard_of
from ..objects import archive, id_index
from ..objects.layout import read_state
from ..objects.lookup import JobLocation
from .lending import limiter_held, limiter_state
from .results import LocatedJob, ResultFlows

PARTS_MAX = 1_000  # archive parts that one question may read
EMPTY = "''"  # how a shell writes it
CLOCK_SLACK_MS = limits.DAY_MS  # by how much the clock that drew a key may have been ahead


class ExplainFlows(ResultFlows):
    """The flow of people who ask what happened."""

    search = "'osqueue archive cat ADDRESS {queue} --job {job} --since TIME'"  # what goes through the archive

    def story(self, text: str) -> QueueFlow[Story]:
        """The story of a job, by job id or by the client's own id. Raises NotFound."""
        found = yield from self.located_now(text)
        if found is not None:
            now = yield from self.moment(shard_of(found.key), found.state)
            settings = yield from self._settings_of(found)
            standing = _standing(self.queue, found, settings, now)
            if not standing.held and found.location.state == QUEUED and settings.limiter:
                limiter = yield from limiter_state(settings.limiter)
                standing = replace(standing, held=limiter_held(found.state, limiter, now))
            ahead_ms = self.writers[shard_of(found.key)].ahead_ms(found.state)
            standing = replace(standing, stands_still=ahead_ms / 1000)
            return explain_job(found.location.view(), standing, moment(now))
        key = yield from self._key_of(text)
        record = yield from self._recorded(key)
        about = JobContext(
            self.queue,
            ARCHIVE,
            scheduled_at=moment(record.scheduled_ms) if record.scheduled_ms else None,
            why=record.why,
        )
        return explain_job(archived_view(record), about, moment(self.machine.now_ms()))

    def _settings_of(self, found: LocatedJob) -> QueueFlow[QueueSettings]:
        """The queue's settings: those of the first shard, which every other one copies."""
        if shard_of(found.key) == 0:
            return found.state.settings
        first = yield from read_state(self.queue, 0)
        return found.state.settings if first is None else first.settings

    def _key_of(self, text: str) -> QueueFlow[bytes]:
        """The key of a job that the queue does not know any more."""
        if is_key(text):  # nobody's own id has this form
            if shard_of(key_of(text)) < limits.SHARDS_MAX:
                return key_of(text)
        else:
            (entry,) = yield from id_index.read(self.queue, [validation.job_name(text)])
            if entry is not None:
                return entry.key
        raise NotFound(
            f"job {text}: no such job in this queue, and the archive is sorted by time, not by clients' ids."
            f" {self.search.format(queue=self.queue, job='ID')} looks through it."
        )

    def _recorded(self, key: bytes) -> QueueFlow[ArchiveRecord]:
        """What the archive knows of a job, by the parts of its shard from when its key was drawn on.

        Only then by those of the day before, the latest hours first: the clock that drew the key may have been ahead.
        """
        text, drawn = job_id(key), drawn_ms(key)
        search = _Search(self.queue, key)
        yield from search.read(drawn - limits.HOUR_MS)
        read, last = search.parts, search.last
        if not search.found:
            search.parts = 0
            for since in range(drawn - 2 * limits.HOUR_MS, drawn - CLOCK_SLACK_MS - 1, -limits.HOUR_MS):
                yield from search.read(since, archive.hour_of(self.queue, max(0, since + limits.HOUR_MS)))
                if search.found:
                    break
        if search.found:
            return _whole(search.found)
        if read >= PARTS_MAX:
            hour = last.rpartition("/")[0].partition("date=")[2].replace("/hour=", " ")
            raise NotFound(
                f"job {text}: not in the queue, and not in the first {read:,} archive parts since its id was drawn (up"
                f" to {hour} h UTC). {self.search.format(queue=self.queue, job=text)} goes on."
            )
        raise NotFound(
            f"job {text}: neither the queue nor its archive knows it. It never was, it was purged, or its archive"
            " parts were deleted."
        )


class _Search:
    """Reads archive parts of one job's shard until one says how the job ended."""

    def __init__(self, queue: str, key: bytes) -> None:
        self.queue = queue
        self.job_id = job_id(key)
        self.shard = f"{shard_of(key):02d}-"
        self.found: list[ArchiveRecord] = []
        self.parts = 0  # that were read, up to PARTS_MAX
        self.last = ""  # the latest part that was listed

    def read(self, since_ms: int, until: str = "") -> QueueFlow[None]:
        """Go through the parts from an hour on, up to a name."""
        last = ""
        while self.parts < PARTS_MAX:
            names = yield from archive.parts(self.queue, max(0, since_ms), last)
            if not names:
                return
            self.last = last = names[-1]
            mine = [name for name in names if name.rpartition("/")[2].startswith(self.shard)]
            if until:
                mine = [name for name in mine if name < until]
            mine = mine[: PARTS_MAX - self.parts]
            for at in range(0, len(mine), archive.PARTS_AT_ONCE):
                group = mine[at : at + archive.PARTS_AT_ONCE]
                self.parts += len(group)
                for records in (yield from archive.read(group)):
                    self.found.extend(each for each in records if each.job_id == self.job_id)
                if any(each.state in (COMPLETED, CANCELLED) for each in self.found):
                    return
            if until and last >= until:
                return


def _whole(records: Sequence[ArchiveRecord]) -> ArchiveRecord:
    """The latest record of a job, with the attempts of the earlier ones as well."""
    latest = max(records, key=lambda each: (each.run, each.finished_ms))
    runs = {attempt.run: attempt for each in records for attempt in each.attempts}
    return replace(latest, attempts=tuple(runs[run] for run in sorted(runs)))


def _standing(queue: str, found: LocatedJob, settings: QueueSettings, now_ms: int) -> JobContext:
    at, settings = found.location, without_ended(settings, now_ms)
    own = replace(without_ended(found.state.settings, now_ms), limiter="")  # which is told of by itself
    state = replace(found.state, settings=own)
    return JobContext(
        queue,
        paused=settings.paused,
        paused_until=moment(settings.paused_until_ms) if settings.paused_until_ms else None,
        held=_held(queue, state, at.job, now_ms) if at.state == QUEUED else "",
        turn=_turn(state, at.job, now_ms) if at.state == QUEUED else "",
        ahead=ahead_of(found.state, at) if at.state == QUEUED else None,
        dead_ttl=settings.dead_ttl_ms / 1000,
        scheduled_at=moment(at.job.scheduled_ms) if at.job.scheduled_ms else None,
        why=at.row.why if at.row is not None else "",
        made_by=_made_by(found.state, at.job),
        consumers=_consumers(found.state, at.job, now_ms) if at.state == QUEUED else (),
    )


def _consumers(state: State, job: JobRecord, now_ms: int) -> tuple[str, ...]:
    if not state.settings.consumers:
        return ()
    from .consumer_use import consumers_told  # where a queue has some

    return consumers_told(state, job, now_ms)


def _made_by(state: State, job: JobRecord) -> str:
    """Which schedule made a job, and for when, in its own time zone where it is known here; "" where none did."""
    if job.links is not None and (linked := _linked(state, job.links)):
        return linked
    if not job.schedule:
        return ""
    row, zone = find(state.schedules, job.schedule), crontab.zone_of("UTC")
    with suppress(LookupError, ValueError):
        zone = crontab.zone_of(row.zone if row is not None else "UTC")
    return f"made by schedule {job.schedule!r} for {moment(job.scheduled_ms).astimezone(zone):%Y-%m-%d %H:%M} {zone}"


def _linked(state: State, links: Links) -> str:
    """Which job or batch ended when a job came, and how far the batch is that it is of; "" where there is neither."""
    words = []
    if links.parent:
        row = state.batches.get(links.parent)
        ended = job_id(links.parent)
        if row is not None:
            words.append(f"made when batch {_batch_name(links.parent, row)} was over")
        else:
            words.append(f"made when {ended} ended")
    if links.batch:
        row = state.batches.get(links.batch)
        if row is None:
            words.append(f"in batch {job_id(links.batch)}, which is forgotten")
        else:
            far = f"{row.left:,} of {row.total:,} left" + (f", {row.failed:,} dead" if row.failed else "")
            words.append(f"in batch {_batch_name(links.batch, row)}: {far}")
    return "; ".join(words)


def _batch_name(key: bytes, row: BatchRow) -> str:
    return repr(row.name) if row.name else job_id(key)


def _turn(state: State, job: JobRecord, now_ms: int) -> str:
    """What the turn of a job that waits goes by beside its priority; "" where that is all."""
    words = _aged(job, state.settings, now_ms), _shared(state, job)
    return "; ".join(filter(None, words))


def _shared(state: State, job: JobRecord) -> str:
    """That groups of which fewer jobs run go before a job's."""
    running = sum(lease.job.group == job.group for lease in state.leases.values())
    if not state.settings.fair or not job.group or not running:
        return ""
    return f"its group {job.group!r} has {running:,} running; groups with fewer go first"


def _aged(job: JobRecord, settings: QueueSettings, now_ms: int) -> str:
    """As which priority a job counts that waits; "" where that is its own."""
    waited = now_ms - since_ms(job)
    if not settings.ageing_ms or waited < settings.ageing_ms:
        return ""
    counts = job.priority - waited // settings.ageing_ms
    return f"priority {job.priority}: it has waited {duration_text(waited / 1000)}, so it counts as {counts}"


def _named(kind: str) -> str:
    return f"kind {kind}" if kind else "the kind without a name"


def _held(queue: str, state: State, job: JobRecord, now_ms: int) -> str:
    """Why a job does not start now, and what lets it; "" where nothing holds it."""
    return _kind_held(state, job, now_ms) or (group_held(queue, state, job, now_ms) if job.group else "")


def group_held(queue: str, state: State, job: JobRecord, now_ms: int) -> str:
    """The same of the group of a job."""
    name, hold = f"its group {job.group!r}", state.holds.get(job.group)
    resume = f"osqueue queue resume ADDRESS {queue} --group {quote(job.group)}"
    if hold is not None and hold.paused:
        return f"{name} is paused; nothing of it is handed out until somebody resumes it ({resume!r})"
    if hold is not None and hold.why == FAILED:
        redrive = f"redrive it, or resume the group ({resume!r})"
        return f"{name} was stopped by dead letter {job_id(hold.key)}; {redrive}"
    if hold is not None:
        failed = "failed and is tried again" if hold.why == FAILING else "was put off"
        due = next((each.due_ms for each in state.delayed.jobs if each.key == hold.key), 0)
        at = f" {when(moment(due), moment(now_ms))}" if due else ""
        return (
            f"{name} waits for job {job_id(hold.key)}, which {failed}{at}; it goes on when that job has ended"
        )
    mine = [lease for lease in state.leases.values() if lease.job.group == job.group]
    most = state.settings.group_running_of(job.group)
    if most and len(mine) >= most:
        first = min(mine, key=lambda lease: lease.started_ms)
        runs = (
            f"job {job_id(first.job.key)} runs since {iso(moment(first.started_ms))} (worker {first.worker})"
        )
        return f"{name} is at {len(mine):,} of {most:,}: {runs}; one more starts when one of them ends"
    if rated := _group_rated(state, job, name, max(now_ms, state.now_ms)):
        return rated
    if len(state.holds) >= limits.GROUP_HOLDS_MAX:
        return f"too many groups of its shard are held ({len(state.holds):,}); resume some, or redrive dead letters"
    return ""


def _group_rated(state: State, job: JobRecord, name: str, now_ms: int) -> str:
    """That the rate of a job's group lets none of it start now, and when it does; "" where one may."""
    rates, group = group_allowance(state.settings, state.starts, now_ms), group_digest(job.group)
    wait_ms = 0 if rates is None else rates.wait_ms(group)
    if rates is None or not wait_ms:
        return ""
    at = when(moment(now_ms + wait_ms), moment(now_ms))
    if rates.lacks_row(group):
        many = (
            f"{limits.GROUP_DEBTS_MAX:,} groups of its shard have started as many jobs as their rates allow"
        )
        return f"{many}, and there is no room to count for {name}; it may start {at} at the soonest"
    own = state.settings.overrides.get(job.group)
    starts, period_ms = own.rate if own is not None and own.rate else state.settings.group_rate
    bucket = group_bucket_of(state.settings, own)
    jobs = "1 job" if starts == 1 else f"{starts:,} jobs"
    burst = 1 if bucket is None else bucket.burst
    return (
        f"{name} may start {jobs} in {duration_text(period_ms / 1000)}, {burst:,} at once;"
        f" the next start is allowed {at}{_counted(job)}"
    )


def _counted(job: JobRecord) -> str:
    """As how many starts a job counts; "" where that is one."""
    return "" if job.units == 1 else f", and this job counts as {job.units:,} starts"


def _kind_held(state: State, job: JobRecord, now_ms: int) -> str:
    """Why no job of a job's kind starts now, and what lets one start; "" where nothing holds it."""
    kind = job.kind
    gate = gate_of(state.settings, state.leases, state.starts, max(now_ms, state.now_ms))
    if gate is None or gate.room_for(kind) > 0:
        return ""
    closed = gate.why_closed((kind,))
    if closed is not None and closed.code in (Code.RATE_LIMITED, Code.KINDS_RATE_LIMITED):
        return _rated(state, job, closed, max(now_ms, state.now_ms))
    if closed is not None and closed.code == Code.KINDS_PAUSED:
        ends = next((row.paused_until_ms for row in state.settings.kinds if row.kind == kind), None)
        until = moment(ends) if ends else None
        words = paused_text(until, moment(now_ms)), resumed_text(until, "it", f" --kind {kind or EMPTY}")
        return f"{_named(kind)} {'; '.join(words)}"
    whose = [lease for lease in state.leases.values() if gate.room() <= 0 or lease.job.kind == kind]
    what = "the queue" if gate.room() <= 0 else _named(kind)
    if not whose:
        return (
            f"this shard may run no job of {what}; raise its limit ('osqueue queue configure --max-running')"
        )
    since = iso(moment(min(lease.started_ms for lease in whose)))
    count = "1 job" if len(whose) == 1 else f"{len(whose):,} jobs"
    where = f"{what} {'runs' if len(whose) == 1 else 'run'}{' in this shard' if state.settings.shards > 1 else ''}"
    return (
        f"{count} of {where}, as many as may, the oldest since {since}; one more starts when one of them ends"
    )


def _rated(state: State, job: JobRecord, closed: Closed, now_ms: int) -> str:
    """That a rate lets no job of a job's kind start now, and when it does."""
    settings = state.settings
    row: QueueSettings | KindSettings = settings
    what = "the queue"
    if closed.code == Code.KINDS_RATE_LIMITED:
        row, what = next(row for row in settings.kinds if row.kind == job.kind), _named(job.kind)
    starts, period_ms = row.rate or (0, 0)
    burst = burst_of((starts, period_ms), row.burst or 0)
    over = f", in {settings.shards} shards" if settings.shards > 1 else ""
    ends = when(moment(now_ms + closed.wait_ms), moment(now_ms))
    jobs = "1 job" if starts == 1 else f"{starts:,} jobs"
    return (
        f"{what} may start {jobs} in {duration_text(period_ms / 1000)}, {burst:,} at once{over};"
        f" the next start is allowed {ends}{_counted(job)}"
    )


# ── How long the queue in front of a job is ──────────────────────────────────
def ahead_of(state: State, at: JobLocation) -> int:
    """About how many queued jobs of the shard are to be claimed before this one.

    Exact while all of them lie in the head; what lies in segments is counted by the keys they may hold.
    """
    job, count = at.job, 0
    if state.settings.ageing_ms:
        return _ahead_by_turn(state, at)
    for lane in state.lanes:
        if lane.priority < job.priority:
            count += waiting(lane.backlog)
        elif lane.priority == job.priority:
            count += (
                _before_in_lane(lane.backlog, at) if _lies_in(lane, at) else _older(lane.backlog, job.key)
            )
    return count


def _ahead_by_turn(state: State, at: JobLocation) -> int:
    """The same in a queue with ageing: a key tells when its job came."""
    turn = since_ms(at.job) + at.job.priority * state.settings.ageing_ms
    count = 0
    for lane in state.lanes:
        if lane.priority == at.job.priority and _lies_in(lane, at):
            count += _before_in_lane(lane.backlog, at)
            continue
        came = max(0, turn - lane.priority * state.settings.ageing_ms)
        count += _older(lane.backlog, came.to_bytes(6, "big") + at.job.key[6:])
    return count


def _lies_in(lane: Lane, at: JobLocation) -> bool:
    if at.place is not None:
        return any(span.name == at.place.top.name for span in lane.backlog.spans)
    return any(job.key == at.job.key for jobs in (lane.backlog.ready, lane.backlog.tail) for job in jobs)


def _before_in_lane(backlog: Backlog, at: JobLocation) -> int:
    key = at.job.key
    for place, job in enumerate(backlog.ready):
        if job.key == key:
            return place
    count = len(backlog.ready)
    if at.place is not None:
        for span in backlog.spans:
            if span.name == at.place.top.name:
                return count + _share(
                    span.count, at.place.offset - span.offset, span.size - span.offset, span.level
                )
            count += span.count
    count += sum(span.count for span in backlog.spans) if at.place is None else 0
    for job in backlog.tail:
        if job.key == key:
            break
        count += 1
    return count


def _share(count: int, before: int, size: int, level: int) -> int:
    """How many jobs of a span lie before a block: by bytes in a segment, half of an index."""
    return count // 2 if level else count * max(0, before) // max(1, size)


def _older(backlog: Backlog, key: bytes) -> int:
    """How many jobs of another kind came before a key."""
    count = sum(job.key < key for jobs in (backlog.ready, backlog.tail) for job in jobs)
    for span in backlog.spans:
        if span.last < key:
            count += span.count
        elif span.first < key:
            count += span.count // 2
    return count
