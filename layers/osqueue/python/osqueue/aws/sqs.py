"""Consumers that were written for SQS: records in, ``batchItemFailures`` out, and nothing of theirs is changed."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import msgspec

from .. import limits
from ..aws_calls.identity import REGION_VARIABLES
from ..errors import Rejected, shown
from ..queue.options import QueueOptions
from ..worker.handlers import Handlers, is_coroutine
from ..worker.job import WorkerJob
from ..worker.outcomes import Retry
from .function import ConsumerFunction

FAILURES = "batchItemFailures"
IDENTIFIER = "itemIdentifier"
NAMED = f"the handler named this job in {FAILURES}"
SENDER = "osqueue"
REGION, ACCOUNT = "us-east-1", "000000000000"  # where nothing tells them
ARN_PARTS = 7  # of a function's, at least; the fifth is the account

SqsHandler = Callable[[dict[str, Any], Any], Any]


def sqs_shaped(
    handler: SqsHandler,
    *,
    batch: int | None = None,
    report_batch_item_failures: bool = True,
    **options: Unpack[QueueOptions],
) -> ConsumerFunction:
    """Make a consumer of a function that was written for SQS: ``handler(event, context)`` with ``event["Records"]``.

    Its answer is read as an event source mapping of SQS reads it: nothing, or no ``batchItemFailures``, completes all;
    those that it names have failed; an answer that is none, or an exception, fails all. Of a handler whose mapping does
    not report batch item failures say ``report_batch_item_failures=False``: then only an exception fails anything.
    Raises Rejected, and TypeError for a function that cannot be called with two arguments.

    >>> handler = sqs_shaped(lambda event, context: None)
    """
    _check(handler)

    def handlers_of(context: Any) -> Handlers:
        def run(jobs: Sequence[WorkerJob[Any]]) -> list[Retry | None]:
            records = [record_of(job, context) for job in jobs]
            answer = handler({"Records": records}, context)
            return failures_in(answer, jobs) if report_batch_item_failures else [None] * len(jobs)

        handlers = Handlers()
        handlers.add(run, None, None, limits.HANDLER_BATCH_MAX)
        return handlers

    return ConsumerFunction(handler, handlers_of, batch=batch, **options)


def record_of(job: WorkerJob[Any], context: Any) -> dict[str, Any]:
    """A job as a record of SQS."""
    body = job.payload if isinstance(job.payload, str) else msgspec.json.encode(job.payload).decode()
    row = job._job
    first_ms = row.history[0].started_ms if row.history else job._started_ms
    region = next((os.environ[name] for name in REGION_VARIABLES if os.environ.get(name)), REGION)
    attributes = {
        "ApproximateReceiveCount": str(job.attempt),
        "SentTimestamp": str(row.enqueued_ms),
        "ApproximateFirstReceiveTimestamp": str(first_ms),
        "SenderId": SENDER,
    }
    if job.kind is not None:
        attributes["MessageGroupId"] = job.kind
    return {
        "messageId": job.job_id,
        "receiptHandle": job.token,
        "body": body,
        "attributes": attributes,
        "messageAttributes": {
            name: {
                "stringValue": value,
                "dataType": "String",
                "stringListValues": [],
                "binaryListValues": [],
            }
            for name, value in (row.headers or ())
        },
        "md5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:{region}:{_account(context)}:{job.queue}",
        "awsRegion": region,
    }


def failures_in(answer: Any, jobs: Sequence[WorkerJob[Any]]) -> list[Retry | None]:
    """What a handler's answer makes of each job."""
    if answer is None or (isinstance(answer, dict) and answer.get(FAILURES) in (None, [])):
        return [None] * len(jobs)
    items = answer.get(FAILURES) if isinstance(answer, dict) else None
    if not isinstance(items, list):
        return [Retry(why=f"the handler returned {shown(answer)}, which is no answer with {FAILURES}")] * len(
            jobs
        )
    named = [item.get(IDENTIFIER) if isinstance(item, dict) else None for item in items]
    known = {job.job_id for job in jobs}
    if not all(isinstance(each, str) and each in known for each in named):
        return [Retry(why=f"{FAILURES} names what is none of the batch, so all of it has failed")] * len(jobs)
    return [Retry(why=NAMED) if job.job_id in named else None for job in jobs]


def _account(context: Any) -> str:
    parts = str(getattr(context, "invoked_function_arn", "")).split(":")
    return parts[4] if len(parts) >= ARN_PARTS and parts[4] else ACCOUNT


def _check(handler: Any) -> None:
    """Raises Rejected, or TypeError for what cannot be called as Lambda calls it."""
    if not callable(handler) or is_coroutine(handler):
        raise Rejected(
            f"handler: {shown(handler)} is no plain function of an event and a context.", field="handler"
        )
    try:
        inspect.signature(handler).bind(None, None)
    except ValueError:  # of one that is not written in Python
        return
    except TypeError as error:
        name = getattr(handler, "__qualname__", None) or type(handler).__name__
        raise TypeError(
            f"handler {name}: it is called with two arguments, the event and the context ({error}). Write"
            " def handler(event, context)."
        ) from None
