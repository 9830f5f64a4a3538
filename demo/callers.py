"""What callers were answered, checked: of jobs sent twice under one id, and by those who waited for results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from demo.books import COMPLETED, BookedJob, Books, complaint
from demo.journal import RunResult, Sent


def problems_of_callers(books: Books) -> Iterable[str]:
    """Everything that callers were told against the plan and the archive."""
    by_id = {record.id: record for record in books.archive if record.id is not None}
    yield from _problems_of_ids(books, by_id)
    yield from _problems_of_answers(books, by_id)
    yield from _problems_of_waits(books, by_id)


def _problems_of_ids(books: Books, by_id: dict[str, BookedJob]) -> Iterable[str]:
    """Each id stands for one job, whoever sent it, and was sent as often as planned."""
    names = {caller.id: number for number, caller in books.callers.items()}
    strangers = [client_id for client_id in by_id if client_id not in names]
    yield from complaint("archived under an id that nobody sent", strangers)
    nameless = [number for client_id, number in names.items() if client_id not in by_id]
    yield from complaint("sent under an id that the archive does not tell", nameless)
    answers: defaultdict[int, list[Sent]] = defaultdict(list)
    for sent in books.sent:
        answers[sent.number].append(sent)
    counts = {number: len(sent) for number, sent in answers.items()}
    for wait in books.waits:
        counts[wait.number] = counts.get(wait.number, 0) + 1
    wanted = {number: 2 if number in books.callers else 1 for number in books.log}
    unlike = [number for number in counts if counts[number] != wanted.get(number, 0)]
    yield from complaint("sent by more or fewer callers than planned", unlike)
    split = [number for number, sent in answers.items() if len({each.job_id for each in sent}) > 1]
    yield from complaint("one id, but two jobs", split)


def _problems_of_answers(books: Books, by_id: dict[str, BookedJob]) -> Iterable[str]:
    """Answers to those who came second: they name the job of the id, and its result if they bring one."""
    again = [sent for sent in books.sent if sent.status != "queued"]
    wrong = [
        sent.number
        for sent in again
        if sent.id is None or (record := by_id.get(sent.id)) is None or record.job_id != sent.job_id
    ]
    yield from complaint("answered as known, with a job that is not that of the id", wrong)
    cached = [
        sent.number
        for sent in again
        if sent.status == COMPLETED and sent.result != _answer(sent.number, by_id.get(sent.id or ""))
    ]
    yield from complaint("answered from the cache with another result than that of the job", cached)


def _problems_of_waits(books: Books, by_id: dict[str, BookedJob]) -> Iterable[str]:
    """Everybody who waited has the result of the job, and of the run that completed it."""
    planned = {number for number, caller in books.callers.items() if caller.timeout_s is not None}
    yield from complaint("waited for, but by nobody", sorted(planned - {wait.number for wait in books.waits}))
    for wait in books.waits:
        if wait.error:
            yield f"job {wait.number}: its caller got {wait.error}"
    wrong = [
        wait.number
        for wait in books.waits
        if not wait.error and wait.result != _answer(wait.number, by_id.get(wait.id))
    ]
    yield from complaint("waited for, but with another result than that of the job", wrong)


def _answer(number: int, record: BookedJob | None) -> RunResult | None:
    """What the job must have answered."""
    return None if record is None else RunResult(number, record.attempt)
