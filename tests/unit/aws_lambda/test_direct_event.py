"""Direct invocations: the keys of jobs whose caller drew none."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue.aws_lambda.direct_event import TRACED_S_MAX, with_job_ids
from osqueue.model.keys import drawn_ms, is_key, key_of

NOW_MS = 1_900_000_000_000
TRACE = f"Root=1-{NOW_MS // 1000:08x}-0123456789abcdef01234567;Parent=53995c3f42cd8ad8;Sampled=0"
DRAWN = "01890a5d-ac96-774b-bcce-b302099a8057"


def event(body: Any) -> dict[str, Any]:
    return {"method": "POST", "path": "/v1/queues/emails/jobs", "body": body}


def ids(found: dict[str, Any]) -> list[str]:
    return [each["job_id"] for each in found["body"].get("jobs", [found["body"]])]


def test_a_repeated_invocation_has_the_same_keys_minutes_later() -> None:
    given = event({"jobs": [{"payload": 1}, {"payload": 2}]})
    first = with_job_ids(given, "one", TRACE, NOW_MS + 40)
    again = with_job_ids(given, "one", TRACE, NOW_MS + 180_000)
    assert first == again
    assert [each["payload"] for each in first["body"]["jobs"]] == [1, 2]
    assert all(is_key(each) and drawn_ms(key_of(each)) == NOW_MS for each in ids(first))


def test_keys_are_in_the_order_of_their_jobs_and_for_one_shard() -> None:
    found = ids(with_job_ids(event({"jobs": [{"payload": n} for n in range(1_000)]}), "one", TRACE, NOW_MS))
    assert found == sorted(set(found))
    assert len({each[-2:] for each in found}) == 1


def test_another_invocation_of_the_same_trace_has_other_keys() -> None:
    one, two = (ids(with_job_ids(event({"payload": 1}), each, TRACE, NOW_MS)) for each in ("one", "two"))
    assert one != two


def test_a_key_that_the_caller_drew_stays() -> None:
    found = with_job_ids(
        event({"jobs": [{"payload": 1, "job_id": DRAWN}, {"payload": 2}]}), "x", TRACE, NOW_MS
    )
    assert ids(found)[0] == DRAWN != ids(found)[1]
    assert ids(with_job_ids(event({"payload": 1, "job_id": DRAWN}), "x", TRACE, NOW_MS)) == [DRAWN]


@pytest.mark.parametrize(
    "trace",
    ["", "Root=nonsense", f"Root=1-{NOW_MS // 1000 - TRACED_S_MAX - 1:08x}-0123456789abcdef01234567"],
)
def test_without_a_moment_that_a_repeat_has_as_well_the_server_draws_the_keys(trace: str) -> None:
    given = event({"payload": 1})
    assert with_job_ids(given, "one", trace, NOW_MS) is given


@pytest.mark.parametrize(
    "given",
    [
        *(None, 7, [], {}, {"body": None}, {"body": "text"}, event([])),
        *(event({"jobs": 7}), event({"jobs": [{"payload": 1}] * 1_001})),
    ],
)
def test_what_is_no_enqueue_is_left_to_be_refused(given: Any) -> None:
    assert with_job_ids(given, "one", TRACE, NOW_MS) is given


def test_an_item_that_is_no_job_is_left_to_be_refused_alone() -> None:
    found = with_job_ids(event({"jobs": ["text", {"payload": 2}]}), "one", TRACE, NOW_MS)
    assert found["body"]["jobs"][0] == "text"
    assert is_key(found["body"]["jobs"][1]["job_id"])
