"""``osqueue enqueue``: one job from an argument, or as many as there are lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import click

from .. import limits
from ..core.state import SCHEDULED
from ..errors import OsqueueError, Throttled, Timeout, Unavailable
from ..events import Sink
from ..model import validation
from ..model.job import Enqueued
from ..model.job_options import ITEM_FIELDS
from ..queue.blocking import Queue
from .exits import REFUSED, USAGE, CommandFailed, DataRefused
from .lines import InputLine, batches, read_jobs, refuse_bad, rereadable
from .options import StoreCommand, duration, job_options, json, open_queue, store_arguments, unique_asked
from .output import Output, is_terminal, otherwise_saying
from .progress import progress

BAD_LINES_SHOWN = 20

EPILOG = """\b
Examples:
  osqueue enqueue file://jobs emails '{"to": "ada@example.com"}' --delay 10m
  osqueue enqueue file://jobs emails --file jobs.jsonl
  zcat jobs.jsonl.gz | osqueue enqueue file://jobs emails --kind welcome
  echo '{"payload": {"to": "ada"}, "priority": 2}' | osqueue enqueue file://jobs emails --items
  osqueue enqueue file://jobs emails '{"order": 1041}' --id order-1041 --wait 30s
  osqueue enqueue https://abc.execute-api.eu-west-1.amazonaws.com emails '"hello"'
