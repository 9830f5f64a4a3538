"""The demo's check: it finds accounts in order that agree, and names whatever does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from demo.accounting import Account, check
from demo.books import BookedAttempt, BookedJob, Books
from demo.journal import JournalEntry, RunEnd, RunResult, RunStart, Sent, Wait
from demo.plan import IdSender


def books() -> Books:
    """Accounts of four jobs that agree: a plain one, a failed one, a stalled one, and one that somebody waits for.

    Jobs 8 and 12 carry ids, so the rival has sent them, too.
    """
    archive = [
        record("a", "completed"),
        record("b", "failed", "completed", client_id="id-8"),
        record("c", "stalled", "completed"),
        record("d", "completed", client_id="id-12"),
    ]
    ends = {each.job_id: RunEnd(each.job_id, each.run, 8, 12) for each in archive}
    return Books(
        log={7: 100, 8: 200, 11: 300, 12: 400},
        callers={8: IdSender("id-8", 0.0), 12: IdSender("id-12", 0.1, 30.0)},
        sent=[
            Sent(7, "a", "queued", "queued"),
            Sent(8, "b", "queued", "queued", "id-8"),
            Sent(11, "c", "queued", "queued"),
            Sent(8, "b", "completed", "completed", "id-8", RunResult(8, 2)),
            Sent(12, "d", "duplicate", "processing", "id-12"),
        ],
        waits=[Wait(12, "id-12", 1.0, 2_000, result=RunResult(12, 1))],
        archive=archive,
        lines=[*archive],
        live=[],
        workers={
            "worker-1": [
                JournalEntry(
                    started=[RunStart("a", 7, 1, 100), RunStart("b", 8, 1, 200)], completed=[ends["a"]]
                ),
                JournalEntry(failed=[RunEnd("b", 1, 8, 12)]),
                JournalEntry(
                    started=[RunStart("b", 8, 2, 200), RunStart("c", 11, 2, 300), RunStart("d", 12, 1, 400)],
                    completed=[ends["b"], ends["c"], ends["d"]],
                ),
            ],
            "worker-2": [JournalEntry(started=[RunStart("c", 11, 1, 300)])],  # and then it was killed
        },
        killed="worker-2",
    )


def record(job_id: str, *outcomes: str, state: str = "completed", client_id: str | None = None) -> BookedJob:
    attempts = tuple(
        BookedAttempt(
            run,
            "worker-2" if outcome == "stalled" else "worker-1",
            run * 1000,
            run * 1000 + 10,
            outcome,
        )
        for run, outcome in enumerate(outcomes, 1)
    )
    used = len(attempts)
    return BookedJob(job_id, used, state, 500, attempts[-1].ended_ms, used, attempts, client_id)


def test_accounts_that_agree_are_found_in_order() -> None:
    expected = Account(jobs=4, completed=4, executions=6, repeats=0, log_s=1_000, held_s=0.04, problems=[])
    assert check(books()) == expected


def test_an_archive_line_that_is_repeated_word_for_word_counts_once() -> None:
    found = books()
    found.lines.append(found.lines[0])
    account = check(found)
    assert (account.completed, account.repeats, account.problems) == (4, 1, [])


def test_two_senders_of_an_id_may_both_get_queued_with_the_same_job() -> None:
    found = books()
    found.sent[3] = found.sent[1]
    assert check(found).problems == []


def in_archive(found: Books, at: int, changed: BookedJob | None) -> None:
    """Change or remove what both the history and the files tell."""
    new = [] if changed is None else [changed]
    found.archive[at : at + 1] = new
    found.lines[at : at + 1] = new


def lose_a_completion(found: Books) -> None:
    in_archive(found, 0, None)


def double_a_completion(found: Books) -> None:
    twin = replace(found.archive[0], finished_ms=9_999)
    found.archive.append(twin)
    found.lines.append(twin)


def complete_and_stay_queued(found: Books) -> None:
    found.live.append(("a", "queued"))


def give_one_up(found: Books) -> None:
    in_archive(found, 1, record("b", "failed", "failed", state="failed", client_id="id-8"))


def forget_to_enqueue(found: Books) -> None:
    del found.sent[0]


def enqueue_twice(found: Books) -> None:
    found.sent.append(Sent(11, "e", "queued", "queued"))


def invent_a_job(found: Books) -> None:
    found.archive.append(record("z", "completed"))


def hide_a_record(found: Books) -> None:
    del found.archive[0]


def swap_payloads(found: Books) -> None:
    found.workers["worker-2"] = [JournalEntry(started=[RunStart("c", 8, 1, 300)])]


def run_for_another_time(found: Books) -> None:
    found.log[7] = 101


def complete_without_running(found: Books) -> None:
    found.workers["worker-1"][0] = JournalEntry(started=[RunStart("b", 8, 1, 200)])


def run_without_a_lease(found: Books) -> None:
    found.workers["worker-2"].append(JournalEntry(started=[RunStart("a", 7, 2, 100)]))


def acknowledge_twice(found: Books) -> None:
    found.workers["worker-1"].append(JournalEntry(completed=[RunEnd("c", 2, 8, 12)]))


def acknowledge_as_failed(found: Books) -> None:
    found.workers["worker-1"][0] = replace(
        found.workers["worker-1"][0], completed=[], failed=[RunEnd("a", 1, 8, 12)]
    )


def hold_for_too_long(found: Books) -> None:
    first, *others = found.archive[0].attempts
    in_archive(found, 0, replace(found.archive[0], attempts=(replace(first, started_ms=10), *others)))


def finish_twice_in_one_timeline(found: Books) -> None:
    in_archive(found, 0, record("a", "completed", "completed"))


def run_an_id_twice(found: Books) -> None:
    found.sent[3] = Sent(8, "e", "queued", "queued", "id-8")


def lose_an_id(found: Books) -> None:
    in_archive(found, 1, replace(found.archive[1], id=None))


def answer_with_another_job(found: Books) -> None:
    found.sent[4] = Sent(12, "a", "duplicate", "processing", "id-12")


def answer_with_another_result(found: Books) -> None:
    found.sent[3] = replace(found.sent[3], result=RunResult(8, 1))


def answer_with_no_result(found: Books) -> None:
    found.sent[3] = replace(found.sent[3], result=None)


def wait_in_vain(found: Books) -> None:
    found.waits[0] = replace(found.waits[0], result=None, error="WaitTimeout: too late")


def wait_for_another_result(found: Books) -> None:
    found.waits[0] = replace(found.waits[0], result=RunResult(11, 1))


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lose_a_completion, "1 lost: enqueued, but not in the archive: 7"),
        (lose_a_completion, "1 begun by a worker, but without that lease in the archive: 7"),
        (lose_a_completion, "the completed runs were for 900 s of the log's time; the log has 1,000 s"),
        (double_a_completion, "1 completed more than once: 7"),
        (complete_and_stay_queued, "1 queued instead of completed: 7"),
        (give_one_up, "1 failed instead of completed: 8"),
        (forget_to_enqueue, "1 never enqueued: 7"),
        (enqueue_twice, "1 enqueued more than once: 11"),
        (invent_a_job, "1 in the archive, but never enqueued: z"),
        (invent_a_job, "1 told by the history, but in no file of the archive: z"),
        (hide_a_record, "1 in a file of the archive, but not told by the history: 7"),
        (swap_payloads, "1 handed out with the payload of another job: 8"),
        (run_for_another_time, "the completed runs were for 1,000 s of the log's time; the log has 1,001 s"),
        (complete_without_running, "1 leased by the archive to a worker that did not begin it: 7"),
        (complete_without_running, "1 ended by the archive, but by no worker's report: 7"),
        (run_without_a_lease, "1 begun by a worker, but without that lease in the archive: 7"),
        (acknowledge_twice, "1 acknowledged to have ended more than once: 11"),
        (acknowledge_as_failed, "1 acknowledged with another end than the archive tells: 7"),
        (hold_for_too_long, "1 held for another time by the archive than by the worker's clock: 7"),
        (hold_for_too_long, "the archive's runs took 1.0 s in all; by the workers' clocks 0.0 to 0.0 s"),
        (
            finish_twice_in_one_timeline,
            "1 archived with a timeline that does not end in its one completion: 7",
        ),
        (run_an_id_twice, "1 enqueued more than once: 8"),
        (run_an_id_twice, "1 one id, but two jobs: 8"),
        (lose_an_id, "1 sent under an id that the archive does not tell: 8"),
        (answer_with_another_job, "1 answered as known, with a job that is not that of the id: 12"),
        (answer_with_another_result, "1 answered from the cache with another result than that of the job: 8"),
        (answer_with_no_result, "1 answered from the cache with another result than that of the job: 8"),
        (wait_in_vain, "job 12: its caller got WaitTimeout: too late"),
        (wait_for_another_result, "1 waited for, but with another result than that of the job: 12"),
    ],
)
def test_the_check_notices(spoil: Callable[[Books], None], complaint: str) -> None:
    found = books()
    spoil(found)
    problems = check(found).problems
    assert complaint in problems, problems
