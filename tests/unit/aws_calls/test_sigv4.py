"""Signatures of requests to AWS, beside those of botocore."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from osqueue.aws_calls.sigv4 import AwsCredentials, SigningScope, signed_headers

NOW_MS = 1_800_000_000_123
ARN = "arn%3Aaws%3Alambda%3Aeu-west-1%3A123456789012%3Afunction%3Amailer%3Alive"


@pytest.mark.parametrize("token", ["", "a-session/token+of=many=="])
@pytest.mark.parametrize(
    ("service", "path", "more", "body"),
    [
        (
            "lambda",
            f"/2015-03-31/functions/{ARN}/invocations",
            {"x-amz-invocation-type": "Event"},
            b'{"a":1}',
        ),
        (
            "events",
            "/",
            {"x-amz-target": "AWSEvents.PutEvents", "content-type": "application/x-amz-json-1.1"},
            b"{}",
        ),
        ("lambda", "/2015-03-31/functions/mailer_2~x.y/invocations", {"content-type": " text/plain "}, b""),
    ],
)
def test_a_request_is_signed_as_botocore_signs_it(
    service: str, path: str, more: dict[str, str], body: bytes, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = f"{service}.eu-west-1.amazonaws.com"
    credentials = AwsCredentials("AKIDEXAMPLE", "a/secret+key", token)
    ours = signed_headers(
        "POST", path, {"host": host, **more}, body, credentials, SigningScope(service, "eu-west-1"), NOW_MS
    )
    request = AWSRequest("POST", f"https://{host}{path}", headers=more, data=body)
    theirs = _signed_by_botocore(request, service, token, ours["x-amz-date"])
    assert ours["authorization"] == theirs["Authorization"]
    assert ours.get("x-amz-security-token") == theirs.get("X-Amz-Security-Token")
    assert ours["x-amz-date"] == "20270115T080000Z"


def _signed_by_botocore(request: AWSRequest, service: str, token: str, moment: str) -> Any:
    auth = SigV4Auth(Credentials("AKIDEXAMPLE", "a/secret+key", token or None), service, "eu-west-1")
    request.context["timestamp"] = moment
    auth._modify_request_before_signing(request)
    request.headers.replace_header("X-Amz-Date", moment) if "X-Amz-Date" in request.headers else None
    canonical = auth.canonical_request(request)
    signature = auth.signature(auth.string_to_sign(request, canonical), request)
    auth._inject_signature_to_request(request, signature)
    return request.headers


def test_credentials_are_never_shown() -> None:
    assert "secret" not in repr(AwsCredentials("key", "secret", "secret too"))
