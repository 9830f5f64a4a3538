"""Bad input: every error names the field and the remedy, and nothing is written."""

from __future__ import annotations

import gc
import re
import weakref
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from osqueue import LeaseLost, NotFound, NotSupported, Queue, Rejected, limits
from osqueue.model import validation
from osqueue.stores.memory import MemoryStore


def describe(value: object) -> str:
    """A parameter's name in the test's: its repr without the address, which differs from one process to the next."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


JOB = "01890a5d-ac96-774b-bcce-b302099a8000"


@pytest.fixture
def q(machine: Any) -> Queue[Any]:
    return Queue(MemoryStore(machine), "mail", machine=machine)


def refused(q: Queue[Any], field: str, call: Any, *args: Any, **options: Any) -> Rejected:
    """The call is refused because of the field, and writes nothing."""
    before = q.requests["put"]
    with pytest.raises(Rejected) as caught:
        call(*args, **options)
    assert caught.value.field == field
    assert field in caught.value.message
    assert caught.value.message.endswith((".", ")"))
    assert q.requests["put"] == before
    return caught.value


# ── Connecting ───────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "address",
    [
        "",
        "jobs",
        "ftp://x",
        "memory:/",
        "file://",
        "s3://",
        "memory://?nonsense=1",
        "memory://?latency_ms=-1",
    ],
)
def test_an_address_that_means_nothing_is_refused(address: str) -> None:
    with pytest.raises(Rejected):
        Queue.connect(address, "mail")


@pytest.mark.parametrize("address", [None, 5, b"memory://"], ids=describe)
def test_an_address_that_is_no_text_is_refused(address: Any) -> None:
    with pytest.raises(Rejected) as caught:
        Queue.connect(address, "mail")
    assert caught.value.field == "address"


@pytest.mark.parametrize(
    "name", ["", "Mail", "-mail", "a_b", "a" * 65, "a/b", "a\n", "é", "..", None, 5, b"a"]
)
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(Rejected, match="queue name") as caught:
        Queue.connect("memory://", name)
    assert caught.value.field == "queue"


@pytest.mark.parametrize("name", ["a", "0", "a-", "a" * 64, "emails-2"])
def test_a_good_name_is_taken(name: str) -> None:
    assert Queue.connect("memory://", name).name == name


@pytest.mark.parametrize("timeout", [0, -1, "5", True, float("nan"), float("inf"), None])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(machine: Any, timeout: Any) -> None:
    with pytest.raises(Rejected) as caught:
        Queue(MemoryStore(machine), "mail", machine=machine, timeout=timeout)
    assert caught.value.field == "timeout"


# ── Enqueue ──────────────────────────────────────────────────────────────────
NO_SECONDS = [-1, -0.001, "5", True, float("nan"), float("inf"), 1e308, 10**400, [], timedelta(seconds=-1)]
WRONG: list[tuple[str, Any]] = [
    *(("delay", value) for value in NO_SECONDS),
    ("delay", limits.DELAY_MS_MAX / 1000 + 1),
    *(("at", value) for value in (-1, "tomorrow", True, float("nan"), 1e308, date(2027, 1, 1))),
    ("at", datetime(2027, 1, 1)),  # noqa: DTZ001 - the point of it
    *(("priority", value) for value in (-1, 10, 4.5, "5", True)),
    *(("kind", value) for value in (5, "a\nb", "k" * 65, "\ud800", b"a", ["a"])),
    *(("max_attempts", value) for value in (0, -1, 1_001, 2.5, "3", True)),
    *(("result_ttl", value) for value in (0, -1, "5", True, float("nan"), float("inf"), 30 * 86_400 + 1)),
    *(("run_within", value) for value in NO_SECONDS),
    *(("start_within", value) for value in NO_SECONDS),
    *(("id", value) for value in ("", "x" * 257, 7, b"x", "a\nb", "\ud800", ["x"], True)),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=lambda value: repr(value)[:30])
def test_an_option_out_of_range_is_refused(q: Queue[Any], field: str, value: Any) -> None:
    refused(q, field, q.enqueue, 1, **{field: value})


def test_a_naive_datetime_is_told_how_to_become_aware(q: Queue[Any]) -> None:
    error = refused(q, "at", q.enqueue, 1, at=datetime(2027, 1, 1))  # noqa: DTZ001 - the point of it
    assert "datetime.now(UTC)" in error.message


def test_delay_and_at_exclude_each_other(q: Queue[Any]) -> None:
    refused(q, "at", q.enqueue, 1, delay=5, at=datetime(2030, 1, 1, tzinfo=UTC))


def test_any_printable_text_of_up_to_256_characters_is_an_id(q: Queue[Any]) -> None:
    texts = ["order-7", "x" * 256, "größe 10 €", "0", " ", f"order-{JOB}", JOB.upper(), "../../etc", "a/b"]
    done = q.enqueue_many([{"payload": at, "id": text} for at, text in enumerate(texts)])
    assert [each.status for each in done] == ["queued"] * len(texts)
    assert [q.status(text).job_id for text in texts] == [each.job_id for each in done]  # type: ignore[union-attr]


@pytest.mark.parametrize("field", ["depends_on", "cron", "rate_limit"])
def test_a_feature_to_come_is_refused_by_name(q: Queue[Any], field: str) -> None:
    (done,) = q.enqueue_many([{"payload": 1, field: "x"}])
    assert done.status == "rejected"
    assert isinstance(done.error, NotSupported)
    assert f"{field}: not supported" in done.error.message
    assert q.requests["put"] == 0


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({}, "payload"),
        ({"payload": 1, "colour": "red"}, "colour"),
        ({"paylod": 1}, "paylod"),
        ({"payload": 1, 5: 1}, "5"),
        ({"payload": 1, "delay": -1}, "delay"),
        ({"payload": object()}, "payload"),
        ("text", "jobs"),
        (None, "jobs"),
        (["payload"], "jobs"),
    ],
    ids=describe,
)
def test_a_bad_item_fails_alone_and_says_why(q: Queue[Any], item: Any, field: str) -> None:
    good, bad, also_good = q.enqueue_many([{"payload": 1}, item, {"payload": 3}])
    assert (good.status, bad.status, also_good.status) == ("queued", "rejected", "queued")
    assert isinstance(bad.error, Rejected)
    assert bad.error.field == field
    assert bad.job_id is None
    assert [lease.payload for lease in q.claim(5)] == [1, 3]


def test_refused_items_are_forgotten_with_their_answer(q: Queue[Any]) -> None:
    """An error holds the frame that held the answer: the collector has to see the ring."""
    bad, _ = q.enqueue_many([{"payload": object()}, {"payload": 1}])
    error = weakref.ref(bad.error)
    assert isinstance(error(), Rejected)
    del bad, _
    gc.collect()
    assert error() is None


def test_a_bad_item_in_a_large_bulk_fails_alone(q: Queue[Any]) -> None:
    items: list[Any] = [{"payload": at} for at in range(1_500)]
    items[700] = {"payload": 1, "delay": "soon"}
    done = q.enqueue_many(items)
    assert [at for at, each in enumerate(done) if each.error is not None] == [700]
    assert q.stats()["queued"] == 1_499


def test_a_bulk_of_nothing_but_bad_items_writes_nothing(q: Queue[Any]) -> None:
    done = q.enqueue_many([{"payload": object()}] * 1_500)
    assert {each.status for each in done} == {"rejected"}
    assert q.requests["put"] == 0


@pytest.mark.parametrize("jobs", [None, 5, object(), {"payload": 1}, "text", b"text"], ids=describe)
def test_jobs_that_are_no_list_are_refused(q: Queue[Any], jobs: Any) -> None:
    refused(q, "jobs", q.enqueue_many, jobs)


def test_a_mistyped_option_is_told_of_the_method_that_was_called(q: Queue[Any]) -> None:
    with pytest.raises(TypeError, match=r"^enqueue\(\) got an unexpected keyword argument 'dealy'"):
        q.enqueue(1, dealy=5)  # type: ignore[call-arg]


def test_no_jobs_at_all_are_no_error(q: Queue[Any]) -> None:
    assert q.enqueue_many([]) == []
    assert sum(q.requests.values()) == 0


# ── Claim ────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("limit", value) for value in (0, -1, 1_001, 1.0, "1", True, None)),
        *(("worker", value) for value in ("", 5, "a\tb", "w" * 129)),
        *(("wait", value) for value in (-1, "5", True, float("nan"), None, 1e308)),
        *(("lease", value) for value in (0, 0.999, 43_201, "30", True, float("nan"), None)),
        *(("kinds", value) for value in ("resize", 5, [], [f"k{at}" for at in range(1_001)])),
        *(("kind", value) for value in ([5], ["a\n"], [["a"]])),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_claim_out_of_range_is_refused(q: Queue[Any], field: str, value: Any) -> None:
    q.enqueue(1)
    refused(q, field, q.claim, **{"kinds" if field == "kind" else field: value})
    assert q.stats()["queued"] == 1


# ── What a worker says ───────────────────────────────────────────────────────
@pytest.mark.parametrize("call", ["complete_many", "heartbeat_many", "fail_many", "release_many"])
def test_an_item_that_is_no_lease_fails_alone(q: Queue[Any], call: str) -> None:
    q.enqueue(1)
    (lease,) = q.claim()
    bad = {
        "items": [5],
        "token": [{"job_id": JOB}, {"job_id": JOB, "token": 5}, {"job_id": JOB, "token": ""}],
        "job_id": [{"token": "x"}, {"job_id": "nonsense", "token": "x"}],
    }
    wrong = [(field, item) for field, items in bad.items() for item in items]
    answers = getattr(q, call)([*(item for _, item in wrong), lease])
    for (field, _), answer in zip(wrong, answers[:-1], strict=True):
        assert (answer.ok, answer.code, answer.error.field) == (False, "rejected", field)
        assert field in answer.error.message
    assert answers[-1].ok


@pytest.mark.parametrize("call", ["complete_many", "heartbeat_many", "fail_many", "release_many"])
@pytest.mark.parametrize("items", [5, "text", {"job_id": JOB}, None])
def test_what_is_no_list_is_refused(q: Queue[Any], call: str, items: Any) -> None:
    refused(q, "items", getattr(q, call), items)


def test_a_result_that_cannot_be_serialised_fails_alone(q: Queue[Any]) -> None:
    q.enqueue_many([{"payload": 1}, {"payload": 2}])
    first, second = q.claim(2)
    items = [
        {"job_id": lease.job_id, "token": lease.token, "result": result}
        for lease, result in ((first, object()), (second, "fine"))
    ]
    one, two = q.complete_many(items)
    assert (one.code, one.job_id, two.ok) == ("rejected", first.job_id, True)
    assert q.status(first.job_id).state == "processing"  # type: ignore[union-attr]


@pytest.mark.parametrize("call", ["complete_many", "heartbeat_many", "fail_many", "release_many"])
def test_a_wrong_token_is_a_lost_lease_of_that_item_alone(q: Queue[Any], call: str) -> None:
    q.enqueue_many([{"payload": 1}, {"payload": 2}])
    first, second = q.claim(2)
    wrong = {"job_id": first.job_id, "token": "0-0", "error": "x"}
    lost, fine = getattr(q, call)([wrong, {"job_id": second.job_id, "token": second.token, "error": "x"}])
    assert (lost.ok, lost.code, fine.ok) == (False, "lease_lost", True)
    assert q.status(first.job_id).state == "processing"  # type: ignore[union-attr]


@pytest.mark.parametrize("act", ["heartbeat", "complete", "fail", "release", "cancel"])
def test_a_lost_lease_tells_the_worker_to_stop(q: Queue[Any], act: str) -> None:
    q.enqueue(1)
    (lease,) = q.claim()
    lease.complete()
    (other,) = (q.enqueue(2), *q.claim())[1:]
    lease.key = other.key  # a made-up pair of job and token
    with pytest.raises(LeaseLost, match="Drop the work"):
        getattr(lease, act)(*(["error"] if act == "fail" else []))


def test_a_result_that_cannot_be_serialised_is_refused_and_the_lease_holds(q: Queue[Any]) -> None:
    q.enqueue(1)
    (lease,) = q.claim()
    refused(q, "result", lease.complete, object())
    lease.complete("fine")


@pytest.mark.parametrize("value", [-1, "5", True, float("nan"), 1e308, limits.DELAY_MS_MAX])
def test_a_retry_or_a_release_later_out_of_range_is_refused(q: Queue[Any], value: Any) -> None:
    q.enqueue(1)
    (lease,) = q.claim()
    refused(q, "retry_in", lease.fail, "no", retry_in=value)
    refused(q, "delay", lease.release, delay=value)
    refused(q, "error", lease.fail, 5)
    lease.complete()


def test_an_error_of_any_text_is_stored(q: Queue[Any]) -> None:
    q.enqueue(1, max_attempts=2)
    (lease,) = q.claim()
    lease.fail("half a sign: \ud83d, a zero: \0")
    q.machine.advance(3_600)  # type: ignore[attr-defined]
    (lease,) = q.claim()
    assert lease.fail(OSError(2, "no such file", "\udcff.txt")) == "failed"
    assert "half a sign" in q.status(lease.job_id).attempts[0].error  # type: ignore[union-attr, operator]


# ── Whatever Python has ───
class Mute:
    """Something that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


