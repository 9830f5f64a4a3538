"""A draft: what a commit does not touch is in the next state as it was."""

from __future__ import annotations

from msgspec.structs import replace

from osqueue.core.context import ReductionContext
from osqueue.core.draft import Draft
from osqueue.core.rows import BatchRow, Lent, LentRun, Round, Ticket
from osqueue.core.settings import QueueSettings
from osqueue.core.state import (
    Backlog,
    Counters,
    Delayed,
    DropRule,
    DropRules,
    EventLog,
    FinishedJob,
    Hold,
    JobRecord,
    Lane,
    LeaseRecord,
    PacerRow,
    Refusals,
    ScheduleRow,
    Session,
    Span,
    Starts,
    State,
    TableRef,
)

SAYS = (
    "commit",
    "seq",
    "now_ms",
    "hot",
    "load",
    "direct",
    "direct_ms",
    "combined",
    "streak",
)  # of the commit itself


def test_each_field_stays_what_it_was_where_a_commit_changes_nothing_of_it() -> None:
    job, key = JobRecord(b"k" * 16, b"1", 1), b"t" * 16
    span = Span("segments/1-1-0", 0, 1, 1, 0, 9, 9, b"a", b"z")
    state = State(
        commit=b"c" * 16,
        epoch=1,
        seq=2,
        now_ms=9_000,
        floor=3,
        gc_floor=4,
        marks=((8_000, 1),),
        hot=5,
        load=6,
        direct=7,
        direct_ms=8,
        combined=52,
        streak=53,
        sessions={"w": Session(1, 2, 3, 4, b"o")},
        sessions_bytes=9,
        refusals=(Refusals(10, 11, frozenset((12,))),),
        lanes=(Lane(3, "mail", Backlog((job,), (span,), (job,), 13, 14)),),
        leases={job.key: LeaseRecord(job, "token", "worker", 1, 1, 99_000, 1)},
        leases_bytes=15,
        delayed=Delayed((job,), (span,), 16),
        dead=Backlog((job,), (), (), 17),
        finished=(FinishedJob(job, "completed", 18),),
        finished_bytes=19,
        tombstones=(key,),
        delayed_tombstones={key: "segments/1-1-0"},
        settings=QueueSettings(dead_ttl_ms=20),
        counters=Counters(*range(21, 33)),
        tables=(TableRef("tables/1-1-0", 0, 1, 1, b"a", b"z", 33, 34),),
        forgotten=35,
        result_ttls={key: 36},
        seals=(b"s" * 16,),
        gc_after="after",
        log=EventLog(first=37),
        pacer=PacerRow(interval_us=38),
        schedules=(ScheduleRow("nightly"),),
        holds={"group": Hold(key, "failing")},
        starts=Starts(39, lent=Lent("api", 40, (LentRun(41, 42, 43, 44),))),
        drops=DropRules((DropRule(45, 46),)),
        batches={key: BatchRow("batch")},
        round=Round((b"g",), 47),
        tickets={"mailer": (Ticket(48, 49, 50),)},
        format=51,
    )
    assert all(getattr(state, name) != getattr(State(b"", 0), name) for name in State.__struct_fields__)

    after = Draft(state, ReductionContext(state.now_ms, b"d" * 16, 0)).freeze(1, listed=False)

    assert replace(after, **{name: getattr(state, name) for name in SAYS}) == state
    assert (after.commit, after.seq, after.hot, after.load, after.direct) == (b"d" * 16, 3, 4, 1, 8)
