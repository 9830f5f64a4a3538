"""The check: is every job of the log accounted for, exactly once?

It trusts no counter of the queue. Four independent accounts are compared: the log, the ids that the queue gave the
producer, the queue's own record (archive parts, read here from the files, and whatever is still live) and the
journals that the workers wrote beside the queue.
"""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from demo.journal import Entry

COMPLETED = "completed"
EXAMPLES_MAX = 5  # jobs named in a complaint


class Attempt(Struct, frozen=True):
    """One lease of a job, as the archive tells it."""

    run: int
    worker: str
    started_ms: int
    ended_ms: int
    outcome: str


class Record(Struct, frozen=True):
    """One line of the archive: a job that is over, with its timeline."""

    job_id: str
    run: int  # leases granted to it
    state: str
    enqueued_ms: int
    finished_ms: int
    attempts: tuple[Attempt, ...]


class Account(Struct, frozen=True):
    """The result of the check. It holds when there are no problems."""

    jobs: int  # in the log
    completed: int  # jobs with one completion in the record
    executions: int  # times that a worker began to run one
    repeats: int  # archive lines that say again, word for word, what another line said
    problems: list[str]  # each a sentence for people


def read_archive(store: Path) -> tuple[list[Record], int]:
    """Every line of the archive parts below a store's folder, and the number of parts."""
    lines = msgspec.json.Decoder(Record)
    parts = sorted((store / "archive").rglob("*.jsonl.gz"))
    return [
        record for part in parts for record in lines.decode_lines(gzip.decompress(part.read_bytes()))
    ], len(parts)


def once(records: Iterable[Record]) -> list[Record]:
    """The records without identical repeats.

    A commit writes its archive part before it swaps the head. One that loses the race leaves a part that tells
    of the same finished jobs as the part of the winner; what it says is true, it only says it again.
    """
    return list(dict.fromkeys(records))


def check(
    numbers: Sequence[int],
    enqueued: Sequence[tuple[int, str]],
    archive: Sequence[Record],
    live: Iterable[tuple[str, str]],
    entries: Sequence[Entry],
) -> Account:
    """Compare the four accounts.

    ``numbers`` are the log's job numbers, ``enqueued`` pairs them with the job ids that the queue answered,
    ``archive`` and ``live`` (id and state of the jobs not archived) are the queue's record, ``entries`` the
    workers' journals.
    """
    records = once(archive)
    endings = Counter(record.job_id for record in records if record.state == COMPLETED)
    endings.update(job_id for job_id, state in live if state == COMPLETED)
    others = [
        *((record.job_id, record.state) for record in records if record.state != COMPLETED),
        *((job_id, state) for job_id, state in live if state != COMPLETED),
    ]
    number_of = {job_id: number for number, job_id in enqueued}
    starts = [start for entry in entries for start in entry.started]
    problems = [
        *_problems_of_enqueue(numbers, enqueued),
        *_problems_of_record(number_of, endings, others),
        *_problems_of_timelines(number_of, records),
        *_problems_of_journals(number_of, endings, entries),
    ]
    completed = sum(endings[job_id] == 1 for job_id in number_of)
    return Account(len(numbers), completed, len(starts), len(archive) - len(records), problems)


def _problems_of_enqueue(numbers: Sequence[int], enqueued: Sequence[tuple[int, str]]) -> Iterable[str]:
    """The log against what the producer was answered."""
    times = Counter(number for number, _ in enqueued)
    yield from _complaint("never enqueued", [number for number in numbers if not times[number]])
    yield from _complaint("enqueued more than once", [n for n, count in times.items() if count > 1])
    yield from _complaint("enqueued, but not in the log", sorted(set(times) - set(numbers)))
    ids = Counter(job_id for _, job_id in enqueued)
    yield from _complaint("job ids given out twice", [job_id for job_id, count in ids.items() if count > 1])


def _problems_of_record(
    number_of: dict[str, int], endings: Counter[str], others: Sequence[tuple[str, str]]
) -> Iterable[str]:
    """What was enqueued against the queue's record."""
    elsewhere = {job_id for job_id, _ in others}
    lost = [
        number for job_id, number in number_of.items() if job_id not in endings and job_id not in elsewhere
    ]
    yield from _complaint("lost: enqueued, but nowhere in the record", lost)
    doubled = [number_of.get(job_id, job_id) for job_id, count in endings.items() if count > 1]
    yield from _complaint("completed more than once", doubled)
    by_state: defaultdict[str, list[int | str]] = defaultdict(list)
    for job_id, state in others:
        by_state[state].append(number_of.get(job_id, job_id))
    for state, jobs in by_state.items():
        yield from _complaint(f"{state} instead of completed", jobs)
    yield from _complaint(
        "in the record, but never enqueued", sorted((endings.keys() | elsewhere) - number_of.keys())
    )


def _problems_of_timelines(number_of: dict[str, int], records: Sequence[Record]) -> Iterable[str]:
    """Every record within itself: its timeline holds one completion, the last of its attempts."""
    wrong = [
        number_of.get(record.job_id, record.job_id)
        for record in records
        if record.state == COMPLETED
        and [attempt.outcome == COMPLETED for attempt in record.attempts]
        != [False] * (len(record.attempts) - 1) + [True]
    ]
    yield from _complaint("recorded with a timeline that does not end in its one completion", wrong)


def _problems_of_journals(
    number_of: dict[str, int], endings: Counter[str], entries: Sequence[Entry]
) -> Iterable[str]:
    """What the workers wrote down against the record. A killed worker's last step may be missing, never wrong."""
    starts = [start for entry in entries for start in entry.started]
    swapped = [start.number for start in starts if number_of.get(start.job_id) != start.number]
    yield from _complaint("handed out with the payload of another job", swapped)
    ran = {start.job_id for start in starts}
    unseen = [number_of.get(job_id, job_id) for job_id in endings if job_id not in ran]
    yield from _complaint("completed, but run by no worker", unseen)
    told = Counter(job_id for entry in entries for job_id in entry.completed)
    twice = [number_of.get(job_id, job_id) for job_id, count in told.items() if count > 1]
    yield from _complaint("acknowledged as completed to more than one worker", twice)
    forgotten = [number_of.get(job_id, job_id) for job_id in told if job_id not in endings]
    yield from _complaint("acknowledged as completed, but not in the record", forgotten)


def _complaint(what: str, jobs: Sequence[int | str]) -> Iterable[str]:
    if jobs:
        examples = ", ".join(map(str, jobs[:EXAMPLES_MAX])) + (", …" if len(jobs) > EXAMPLES_MAX else "")
        yield f"{len(jobs):,} {what}: {examples}"
