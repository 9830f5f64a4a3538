"""What Google Cloud Storage and Azure answer when something is wrong, and what becomes of it; for S3 see beside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from urllib.parse import unquote

import pytest

from osqueue import Queue
from osqueue.commit.driver import BlockingDriver
from osqueue.errors import NotInstalled, NotSupported, OsqueueError, Timeout, Unavailable
from osqueue.maintenance.store_probes import OK, StoreProbes
from osqueue.stores import azure, objects
from osqueue.stores import gcs as gcs_module
from osqueue.stores.address import open_store
from osqueue.stores.azure import AzureStore
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
from osqueue.stores.gcs import GcsStore
from osqueue.stores.objects import ObjectStore
from tests.support import azure_server, gcs_server
from tests.support.machines import VirtualMachine
from tests.support.replies import error_of, version_of
from tests.support.told_server import ToldServer, told_server

HOLDER = "some-holder"
VERSION = {"gs": '1700000000000001:"abc"', "az": '"0x8DE0123456789AB"'}
SILENT_S = (0.4, 5.0, 15.0)  # how long a client waits for an answer that never comes

READ = Get("a/key")
LIST = List("a/")
WRITE = Put("a/key", b"body")
CREATE = PutIfAbsent("a/key", b"body")
DELETE = Delete(("a/key",))
KINDS = ("get", "list", "put", "create", "replace", "delete", "delete if")


def asked(kind: str, scheme: str) -> StoreRequest:
    return {
        "get": READ,
        "list": LIST,
        "put": WRITE,
        "create": CREATE,
        "delete": DELETE,
        "replace": PutIfMatch("a/key", b"body", VERSION[scheme]),
        "delete if": DeleteIfMatch("a/key", VERSION[scheme]),
    }[kind]


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's, and nothing of the machine's own."""
    for server in (azure_server, gcs_server):
        for name in server.FOREIGN_ENVIRONMENT:
            monkeypatch.delenv(name, raising=False)
        for name, value in server.ENVIRONMENT.items():
            monkeypatch.setenv(name, value)


@pytest.fixture
def stub(credentials: None) -> Iterator[ToldServer]:
    with told_server() as told:
        yield told


