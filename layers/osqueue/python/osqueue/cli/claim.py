"""``osqueue claim`` and ``osqueue complete``: a worker made of shell commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import click
from msgspec import Struct

from .. import limits
from ..errors import LeaseLost, NotFound, OsqueueError, Rejected, Throttled
from ..events import Sink
from ..model import validation
from ..model.job import Done
from ..model.job_options import ViewedOptions
from ..model.keys import key_of, shard_of
from ..operations.endings import lease_lost
from ..queue.blocking import Queue
from ..queue.lease import Lease
from .exits import REFUSED
from .lines import fields_of, json_line, read_lines
from .options import StoreCommand, duration, existing_queue, is_known, json, open_queue, store_arguments
from .output import Output, error_fields, is_terminal, otherwise_saying

CLAIM_EPILOG = """\b
Examples:
  osqueue claim file://jobs emails --limit 10 --lease 5m --wait 20s
  osqueue claim file://jobs emails --limit 100 | jq -c '{job_id, token, result: "sent"}' |
    osqueue complete file://jobs emails
"""
LEASE_FIELDS = (
    *("job_id", "token", "payload", *ViewedOptions.__struct_fields__, "attempt", "run"),
    *("enqueued_at", "expires_at", "cancel_requested"),
)


@click.command("claim", cls=StoreCommand, epilog=CLAIM_EPILOG)
@store_arguments(commits=True)
@click.option("--limit", type=int, default=1, show_default=True, help="Most jobs to lease.")
@click.option("--worker", help="Who holds the leases.  [default: host and process]")
@click.option("--wait", type=duration, default=0, help="How long to wait for the first job.  [default: 0s]")
@click.option(
    "--lease", type=duration, default=limits.LEASE_MS_DEFAULT / 1000, help="How long.  [default: 30s]"
)
@click.option("--kind", "kinds", multiple=True, help="Only this kind; may be repeated.")
@click.pass_obj
def claim(
    output: Output,
    address: str,
    queue: str,
    limit: int,
    worker: str | None,
    wait: float,
    lease: float,
    kinds: Sequence[str],
    timeout: float,
    sinks: Sequence[Sink],
) -> None:
    """Lease jobs and print each with its token and payload.

    Finish them with 'osqueue complete' before the lease ends, or they go back to the queue. An empty answer is no
    error; the reason goes to standard error.
    """
    with open_queue(address, queue, timeout, sinks=sinks) as q:
        leases = q.claim(limit=limit, worker=worker, wait=wait, lease=lease, kinds=list(kinds) or None)
        if not leases:
            unknown = leases.reason == "empty" and not is_known(q)
            why = "no queue of this name was used at this address yet" if unknown else leases.reason
            again = "" if leases.retry_after is None else f" (again in {leases.retry_after:.3g} s)"
            output.note(f"nothing to claim: {why}{again}")
            return
        columns = ("job_id", "token", "attempt", "kind", "payload")
        with otherwise_saying("The jobs are leased: they go back to the queue when their leases end."):
            output.rows((_lease(each) for each in leases), columns)


def _lease(lease: Lease[Any]) -> dict[str, Any]:
    """A lease as a line. One whose payload cannot be read says so, and ``osqueue complete`` fails that job alone."""
    fields: dict[str, Any] = {}
    for name in LEASE_FIELDS:
        try:
            fields[name] = getattr(lease, name)
        except OsqueueError as error:
            fields |= {name: None, "error": f"{error.code}: {error.message}"}
    return fields


# ── Complete ─────────────────────────────────────────────────────────────────
COMPLETE_EPILOG = """\b
Examples:
  osqueue complete file://jobs emails JOB TOKEN --result '{"sent": true}'
  osqueue complete file://jobs emails JOB TOKEN --fail "mailbox full" --retry-in 10m
  osqueue complete file://jobs emails < outcomes.jsonl
