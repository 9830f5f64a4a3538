"""Schedules, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue.core import scheduling
from osqueue.core.draft import Draft
from osqueue.core.head_content import contents_in_memory
from osqueue.core.ops import Outcome
from osqueue.core.queue_ops import ChangeSchedule
from osqueue.core.rows import BodyRef
from osqueue.core.state import FAILED, JobRecord, ScheduleRow, State
from osqueue.maintenance import garbage_collection
from osqueue.operations import purge_shard

from .control import Control, dispatched, in_runs, patched

_ticked = scheduling._ticked
_change = scheduling.change
_tally = Draft.tally
_finish = Draft.finish


def _standing(draft: Draft, row: ScheduleRow) -> tuple[ScheduleRow, int]:
    after, made = _ticked(draft, row)
    return replace(after, last_ms=row.last_ms), made


def _side_by_side(draft: Draft, row: ScheduleRow) -> tuple[ScheduleRow, int]:
    after, made = _ticked(draft, replace(row, overlap=scheduling.ALLOW))
    return replace(after, overlap=row.overlap), made


def _all_of_them(draft: Draft, row: ScheduleRow) -> tuple[ScheduleRow, int]:
    after, made = _ticked(draft, replace(row, missed=scheduling.ALL))
    return replace(after, missed=row.missed), made


def _latest_alone(draft: Draft, row: ScheduleRow) -> tuple[ScheduleRow, int]:
    after, made = _ticked(draft, replace(row, missed=scheduling.ONCE))
    return replace(after, missed=row.missed), made


def _next_before(draft: Draft, row: ScheduleRow) -> tuple[ScheduleRow, int]:
    after, made = _ticked(draft, row)
    return replace(after, next_ms=max(1, row.next_ms - 1)), made


def _never_paused(draft: Draft) -> None:
    rows = draft.schedules
    draft.schedules = tuple([replace(row, paused=False) for row in rows])
    _tick(draft)
    paused = {row.name: row.paused for row in rows}
    draft.schedules = tuple([replace(row, paused=paused[row.name]) for row in draft.schedules])


_tick = scheduling.tick


def _uncounted(draft: Draft, job: JobRecord, by: int, **ended: int) -> None:
    if by > 0:
        _tally(draft, job, by, **ended)


def _dead_count(draft: Draft, job: JobRecord, by: int, **ended: int) -> None:
    if by < 0:
        _tally(draft, job, by, **ended)


def _counted_twice(draft: Draft, job: JobRecord, state: str, **more: Any) -> None:
    if job.schedule and more["origin"] == FAILED:
        draft.tally(job, -1)
    _finish(draft, job, state, **more)


def _forgotten(draft: Draft, op: ChangeSchedule) -> Outcome:
    answer = _change(draft, op)
    if op.removed:
        draft.schedules = tuple([row for row in draft.schedules if row.name != op.name])
    return answer


def _made_up(draft: Draft, row: ScheduleRow) -> ScheduleRow:
    return replace(row, next_ms=row.next_ms or draft.now)


def _without_rows(state: State) -> set[str]:
    bodies = {each.name for each in contents_in_memory(state) if isinstance(each, BodyRef)}
    return {name for name in bodies if not name.endswith(scheduling.SHARED)}


def standing() -> AbstractContextManager[None]:
    """A tick that was served is not remembered."""
    return patched((scheduling, "_ticked", _standing))


def side_by_side() -> AbstractContextManager[None]:
    """Whether a job lives is no matter."""
    return patched((scheduling, "_ticked", _side_by_side))


def all_of_them() -> AbstractContextManager[None]:
    """Every missed tick is made up for."""
    return patched((scheduling, "_ticked", _all_of_them))


def never_paused() -> AbstractContextManager[None]:
    """A paused schedule ticks."""
    return patched((scheduling, "tick", _never_paused))


def uncounted() -> AbstractContextManager[None]:
    """What ends is not taken off the count."""
    return patched((Draft, "tally", _uncounted))


def dead_count() -> AbstractContextManager[None]:
    """A dead letter that is redriven is not counted."""
    return patched((Draft, "tally", _dead_count))


def counted_twice() -> AbstractContextManager[None]:
    """A dead letter that is let go is taken off the count once more."""
    return patched((Draft, "finish", _counted_twice))


def forgotten() -> AbstractContextManager[None]:
    """A removed schedule takes the count of its jobs along."""
    return dispatched(ChangeSchedule, _forgotten)


def latest_alone() -> AbstractContextManager[None]:
    """Of the ticks that were missed all but the latest are lost, although each is to be made."""
    return patched((scheduling, "_ticked", _latest_alone))


def next_before() -> AbstractContextManager[None]:
    """The next tick goes back."""
    return patched((scheduling, "_ticked", _next_before))


def made_up() -> AbstractContextManager[None]:
    """The ticks of a pause, or of the time before a schedule said so, are made up for."""
    return patched((scheduling, "_begun", _made_up))


def unremembered() -> AbstractContextManager[None]:
    """Nobody makes the job of a remembered tick."""
    return patched((scheduling, "settle", lambda draft: None))


def without_rows() -> AbstractContextManager[None]:
    """The collector does not know that a schedule needs its payload."""
    return patched((garbage_collection, "_in_memory", _without_rows))


def _as_before(rows: tuple[ScheduleRow, ...], *_: Any) -> tuple[ScheduleRow, ...]:
    return rows


def as_before() -> AbstractContextManager[None]:
    """A restored head has the rows of its backup, and their counts."""
    return patched((scheduling, "of_a_new_life", _as_before))


def wiped() -> AbstractContextManager[None]:
    """A purge of a job takes the payload of its schedule along."""
    return patched((purge_shard, "is_shared", lambda content: False))


def _run_again(draft: Draft, op: ChangeSchedule) -> Outcome:
    with patched((Draft, "knows", lambda self, key: False)):
        return _change(draft, op)


def run_again() -> AbstractContextManager[None]:
    """A run by hand that comes twice makes two jobs with one key."""
    return dispatched(ChangeSchedule, _run_again)


CONTROLS: tuple[Control, ...] = (
    Control(
        "a run by hand makes one job", run_again, (in_runs("schedules run", "a second time|two places"),)
    ),
    Control("a tick is served once", standing, (in_runs("schedules", "ticked twice|policy says"),)),
    Control(
        "no job is made while one lives",
        side_by_side,
        (in_runs("schedules", "that overlap|another one lives"),),
    ),
    Control("of missed ticks the latest counts", all_of_them, (in_runs("schedules", "its policy says"),)),
    Control("or each of them", latest_alone, (in_runs("schedules", "its policy says|forgot a tick"),)),
    Control("the next tick comes later", next_before, (in_runs("schedules", "next tick .* went back"),)),
    Control("a paused schedule rests", never_paused, (in_runs("schedules", "is paused, and ticked"),)),
    Control("what ends is taken off the count", uncounted, (in_runs("schedules", "of theirs live"),)),
    Control("a redriven job counts again", dead_count, (in_runs("schedules", "of theirs live"),)),
    Control(
        "a dead letter has been taken off before",
        counted_twice,
        (in_runs("schedules", "of theirs live", seed=5),),
    ),
    Control("a removed schedule counts its jobs", forgotten, (in_runs("schedules", "of theirs live"),)),
    Control(
        "a schedule begins when it is there",
        made_up,
        (in_runs("schedules", "policy says|went back|ticked twice"),),
    ),
    Control(
        "a remembered tick is made up for",
        unremembered,
        (in_runs("schedules", "nothing stands in the way of", seed=1),),
    ),
    Control(
        "a restore counts again",
        as_before,
        (in_runs("schedules mended", "of theirs live|back in time", seed=4),),
    ),
    Control("a purge leaves what is shared", wiped, (in_runs("schedules mended", "invariant 8", seed=14),)),
    Control(
        "the collector spares what schedules need",
        without_rows,
        (in_runs("schedules", "invariant 8", seed=2),),
    ),
)