STRANGE = {
    "a huge number": 10**5_000,
    "a huge negative number": -(10**5_000),
    "NaN": float("nan"),
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "a bool": True,
    "bytes": b"1",
    "half a surrogate pair": "\ud800",
    "an endless text": "x" * 10**6,
    "a control": "\x1b[31m",
    "a complex number": 1j,
    "a list of itself": [10**5_000],
    "an object that cannot be shown": Mute(),
}
OPTIONS = {
    "priority": "enqueue",
    "max_attempts": "enqueue",
    "delay": "enqueue",
    "at": "enqueue",
    "result_ttl": "enqueue",
    "kind": "enqueue",
    "id": "enqueue",
    "limit": "claim",
    "worker": "claim",
    "wait": "claim",
    "lease": "claim",
    "kinds": "claim",
    "backoff_base": "configure",
    "dead_ttl": "configure",
    "shards": "configure",
    "paused": "configure",
    "rate": "redrive",
    "error": "redrive",
    "fingerprint": "redrive",
    "state": "jobs",
    "cursor": "jobs",
}
FINE = {
    ("kinds", "a list of itself"): "kind",
    ("paused", "a bool"): "",
    ("error", "half a surrogate pair"): "error",
}


@pytest.mark.parametrize("what", STRANGE)
@pytest.mark.parametrize("field", OPTIONS)
def test_whatever_python_has_is_refused_by_name_in_a_short_message(
    q: Queue[Any], field: str, what: str
) -> None:
    named = FINE.get((field, what), field)
    if not named:
        return
    first = (1,) if OPTIONS[field] == "enqueue" else ()
    error = refused(q, named, getattr(q, OPTIONS[field]), *first, **{field: STRANGE[what]})
    assert len(error.message) < 300
    error.message.encode()


