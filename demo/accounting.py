"""The check: is every job of the log accounted for, exactly once, and do all who took part tell the same of it?

It trusts no counter of the queue. Independent accounts are compared: the log, what the queue answered those who sent
jobs and waited for them, the archive (once through ``history``, once read here from the files), whatever is still
live, and the journals that the workers wrote beside the queue.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from msgspec import Struct

from demo.books import COMPLETED, FAILED, BookedJob, Books, complaint
from demo.callers import problems_of_callers
from demo.journal import RunEnd

CLOCK_SLACK_MS = 50  # by which the clocks of two processes of one machine may be apart


class Account(Struct, frozen=True):
    """The result of the check. It holds when there are no problems."""

    jobs: int  # in the log
    completed: int  # of these, archived once, as completed
    executions: int  # times that a worker began to run one
    repeats: int  # archive lines that say again, word for word, what another line said
    log_s: int  # seconds that the completed jobs ran in 1993, by the payloads their workers got
    held_s: float  # seconds from the claims of the completed runs to their ends, by the archive
    problems: list[str]  # each a sentence for people


def check(books: Books) -> Account:
    """Compare all accounts."""
    endings = Counter(record.job_id for record in books.archive if record.state == COMPLETED)
    number_of = {sent.job_id: sent.number for sent in books.sent}
    number_of |= _numbers_of_waits(books)
    starts = [start for entries in books.workers.values() for entry in entries for start in entry.started]
    last = {(record.job_id, record.run) for record in books.archive if record.state == COMPLETED}
    log_s = sum(start.run_s for start in starts if (start.job_id, start.attempt) in last)
    problems = [
        *_problems_of_enqueue(books),
        *_problems_of_record(books, number_of, endings),
        *_problems_of_timelines(books, number_of),
        *_problems_of_files(books, number_of),
        *_problems_of_runs(books, number_of),
        *_problems_of_seconds(books, number_of, log_s),
        *problems_of_callers(books),
    ]
    return Account(
        jobs=len(books.log),
        completed=sum(endings[job_id] == 1 for job_id in number_of),
        executions=len(starts),
        repeats=len(books.lines) - len(dict.fromkeys(books.lines)),
        log_s=log_s,
        held_s=sum(_held_ms(record) for record in books.archive if record.state == COMPLETED) / 1000,
        problems=problems,
    )


def _numbers_of_waits(books: Books) -> dict[str, int]:
    """The jobs of callers who waited: they know their ids, and the archive the jobs of these."""
    numbers = {wait.id: wait.number for wait in books.waits}
    return {record.job_id: numbers[record.id] for record in books.archive if record.id in numbers}


def _held_ms(record: BookedJob) -> int:
    return record.attempts[-1].ended_ms - record.attempts[-1].started_ms if record.attempts else 0


def _problems_of_enqueue(books: Books) -> Iterable[str]:
    """Compare the log with the responses to the senders.

    Two senders of one id may both get ``queued``, with the same job: one of them had to repeat its call, and the other
    enqueued that job meanwhile.
    """
    queued = {(sent.number, sent.job_id) for sent in books.sent if sent.status == "queued"}
    times = Counter(number for number, _ in queued)
    times.update(dict.fromkeys({wait.number for wait in books.waits} - times.keys(), 1))
    yield from complaint("never enqueued", [number for number in books.log if not times[number]])
    yield from complaint("enqueued more than once", [n for n, count in times.items() if count > 1])
    yield from complaint("enqueued, but not in the log", sorted(set(times) - set(books.log)))
    ids = Counter(job_id for _, job_id in queued)
    yield from complaint("job ids given out twice", [job_id for job_id, count in ids.items() if count > 1])


def _problems_of_record(books: Books, number_of: dict[str, int], endings: Counter[str]) -> Iterable[str]:
    """What was enqueued against the archive and what is still live."""
    others = [
        *((record.job_id, record.state) for record in books.archive if record.state != COMPLETED),
        *books.live,
    ]
    elsewhere = {job_id for job_id, _ in others}
    lost = [
        number for job_id, number in number_of.items() if job_id not in endings and job_id not in elsewhere
    ]
    yield from complaint("lost: enqueued, but not in the archive", lost)
    doubled = [number_of.get(job_id, job_id) for job_id, count in endings.items() if count > 1]
    yield from complaint("completed more than once", doubled)
    by_state: defaultdict[str, list[int | str]] = defaultdict(list)
    for job_id, state in others:
        by_state[state].append(number_of.get(job_id, job_id))
    for state, jobs in by_state.items():
        yield from complaint(f"{state} instead of completed", jobs)
    strangers = sorted((endings.keys() | elsewhere) - number_of.keys())
    yield from complaint("in the archive, but never enqueued", strangers)


def _problems_of_timelines(books: Books, number_of: dict[str, int]) -> Iterable[str]:
    """Every record within itself: all its attempts are told, and the last one alone completed it."""
    wrong = [
        number_of.get(record.job_id, record.job_id)
        for record in books.archive
        if record.state == COMPLETED
        and (
            [attempt.outcome == COMPLETED for attempt in record.attempts]
            != [False] * (len(record.attempts) - 1) + [True]
            or [attempt.run for attempt in record.attempts] != list(range(1, record.attempt + 1))
        )
    ]
    yield from complaint("archived with a timeline that does not end in its one completion", wrong)


def _problems_of_files(books: Books, number_of: dict[str, int]) -> Iterable[str]:
    """What ``history`` tells against what the files of the archive say."""
    told, written = set(books.archive), set(books.lines)
    for what, records in (
        ("told by the history, but in no file of the archive", told - written),
        ("in a file of the archive, but not told by the history", written - told),
    ):
        jobs = sorted({number_of.get(record.job_id, record.job_id) for record in records}, key=str)
        yield from complaint(what, jobs)


def _problems_of_runs(books: Books, number_of: dict[str, int]) -> Iterable[str]:
    """Each lease in the archive against the journal of its worker. A killed one's may lack the last step."""
    granted: dict[tuple[str, int], tuple[str, str]] = {}  # job and run → worker and outcome
    for record in books.archive:
        for attempt in record.attempts:
            granted[record.job_id, attempt.run] = attempt.worker, attempt.outcome
    begun: dict[tuple[str, int], str] = {}
    ended: dict[tuple[str, int], tuple[str, str]] = {}
    swapped, twice = [], []
    for worker, entries in books.workers.items():
        for entry in entries:
            for start in entry.started:
                begun[start.job_id, start.attempt] = worker
                if number_of.get(start.job_id) != start.number:
                    swapped.append(start.number)
            for outcome, ends in ((COMPLETED, entry.completed), (FAILED, entry.failed)):
                for end in ends:
                    if (end.job_id, end.attempt) in ended:
                        twice.append(number_of.get(end.job_id, end.job_id))
                    ended[end.job_id, end.attempt] = worker, outcome

    def named(runs: Iterable[tuple[str, int]]) -> list[int | str]:
        return [number_of.get(job_id, job_id) for job_id, _ in runs]

    yield from complaint("handed out with the payload of another job", swapped)
    unseen = [lease for lease, (worker, _) in granted.items() if begun.get(lease, books.killed) != worker]
    yield from complaint("leased by the archive to a worker that did not begin it", named(unseen))
    untold = [lease for lease in begun if lease not in granted]
    yield from complaint("begun by a worker, but without that lease in the archive", named(untold))
    yield from complaint("acknowledged to have ended more than once", twice)
    denied = [lease for lease, end in ended.items() if granted.get(lease) != end]
    yield from complaint("acknowledged with another end than the archive tells", named(denied))
    unasked = [
        lease
        for lease, (worker, outcome) in granted.items()
        if outcome in (COMPLETED, FAILED) and lease not in ended and worker != books.killed
    ]
    yield from complaint("ended by the archive, but by no worker's report", named(unasked))


