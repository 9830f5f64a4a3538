"""Every answer S3 can give and every way it can fail to, against a server that does as told.

Each test also counts what arrived: one request of the port is one HTTP request, never an SDK's repetition.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import obstore
import pytest

from osqueue.errors import NotInstalled, OsqueueError, Rejected, Timeout, Unavailable
from osqueue.stores import objects, s3, s3_boto
from osqueue.stores.base import (
    Delete,
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    List,
    Listed,
    Missing,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Store,
    StoreReply,
    StoreRequest,
    Unchanged,
    Written,
)
from osqueue.stores.faults import Timeouts
from osqueue.stores.s3_place import PLAIN, S3Options
from tests.support.replies import error_of
from tests.support.told_server import ToldServer, told_server

BUCKET = "some-bucket"
VERSION = '"0123456789abcdef0123456789abcdef"'
CLIENTS = ("obstore", "obstore-async", "boto3")
SILENT_S = (0.4, 5.0, 15.0)  # how long a client waits for an answer that never comes

READ = Get("a/key")
READ_UNLESS = Get("a/key", unless=VERSION)
LIST = List("a/")
WRITE = Put("a/key", b"body")
CREATE = PutIfAbsent("a/key", b"body")
REPLACE = PutIfMatch("a/key", b"body", VERSION)
DELETE = Delete(("a/key",))
DELETE_IF = DeleteIfMatch("a/key", VERSION)
EVERY = (READ, LIST, WRITE, CREATE, REPLACE, DELETE, DELETE_IF)
CONDITIONAL = (CREATE, REPLACE, DELETE_IF)


@pytest.fixture
def stub(aws_environment: None) -> Iterator[ToldServer]:
    with told_server() as told:
        yield told


Perform = Callable[[StoreRequest], StoreReply]


@pytest.fixture(params=CLIENTS)
def perform(request: pytest.FixtureRequest, stub: ToldServer) -> Perform:
    return performer(request.param, stub.endpoint)


def performer(client: str, endpoint: str, options: S3Options = PLAIN) -> Perform:
    store = open_store(client, endpoint, options=options)
    if client == "obstore-async":
        return lambda asked: asyncio.run(store.perform_async(asked))
    return store.perform


def open_store(client: str, endpoint: str, bucket: str = BUCKET, options: S3Options = PLAIN) -> Store:
    if client == "boto3":
        import boto3

        return s3_boto.BotoStore(boto3.session.Session(), bucket, endpoint=endpoint, options=options)
    return s3.S3Store(bucket, endpoint=endpoint, options=options)


@pytest.mark.parametrize(
    ("region", "host"),
    [("eu-west-1", "s3.eu-west-1.amazonaws.com"), ("cn-north-1", "s3.cn-north-1.amazonaws.com.cn")],
)
def test_s3_is_where_its_region_has_it(monkeypatch: pytest.MonkeyPatch, region: str, host: str) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "nobody")
    client = s3.S3Store(BUCKET, region=region)._clients.kept()
    assert urlsplit(obstore.sign(client, "GET", "key", timedelta(minutes=1))).hostname == host


def name_of(value: object) -> str:
    return type(value).__name__ if isinstance(value, StoreRequest) else str(value)


@pytest.mark.parametrize("asked", CONDITIONAL, ids=name_of)
@pytest.mark.parametrize(
    ("status", "code"), [(412, "PreconditionFailed"), (409, "ConditionalRequestConflict")], ids=name_of
)
def test_a_lost_race_is_refused(
    stub: ToldServer, perform: Perform, asked: StoreRequest, status: int, code: str
) -> None:
    stub.answers(status, code)
    assert perform(asked) == Refused()
    assert len(stub.arrived) == 1


@pytest.mark.parametrize(
    ("status", "code"), [(412, "PreconditionFailed"), (409, "OperationAborted")], ids=name_of
)
def test_an_unconditional_write_is_never_refused(
    stub: ToldServer, perform: Perform, status: int, code: str
) -> None:
    stub.answers(status, code)
    assert isinstance(error_of(perform(WRITE)), Unavailable)
    assert len(stub.arrived) == 1


def test_a_missing_object_is_missing_or_refused(stub: ToldServer, perform: Perform) -> None:
    stub.answers(404, "NoSuchKey")
    assert perform(READ) == Missing()
    assert perform(REPLACE) == Refused()
    assert perform(DELETE_IF) == Refused()
    assert isinstance(error_of(perform(CREATE)), Unavailable)
    assert len(stub.arrived) == 4


@pytest.mark.parametrize("asked", EVERY, ids=name_of)
def test_a_missing_bucket_is_an_error_that_says_so(
    stub: ToldServer, perform: Perform, asked: StoreRequest
) -> None:
    stub.answers(404, "NoSuchBucket")
    error = error_of(perform(asked))
    assert isinstance(error, Unavailable)
    assert BUCKET in error.message
    assert "create the bucket" in error.message
    assert len(stub.arrived) == 1


@pytest.mark.parametrize(
    ("status", "code", "permanent"),
    [
        (404, "NoSuchBucket", True),
        (403, "AccessDenied", True),
        (403, "InvalidAccessKeyId", True),
        (401, "", True),
        (400, "ExpiredToken", True),
        (400, "AuthorizationHeaderMalformed", True),
        (501, "NotImplemented", True),
        (501, "", True),
        (500, "InternalError", False),
        (503, "SlowDown", False),
        (409, "OperationAborted", False),
    ],
    ids=name_of,
)
def test_what_only_a_change_can_mend_is_permanent(
    stub: ToldServer, perform: Perform, status: int, code: str, permanent: bool
) -> None:
    stub.answers(status, code)
    error = error_of(perform(WRITE))
    assert isinstance(error, Unavailable)
    assert error.permanent is permanent
    assert (error.retry_after is None) is permanent


@pytest.mark.parametrize("asked", [READ, DELETE_IF], ids=["obstore", "boto3"])
def test_new_credentials_of_the_environment_are_used_after_a_refusal(
    stub: ToldServer, monkeypatch: pytest.MonkeyPatch, asked: StoreRequest
) -> None:
    store = s3.S3Store(BUCKET, endpoint=stub.endpoint)
    for key, status, code in (("OLD", 400, "ExpiredToken"), ("NEW", 404, "NoSuchKey")):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        stub.answers(status, code)
        reply = store.perform(asked)
    assert isinstance(reply, Missing | Refused)
    keys = [re.findall(r"Credential=(\w+)/", each["authorization"]) for each in stub.headers]
    assert keys == [["OLD"], ["NEW"]]


def test_a_wrong_region_is_permanent_and_named(stub: ToldServer) -> None:
    stub.answers(301, "PermanentRedirect")  # boto3 follows it by itself, to the region that S3 names
    error = error_of(open_store("obstore", stub.endpoint).perform(WRITE))
    assert error.permanent
    assert "?region=" in error.message
    assert len(stub.arrived) == 1


@pytest.mark.parametrize("client", ["obstore", "obstore with boto3", "boto3"])
def test_missing_credentials_are_named_at_once(
    client: str, stub: ToldServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    if client == "obstore":  # its look at the machine's metadata would leave this machine
        asked = Exception("Error performing PUT http://169.254.169.254/latest/api/token")
        error: OsqueueError = s3.S3Store(BUCKET)._fault(asked).explained(BUCKET)
    else:
        error = error_of(open_store(client, stub.endpoint).perform(READ))
    assert "no AWS credentials found: set AWS_ACCESS_KEY_ID" in error.message
    assert error.permanent
    assert stub.arrived == []


def test_a_missing_client_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match=r"pip install 'osqueue\[s3\]'") as caught:
        s3.S3Store(BUCKET)
    assert (caught.value.code, caught.value.permanent) == ("not_installed", True)


def test_an_unchanged_object_is_not_sent_again(stub: ToldServer, perform: Perform) -> None:
    stub.answers(304)
    assert perform(READ_UNLESS) == Unchanged()
    assert len(stub.arrived) == 1


@pytest.mark.parametrize("asked", EVERY, ids=name_of)
def test_a_refused_permission_names_what_to_allow(
    stub: ToldServer, perform: Perform, asked: StoreRequest
) -> None:
    stub.answers(403, "AccessDenied")
    error = error_of(perform(asked))
    assert isinstance(error, Unavailable)
    assert "s3:PutObject" in error.message
    assert "s3:ListBucket" in error.message
    assert len(stub.arrived) == 1


def test_an_error_never_quotes_the_answer(stub: ToldServer, perform: Perform) -> None:
    stub.answers(
        403,
        body="<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>AKIAEXAMPLE</AWSAccessKeyId></Error>",
    )
    error = error_of(perform(WRITE))
    assert "AWS_ACCESS_KEY_ID" in error.message
    assert "AKIAEXAMPLE" not in error.message
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__


@pytest.mark.parametrize("asked", EVERY, ids=name_of)
@pytest.mark.parametrize(
    ("status", "code"), [(500, "InternalError"), (502, ""), (503, "SlowDown")], ids=name_of
)
def test_a_server_error_is_ambiguous_and_not_repeated(
    stub: ToldServer, perform: Perform, asked: StoreRequest, status: int, code: str
) -> None:
    stub.answers(status, code)
    error = error_of(perform(asked))
    assert isinstance(error, Unavailable)
    assert str(status) in error.message
    assert len(stub.arrived) == 1


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("asked", [READ, WRITE, REPLACE, DELETE_IF], ids=name_of)
def test_silence_is_a_timeout(stub: ToldServer, client: str, asked: StoreRequest) -> None:
    stub.hangs()
    for seconds in SILENT_S:
        options = S3Options(timeouts=Timeouts(request_s=seconds))
        error = error_of(performer(client, stub.endpoint, options)(asked))
        assert isinstance(error, Timeout)
        assert f"request {seconds:g} s" in error.message
        if stub.heard():  # else this process stood still, and its time was up before it had sent anything
            break
    assert len(stub.arrived) == 1


@pytest.mark.parametrize("asked", EVERY, ids=name_of)
def test_a_dropped_connection_is_ambiguous_and_not_repeated(
    stub: ToldServer, perform: Perform, asked: StoreRequest
) -> None:
    stub.hangs_up()
    assert isinstance(error_of(perform(asked)), Unavailable)
    assert len(stub.arrived) == 1


def test_a_dropped_kept_alive_connection_is_not_repeated(stub: ToldServer, perform: Perform) -> None:
    """Clients like to repeat when a connection that served before breaks: it may just have been idle."""
    stub.answers(412, "PreconditionFailed")
    assert perform(REPLACE) == Refused()
    stub.hangs_up()
    assert isinstance(error_of(perform(REPLACE)), Unavailable)
    assert len(stub.arrived) == 2


def test_a_server_that_is_not_there_is_an_error(perform: Perform, stub: ToldServer) -> None:
    for client in ("obstore", "boto3"):
        error = error_of(open_store(client, "http://127.0.0.1:1").perform(WRITE))
        assert isinstance(error, Unavailable)
        assert "endpoint" in error.message
    assert stub.arrived == []


@pytest.mark.parametrize("client", ["obstore", "boto3"])
def test_a_lost_reply_is_ambiguous_and_the_write_happened_once(
    client: str, stub: ToldServer, s3_endpoint: str, s3_bucket: str
) -> None:
    direct = open_store(client, s3_endpoint, s3_bucket)
    version = direct.perform(PutIfAbsent("head", b"one"))
    assert isinstance(version, Written)

    stub.applies_and_hangs_up(s3_endpoint)
    through = open_store(client, stub.endpoint, s3_bucket)
    assert isinstance(error_of(through.perform(PutIfMatch("head", b"two", version.version))), Unavailable)
    assert len(stub.arrived) == 1

    # A repetition inside the client would have met its own success as a 412.
    assert direct.get(Get("head")).body == b"two"  # type: ignore[union-attr]
    assert direct.perform(PutIfMatch("head", b"three", version.version)) == Refused()


def test_one_of_many_deletions_that_fails_fails_the_request(stub: ToldServer, perform: Perform) -> None:
    stub.answers(
        200,
        body="<?xml version='1.0'?><DeleteResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><Error>"
        "<Key>a/key</Key><Code>AccessDenied</Code><Message>Told to.</Message></Error></DeleteResult>",
    )
    assert isinstance(error_of(perform(Delete(("a/key", "b/key")))), Unavailable)
    assert len(stub.arrived) == 1


def test_many_deletions_are_one_request(stub: ToldServer, perform: Perform) -> None:
    stub.answers(
        200,
        body="<?xml version='1.0'?><DeleteResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'></DeleteResult>",
    )
    perform(Delete(tuple(f"a/{number}" for number in range(1000))))
    assert len(stub.arrived) == 1


def test_a_boto3_client_that_repeats_requests_is_refused(aws_environment: None) -> None:
    import boto3

    session = boto3.session.Session()
    with pytest.raises(Rejected, match="client_config"):
        s3_boto.BotoStore(session.client("s3"), BUCKET)
    s3_boto.BotoStore(session.client("s3", config=s3_boto.client_config()), BUCKET)


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:9"])
def test_long_names_are_kept_from_servers_that_may_be_file_systems(
    aws_environment: None, monkeypatch: pytest.MonkeyPatch, endpoint: str | None
) -> None:
    """Whoever says where S3 is: the caller, the caller's own client, or the environment."""
    import boto3

    session, config = boto3.session.Session(), s3_boto.client_config()
    room = 1024 if endpoint is None else 255
    client = session.client("s3", endpoint_url=endpoint, config=config)
    assert s3_boto.BotoStore(client, BUCKET).room_below("") == room
    assert s3_boto.BotoStore(session, BUCKET, endpoint=endpoint).room_below("") == room
    if endpoint is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert s3_boto.BotoStore(session, BUCKET).room_below("") == room


def test_a_client_of_the_caller_is_not_used_in_a_forked_process(
    aws_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    client = boto3.session.Session().client("s3", config=s3_boto.client_config())
    store = s3_boto.BotoStore(client, BUCKET)
    monkeypatch.setattr(s3_boto.forks, "process", lambda: -1)
    assert "fork" in error_of(store.perform(READ)).message


STRAYS = ("a/..", "a//x", "a/./b", "a/z/")


def test_boto3_names_keys_that_no_other_client_names(
    aws_environment: None, s3_endpoint: str, s3_bucket: str
) -> None:
    store = open_store("boto3", s3_endpoint, s3_bucket)
    keys = tuple(sorted(("a/a", "a/b", *STRAYS)))
    for key in keys:
        assert isinstance(store.perform(Put(key, b"")), Written)
    assert store.perform(List("a/")) == Listed(keys, more=False)
    assert store.perform(List("a/", after="a/a", limit=1)) == Listed(("a/b",), more=True)
    assert isinstance(store.perform(Get("a/./b")), Found)
    assert store.perform(Delete(("a//x", "a/a"))) == Deleted()
    assert store.perform(Get("a//x")) == store.perform(Get("a/a")) == Missing()
