"""A job's options: one table, and nothing that forgets a row of it."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any, get_args, get_type_hints

import pytest
from msgspec.structs import fields as struct_fields

from osqueue import Next, Queue, Rejected, Unique, limits
from osqueue.cli.enqueue import enqueue
from osqueue.contract.schemas import Leased, NewJob
from osqueue.core.archive_record import ArchiveRecord, to_record
from osqueue.core.encoding import encode
from osqueue.core.erase import blank_job, blank_row
from osqueue.core.job_ops import JobSpec, record_of
from osqueue.core.settings import QueueSettings
from osqueue.core.state import COMPLETED, FinishedJob, JobRecord, LeaseRecord
from osqueue.core.weights import finished_weight, job_weight, lease_weight
from osqueue.model.dead_letters import DeadLetter
from osqueue.model.fields import described_fields
from osqueue.model.job import Job
from osqueue.model.job_options import (
    OPTIONS,
    JobAttributes,
    JobOptionArguments,
    JobOptions,
    ViewedOptions,
    columns_asked,
    columns_of,
    options_of,
)
from osqueue.queue.lease import Lease
from osqueue.stores.memory import MemoryStore
from osqueue.worker.job import WorkerJob

NOW_MS = 1_800_000_000_000
# Of every option a value that is not its default. Whoever adds an option adds one: the tests below need it.
OTHER: dict[str, Any] = {
    "id": "order-7",
    "kind": "welcome",
    "group": "order-42",
    "priority": 2,
    "delay": 1.5,
    "at": datetime(2027, 1, 1, tzinfo=UTC),
    "max_attempts": 7,
    "result_ttl": 60.0,
    "run_within": 30.0,
    "start_within": 90.0,
    "units": 3,
    "headers": {"traceparent": "00-4bf9-00f0-01", "tenant": "größe"},
    "unique": Unique(while_="waiting", window=60.0, on_duplicate="replace"),
    "then": [Next("notify", {"to": "ada"}, priority=0, then=[Next("log")])],
    "batch": "0190a8b2-7c1d-7e4f-8a5b-3c2d1e0f9a00",
}
TIMES = {"delay", "at"}  # say when a job is due, and are not kept with it
# A deadline is kept as ``start_by``, and of what is said of an id only for how long it is taken.
# Follow-ups and batches tie a job to others: see ``Links``.
KEPT = [name for name in OPTIONS if name not in {*TIMES, "start_within", "unique", "then", "batch"}]


def filled(*left_out: str) -> dict[str, Any]:
    return {name: value for name, value in OTHER.items() if name not in left_out}


def test_every_option_has_another_value_to_be_tested_with() -> None:
    assert set(OTHER) == set(OPTIONS)
    assert all(value != OPTIONS[name].default for name, value in OTHER.items())


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_has_a_meaning_and_bounds(name: str) -> None:
    option = OPTIONS[name]
    assert option.about.description
    parts = described_fields(Unique).values() if option.type is Unique else (option,)
    for part in parts:
        assert part.about.description
        words = part.type is not float and part.type is not int and part.about.max_length is None
        assert words or part.about.le is not None or part.about.max_length is not None


def test_keyword_arguments_are_the_options() -> None:
    """Type checkers read the one, everything else the other."""
    arguments = get_type_hints(JobOptionArguments)
    plain = get_type_hints(JobOptions)

    def members(hint: Any) -> set[Any]:
        return set(get_args(hint)) or {hint}

    assert list(arguments) == list(plain)
    for name, hint in plain.items():
        if name == "then":  # any sequence will do
            continue
        assert members(arguments[name]) - {timedelta} == members(hint), name
        assert (timedelta in members(arguments[name])) is (float in members(hint) and name != "at"), name


def test_rows_have_a_column_for_every_option_with_the_same_default() -> None:
    defaults = {field.name: field.default for field in struct_fields(JobSpec)}
    for option in OPTIONS.values():
        assert option.default is None
        assert not defaults[option.column], option.name


def viewed_column(row: Any, column: str) -> Any:
    """A column of a row or of a record, which is JSON and so has mappings."""
    found = getattr(row, column)
    return tuple(found.items()) if isinstance(found, dict) else found


LONGEST: dict[str, Any] = {
    "id": "é" * limits.ID_CHARS_MAX,
    "kind": "é" * limits.KIND_CHARS_MAX,
    "group": "é" * limits.GROUP_CHARS_MAX,
    "headers": {f"{at:02}": "é" * 62 for at in range(limits.HEADERS_MAX)},
}


def job_with(name: str) -> JobRecord:
    """A job with the option alone, as large as it may be."""
    option = OPTIONS[name]
    value = LONGEST.get(name, option.about.le if option.type in (int, float) else OTHER[name])
    return record_of(
        JobSpec(bytes(16), b"1" * 8, **{option.column: option.read(value)}),
        QueueSettings(),
        NOW_MS,
        NOW_MS,
        0,
    )


@pytest.mark.parametrize("name", [*KEPT, "start_within", "then", "batch"])
def test_a_jobs_weight_counts_the_option(name: str) -> None:
    job = job_with(name)
    assert len(encode(job)) <= job_weight(job)
    lease = LeaseRecord(job, "0" * 18, "", NOW_MS, NOW_MS, NOW_MS, limits.LEASE_MS_MAX, True, NOW_MS)
    assert len(encode(lease)) <= lease_weight(lease)
    row = FinishedJob(job, COMPLETED, NOW_MS)
    assert len(encode(row)) <= finished_weight(row)


@pytest.mark.parametrize(
    "name", [name for name in KEPT if OPTIONS[name].type in (str, dict) and name != "kind"]
)
def test_a_purge_leaves_nothing_of_the_option_and_no_other_length(name: str) -> None:
    job = job_with(name)
    column = OPTIONS[name].column
    blank = blank_row(FinishedJob(job, COMPLETED, 9)).job
    assert len(encode(blank)) == len(encode(job))
    assert not set(str(getattr(blank, column))) - set("x()', ")
    assert set(str(getattr(blank_job(job), column))) <= set("x()', ")


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_of_a_new_job_reaches_its_row_and_its_record(name: str) -> None:
    column = OPTIONS[name].column
    assert column in JobRecord.__struct_fields__
    assert column in ArchiveRecord.__struct_fields__
    value = OPTIONS[name].read(OTHER[name])
    job = record_of(JobSpec(bytes(16), b"1", **{column: value}), QueueSettings(), 5, 5, 0)
    assert getattr(job, column) == value
    assert (
        viewed_column(to_record(FinishedJob(job, COMPLETED, 9)), column)
        == viewed_column(job, column)
        == value
    )


@pytest.mark.parametrize("view", [Job, DeadLetter, Leased])
def test_everybody_who_looks_at_a_job_sees_the_options_that_stay_with_it(view: type) -> None:
    assert issubclass(view, ViewedOptions)
    assert issubclass(NewJob, JobOptions)
    # How long a result is kept is told by when it expires.
    assert set(ViewedOptions.__struct_fields__) == {*KEPT, "start_by", "batch"} - {"result_ttl"}


@pytest.mark.parametrize("holder", [Lease, WorkerJob])
def test_a_job_in_a_workers_hands_has_the_same_as_attributes(holder: type) -> None:
    assert issubclass(holder, JobAttributes)
    properties = {
        name for name, _ in inspect.getmembers(JobAttributes, lambda each: isinstance(each, property))
    }
    assert properties == set(ViewedOptions.__struct_fields__)


def test_what_is_enqueued_is_what_the_worker_and_everybody_else_see(machine: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
    batch = q.open_batch().batch_id
    done = q.enqueue(1, **{**filled(*TIMES), "batch": batch})
    (lease,) = q.claim()
    seen = q.status(done.job_id or "")
    assert seen is not None
    for name in ViewedOptions.__struct_fields__:
        wanted = {"start_by": machine.now_ms() + 90_000, "batch": batch}.get(name, OTHER.get(name))
        told = getattr(seen, name)
        assert getattr(lease, name) == told
        assert (round(told.timestamp() * 1000) if name == "start_by" else told) == wanted


def test_options_travel_as_they_were_given() -> None:
    for left_out in TIMES:
        columns = columns_of(filled(left_out))
        assert columns_asked(NewJob(**options_of(columns))) == columns


def test_options_at_their_defaults_fill_no_column_of_a_request() -> None:
    assert columns_asked(NewJob()) == {}


def test_the_command_line_has_every_option() -> None:
    assert set(OPTIONS) <= {parameter.name for parameter in enqueue.params}


def test_an_option_that_is_none_is_told_as_python_tells_it(machine: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
    with pytest.raises(TypeError, match=r"^enqueue_and_wait\(\) got an unexpected keyword argument 'dealy'"):
        q.enqueue_and_wait(1, dealy=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "unique"])
def test_a_value_past_its_bounds_is_refused_by_name(name: str) -> None:
    about = OPTIONS[name].about
    wrong: Any = "x" * (about.max_length + 1) if about.max_length else (about.le or 0) + 1
    if OPTIONS[name].type is dict:
        wrong = {f"h{at}": "" for at in range((about.max_length or 0) + 1)}
    with pytest.raises(Rejected, match=f"^{name}: ") as caught:
        columns_of({name: wrong})
    assert caught.value.field == name