@pytest.mark.parametrize("what", STRANGE)
def test_whatever_python_has_is_no_job_and_no_lease(q: Queue[Any], what: str) -> None:
    value: Any = STRANGE[what]
    for call in (q.status, q.result, q.cancel, q.why, q.purge):
        if call != q.purge or not isinstance(value, list):
            with pytest.raises(Rejected) as caught:
                call(value)
            assert len(caught.value.message) < 300
    for item in (value, {"job_id": value, "token": "t"}, {"job_id": JOB, "token": value}):
        (done,) = q.complete_many([item])
        assert not done.ok
        if done.code == "rejected":
            assert len(done.error.message) < 300  # type: ignore[union-attr]


@pytest.mark.parametrize("what", STRANGE)
def test_a_field_of_any_name_and_an_error_of_any_kind_are_refused(q: Queue[Any], what: str) -> None:
    value: Any = STRANGE[what]
    if not isinstance(value, list):
        (done,) = q.enqueue_many([{"payload": 1, value: 1}])
        assert done.status == "rejected"
        assert len(done.error.message) < 300  # type: ignore[union-attr]
        refused(q, "error", validation.error_details, {value: 1})
    with pytest.raises(Rejected, match="queue"):
        Queue(MemoryStore(), value)
    if not isinstance(value, str):
        with pytest.raises(Rejected, match="error"):
            validation.error_details(value)


