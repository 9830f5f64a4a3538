"""What tokens let their bearers do, by the claims that the gateway hands on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from osqueue.aws_lambda.scopes import caller_of
from osqueue.contract.error_codes import Forbidden
from osqueue.contract.functions import SCOPES
from osqueue.contract.operations import BY_NAME
from tests.support.functions_at_work import Context, direct, environment, http, load

PREFIX = "osqueue/"


def event(claims: Any) -> dict[str, Any]:
    return {"requestContext": {"authorizer": {"jwt": {"claims": claims, "scopes": None}}}}


def may(claims: Any, operation: str, queue: str) -> bool:
    try:
        caller_of(event(claims), PREFIX).permit(BY_NAME[operation], queue)
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize(
    ("scope", "operation", "queue", "allowed"),
    [
        ("osqueue/emails:enqueue", "enqueue", "emails", True),
        ("osqueue/emails:enqueue", "enqueue", "orders", False),
        ("osqueue/emails:enqueue", "claim", "emails", False),
        ("osqueue/emails:enqueue", "stats", "emails", False),
        ("osqueue/orders-*:work", "claim", "orders-eu", True),
        ("osqueue/orders-*:work", "claim", "orders", False),
        ("osqueue/orders-*:work osqueue/emails:operate", "configure", "emails", True),
        ("osqueue/orders-*:work osqueue/emails:operate", "configure", "orders-eu", False),
        ("osqueue/emails:read", "list_queues", "", False),
        ("osqueue/*:read", "list_queues", "", True),
        ("osqueue/*:read", "enqueue", "emails", False),
        ("", "health", "", True),
        ("", "enqueue", "emails", False),
        ("emails:enqueue", "enqueue", "emails", False),  # somebody else's
        ("osqueue/emails:admin", "enqueue", "emails", False),  # no role
        ("osqueue/:operate", "list_queues", "", False),  # of no queue
    ],
)
def test_scopes_give_roles_on_queues(scope: str, operation: str, queue: str, allowed: bool) -> None:
    assert may({"scope": scope}, operation, queue) is allowed


def test_scopes_are_read_as_issuers_and_the_gateway_write_them() -> None:
    assert may({"scp": "[openid osqueue/emails:work]"}, "claim", "emails")
    assert may({"scope": "openid  osqueue/emails:work"}, "claim", "emails")
    assert may({"scope": "", "scp": "osqueue/emails:work"}, "claim", "emails")


@pytest.mark.parametrize("context", [{}, {"authorizer": None}, {"authorizer": {"jwt": {"claims": []}}}])
def test_who_has_no_claims_may_nothing(context: Any) -> None:
    with pytest.raises(Forbidden, match="none of this API"):
        caller_of({"requestContext": context}, PREFIX).permit(BY_NAME["enqueue"], "emails")


def test_a_refusal_names_a_scope_that_would_do() -> None:
    caller = caller_of(event({"scope": "osqueue/emails:work"}), PREFIX)
    with pytest.raises(Forbidden) as refused:
        caller.permit(BY_NAME["enqueue"], "emails")
    assert refused.value.message == (
        "this token may not enqueue queue emails: its scopes are osqueue/emails:work. Request one"
        " with the scope osqueue/emails:enqueue."
    )
    with pytest.raises(Forbidden, match=r"all queues at once.*osqueue/\*:read"):
        caller.permit(BY_NAME["list_queues"], "")
    with pytest.raises(Forbidden, match="reserve_slot pacer stripe"):
        caller.permit(BY_NAME["reserve_slot"], "stripe")


def test_a_function_asks_the_token_of_a_request_and_nothing_of_an_invocation(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**environment(f"memory://{tmp_path}"), SCOPES: PREFIX}.items():
        monkeypatch.setenv(name, value)
    enqueue, jobs = load("enqueue"), "/v1/queues/emails/jobs"

    def sent(scope: str | None) -> tuple[int, str]:
        request = http("POST", jobs, '{"payload": 1}')
        if scope is not None:
            request["requestContext"]["authorizer"] = {"jwt": {"claims": {"scope": scope}}}
        answer = enqueue(request, Context())
        return answer["statusCode"], json.loads(answer["body"]).get("error", {}).get("code", "")

    assert sent("osqueue/emails:enqueue") == (200, "")
    assert sent("osqueue/orders:enqueue") == (403, "forbidden")
    assert sent(None) == (403, "forbidden")
    assert (
        enqueue(direct("POST", jobs, {"payload": 1}), Context())["status"] == 200
    )  # IAM decides about those
    monkeypatch.delenv(SCOPES)
    assert load("enqueue")(http("POST", jobs, '{"payload": 1}'), Context())["statusCode"] == 200
