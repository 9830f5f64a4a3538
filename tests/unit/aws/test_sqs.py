"""Functions written for SQS, as they are: records of jobs in, what became of them out."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    SqsFifoPartialProcessor,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes import SQSEvent, event_source
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.parser import envelopes, event_parser
from aws_lambda_powertools.utilities.parser.models import SqsModel, SqsRecordModel
from pydantic import BaseModel, Json

from osqueue import Rejected
from osqueue.aws import sqs_shaped
from tests.support.consumers import Consumed


@pytest.fixture
def emails(monkeypatch: pytest.MonkeyPatch) -> Consumed:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    made = Consumed()
    made.q.configure(backoff_base=3_600)
    return made


class Context:
    """Of a real invocation."""

    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:mailer"
    aws_request_id = "b4c5"

    def get_remaining_time_in_millis(self) -> int:
        return 900_000


def run(emails: Consumed, handler: Any, **options: Any) -> Any:
    return sqs_shaped(handler, **options).work(emails.opened(), emails.next_wake(), Context())


# ── Records ──────────────────────────────────────────────────────────────────
def test_a_job_is_a_record_with_every_field_that_sqs_has(emails: Consumed) -> None:
    job_id = emails.q.enqueue({"to": "ada"}, kind="welcome", headers={"tenant": "acme"}).job_id
    seen: list[Any] = []
    run(emails, lambda event, context: seen.append((event, context.aws_request_id)))
    ((event, request_id),) = seen
    (record,) = event["Records"]
    body = '{"to":"ada"}'
    now = str(emails.clock.now_ms())
    token = record.pop("receiptHandle")
    assert token
    assert request_id == "b4c5"
    assert record == {
        "messageId": job_id,
        "body": body,
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": now,
            "ApproximateFirstReceiveTimestamp": now,
            "SenderId": "osqueue",
            "MessageGroupId": "welcome",
        },
        "messageAttributes": {
            "tenant": {
                "stringValue": "acme",
                "dataType": "String",
                "stringListValues": [],
                "binaryListValues": [],
            }
        },
        "md5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:emails",
        "awsRegion": "eu-west-1",
    }


def test_a_text_is_the_body_itself_and_a_second_attempt_says_when_the_first_was(emails: Consumed) -> None:
    emails.q.configure(backoff_base=0.001)
    emails.q.enqueue("plain text, no JSON")
    first_ms = emails.clock.now_ms()
    seen: list[Any] = []

    def handler(event: Any, context: Any) -> None:
        emails.clock.advance(5)
        seen.extend(event["Records"])
        if len(seen) == 1:
            raise RuntimeError("not yet")

    assert run(emails, handler).completed == 1
    assert [each["body"] for each in seen] == ["plain text, no JSON"] * 2
    assert [each["attributes"]["ApproximateReceiveCount"] for each in seen] == ["1", "2"]
    assert seen[1]["attributes"]["ApproximateFirstReceiveTimestamp"] == str(first_ms)


def test_a_batch_has_as_many_records_as_were_claimed(emails: Consumed) -> None:
    emails.q.enqueue_many([{"payload": number} for number in range(7)])
    sizes: list[int] = []
    run(emails, lambda event, context: sizes.append(len(event["Records"])), batch=5)
    assert sizes == [5, 2]


# ── Answers ──────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("answer", [None, {}, {"batchItemFailures": []}, {"batchItemFailures": None}])
def test_no_failures_complete_all(emails: Consumed, answer: Any) -> None:
    emails.q.enqueue_many([{"payload": number} for number in range(3)])
    assert run(emails, lambda event, context: answer).completed == 3


def test_an_item_that_is_named_has_failed_and_the_error_says_who_said_so(emails: Consumed) -> None:
    ids = [each.job_id for each in emails.q.enqueue_many([{"payload": number} for number in range(3)])]
    tally = run(emails, lambda event, context: {"batchItemFailures": [{"itemIdentifier": ids[1]}]})
    assert (tally.completed, tally.failing) == (2, 1)
    told = emails.q.status(ids[1] or "")
    assert told.state == "failing"
    assert "named this job in batchItemFailures" in str(told.error)


@pytest.mark.parametrize(
    "answer",
    [
        {"batchItemFailures": [{"itemIdentifier": ""}]},
        {"batchItemFailures": [{"itemIdentifier": "somebody else's"}]},
        {"batchItemFailures": [{"itemIdentifier": None}]},
        {"batchItemFailures": [{"identifier": "x"}]},
        {"batchItemFailures": ["x"]},
        {"batchItemFailures": [{"itemIdentifier": ["x"]}]},
        {"batchItemFailures": "all"},
        "done",
        7,
    ],
)
def test_an_answer_that_is_none_fails_all(emails: Consumed, answer: Any) -> None:
    emails.q.enqueue_many([{"payload": number} for number in range(3)])
    assert run(emails, lambda event, context: answer).failing == 3


def test_without_reported_failures_any_answer_completes_all(emails: Consumed) -> None:
    emails.q.enqueue_many([{"payload": number} for number in range(3)])
    tally = run(emails, lambda event, context: {"statusCode": 200}, report_batch_item_failures=False)
    assert tally.completed == 3


def test_an_exception_fails_all_with_its_type(emails: Consumed) -> None:
    job_id = emails.q.enqueue(1, max_attempts=1).job_id

    def handler(event: Any, context: Any) -> None:
        raise LookupError("no such address")

    assert run(emails, handler).failed == 1
    told = emails.q.status(job_id or "")
    assert (told.error, told.attempts[-1].error_type) == ("LookupError: no such address", "LookupError")


# ── Powertools, as they are ──────────────────────────────────────────────────
def test_powertools_partial_responses_run_through_unchanged(emails: Consumed) -> None:
    ids = [each.job_id for each in emails.q.enqueue_many([{"payload": {"n": n}} for n in range(4)])]
    processor = BatchProcessor(event_type=EventType.SQS)

    def record_handler(record: SQSRecord) -> None:
        assert record.attributes.approximate_receive_count == "1"
        if record.json_body["n"] in (1, 2):
            raise ValueError("not these")

    def handler(event: Any, context: Any) -> Any:
        return process_partial_response(
            event=event, record_handler=record_handler, processor=processor, context=context
        )

    tally = run(emails, handler)
    assert (tally.completed, tally.failing) == (2, 2)
    assert {emails.q.status(ids[n] or "").state for n in (1, 2)} == {"failing"}


def test_a_batch_of_which_powertools_says_that_all_failed_fails_with_its_exception(emails: Consumed) -> None:
    job_id = emails.q.enqueue({"n": 1}).job_id
    processor = BatchProcessor(event_type=EventType.SQS)

    def record_handler(record: SQSRecord) -> None:
        raise ValueError("none")

    def handler(event: Any, context: Any) -> Any:
        return process_partial_response(event, record_handler, processor, context)

    assert run(emails, handler).failing == 1
    assert "BatchProcessingError" in str(emails.q.status(job_id or "").error)


def test_powertools_fifo_processor_stops_a_group_at_its_first_failure(emails: Consumed) -> None:
    emails.q.enqueue_many([{"payload": {"n": n}, "kind": "orders"} for n in range(3)])
    processor = SqsFifoPartialProcessor()
    seen: list[int] = []

    def record_handler(record: SQSRecord) -> None:
        seen.append(record.json_body["n"])
        if record.json_body["n"] == 1:
            raise ValueError("stop")

    def handler(event: Any, context: Any) -> Any:
        return process_partial_response(event, record_handler, processor, context)

    tally = run(emails, handler)
    assert seen == [0, 1]
    assert (tally.completed, tally.failing) == (1, 2)


class Order(BaseModel):
    """A payload."""

    item: str
    quantity: int


class OrderRecord(SqsRecordModel):
    """A record that holds one."""

    body: Json[Order]  # type: ignore[assignment]


def test_powertools_parser_and_its_envelope_take_the_records(emails: Consumed) -> None:
    emails.q.enqueue({"item": "book", "quantity": 2}, kind="orders", headers={"tenant": "acme"})
    seen: list[Any] = []

    @event_parser(model=Order, envelope=envelopes.SqsEnvelope)
    def handler(event: Any, context: Any) -> None:
        seen.extend(event)

    assert run(emails, handler).completed == 1
    assert seen == [Order(item="book", quantity=2)]


def test_powertools_models_processor_and_data_classes_take_them_too(emails: Consumed) -> None:
    ids = [
        each.job_id
        for each in emails.q.enqueue_many(
            [{"payload": {"item": "a", "quantity": 1}}, {"payload": {"item": "b"}}]
        )
    ]
    processor = BatchProcessor(event_type=EventType.SQS, model=OrderRecord)
    seen: list[Any] = []

    @event_source(data_class=SQSEvent)
    def handler(event: SQSEvent, context: Any) -> Any:
        assert len(SqsModel.model_validate(event.raw_event).Records) == 2
        seen.extend(record.queue_url for record in event.records)
        return process_partial_response(
            event.raw_event,
            lambda record: seen.append(record.body.item),  # type: ignore[attr-defined]
            processor,
            context,
        )

    tally = run(emails, handler)
    assert (tally.completed, tally.failing) == (1, 1)
    assert emails.q.status(ids[1] or "").state == "failing"
    assert seen[-1] == "a"


# ── What cannot be one ───────────────────────────────────────────────────────
def test_a_handler_is_checked_when_it_is_wrapped() -> None:
    with pytest.raises(TypeError, match=r"the event and the context .* Write def handler\(event, context\)"):
        sqs_shaped(lambda event: None)  # type: ignore[misc, arg-type]
    with pytest.raises(Rejected, match="no plain function"):
        sqs_shaped(7)  # type: ignore[arg-type]