def test_an_id_of_the_form_of_a_job_id_is_refused_with_the_remedy(q: Queue[Any]) -> None:
    """It would be taken for that job."""
    one = q.enqueue("one").job_id
    error = refused(q, "id", q.enqueue, "two", id=one)
    assert "order-" in error.message
    (done,) = q.enqueue_many([{"payload": "two", "id": one}])
    assert (done.status, done.error.field) == ("rejected", "id")  # type: ignore[union-attr]
    refused(q, "id", q.enqueue_and_wait, "two", 0, id=one)
    assert q.stats()["queued"] == 1


# ── Looking and steering ─────────────────────────────────────────────────────
@pytest.mark.parametrize("text", ["", 5, None, "x" * 257, b"nonsense", ["nonsense"]], ids=repr)
def test_what_is_neither_a_job_id_nor_a_clients_own_is_refused(q: Queue[Any], text: Any) -> None:
    q.enqueue(1)
    refused(q, "job_id", q.status, text)
    refused(q, "job_id", q.cancel, text)
    refused(q, "job_id", q.result, text)
    refused(q, "job_id", q.update_result_ttl, text, 60)


@pytest.mark.parametrize("text", ["nonsense", "x" * 256, JOB[:-1], JOB.upper(), JOB.replace("-", "")])
def test_a_text_that_is_no_job_id_and_stands_for_no_job_is_not_found(q: Queue[Any], text: str) -> None:
    q.enqueue(1)
    assert q.status(text) is None
    assert q.cancel(text) == "not_found"
    with pytest.raises(NotFound):
        q.result(text)
    with pytest.raises(NotFound):
        q.update_result_ttl(text, 60)


