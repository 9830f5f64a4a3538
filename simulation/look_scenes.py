"""Scenes of looking: jobs, listings, snapshots and the archive, read while others move what is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from osqueue.commit.effects import Effect, Flow
from osqueue.commit.retry import OBJECT
from osqueue.core.job_ops import ClaimJobs, CompleteJobs, Completion, FailedAttempt, FailJobs
from osqueue.core.queue_ops import RedriveJobs, RunTimers
from osqueue.errors import OsqueueError
from osqueue.model.job_filter import JobFilter, JobPage
from osqueue.model.keys import key_of
from osqueue.objects import archive, listing, snapshot
from osqueue.objects.staging import StagingArea
from osqueue.stores.base import Get, List

from .id_scenes import NO_ANSWER, bury_in_segment, damage_segments, entry_of, fill
from .ledger import Violation
from .places import FINISHED, JobPlace
from .promises import Ask
from .scenes import QUEUE, ROOT, Actor, Play, cancelled, head_swap, part_written, segmented
from .shelf_scenes import finish
from .upkeep_scenes import age, collect, endured, table_read

HOUR_SECONDS = 3_600.0
BODIES = "bodies/"
PASSES = 12  # of a reaper: by then what expired is collected


def status(actor: Actor) -> Flow[Any]:
    """Where the job of the id is; what is answered is judged."""
    return actor._asked(Ask(actor.client.name, "status", "a"), actor.flows.status("a"))


def failed(actor: Actor) -> None:
    """The next job fails for good."""
    (lease,) = actor.run(actor.commit(ClaimJobs(1, "worker", 60_000))).answer.outcomes[0].leases
    actor.run(actor.commit(FailJobs((FailedAttempt(lease.job.key, lease.token, "no", final=True),))))


# ── Jobs ─────────────────────────────────────────────────────────────────────
def redriven_into_a_segment(stage: Play) -> Any:
    """A job failed for good and is queued again, in a segment; the head holds its record for the archive yet."""
    caller, other = map(stage.actor, ("caller", "other"))
    caller.run(caller.enqueue("a", "first"))
    failed(other)
    fill(other, 8)
    other.run(other.commit(RedriveJobs(1, 1)))
    fill(other, 8)
    assert entry_of(stage, "a") in segmented(other)
    check_pages(other)
    return caller.run(status(caller)).state


def cancelled_in_a_segment(stage: Play) -> Any:
    """A job was cancelled in its segment, and its record has left the head."""
    caller, other = map(stage.actor, ("caller", "other"))
    bury_in_segment(stage, caller, "a")
    cancelled(other, entry_of(stage, "a"))
    other.run(other.commit(RunTimers(flush=True)))
    assert stage.invariants.state.tombstones  # type: ignore[union-attr]
    check_pages(other)
    check_numbers(other)
    check_snapshot(other, other.run(pieces(other)))
    return caller.run(status(caller)).state


def prolonged_in_a_younger_table(stage: Play) -> Any:
    """Two tables know a job; by the older one its result has expired."""
    caller = stage.actor("caller")
    finish(caller, "a", 30.0)
    caller.run(caller.client.run(caller.flows.update_result_ttl("a", 3_000.0)))
    caller.run(caller.commit(RunTimers(flush=True)))
    stage.later(100.0)
    return caller.run(caller.result("a"))


def merged_as_somebody_looks(stage: Play) -> Any:
    """The table in which a job is looked for is merged away."""
    caller, other = map(stage.actor, ("caller", "other"))
    for name in "ab":
        finish(other, name, 600.0)
    caller.stop_at(caller.result("a"), table_read(stage))
    other.run(other.reap())
    return caller.go_on()


def body_read(effect: Effect) -> bool:
    """A payload or result that lies beside the head is about to be read."""
    return isinstance(effect, Get) and effect.key.startswith(f"{ROOT}{BODIES}")


def result_collected_as_it_is_read(stage: Play, call: Callable[[Actor], Flow[Any]]) -> Any:
    """A caller has read that a job is completed, and stands still until its result has expired and is collected."""
    caller, other = map(stage.actor, ("caller", "other"))
    other.run(other.enqueue("a", "first", 60.0))
    (lease,) = other.run(other.commit(ClaimJobs(1, "worker", 60_000))).answer.outcomes[0].leases
    area = StagingArea(ROOT, other.client.writer.head.state.seq, other.client.writer.machine)  # type: ignore[union-attr]
    (result,) = other.run(area.bodies([msgspec.json.encode("x" * 200)]))
    other.run(other.commit(CompleteJobs((Completion(lease.job.key, lease.token, result),))))
    caller.stop_at(call(caller), body_read)
    for _ in range(PASSES):
        age(stage, other)
        other.run(other.reap())
    assert not stage.truth.keys(f"{ROOT}{BODIES}")
    return caller.go_on()


def looked_for_where_nobody_can_tell(stage: Play) -> Any:
    """A job lies in a segment that cannot be read."""
    caller = stage.actor("caller")
    bury_in_segment(stage, caller, "a")
    damage_segments(stage)
    return caller.run(status(caller))


# ── All jobs ─────────────────────────────────────────────────────────────────
def check_pages(actor: Actor) -> None:
    """Every job is listed once, where it is: by few at once, and where all are looked at."""
    for which in (listing.EVERY, JobFilter(before=datetime.max.replace(tzinfo=UTC))):
        told: Counter[tuple[bytes, str]] = Counter()
        page = JobPage([], "", 0)
        while page.cursor is not None:
            cursor = page.cursor or None
            page = actor.run(actor.client.run(listing.page(QUEUE, range(1), None, 3, cursor, which)))
            told.update((key_of(job.job_id), job.state) for job in page.jobs)
        compare("a listing", told, actor.play.invariants.found)


def check_numbers(actor: Actor) -> None:
    """As many jobs are counted in each state as are there."""
    state = actor.play.invariants.state
    assert state is not None
    told = {where: count for where, count in listing.count_states(state).items() if count}
    there = Counter(each.state.removeprefix(FINISHED) for each in actor.play.invariants.found.values())
    if told != dict(there):
        raise Violation(f"{told} were counted; there are {dict(there)}")


def pieces(actor: Actor) -> Flow[Any]:
    """A snapshot, and what is there just now."""
    found = yield from actor.client.run(snapshot.pieces(QUEUE))
    return found, dict(actor.play.invariants.found)


def check_snapshot(actor: Actor, taken: tuple[Any, dict[bytes, JobPlace]]) -> None:
    """A snapshot tells of the jobs there were when it was taken, each once."""
    found, there = taken
    told: Counter[tuple[bytes, str]] = Counter()
    for piece in found:
        jobs = actor.run(endured(actor.client.run(snapshot.read(QUEUE, piece))))
        if isinstance(jobs, OsqueueError):
            return  # it says that it is too old
        told.update((live.job.key, live.state) for live in jobs)
    live = {key: place for key, place in there.items() if not place.state.startswith(FINISHED)}
    compare("a snapshot", told, live)


def compare(what: str, told: Counter[tuple[bytes, str]], there: dict[bytes, JobPlace]) -> None:
    """Is what was told what is there?"""
    wanted = Counter((key, place.state.removeprefix(FINISHED)) for key, place in there.items())
    if told != wanted:
        raise Violation(
            f"{what} tells of {len(told - wanted)} jobs that are elsewhere, and not of {wanted - told}"
        )


def collected_as_a_snapshot_is_read(stage: Play) -> Any:
    """The segments of a snapshot are consumed, and collected."""
    reader, other = map(stage.actor, ("reader", "other"))
    fill(other, 16)
    taken = reader.run(pieces(reader))
    while segmented(other):
        other.work()
    age(stage, other)
    other.run(collect(other))
    check_snapshot(reader, taken)
    return isinstance(reader.answer, OsqueueError)


# ── The archive ──────────────────────────────────────────────────────────────
def list_read(effect: Effect) -> bool:
    """The parts of the archive are about to be listed."""
    return isinstance(effect, List) and effect.prefix.startswith(archive.ROOT)


def part_read(effect: Effect) -> bool:
    """A part is about to be read."""
    return isinstance(effect, Get) and effect.key.startswith(archive.ROOT) and effect.length is None


def history(actor: Actor) -> Flow[Any]:
    """All records of the archive; what is told is judged."""
    reader = archive.RecordPager(QUEUE)
    told: Counter[tuple[str, int]] = Counter()
    try:
        while (page := (yield from reader.page())) is not None:
            told.update((each.job_id, each.run) for each in page)
    except OsqueueError as error:
        return error
    if twice := [who for who, count in told.items() if count > 1]:
        raise Violation(f"the archive tells of {len(twice)} records more than once")
    if len(told) != len(actor.play.invariants.written):
        raise Violation(f"the archive tells of {len(told)} records of {len(actor.play.invariants.written)}")
    return len(told)


def archived_by_many(stage: Play) -> Any:
    """One pass an hour dies between its part and the commit; the next one finds another table beside the first."""
    other = stage.actor("other")
    for at in range(2 + archive.HOURS_REMEMBERED):
        finish(other, f"job {at}", 6 * HOUR_SECONDS)
        dying = stage.actor(f"dying in hour {at}")
        dying.stop_at(dying.reap(), part_written)
        dying.go_on(head_swap)
        stage.later(HOUR_SECONDS)
    other.run(other.reap())
    return other.run(history(other))


def archived_hours_ago(stage: Play, *, read: bool) -> Any:
    """A reaper stands still with records that another one archives, and comes back many hours later.

    ``read``: it has only read them; else it is about to write their part.
    """
    slow, other = map(stage.actor, ("slow", "other"))
    finish(other, "job", 12 * HOUR_SECONDS)
    if read:
        slow.stop_after(endured(slow.reap()), table_read(stage))
    else:
        slow.stop_at(endured(slow.reap()), part_written)
    for at in range(2 + archive.HOURS_REMEMBERED):
        finish(other, f"job {at}", 12 * HOUR_SECONDS)
        other.run(other.reap())
        stage.later(HOUR_SECONDS)
    slow.go_on()
    return other.run(history(other))


def archive_out_of_reach(stage: Play, wish: Callable[[Effect], bool], replies: Iterable[Any]) -> Any:
    """The store fails while somebody reads the archive."""
    other = stage.actor("other")
    finish(other, "a", 600.0)
    other.run(other.reap())
    other.stop_at(history(other), wish)
    for each in replies:
        other.heard = (each,)
        other.go_on(wish)
    return other.answer


def archive_damaged(stage: Play) -> Any:
    """A part cannot be read."""
    other = stage.actor("other")
    finish(other, "a", 600.0)
    other.run(other.reap())
    stage.truth.damaged.update(stage.truth.keys(archive.ROOT))
    return other.run(history(other))


SCENES: dict[str, Callable[[Play], Any]] = {
    "redriven into a segment": redriven_into_a_segment,
    "cancelled in a segment": cancelled_in_a_segment,
    "prolonged in a younger table": prolonged_in_a_younger_table,
    "merged as somebody looks": merged_as_somebody_looks,
    "collected as its result is read": partial(
        result_collected_as_it_is_read, call=lambda caller: caller.result("a")
    ),
    "collected as its result answers": partial(
        result_collected_as_it_is_read, call=lambda caller: caller.enqueue("a", "second")
    ),
    "looked for where nobody can tell": looked_for_where_nobody_can_tell,
    "collected as a snapshot is read": collected_as_a_snapshot_is_read,
    "archived by many": archived_by_many,
    "archived hours ago, when it was read": partial(archived_hours_ago, read=True),
    "archived hours ago, when it was made": partial(archived_hours_ago, read=False),
    "parts out of reach": partial(
        archive_out_of_reach, wish=part_read, replies=[(NO_ANSWER,)] * OBJECT.tries
    ),
    "list of parts out of reach": partial(archive_out_of_reach, wish=list_read, replies=[NO_ANSWER]),
    "damaged part": archive_damaged,
}