"""
LINE_EXAMPLE = 'an outcome: {"job_id": ..., "token": ..., "result": ...}'
LINE_FIELDS = {"job_id", "token", "result", "error", "release"}

Way = Literal["complete", "fail", "release"]


class _Outcome(Struct, frozen=True):
    """What is to become of one job."""

    way: Way
    fields: dict[str, Any]  # job_id, token, and result or error


@click.command("complete", cls=StoreCommand, epilog=COMPLETE_EPILOG)
@store_arguments(commits=True)
@click.argument("job_id", metavar="[JOB", required=False)
@click.argument("token", metavar="TOKEN]", required=False)
@click.option("--result", type=json, help="The job's result, in JSON.")
@click.option("--fail", "error", metavar="ERROR", help="The attempt failed: the job is tried again, or dead.")
@click.option(
    "--retry-in", type=duration, help="With --fail: when to try again.  [default: the queue's back-off]"
)
@click.option("--release", is_flag=True, help="Give the job back; the attempt does not count.")
@click.option("--delay", type=duration, default=0, help="With --release: not before this long.")
@click.pass_obj
def complete(
    output: Output,
    address: str,
    queue: str,
    job_id: str | None,
    token: str | None,
    result: Any,
    error: str | None,
    retry_in: float | None,
    release: bool,
    delay: float,
    timeout: float,
    sinks: Sequence[Sink],
) -> None:
    """Finish a leased job, or report that it failed, or give it back.

    Without JOB and TOKEN: JSON lines from standard input, each {job_id, token} with result, error or release: true
    (or none of them: then the options here apply). What 'osqueue claim' prints may be among the fields. Every line
    is answered by one; a bad one fails alone.
    """
    if sum((result is not None, error is not None, release)) > 1:
        raise click.UsageError("give one of --result, --fail and --release.")
    if retry_in is not None and release:
        raise click.UsageError("--retry-in goes with --fail; --release takes --delay.")
    if delay and not release and job_id is not None:
        raise click.UsageError("--delay goes with --release; --fail takes --retry-in.")
    if (job_id is None) != (token is None):
        raise click.UsageError("TOKEN is missing: give JOB and TOKEN as 'osqueue claim' printed them.")
    if job_id is None and (sys.stdin is None or is_terminal(sys.stdin)):
        raise click.UsageError("no job: give JOB and TOKEN, or JSON lines on standard input.")
    default = _Outcome("complete", {"result": result})
    if error is not None:
        default = _Outcome("fail", {"error": error})
    elif release:
        default = _Outcome("release", {})
    with open_queue(address, queue, timeout, sinks=sinks) as q:
        finisher = _Finisher(q, default, retry_in, delay)
        if job_id is not None:
            output.record(_single(finisher, {"job_id": job_id, "token": token}))
            return
        failed = False
        stream = click.open_file("-", "rb")

        def answers() -> Iterator[dict[str, Any]]:
            nonlocal failed
            for each in finisher.lines(read_lines(stream)):
                failed = failed or not each["ok"]
                yield each

        output.rows(answers(), ("line", "job_id", "ok", "code", "message"))
        if failed:
            raise click.exceptions.Exit(REFUSED)


def _single(finisher: _Finisher, fields: dict[str, Any]) -> dict[str, Any]:
    outcome = finisher.outcome(fields)
    (done,) = finisher.send(outcome.way, [outcome.fields])
    if not done.ok:
        raise _refusal(done)
    return {"job_id": done.job_id, "ok": True, "code": done.code}


def _refusal(done: Done) -> OsqueueError:
    if done.error is not None:
        return done.error
    if done.code == LeaseLost.code:
        return lease_lost(done.job_id)
    return Throttled(f"job {done.job_id}: the queue answered {done.code!r}. Repeat the command.")


class _Finisher:
    """Sends outcomes, many in one commit."""

    def __init__(self, queue: Queue[Any], default: _Outcome, retry_in: float | None, delay: float) -> None:
        self.queue = queue
        self.default = default
        self.retry_in = retry_in
        self.delay = delay
        self.looked = False  # whether the queue exists

    def outcome(self, fields: dict[str, Any]) -> _Outcome:
        """Check one line's fields; raises Rejected."""
        unknown = sorted(set(fields) - LINE_FIELDS - set(LEASE_FIELDS))
        if unknown:
            raise Rejected(
                f"{unknown[0]}: no such field. Known: {', '.join(sorted(LINE_FIELDS))}.", field=unknown[0]
            )
        for name in ("job_id", "token"):
            if not isinstance(fields.get(name), str):
                raise Rejected(f"{name}: it is missing. Pass what 'osqueue claim' printed.", field=name)
        if shard_of(key_of(fields["job_id"])) >= limits.SHARDS_MAX:
            raise Rejected("job_id: it was not drawn by this queue.", field="job_id")
        held = {"job_id": fields["job_id"], "token": validation.text(fields["token"], "token", 64, 1)}
        said = [name for name in ("result", "error", "release") if fields.get(name) is not None]
        if fields.get("release") is False:  # as good as left out
            said.remove("release")
        if len(said) > 1:
            raise Rejected(f"{said[1]}: give one of result, error and release.", field=said[1])
        if not said:
            return _Outcome(self.default.way, {**held, **self.default.fields})
        if said[0] == "release":
            if fields["release"] is not True:
                raise Rejected("release: write true, or leave it out.", field="release")
            return _Outcome("release", held)
        if said[0] == "error":
            return _Outcome("fail", {**held, "error": validation.error_text(fields["error"])})
        return _Outcome("complete", {**held, "result": fields["result"]})

    def send(self, way: Way, items: list[dict[str, Any]]) -> list[Done]:
        """One call to the queue. Raises NotFound where there is none of that name."""
        if way == "fail":
            done = self.queue.fail_many(items, self.retry_in)
        elif way == "release":
            done = self.queue.release_many(items, self.delay)
        else:
            done = self.queue.complete_many(items)
        if not self.looked and any(each.code == LeaseLost.code for each in done):
            self.looked = True
            self._look()
        return done

    def _look(self) -> None:
        """Raise NotFound where there is no queue of that name."""
        try:
            existing_queue(self.queue)
        except NotFound:
            raise
        except OsqueueError:  # what is done is reported all the same
            pass

    def lines(self, numbered: Iterator[tuple[int, bytes]]) -> Iterator[dict[str, Any]]:
        """The answer to every line, as many lines at a time as one commit takes."""
        batch: list[tuple[int, _Outcome | Rejected]] = []
        for number, data in numbered:
            try:
                batch.append((number, self.outcome(fields_of(json_line(data), LINE_EXAMPLE))))
            except Rejected as error:
                batch.append((number, error))
            if len(batch) == limits.ITEMS_PER_REQUEST_MAX:
                yield from self._answers(batch)
                batch = []
        yield from self._answers(batch)

    def _answers(self, batch: Sequence[tuple[int, _Outcome | Rejected]]) -> Iterator[dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        ways: dict[Way, list[tuple[int, dict[str, Any]]]] = {}
        for number, each in batch:
            if isinstance(each, Rejected):
                found[number] = {"line": number, "job_id": None, "ok": False, **error_fields(each)}
            else:
                ways.setdefault(each.way, []).append((number, each.fields))
        for way, items in ways.items():
            done = self.send(way, [fields for _, fields in items])
            for (number, _), one in zip(items, done, strict=True):
                found[number] = {"line": number, "job_id": one.job_id, "ok": one.ok, "code": one.code}
                if not one.ok:
                    found[number]["message"] = error_fields(_refusal(one))["message"]
        for number, _ in batch:
            yield found[number]