def test_a_job_nobody_knows_is_not_found(q: Queue[Any]) -> None:
    for _ in range(2):
        assert q.status(JOB) is None
        assert q.cancel(JOB) == "not_found"
        assert q.cancel(JOB[:-2] + "ff") == "not_found"  # of a shard that cannot be
        q.enqueue(1)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("state", {"state": "running"}),
        ("limit", {"limit": 0}),
        ("limit", {"limit": 1_001}),
        ("limit", {"limit": True}),
        ("cursor", {"cursor": "nonsense"}),
        ("cursor", {"cursor": 5}),
        ("cursor", {"cursor": "é"}),
    ],
)
def test_a_page_that_cannot_be_is_refused(q: Queue[Any], field: str, options: Any) -> None:
    q.enqueue(1)
    refused(q, field, q.jobs, **options)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("paused", 1),
        ("shards", 0),
        ("shards", 65),
        ("shards", True),
        ("backoff_base", 0),
        ("backoff_cap", -1),
        ("dead_ttl", 1),
        ("dead_ttl", "5"),
        ("colour", "red"),
    ],
)
def test_a_setting_out_of_range_is_refused(q: Queue[Any], field: str, value: Any) -> None:
    q.enqueue(1)
    refused(q, field, q.configure, **{field: value})


def test_shards_only_grow(q: Queue[Any]) -> None:
    q.configure(shards=3)
    refused(q, "shards", q.configure, shards=2)
    assert q.stats()["shards"] == 3


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("limit", {"limit": 0}),
        ("kinds", {"kinds": "a"}),
        ("error", {"error": 5}),
        ("error", {"error": "a\nb"}),
    ],
)
def test_a_redrive_out_of_range_is_refused(q: Queue[Any], field: str, options: Any) -> None:
    q.enqueue(1)
    refused(q, field, q.redrive, **options)


# ── Values of types of the caller's own ──────────────────────────────────────
class Text(str):
    """Text of a type of its own, as templates and databases have it."""


class Number(int):
    """A number of a type of its own."""


def test_text_and_numbers_of_types_of_their_own_are_taken_as_plain_ones(machine: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(machine), Text("mail"), machine=machine)
    q.enqueue(1, id=Text("a"), kind=Text("k"), priority=Number(2), max_attempts=Number(1), delay=Number(0))
    q.enqueue_many([{"payload": 1, "kind": Text("k"), "id": Text("b")}])
    assert q.enqueue(1, id="a").status == "duplicate"
    leases = q.claim(Number(2), worker=Text("w"), kinds=[Text("k")])
    assert [lease.kind for lease in leases] == ["k", "k"]
    done = q.complete_many([{"job_id": Text(each.job_id), "token": Text(each.token)} for each in leases])
    assert [each.code for each in done] == ["ok", "ok"]
