"""A purge removes what was announced and is settled: it holds payloads, and nobody may come by for long."""

from __future__ import annotations

from typing import Any

from osqueue import Queue
from osqueue.core import intents
from osqueue.core.encoding import decode_head
from osqueue.core.job_ops import EnqueueJobs, JobSpec
from osqueue.core.ops import Request
from osqueue.objects.layout import root_of
from osqueue.stores.base import Found, Get, List, Put
from osqueue.stores.memory import MemoryStore

ROOT = root_of("mail", 0)
PLACE = intents.intents_prefix(ROOT)


def test_a_settled_announcement_goes_with_the_job_that_it_brought(machine: Any) -> None:
    store = MemoryStore(machine)
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    job_id = q.enqueue("secret").job_id
    assert job_id is not None
    found = store.get(Get(f"{ROOT}head"))
    assert isinstance(found, Found)
    state = decode_head(found.body)
    ((env, row),) = state.sessions.items()
    ops = (EnqueueJobs((JobSpec(bytes(16), b'"secret"'),)),)
    settled = Request(env, row.n, row.nonce, 0, state.epoch, ops)
    key = PLACE + intents.intent_key(settled, 1_000, state.seals)
    store.put(Put(key, intents.intent_body(settled)))
    q.purge(job_id)
    assert store.list(List(PLACE)).keys == ()