@pytest.fixture(params=["gs", "az"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def open_at(scheme: str, endpoint: str) -> ObjectStore:
    return (GcsStore if scheme == "gs" else AzureStore)(HOLDER, "p", endpoint)


@pytest.fixture
def store(scheme: str, stub: ToldServer) -> Store:
    return open_at(scheme, stub.endpoint)


@pytest.fixture(params=["blocking", "awaited"])
def perform(request: pytest.FixtureRequest, store: Store) -> Callable[[StoreRequest], StoreReply]:
    if request.param == "awaited":
        return lambda request: asyncio.run(store.perform_async(request))
    return store.perform


LOST = [("gs", 412, "PreconditionFailed"), ("az", 412, "ConditionNotMet"), ("az", 409, "BlobAlreadyExists")]
# What Azure answers with the same numbers, and is no race: somebody has to change something first.
KEPT = [
    ("az", 412, "LeaseIdMissing"),
    ("az", 409, "BlobImmutableDueToPolicy"),
    ("az", 409, "InvalidBlobType"),
]


@pytest.mark.parametrize("kind", ["create", "replace", "delete if"])
@pytest.mark.parametrize(("scheme", "status", "code"), LOST)
def test_a_lost_race_is_refused(
    stub: ToldServer,
    perform: Callable[[StoreRequest], StoreReply],
    scheme: str,
    kind: str,
    status: int,
    code: str,
) -> None:
    stub.answers(status, code)
    assert perform(asked(kind, scheme)) == Refused()
    assert len(stub.arrived) == 1


@pytest.mark.parametrize("kind", ["create", "replace", "delete if"])
@pytest.mark.parametrize(("scheme", "status", "code"), KEPT)
def test_a_lease_or_a_policy_is_no_lost_race(
    stub: ToldServer, store: Store, scheme: str, kind: str, status: int, code: str
) -> None:
    stub.answers(status, code)
    error = error_of(store.perform(asked(kind, scheme)))
    assert isinstance(error, Unavailable)
    assert error.permanent
    assert code in error.message


def test_a_missing_object_is_missing_or_refused(stub: ToldServer, store: Store, scheme: str) -> None:
    stub.answers(404, {"gs": "NoSuchKey", "az": "BlobNotFound"}[scheme])
    assert store.perform(READ) == Missing()
    assert store.perform(asked("replace", scheme)) == Refused()
    assert store.perform(asked("delete if", scheme)) == Refused()
    assert isinstance(error_of(store.perform(CREATE)), Unavailable)
    assert len(stub.arrived) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_bucket_or_container_is_an_error_that_says_so(
    stub: ToldServer, store: Store, scheme: str, kind: str
) -> None:
    stub.answers(404, {"gs": "NoSuchBucket", "az": "ContainerNotFound"}[scheme])
    error = error_of(store.perform(asked(kind, scheme)))
    assert error.permanent
    assert HOLDER in error.message
    assert f"create the {'bucket' if scheme == 'gs' else 'container'}" in error.message
    assert len(stub.arrived) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("scheme", "status", "code"),
    [("gs", 429, "SlowDown"), ("gs", 503, ""), ("az", 503, "ServerBusy"), ("az", 429, ""), ("az", 500, "")],
)
def test_a_busy_server_refuses_nothing_and_is_not_asked_again(
    stub: ToldServer, store: Store, scheme: str, kind: str, status: int, code: str
) -> None:
    stub.answers(status, code)
    error = error_of(store.perform(asked(kind, scheme)))
    assert isinstance(error, Unavailable)
    assert not error.permanent
    assert str(status) in error.message
    assert len(stub.arrived) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_dropped_connection_is_ambiguous_and_not_repeated(
    stub: ToldServer, store: Store, scheme: str, kind: str
) -> None:
    stub.hangs_up()
    assert isinstance(error_of(store.perform(asked(kind, scheme))), Unavailable)
    assert len(stub.arrived) == 1


@pytest.mark.parametrize("kind", ["get", "replace", "delete if"])
def test_silence_is_a_timeout(stub: ToldServer, scheme: str, kind: str) -> None:
    stub.hangs()
    for seconds in SILENT_S:
        store = open_at(scheme, stub.endpoint)
        store.timeouts = Timeouts(request_s=seconds)
        assert isinstance(error_of(store.perform(asked(kind, scheme))), Timeout), seconds
        if stub.heard():
            break
    assert len(stub.arrived) == 1


@pytest.mark.parametrize(
    ("scheme", "status", "code", "says"),
    [
        ("gs", 403, "AccessDenied", "Storage Object User"),
        ("gs", 401, "", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az", 403, "AuthorizationPermissionMismatch", "Storage Blob Data Contributor"),
        ("az", 403, "AuthenticationFailed", "AZURE_STORAGE_ACCOUNT_KEY"),
    ],
)
def test_what_only_a_change_can_mend_is_permanent_and_names_it(
    stub: ToldServer, store: Store, scheme: str, status: int, code: str, says: str
) -> None:
    stub.answers(status, code)
    for kind in ("get", "put", "delete if"):
        error = error_of(store.perform(asked(kind, scheme)))
        assert error.permanent
        assert says in error.message


def test_a_refusal_lets_the_next_request_open_another_client(
    stub: ToldServer, store: ObjectStore, scheme: str
) -> None:
    """A client keeps the credentials of the environment that it was opened with."""
    stub.answers(500)
    store.perform(READ)
    first = store._clients.kept()
    stub.answers(403, "AccessDenied")
    store.perform(READ)
    assert store._clients.kept() is not first
    stub.answers(404, "BlobNotFound")
    assert store.perform(READ) == Missing()


def test_missing_credentials_are_named_at_once(
    stub: ToldServer, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """Then a client asks the machine for an identity: here, at a port of loopback where nobody listens."""
    gone = {"gs": "GOOGLE_BEARER_TOKEN", "az": "AZURE_STORAGE_ACCOUNT_KEY"}[scheme]
    monkeypatch.delenv(gone)
    error: OsqueueError = error_of(open_at(scheme, stub.endpoint).perform(READ))
    assert "credentials found" in error.message
    assert error.permanent
    assert stub.arrived == []


def test_a_missing_account_is_named(credentials: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    error = error_of(AzureStore(HOLDER).perform(READ))
    assert "set AZURE_STORAGE_ACCOUNT_NAME" in error.message
    assert error.permanent


@pytest.mark.parametrize(
    ("variable", "written"),
    [
        ("AZURE_STORAGE_SAS_KEY", str),
        ("AZURE_STORAGE_SAS_TOKEN", "?{}".format),
        ("AZURE_STORAGE_SAS_KEY", unquote),
    ],
)
def test_a_shared_access_signature_is_enough_for_everything(
    azure_place: str,
    azure_endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    written: Callable[[str], str],
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_CLIENT_ID", "of an identity that is not asked for")
    monkeypatch.setenv(variable, written(azure_server.shared_access_signature()))
    with closing(open_store(f"az://{azure_place}?endpoint={azure_endpoint}").inner) as store:
        for key in ("a/b", "a b+c", "a%2Fb", "é/~=&"):  # of which obstore signs the first alone
            made = store.perform(PutIfAbsent(key, b"1"))
            assert isinstance(made, Written)
            assert isinstance(store.perform(DeleteIfMatch(key, f'{made.version[:-2]}x"')), Refused)
            assert store.perform(DeleteIfMatch(key, made.version)) == Deleted()
            assert store.perform(Get(key)) == Missing()


def test_a_key_comes_before_a_signature(
    azure_place: str, azure_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_SAS_KEY", "sv=2018-11-09&sig=stale")
    with closing(open_store(f"az://{azure_place}?endpoint={azure_endpoint}").inner) as store:
        made = store.perform(PutIfAbsent("a", b"1"))
        assert isinstance(made, Written)
        assert store.perform(DeleteIfMatch("a", made.version)) == Deleted()


@pytest.mark.parametrize("blank", ["", " 01"])
def test_a_signature_is_quoted_by_no_error(
    stub: ToldServer, monkeypatch: pytest.MonkeyPatch, blank: str
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_KEY", f"?sv=2023-11-03{blank}&sig=hunter2")
    stub.hangs_up()
    error = error_of(open_at("az", stub.endpoint).perform(asked("delete if", "az")))
    assert "&sig=hunter2" in stub.arrived[0]
    assert "hunter2" not in error.message
    assert error.__cause__ is None


def test_a_missing_client_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setattr(objects, "find_spec", lambda name: None)
    with pytest.raises(
        NotInstalled, match=rf"pip install 'osqueue\[{'gcs' if scheme == 'gs' else 'azure'}\]'"
    ):
        open_at(scheme, "http://127.0.0.1:9")


def test_an_error_quotes_neither_the_answer_nor_a_signed_url(stub: ToldServer) -> None:
    store = open_at("az", stub.endpoint)
    stub.hangs_up()
    error = error_of(store.perform(asked("delete if", "az")))
    assert "sig=" in stub.arrived[0]
    assert "sig=" not in error.message
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__


# ── Against the stand-ins ────────────────────────────────────────────────────


def open_gcs(gcs: gcs_server.GcsServer, bucket: str) -> GcsStore:
    return GcsStore(bucket, "p", gcs.endpoint)


def test_equal_bytes_read_as_unchanged_until_a_write_is_refused(
    gcs: gcs_server.GcsServer, gcs_bucket: str
) -> None:
    """Reads on GCS know ETags alone, which are hashes; writes know generations."""
    store = open_gcs(gcs, gcs_bucket)
    first = version_of(store.perform(PutIfAbsent("head", b"same")))
    second = version_of(store.perform(PutIfMatch("head", b"same", first)))
    assert first != second
    assert store.perform(Get("head", unless=first)) == Unchanged()
    assert store.perform(PutIfMatch("head", b"other", first)) == Refused()
    found = store.perform(Get("head", unless=first))
    assert isinstance(found, Found)
    assert found.version == second
    assert store.perform(Get("head", unless=second)) == Unchanged()
    assert store.perform(DeleteIfMatch("head", first)) == Refused()
    assert store.perform(DeleteIfMatch("head", second)) == Deleted()


def test_a_version_of_another_store_is_refused_by_the_server_itself(
    gcs: gcs_server.GcsServer, gcs_bucket: str
) -> None:
    """Whoever asks so learns whether it may write at all."""
    store = open_gcs(gcs, gcs_bucket)
    store.perform(Put("head", b"one"))
    del gcs.asked[:]
    assert store.perform(PutIfMatch("head", b"two", '"0"')) == Refused()
    assert store.perform(DeleteIfMatch("head", '"0"')) == Refused()
    assert [line.partition(" ")[0] for line in gcs.asked] == ["PUT", "DELETE"]


def test_a_listing_starts_where_it_is_told_and_takes_one_request(
    gcs: gcs_server.GcsServer, gcs_bucket: str
) -> None:
    store = open_gcs(gcs, gcs_bucket)
    for number in range(5):
        store.perform(Put(f"a/{number}", b"x"))
    del gcs.asked[:]
    assert store.perform(List("a/", after="a/1", limit=2)) == Listed(("a/2", "a/3"), more=True)
    assert len(gcs.asked) == 1


def test_only_so_many_refused_versions_are_remembered(
    gcs: gcs_server.GcsServer, gcs_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcs_module, "REFUSED_MAX", 2)
    store = open_gcs(gcs, gcs_bucket)
    current = version_of(store.perform(Put("head", b"same")))
    tag = current.partition(":")[2]
    for number in range(3):
        assert store.perform(PutIfMatch("head", b"other", f"{number}:{tag}")) == Refused()
    read = [store.perform(Get("head", unless=f"{number}:{tag}")) for number in range(3)]
    assert [isinstance(reply, Found) for reply in read] == [False, True, True]


@pytest.mark.parametrize("missing", [(0,), (11,), (3, 19)])
def test_a_missing_object_among_many_keeps_no_other_from_being_deleted(
    gcs: gcs_server.GcsServer, gcs_bucket: str, missing: tuple[int, ...]
) -> None:
    store = open_gcs(gcs, gcs_bucket)
    keys = tuple(f"a/{number:02d}" for number in range(24))
    for number, key in enumerate(keys):
        if number not in missing:
            store.perform(Put(key, b"x"))
    assert store.perform(Delete(keys)) == Deleted()
    assert store.perform(List("a/")) == Listed((), more=False)


def test_a_missing_blob_among_many_keeps_no_other_of_any_batch_from_being_deleted(
    azure_endpoint: str, azure_place: str
) -> None:
    container, _, prefix = azure_place.partition("/")
    store = AzureStore(container, prefix, azure_endpoint)
    keys = [f"a/{number:03d}" for number in range(azure.BATCH_KEYS_MAX + 4)]
    there = (keys[1], keys[-1])
    for key in there:
        store.perform(Put(key, b"x"))
    assert store.perform(Delete((keys[0], *there))) == Deleted()
    assert store.perform(List("a/")) == Listed((), more=False)


def test_a_queue_goes_on_where_an_object_is_written_too_often(
    gcs: gcs_server.GcsServer, gcs_bucket: str
) -> None:
    """A head that was just written answers 429 for a while: nothing is lost, and nothing is done twice."""
    address = f"gs://{gcs_bucket}/jobs?endpoint={gcs.endpoint}"
    with Queue[int].connect(address, "mail") as q:
        q.enqueue(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gcs, "writes_a_second", 5)
            for number in range(1, 4):
                q.enqueue(number)
        assert [lease.payload for lease in q.claim(9)] == [0, 1, 2, 3]
    assert any(line.startswith("PUT") for line in gcs.asked)


def test_the_doctor_has_patience_with_a_store_that_takes_one_write_a_second(
    gcs_bucket: str, gcs: gcs_server.GcsServer, machine: VirtualMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcs, "now", lambda: machine.now_ms() / 1000)
    monkeypatch.setattr(gcs, "writes_a_second", 1)
    store = open_gcs(gcs, gcs_bucket)
    findings = BlockingDriver(store, machine).run(StoreProbes(machine, machine.now_ms()).run())
    assert {each.check for each in findings if each.level == OK} >= {
        "store: compare-and-swap",
        "store: versions",
    }
    assert [each for each in findings if each.level != OK] == []


def test_a_key_is_what_it_was_whatever_stands_in_it(
    gcs: gcs_server.GcsServer, gcs_bucket: str, azure_endpoint: str, azure_place: str
) -> None:
    container, _, prefix = azure_place.partition("/")
    for store in (open_gcs(gcs, gcs_bucket), AzureStore(container, prefix, azure_endpoint)):
        for key in ("a b+c", "a%2Fb", "é/~=&", "a,b;c'd", "0", "a/0"):
            written = store.perform(PutIfAbsent(key, key.encode()))
            assert isinstance(written, Written), (key, written)
            found = store.perform(Get(key))
            assert isinstance(found, Found)
            assert found.body == key.encode()
            assert store.perform(List(key)) == Listed((key,), more=False)
            assert store.perform(Delete((key,))) == Deleted()


def test_a_blob_that_nobody_can_sign_for_is_not_deleted_under_a_condition(
    azure_endpoint: str, azure_place: str
) -> None:
    container, _, prefix = azure_place.partition("/")
    store = AzureStore(container, prefix, azure_endpoint)
    for key in ("a b", "a%2Fb", "é"):
        version = version_of(store.perform(PutIfAbsent(key, b"x")))
        error = error_of(store.perform(DeleteIfMatch(key, version)))
        assert isinstance(error, NotSupported)
        assert "another prefix" in error.message
    version = version_of(store.perform(PutIfAbsent("a+b=c,d~e", b"x")))
    assert store.perform(DeleteIfMatch("a+b=c,d~e", version)) == Deleted()