def _problems_of_seconds(books: Books, number_of: dict[str, int], log_s: int) -> Iterable[str]:
    """Seconds of running: of the log, of the payloads that the workers got, of the archive, of the workers' clocks."""
    if log_s != (known := sum(books.log.values())):
        yield f"the completed runs were for {log_s:,} s of the log's time; the log has {known:,} s"
    reports: dict[tuple[str, int], RunEnd] = {
        (end.job_id, end.attempt): end
        for entries in books.workers.values()
        for entry in entries
        for end in entry.completed
    }
    held = least = most = 0
    wrong: list[int | str] = []
    for record in books.archive:
        report = reports.get((record.job_id, record.run))
        if record.state != COMPLETED or report is None:
            continue
        ms = _held_ms(record)
        if not report.least_ms - CLOCK_SLACK_MS <= ms <= report.most_ms + CLOCK_SLACK_MS:
            wrong.append(number_of.get(record.job_id, record.job_id))
        held, least, most = held + ms, least + report.least_ms, most + report.most_ms
    yield from complaint("held for another time by the archive than by the worker's clock", wrong)
    if not least <= held <= most:
        yield (
            f"the archive's runs took {held / 1000:,.1f} s in all;"
            f" by the workers' clocks {least / 1000:,.1f} to {most / 1000:,.1f} s"
        )
