"""Effects under a job's key, by Powertools' idempotency: once for all attempts, as docs/consumers.md says."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.idempotency import (
    BasePersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyItemAlreadyExistsError
from aws_lambda_powertools.utilities.idempotency.persistence.datarecord import DataRecord

from osqueue.aws import consumer
from osqueue.testing.consumers import InvocationContext
from tests.support.consumers import Consumed


class Kept(BasePersistenceLayer):
    """A table of Powertools' idempotency, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, DataRecord] = {}

    def _get_record(self, idempotency_key: str) -> DataRecord:
        return self.rows[idempotency_key]

    def _put_record(self, data_record: DataRecord) -> None:
        if data_record.idempotency_key in self.rows:
            raise IdempotencyItemAlreadyExistsError
        self.rows[data_record.idempotency_key] = data_record

    def _update_record(self, data_record: DataRecord) -> None:
        self.rows[data_record.idempotency_key] = data_record

    def _delete_record(self, data_record: DataRecord) -> None:
        del self.rows[data_record.idempotency_key]


def test_an_effect_under_the_job_s_key_comes_once_for_all_its_attempts() -> None:
    charged: list[str] = []

    config = IdempotencyConfig()

    @idempotent_function(data_keyword_argument="key", persistence_store=Kept(), config=config)
    def charge(key: str, order: Any) -> Any:
        charged.append(key)
        return {"paid": order}

    @consumer
    def handler(job: Any) -> Any:
        paid = charge(key=job.idempotency_key, order=job.payload)
        if job.attempt == 1:
            raise ConnectionError("after the effect")
        return paid

    shop = Consumed()
    config.register_lambda_context(InvocationContext(shop.clock))
    ids = [shop.q.enqueue(amount).job_id for amount in (5, 7)]
    shop.deliver(handler)
    shop.clock.advance(60)
    shop.q.reap()
    while shop.wakes:
        shop.deliver(handler)
    assert [shop.q.result(each) for each in ids] == [{"paid": 5}, {"paid": 7}]
    assert len(charged) == len(set(charged)) == 2
