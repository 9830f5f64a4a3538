"""Transports to AWS: signatures and credentials, and functions that are invoked directly. Loopback only."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from osqueue import NotInstalled, Queue, Rejected, Throttled, Timeout, Unavailable
from osqueue.client.transports.address import open_transport
from osqueue.client.transports.aws_lambda import LambdaTransport
from osqueue.client.transports.base import ApiAnswer, ApiCall, CallOutcome, LostCall, call
from osqueue.client.transports.credentials import SigV4Credentials
from osqueue.client.transports.http import HttpTransport
from osqueue.clock import Machine
from osqueue.contract.error_codes import TooLarge
from osqueue.limits import HTTP_IDLE_MS_MAX
from tests.support.machines import VirtualMachine
from tests.support.speaking import HANG_UP, Heard, Speaker, response, speaking

GATEWAY = "abc.execute-api.eu-west-1.amazonaws.com"
STATS = call("stats", path={"queue": "mail"}, timeout=20.0)
OK = response(200, b"{}")


def posting(body: bytes = b'{"jobs":[]}', **more: Any) -> ApiCall:
    return call("enqueue", path={"queue": "mail"}, body=body, timeout=20.0, **more)


def lost(reply: CallOutcome) -> LostCall:
    assert isinstance(reply, LostCall)
    return reply


class Forked(Machine):
    """Claims to be another process when a test says so."""

    pid = 1

    def process(self) -> int:
        return self.pid


# ── Who calls ────────────────────────────────────────────────────────────────
@pytest.fixture
def credentials(aws_environment: None, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, str]:
    found = ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session/token+=")
    for name, value in zip(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"), found, strict=True):
        monkeypatch.setenv(f"AWS_{name}", value)
    return found


def signature_of(heard: Heard, secret: str, region: str, service: str) -> str:
    """AWS Signature Version 4 of what arrived, from the specification."""
    date = heard.headers["x-amz-date"]
    names = re.search(r"SignedHeaders=([^,]+)", heard.headers["authorization"])[1]  # type: ignore[index]
    path, _, query = heard.target.partition("?")
    canonical = "\n".join(
        [
            heard.method,
            quote(path, safe="/-_.~"),
            "&".join(sorted(query.split("&"))) if query else "",
            *(f"{name}:{heard.headers[name]}" for name in names.split(";")),
            "",
            names,
            hashlib.sha256(heard.body).hexdigest(),
        ]
    )
    scope = f"{date[:8]}/{region}/{service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{secret}".encode()
    for part in (date[:8], region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


@pytest.mark.parametrize(
    "asked",
    [
        STATS,
        posting(b'{"jobs":[{"payload":"\xc3\xbc"}]}'),
        call("status", path={"queue": "mail", "id": "a/b c"}, timeout=20.0),
        call("cancel", path={"queue": "mail", "id": "~~"}, timeout=20.0),
        call(
            "dead_letters",
            path={"queue": "mail"},
            query=(("kind", "b"), ("error", "a b/c+d%"), ("kind", "a")),
        ),
    ],
    ids=lambda each: each.route.name,
)
def test_a_call_is_signed_as_the_gateway_will_check_it(
    credentials: tuple[str, str, str], asked: ApiCall
) -> None:
    key, secret, token = credentials
    with speaking(OK) as speaker:
        address = f"http://127.0.0.1:{speaker.port}/prod?auth=iam&region=eu-central-1"
        assert open_transport(address).perform(asked) == ApiAnswer(200, b"{}")
    (heard,) = speaker.heard
    told = heard.headers["authorization"]
    assert f"Credential={key}/" in told
    assert "/eu-central-1/execute-api/aws4_request" in told
    assert "host" in told.split("SignedHeaders=")[1].split(",")[0].split(";")
    assert heard.headers["x-amz-security-token"] == token
    assert told.endswith(f"Signature={signature_of(heard, secret, 'eu-central-1', 'execute-api')}")


def test_a_changed_request_has_another_signature(credentials: tuple[str, str, str]) -> None:
    with speaking(OK) as speaker:
        open_transport(f"http://127.0.0.1:{speaker.port}?auth=iam&region=eu-west-1").perform(posting())
    (heard,) = speaker.heard
    for changed in (
        heard._replace(body=b"{}"),
        heard._replace(target="/v1/queues/other/jobs"),
        heard._replace(method="GET"),
    ):
        assert (
            signature_of(changed, credentials[1], "eu-west-1", "execute-api")
            not in heard.headers["authorization"]
        )


class Refreshed:
    """Credentials that are different each time, as those of a role are after a while."""

    def __init__(self) -> None:
        self.asked = 0

    def get_credentials(self) -> Refreshed:
        return self

    def get_frozen_credentials(self) -> Any:
        from botocore.credentials import ReadOnlyCredentials

        self.asked += 1
        return ReadOnlyCredentials(f"KEY{self.asked}", "secret", None)


def test_refreshed_credentials_are_used(aws_environment: None) -> None:
    signed = SigV4Credentials("execute-api", GATEWAY, None)
    signed._session = Refreshed()
    for at in (1, 2):
        headers = signed.headers("GET", f"https://{GATEWAY}/", {}, b"")
        assert f"Credential=KEY{at}/" in headers["Authorization"]
        assert "/eu-west-1/execute-api/" in headers["Authorization"]


class Failing:
    """A provider whose service or command fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def get_credentials(self) -> Failing:
        return self

    def get_frozen_credentials(self) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (ClientError({"Error": {"Code": "AccessDenied", "Message": "SECRET"}}, "AssumeRole"), True),
        (EndpointConnectionError(endpoint_url="https://SECRET"), False),
        (RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired."), True),
        (FileNotFoundError(2, "SECRET"), True),
    ],
    ids=lambda each: type(each).__name__,
)
def test_credentials_that_cannot_be_had_are_told_soberly_and_nothing_is_sent(
    aws_environment: None, error: Exception, permanent: bool
) -> None:
    signed = SigV4Credentials("execute-api", GATEWAY, None)
    signed._session = Failing(error)
    with speaking(OK) as speaker:
        invoked = invoking(speaker)
        invoked._client(20.0)
        invoked._session = Failing(error)
        replies = [
            HttpTransport(f"http://127.0.0.1:{speaker.port}", signed).perform(STATS),
            invoked.perform(STATS),
        ]
        assert speaker.heard == []
    for reply in map(lost, replies):
        assert isinstance(reply.error, Unavailable)
        assert (reply.sent, reply.error.permanent) == (False, permanent)
        assert type(error).__name__ in reply.error.message
        assert "SECRET" not in reply.error.message


