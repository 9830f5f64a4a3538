"""The event log: what is recorded, for how long, and that positions never tell of two things."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import limits
from osqueue.core import erase
from osqueue.core.audit import imbalances
from osqueue.core.context import ReductionContext
from osqueue.core.encoding import encode_head
from osqueue.core.event_log import (
    EventObject,
    at_another_time,
    encode_events,
    event_weight,
    first_after,
    object_of,
    of_a_new_life,
    rows_of,
)
from osqueue.core.job_ops import CompleteJobs, Completion, EnqueueJobs
from osqueue.core.queue_ops import RecordEvents, RunTimers
from osqueue.core.reduce import reduce
from osqueue.core.state import EventLog, Transition
from osqueue.errors import Damaged
from tests.support.shard import Shard


@pytest.fixture
def shard() -> Shard:
    return Shard()


def recorded(shard: Shard) -> list[tuple[int, Transition]]:
    """All that is kept, with positions: of the objects by their names, and of the head."""
    found: dict[int, Transition] = {}
    for name, body in shard.objects.items():
        each = object_of(name)
        if each is not None:
            rows = rows_of(body, name)
            assert (each.end - each.first, each.at_ms) == (len(rows), rows[-1].at_ms)
            found.update(zip(range(each.first, each.end), rows, strict=True))
    log = shard.state.log
    found.update(zip(range(log.first, log.end), log.rows, strict=True))
    return sorted(found.items())


def work(shard: Shard, count: int = 1) -> None:
    """Some jobs come, are claimed and completed: three transitions each."""
    shard.enqueue(count)
    leases = shard.claim(count)
    shard.apply(CompleteJobs(tuple(Completion(each.job.key, each.token) for each in leases)))


def test_nothing_is_recorded_and_nothing_stored_until_somebody_listens(shard: Shard) -> None:
    before = encode_head(shard.state)
    assert b"log" not in before
    work(shard, 5)
    assert shard.state.log == EventLog()
    assert b"\xa3log" not in encode_head(shard.state)


def test_what_is_committed_after_the_wish_is_recorded_in_order(shard: Shard) -> None:
    work(shard)
    shard.apply(RecordEvents())
    assert shard.state.log.rows == ()
    del shard.events[:]
    work(shard, 3)
    assert [row for _, row in recorded(shard)] == shard.events
    assert len(shard.events) == 9
    assert imbalances(shard.state) == []


def test_the_commit_of_the_wish_itself_is_not_yet_recorded(shard: Shard) -> None:
    shard.apply(EnqueueJobs((shard.new(),)), RecordEvents(), EnqueueJobs((shard.new(),)))
    assert shard.state.log.rows == ()
    shard.enqueue()
    assert len(shard.state.log.rows) == 1


def test_a_wish_that_adds_next_to_nothing_is_no_other_log(shard: Shard) -> None:
    shard.apply(RecordEvents())
    work(shard)
    first = shard.state.log.first
    shard.now += limits.HOUR_MS
    shard.apply(RecordEvents(), RecordEvents())
    assert shard.state.log.until_ms == shard.now + limits.EVENTS_KEPT_MS
    assert shard.state.log.first == first
    assert len(shard.state.log.rows) == 3


def test_the_head_keeps_its_budget_and_objects_keep_the_rest(shard: Shard) -> None:
    shard.apply(RecordEvents())
    first = shard.state.log.first
    del shard.events[:]
    for _ in range(60):
        work(shard, 4)
        assert shard.state.log.rows_bytes <= limits.EVENTS_BYTES_MAX
        assert imbalances(shard.state) == []
    found = recorded(shard)
    assert [at for at, _ in found] == list(range(first, first + len(shard.events)))
    assert [row for _, row in found] == shard.events
    assert any(object_of(name) for name in shard.objects)


def test_one_commit_of_many_transitions_leaves_with_the_next(shard: Shard) -> None:
    shard.apply(RecordEvents())
    shard.enqueue(1_000)
    assert shard.state.log.rows_bytes > limits.EVENTS_BYTES_MAX
    shard.enqueue()
    assert len(shard.state.log.rows) == 1
    assert len(recorded(shard)) == 1_001


def test_one_commit_of_very_many_words_keeps_the_head_small(shard: Shard) -> None:
    shard.apply(RecordEvents())
    names = tuple((f"{at:02d}" + "n" * 60, "v") for at in range(16))
    for _ in range(2):
        news = tuple(shard.new(client_id=f"{at:03d}" + "i" * 250, seen=0, headers=names) for at in range(500))
        shard.apply(EnqueueJobs(news))
        assert shard.state.log.rows_bytes < limits.EVENTS_OF_A_COMMIT_BYTES_MAX
        assert imbalances(shard.state) == []
    assert {row.client_id for row in shard.state.log.rows} == {None}
    assert [row.key for row in shard.state.log.rows] == [new.key for new in news]


def test_what_is_in_the_head_when_recording_ends_is_kept_beside_it(shard: Shard) -> None:
    shard.apply(RecordEvents())
    work(shard)
    rows = shard.state.log.rows
    shard.now = shard.state.log.until_ms
    shard.enqueue()
    assert [row for _, row in recorded(shard)] == list(rows)


def test_only_what_was_committed_is_spilled_whoever_spills_it(shard: Shard) -> None:
    """Another attempt on the same head, with other requests, writes the same object: no loser leaves false history."""
    shard.apply(RecordEvents())
    while shard.state.log.rows_bytes < limits.EVENTS_BYTES_MAX - 40:
        shard.enqueue()
    state = shard.state
    shard.enqueue(3)
    assert shard.last is not None
    (one,) = [each for each in shard.last.objects if object_of(each.name)]
    shard.state = state
    shard.enqueue(7)
    (other,) = [each for each in shard.last.objects if object_of(each.name)]
    assert one == other
    assert rows_of(one.body, one.name) == state.log.rows


def test_recording_ends_a_day_after_the_last_wish_and_leaves_nothing_in_the_head(shard: Shard) -> None:
    shard.apply(RecordEvents())
    work(shard)
    shard.now = shard.state.log.until_ms - 1
    shard.enqueue()
    assert len(shard.state.log.rows) == 4
    shard.now += 1
    shard.enqueue()
    assert shard.state.log == EventLog()
    assert b"\xa3log" not in encode_head(shard.state)


def test_a_later_recording_begins_behind_a_gap(shard: Shard) -> None:
    shard.apply(RecordEvents())
    work(shard)
    end = shard.state.log.end
    shard.now = shard.state.log.until_ms
    shard.apply(RecordEvents())
    assert shard.state.log.first > end
    shard.now += limits.DAY_MS
    shard.enqueue()
    shard.apply(RecordEvents())
    assert shard.state.log.first > end


@pytest.mark.parametrize("first", [RecordEvents(), RunTimers(flush=True)])
def test_whatever_comes_first_after_a_lapse_keeps_what_the_head_still_held(shard: Shard, first: Any) -> None:
    shard.apply(RecordEvents())
    work(shard, 3)
    before = recorded(shard)
    assert len(before) == 9
    shard.now = shard.state.log.until_ms
    shard.apply(first)
    shard.enqueue()
    assert recorded(shard)[:9] == before


def test_a_pass_that_changes_nothing_writes_nothing(shard: Shard) -> None:
    shard.apply(RecordEvents())
    work(shard)
    seq = shard.state.seq
    shard.now = shard.state.log.until_ms
    shard.apply(RunTimers())
    assert shard.state.seq == seq


def test_a_restored_head_goes_on_recording_past_every_position_of_before() -> None:
    rows = (Transition(b"k" * 16, 1, "", "queued", "enqueue"),)
    log = EventLog(10**13, first_after(100), rows, 10)
    fresh = of_a_new_life(log, 5_000)
    assert fresh == EventLog(10**13, first_after(5_000))
    assert of_a_new_life(EventLog(), 5_000) == EventLog()


def test_a_head_whose_clock_was_years_ahead_is_not_recorded_for_years() -> None:
    log = EventLog(4_102_444_800_000, 5)
    assert at_another_time(log, 1_000).until_ms == 1_000 + limits.EVENTS_KEPT_MS
    assert at_another_time(EventLog(), 1_000) == EventLog()
    assert at_another_time(replace(log, until_ms=2_000), 1_000).until_ms == 2_000


@pytest.mark.parametrize("count", [1, 700])
def test_an_object_tells_what_was_written(count: int) -> None:
    rows = [
        Transition(
            bytes([at % 256]) * 16,
            at,
            "queued",
            "processing",
            "claim",
            1,
            2,
            "ada",
            f"id {at}",
            "k",
            3,
            ("h",),
        )
        for at in range(count)
    ]
    data = encode_events(rows)
    assert rows_of(data, "n") == tuple(rows)
    with pytest.raises(Damaged):
        rows_of(data[:-1], "n")
    with pytest.raises(Damaged):
        rows_of(data[:40] + b"x" + data[41:], "n")


@pytest.mark.parametrize("name", ["events/1-2", "segments/0-1-2-1", "events/x-1-1-1-1", "events/", ""])
def test_other_names_tell_of_no_object(name: str) -> None:
    assert object_of(name) is None


def test_a_name_tells_all_that_a_reader_needs() -> None:
    name = "events/0000000000ff-0000000001000020-10-1a2-7"
    assert object_of(name) == EventObject(name, 255, 0x1000010, 0x1000020, 0x1A2, 7)


def test_a_purged_jobs_transitions_lose_their_words_and_nothing_else(shard: Shard) -> None:
    shard.apply(RecordEvents())
    job = shard.new(client_id="ada@example.com", seen=0, headers=(("for", "ada"),))
    shard.apply(EnqueueJobs((job, shard.new(client_id="other", seen=0))))
    log = shard.state.log
    blank = erase.blank_log(log, {job.key})
    assert [row.client_id for row in blank.rows] == ["x" * 15, "other"]
    assert blank.rows[0].headers == ("xxx",)
    assert list(map(event_weight, blank.rows)) == list(map(event_weight, log.rows))
    assert erase.blank_log(blank, {job.key}) is blank


def test_recorded_transitions_are_told_to_nobody_who_did_not_ask(shard: Shard) -> None:
    shard.apply(RecordEvents())
    request = shard.request(EnqueueJobs((shard.new(),)))
    done = reduce(shard.state, [request], ReductionContext(shard.now, b"c" * 16, 1, observed=False))
    assert done.events == ()
    assert len(done.state.log.rows) == 1