"""


@click.command(
    "enqueue", short_help="Add one job, or one for each line of JSON lines.", cls=StoreCommand, epilog=EPILOG
)
@store_arguments(commits=True)
@click.argument("payload", required=False)
@click.option(
    "--file", "-f", "path", type=click.Path(dir_okay=False), help="JSON lines; - is standard input."
)
@click.option(
    "--items", is_flag=True, help="Lines hold {payload, kind, priority, delay, ...}, not bare payloads."
)
@click.option("--skip-bad", is_flag=True, help="Enqueue the good lines although others are bad.")
@click.option(
    "--from-line", type=click.IntRange(1), default=1, show_default=True, help="Begin with this line."
)
@click.option("--ids", is_flag=True, help="Print the job id of every line, as JSON lines.")
@click.option("--wait", type=duration, help="Wait this long for the one job, and print its result.")
@job_options
@click.pass_obj
def enqueue(
    output: Output,
    /,
    address: str,
    queue: str,
    payload: str | None,
    path: str | None,
    items: bool,
    skip_bad: bool,
    from_line: int,
    ids: bool,
    wait: float | None,
    timeout: float,
    sinks: Sequence[Sink],
    **options: Any,
) -> None:
    """Add jobs: one from PAYLOAD, or one for each line of --file or standard input.

    PAYLOAD is JSON. A line is a payload in JSON, or with --items a mapping of a job's options; what a line does not
    say comes from the options here. If any line is bad, nothing is enqueued (unless --skip-bad). A job is durable
    when the command answers. With --wait the answer is the job's result.
    """
    defaults = {name: value for name, value in unique_asked(options).items() if value is not None}
    one = payload is not None and payload != "-"
    # What goes together is looked at where the whole job is known: of lines, each may have an id of its own.
    refuse_bad(
        {"payload": None, **{name: each for name, each in defaults.items() if one or name != "unique"}}
    )
    lines_only = {"--file": path is not None, "--items": items, "--skip-bad": skip_bad, "--ids": ids}
    wrong = [name for name, given in lines_only.items() if given]
    if payload is not None and payload != "-":
        if wrong:
            raise click.UsageError(f"PAYLOAD is one job; {wrong[0]} is for lines. Give one of the two.")
        value = _payload(payload)
        if wait is not None:
            validation.milliseconds(wait, "wait", 0, limits.DAY_MS)
        with open_queue(address, queue, timeout, sinks=sinks) as q:
            done = q.enqueue(value, **defaults)
            with _naming(output, str(done.job_id)):
                if wait is None:
                    output.record(_single(done))
                else:
                    output.document(_result(q, done, wait))
        return
    for name, given in (("--id", defaults.get("id")), ("--wait", wait)):
        if given is not None:
            raise click.UsageError(
                f"{name} is for one job: give PAYLOAD. Of lines, --items takes an id each."
            )
    name = "-" if path is None else path
    unasked = path is None and payload is None and is_terminal(sys.stdin)
    if unasked or (name == "-" and sys.stdin is None):
        raise click.UsageError("no job: give PAYLOAD, --file, or JSON lines on standard input.")
    try:
        with open_queue(address, queue, timeout, sinks=sinks) as q, click.open_file(name, "rb") as stream:
            _Bulk(output, q, ids).run(stream, from_line, items, defaults, skip_bad)
    except BrokenPipeError:  # the reader of our answers has gone
        raise
    except OSError as error:
        raise CommandFailed(output, "file", f"{name}: {error.strerror or error}", USAGE) from None


def _payload(text: str) -> Any:
    try:
        return json(text)
    except click.BadParameter as error:
        error.param_hint = "PAYLOAD"
        raise


@contextmanager
def _naming(output: Output, job_id: str) -> Iterator[None]:
    """Name the job in every error that ends the wait for it."""
    note = f"The job is {job_id}."
    try:
        yield
    except OsqueueError as error:
        if job_id not in error.message:
            error.message += f" {note}"
        raise
    except KeyboardInterrupt:
        output.note(note)
        raise


def _result(queue: Queue[Any], done: Enqueued, seconds: float) -> Any:
    """What the job answers, once it has: the second half of ``enqueue_and_wait``, which raises the same."""
    return queue._run(queue._answer(done, seconds))


def _answer(done: Enqueued) -> dict[str, Any]:
    return {"status": done.status, "job_id": done.job_id, "state": done.state}


def _single(done: Enqueued) -> dict[str, Any]:
    return {**_answer(done), "result": done.result} if done.status == "completed" else _answer(done)


def _is_missed(done: Enqueued) -> bool:
    """Whether a line has no answer: the call that was to take it had none, or was not made.

    A line that the queue has no room for has one. Its error names the field that is to blame, as in ``kind: ...``.
    """
    if done.status == "completed" or not isinstance(done.error, Unavailable | Timeout | Throttled):
        return False
    return not (isinstance(done.error, Throttled) and done.error.message.partition(":")[0] in ITEM_FIELDS)


class _Bulk:
    """Many lines on their way into a queue."""

    def __init__(self, output: Output, queue: Queue[Any], ids: bool) -> None:
        self.output = output
        self.queue = queue
        self.ids = ids
        self.last = 0  # every line up to here is dealt with
        self.sending = 0  # the last line that may be enqueued
        self.later: list[int] = []  # lines behind one without an answer that are enqueued, under no id
        self.states = {"queued": 0, "scheduled": 0}  # of the new jobs
        # Jobs that were there already, under the same ids, and those that took the place of such.
        self.known = {"duplicate": 0, "completed": 0, "replaced": 0, "postponed": 0}
        self.bad: list[tuple[int, OsqueueError]] = []  # the first of them
        self.bad_lines = 0
        self.refused = 0

    def run(
        self, stream: IO[bytes], first: int, as_items: bool, defaults: dict[str, Any], skip_bad: bool
    ) -> None:
        """Check every line, then enqueue them; or both in one go when bad ones are skipped."""
        total = None
        if not skip_bad:
            stream = rereadable(stream)
            start = stream.tell()
            total = self._check(read_jobs(stream, first, as_items, defaults))
            stream.seek(start)
        self.last = first - 1
        try:
            with progress("enqueueing", total) as advance:

                def send(batch: list[InputLine]) -> None:
                    self._send(batch)
                    advance(len(batch))

                jobs = self._good(read_jobs(stream, first, as_items, defaults))
                batches(jobs, send, remote=self.queue.transport is not None)
        except KeyboardInterrupt:
            self._show_bad()
            self.output.note(self._where_it_stands())
            raise
        except BrokenPipeError:  # the reader of the ids has gone
            self._show_bad()
            if total is None or sum(self.states.values()) + sum(self.known.values()) + self.bad_lines < total:
                self.output.note(self._where_it_stands())
            raise
        except OsqueueError as error:
            self._show_bad()
            error.message = f"{error.message} {self._where_it_stands()}"
            raise
        self._conclude(skip_bad)

    def _check(self, jobs: Iterator[InputLine]) -> int:
        """How many lines there are; raises when any is bad."""
        count = 0
        with progress("checking", None) as advance:
            for line in jobs:
                count += 1
                self._remember(line)
                if count % 10_000 == 0:
                    advance(10_000)
        if self.bad_lines:
            self._show_bad()
            raise self._ended(
                f"{self.bad_lines:,} of {count:,} lines are bad; nothing was enqueued. Mend them, or pass --skip-bad."
            )
        return count

    def _good(self, jobs: Iterator[InputLine]) -> Iterator[InputLine]:
        for line in jobs:
            if line.item is None:
                self._remember(line)
            else:
                yield line

    def _remember(self, line: InputLine) -> None:
        if line.error is not None:
            self._count_bad(line.number, line.error)

    def _count_bad(self, number: int, error: OsqueueError) -> None:
        self.bad_lines += 1
        if len(self.bad) < BAD_LINES_SHOWN:
            self.bad.append((number, error))

    def _send(self, batch: list[InputLine]) -> None:
        """Enqueue lines. Raises when some of them have no answer."""
        self.sending = batch[-1].number
        try:
            results = self.queue.enqueue_many([line.item for line in batch if line.item is not None])
        except Throttled:  # none of them is enqueued
            self.sending = self.last
            raise
        missed: OsqueueError | None = None
        answered: list[tuple[int, Enqueued]] = []
        for line, done in zip(batch, results, strict=True):
            if _is_missed(done):
                if missed is None:
                    missed = done.error
                    self.last = self.sending = line.number - 1
                if not isinstance(done.error, Throttled):
                    self.sending = line.number
                continue
            answered.append((line.number, done))
            if missed is None:
                self._count(line.number, done)
            elif done.error is None and (line.item or {}).get("id") is None:
                self.later.append(line.number)
        if missed is None:
            self.last = self.sending
        if self.ids:
            for number, done in answered:
                self.output.document({"line": number, **_answer(done)})
        if missed is not None:
            raise missed

    def _count(self, number: int, done: Enqueued) -> None:
        if done.status in self.known:
            self.known[done.status] += 1
        elif done.error is not None:
            self.refused += 1
            self._count_bad(number, done.error)
        else:
            self.states["scheduled" if done.state == SCHEDULED else "queued"] += 1

    def _where_it_stands(self) -> str:
        if not self.sending and not self.later:
            return "No line is enqueued yet."
        done = (
            f"Lines up to {self.last:,} are enqueued{', but for the bad ones' if self.bad_lines else ''}"
            if any(self.states.values()) or any(self.known.values())
            else "No line is known to be enqueued"
        )
        perhaps = f", those up to {self.sending:,} may be" if self.sending > self.last else ""
        twice = ""
        if self.later:
            twice = (
                f" First take out what is enqueued, too, and has no id: {len(self.later):,} of the lines"
                f" {self.later[0]:,} to {self.later[-1]:,}."
            )
        return f"{done}{perhaps}. Go on with --from-line {self.last + 1}.{twice}"

    def _conclude(self, skip_bad: bool) -> None:
        self._show_bad()
        total = sum(self.states.values())
        known = {
            name: count for name, count in self.known.items() if count or name in ("duplicate", "completed")
        }
        summary = {"enqueued": total, **self.states, **known, "rejected": self.bad_lines}
        if not self.ids:
            with otherwise_saying(f"Of all lines {total:,} are enqueued, {self.bad_lines:,} are rejected."):
                self.output.record({"queue": self.queue.name, **summary})
        if self.refused or (self.bad_lines and not skip_bad):
            raise self._ended(f"{self.bad_lines:,} lines were refused; {total:,} are enqueued.")

    def _show_bad(self) -> None:
        if self.output.json and not self.bad:
            return
        for number, error in self.bad:
            self.output.error(error.code, f"line {number}: {error.message}", line=number)
        left = self.bad_lines - len(self.bad)
        if left:
            self.output.note(f"... and {left:,} more bad lines.")

    def _ended(self, message: str) -> CommandFailed:
        return CommandFailed(self.output, DataRefused.code, message, REFUSED)