def test_without_credentials_nothing_is_sent(aws_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with speaking(OK) as speaker:
        for address, remedy in (
            (f"http://127.0.0.1:{speaker.port}?auth=iam&region=eu-west-1", "AWS_ACCESS_KEY_ID"),
            (f"lambda://x?region=eu-west-1&endpoint=http://127.0.0.1:{speaker.port}", "AWS_ACCESS_KEY_ID"),
        ):
            with pytest.raises(Unavailable, match=remedy) as caught:
                Queue.connect(address, "mail").stats()
            assert caught.value.permanent
        monkeypatch.setenv("AWS_PROFILE", "nobody")
        for address in (
            f"http://127.0.0.1:{speaker.port}?auth=iam&region=eu-west-1",
            f"lambda://x?region=eu-west-1&endpoint=http://127.0.0.1:{speaker.port}",
        ):
            with pytest.raises(Unavailable, match="ProfileNotFound"):
                Queue.connect(address, "mail").stats()
        assert speaker.heard == []


def test_a_region_that_nobody_tells_is_asked_for(
    credentials: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for address in ("https://jobs.example.com", "lambda://x"):
        with pytest.raises(Rejected, match="region=eu-west-1") as caught:
            Queue.connect(address, "mail").stats()
        assert caught.value.field == "region"


def test_a_bearer_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with speaking(OK) as speaker:
        transport = open_transport(f"http://127.0.0.1:{speaker.port}?auth=bearer")
        for token in ("", "two\r\nlines", "a b"):
            monkeypatch.setenv("OSQUEUE_TOKEN", token)
            reply = lost(transport.perform(STATS))
            assert isinstance(reply.error, Rejected)
            assert reply.error.field == "OSQUEUE_TOKEN"
        for token in ("eyJhbGciOi.J9.x-_~", "renewed"):
            monkeypatch.setenv("OSQUEUE_TOKEN", token)
            transport.perform(STATS)
    assert [heard.headers["authorization"] for heard in speaker.heard] == [
        "Bearer eyJhbGciOi.J9.x-_~",
        "Bearer renewed",
    ]


@pytest.mark.parametrize(
    ("address", "package"),
    [
        ("http://127.0.0.1:1", "urllib3"),
        ("http://127.0.0.1:1?auth=iam&region=eu-west-1", "botocore"),
        ("lambda://x?region=eu-west-1", "boto3"),
    ],
)
def test_a_missing_package_is_named(address: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(NotInstalled, match=re.escape("pip install 'osqueue[http]'")):
        Queue.connect(address, "mail").stats()


# ── Lambda ───────────────────────────────────────────────────────────────────
def invoking(speaker: Speaker, **options: Any) -> LambdaTransport:
    return LambdaTransport("dev", "eu-west-1", f"http://127.0.0.1:{speaker.port}", **options)


def test_a_function_is_invoked_with_the_call_and_its_answer_is_passed_on(aws_environment: None) -> None:
    with speaking(response(200, b'{"status": 202, "body": {"a": [1]}}')) as speaker:
        transport = invoking(speaker)
        query = (("kind", "a"), ("limit", "5"), ("kind", "b"))
        assert transport.perform(posting(b'{"jobs":[]}', query=query)) == ApiAnswer(202, b'{"a": [1]}')
        speaker.says = [response(200, b'{"status": 204}')]
        assert transport.perform(STATS) == ApiAnswer(204)
        transport.close()
    first, second = speaker.heard
    assert first.target == "/2015-03-31/functions/dev-enqueue/invocations"
    assert first.headers.get("x-amz-invocation-type", "RequestResponse") == "RequestResponse"
    assert json.loads(first.body) == {
        "method": "POST",
        "path": "/v1/queues/mail/jobs",
        "body": {"jobs": []},
        "query": {"kind": ["a", "b"], "limit": "5"},
    }
    assert second.target == "/2015-03-31/functions/dev-queues/invocations"
    assert json.loads(second.body) == {"method": "GET", "path": "/v1/queues/mail"}


def refused(status: int, code: str) -> bytes:
    body = json.dumps({"Type": "User", "message": "SECRET"}).encode()
    return response(status, body, x_amzn_errortype=code)


FAILED = response(
    200, b'{"errorMessage": "SECRET", "errorType": "Runtime.ExitError"}', x_amz_function_error="Unhandled"
)
STRANGE = response(
    200, b'{"errorMessage": "SECRET", "errorType": "SECRET <x>"}', x_amz_function_error="Unhandled"
)


@pytest.mark.parametrize(
    ("say", "error", "sent", "permanent", "says"),
    [
        (refused(429, "TooManyRequestsException"), Throttled, False, False, "dev-enqueue is busy"),
        (refused(404, "ResourceNotFoundException"), Unavailable, False, True, "no function dev-enqueue"),
        (refused(403, "AccessDeniedException"), Unavailable, False, True, "lambda:InvokeFunction"),
        (refused(403, "ExpiredTokenException"), Unavailable, False, True, "credentials"),
        (refused(413, "RequestTooLargeException"), TooLarge, False, True, "6 MB"),
        (refused(400, "InvalidRuntimeException"), Unavailable, True, True, "InvalidRuntimeException"),
        (refused(500, "ServiceException"), Unavailable, True, False, "ServiceException"),
        (refused(502, "EC2UnexpectedException"), Unavailable, True, False, "EC2UnexpectedException"),
        (FAILED, Unavailable, True, False, r"dev-enqueue failed \(Runtime.ExitError\)"),
        (STRANGE, Unavailable, True, False, "dev-enqueue failed before"),
        (response(200, b'"hello"'), Unavailable, True, True, "not osqueue's"),
        (response(200, b"null"), Unavailable, True, True, "not osqueue's"),
        (response(200, b'{"\xff": 1}'), Unavailable, True, True, "not osqueue's"),
        (response(200, b'{"a":' + b"[" * 100_000), Unavailable, True, True, "not osqueue's"),
        (response(200, b'{"\xff": 1}', x_amz_function_error="X"), Unavailable, True, False, "failed before"),
        (HANG_UP, Unavailable, True, False, "broke"),
    ],
)
def test_what_lambda_answers_in_the_functions_place_is_told_soberly_and_not_repeated(
    aws_environment: None, say: bytes, error: type[Exception], sent: bool, permanent: bool, says: str
) -> None:
    with speaking(say) as speaker:
        reply = lost(invoking(speaker).perform(posting()))
    assert type(reply.error) is error
    assert (reply.sent, reply.error.permanent) == (sent, permanent)
    assert re.search(says, reply.error.message)
    assert "SECRET" not in reply.error.message
    assert len(speaker.heard) == 1


def test_a_function_that_stays_silent_is_given_up_in_time(
    aws_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osqueue.client.transports.aws_lambda.TIMEOUT_STEPS_S", (0.05, 30))
    with speaking(None) as speaker:
        reply = lost(invoking(speaker).perform(call("stats", path={"queue": "mail"}, timeout=0.01)))
    assert isinstance(reply.error, Timeout)
    assert reply.sent


def test_where_no_endpoint_is_nothing_was_sent(aws_environment: None) -> None:
    with socket.socket() as taken:  # nobody else can listen there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        reply = lost(LambdaTransport("dev", "eu-west-1", f"http://127.0.0.1:{port}").perform(STATS))
    assert isinstance(reply.error, Unavailable)
    assert (reply.sent, reply.seconds) == (False, 1.0)
    told = f"http://127.0.0.1:{port} cannot be reached: no connection. Does an API run there? 'osqueue dev'"
    assert reply.error.message.startswith(told)


@pytest.mark.parametrize("code", ["ResourceConflictException", "SnapStartNotReadyException"])
def test_a_function_that_is_not_ready_yet_is_invoked_again(aws_environment: None, code: str) -> None:
    with speaking(refused(409, code)) as speaker:
        reply = lost(invoking(speaker).perform(posting()))
    assert isinstance(reply.error, Throttled)
    assert (reply.sent, reply.error.permanent) == (False, False)


# ── Credentials that are put right ───────────────────────────────────────────
@pytest.mark.parametrize("invoked", [False, True], ids=["over HTTP", "invoked"])
def test_credentials_that_were_refused_are_read_anew(
    aws_environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, invoked: bool
) -> None:
    profile = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    def put(key: str) -> None:
        profile.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = s\n")

    put("OLD")
    taken = response(200, b'{"status": 204}') if invoked else OK
    refusal = refused(403, "ExpiredTokenException") if invoked else response(403, b'{"message":"expired"}')
    with speaking(taken, refusal, taken) as speaker:
        url = f"http://127.0.0.1:{speaker.port}"
        transport = (
            invoking(speaker)
            if invoked
            else HttpTransport(url, SigV4Credentials("execute-api", GATEWAY, None))
        )
        for key in ("OLD", "NEW", "NEW"):
            put(key)
            transport.perform(STATS)
    assert [re.findall(r"Credential=(\w+)/", heard.headers["authorization"]) for heard in speaker.heard] == [
        ["OLD"],
        ["OLD"],
        ["NEW"],
    ]


def test_a_forks_child_invokes_over_connections_of_its_own(aws_environment: None) -> None:
    machine = Forked()
    with speaking(response(200, b'{"status": 204}')) as speaker:
        transport = invoking(speaker, machine=machine)
        transport.perform(STATS)
        transport.perform(STATS)
        machine.pid = 2
        transport.perform(STATS)
    assert [heard.connection for heard in speaker.heard] == [0, 0, 1]


def test_connections_of_a_client_that_was_idle_for_too_long_are_not_used_again(aws_environment: None) -> None:
    machine = VirtualMachine()
    with speaking(response(200, b'{"status": 204}')) as speaker:
        transport = invoking(speaker, machine=machine)
        for seconds in (0, 1, HTTP_IDLE_MS_MAX / 1000):
            machine.advance(seconds)
            transport.perform(STATS)
        transport.close()
    assert [heard.connection for heard in speaker.heard] == [0, 0, 1]
