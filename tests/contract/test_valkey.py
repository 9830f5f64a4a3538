"""A store on a Valkey or Redis server: its errors, what its doctor says, and what others may do to it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from osqueue import Queue
from osqueue.cli.app import app
from osqueue.errors import (
    NotInstalled,
    NotSupported,
    OsqueueError,
    Rejected,
    Timeout,
    Unavailable,
    WaitTimeout,
)
from osqueue.limits import HTTP_IDLE_MS_MAX
from osqueue.stores import valkey as module
from osqueue.stores.address import open_store
from osqueue.stores.base import (
    Delete,
    Deleted,
    Failed,
    Get,
    List,
    Listed,
    Missing,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Store,
    Written,
    never_hinted,
)
from osqueue.stores.valkey import ValkeyStore
from osqueue.stores.valkey_place import place_in
from osqueue.testing.store_contract.opening import found
from tests.support.machines import VirtualMachine
from tests.support.patience import PATIENCE
from tests.support.silent_relay import relaying_to
from tests.support.valkey_server import DURABLE, ValkeyServer, valkey_server


@pytest.fixture
def server(valkey: ValkeyServer, tmp_path: Path) -> Iterator[ValkeyServer]:
    """One of this test's own, which it may set as it likes."""
    with valkey_server(tmp_path / "own") as own:
        yield own


def error_of(reply: object) -> OsqueueError:
    assert isinstance(reply, Failed), reply
    return reply.error


def test_a_server_that_is_not_there_is_told_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = error_of(open_store(f"valkey://:hunter2@127.0.0.1:{port}").perform(Put("a", b"x")))
    assert type(error) is Unavailable
    assert f"127.0.0.1:{port} cannot be reached" in error.message
    assert "hunter2" not in error.message


def test_without_the_client_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(NotInstalled, match=r"pip install 'osqueue\[valkey\]'"):
        open_store("redis://host")


def test_a_body_that_no_server_takes_is_refused_before_it_is_sent(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BODY_BYTES_MAX", 10)
    store = open_store(valkey.address())
    assert isinstance(store.perform(Put("a", b"x" * 10)), Written)
    error = error_of(store.perform(Put("a", b"x" * 11)))
    assert isinstance(error, Rejected)
    assert error.field == "body"


def test_a_megabyte_and_more_come_back_as_they_were(valkey: ValkeyServer) -> None:
    store = open_store(valkey.address())
    body = os.urandom(9_000_000)
    store.perform(Put("large", body))
    assert found(store, "large").body == body
    assert store.get(Get("large", start=8_999_990)).body == body[-10:]  # type: ignore[union-attr]


def test_stores_of_two_prefixes_do_not_see_each_other(valkey: ValkeyServer) -> None:
    one, other = open_store(valkey.address("a")), open_store(valkey.address("a/b"))
    one.perform(Put("b/c", b"one"))
    assert other.perform(List("")) == Listed((), more=False)
    assert other.perform(Get("c")) == Missing()


def test_more_keys_than_one_script_takes_are_deleted(valkey: ValkeyServer) -> None:
    store = open_store(valkey.address())
    keys = tuple(f"many/{at:04}" for at in range(1_001))
    for key in keys:
        store.perform(Put(key, b""))
    assert store.perform(Delete(keys)) == Deleted()
    assert store.perform(List("")) == Listed((), more=False)


@pytest.mark.parametrize("version", ["any", "absent", ""])
def test_a_word_that_stands_for_a_condition_is_no_version(valkey: ValkeyServer, version: str) -> None:
    store = open_store(valkey.address())
    assert store.perform(PutIfMatch("a", b"x", version)) == Refused()
    store.perform(Put("a", b"one"))
    assert store.perform(PutIfMatch("a", b"x", version)) == Refused()


def test_a_server_that_forgot_the_scripts_is_sent_them_again(server: ValkeyServer) -> None:
    store = open_store(server.address())
    version = store.put(Put("a", b"one")).version
    assert server.ask(b"SCRIPT", b"FLUSH") == b"+OK"
    assert isinstance(store.perform(PutIfMatch("a", b"two", version)), Written)


def test_a_wrong_password_is_told_for_good_and_the_right_one_works(server: ValkeyServer) -> None:
    server.ask(b"CONFIG", b"SET", b"requirepass", b"hunter2")
    host = server.address("p").removeprefix("valkey://")
    for address in (f"valkey://{host}", f"valkey://:wrong@{host}"):
        error = error_of(open_store(address).perform(Put("a", b"x")))
        assert "NOAUTH" in error.message
        assert "wrong" not in error.message
        assert error.permanent
    assert isinstance(open_store(f"valkey://:hunter2@{host}").perform(Put("a", b"x")), Written)


def test_a_full_server_refuses_whole_writes_and_still_deletes(server: ValkeyServer) -> None:
    store = open_store(server.address())
    store.perform(Put("a", b"x" * 100_000))
    server.ask(b"CONFIG", b"SET", b"maxmemory", b"1")
    error = error_of(store.perform(PutIfAbsent("b", b"x")))
    assert "OOM" in error.message
    assert not error.permanent  # workers may make room
    assert store.perform(List("")) == Listed(("a",), more=False)
    assert store.perform(Delete(("a",))) == Deleted()


def test_a_replica_refuses_writes_and_the_store_goes_on_once_it_is_promoted(server: ValkeyServer) -> None:
    store = open_store(server.address())
    server.ask(b"REPLICAOF", b"127.0.0.1", b"1")
    error = error_of(store.perform(Put("a", b"x")))
    assert "READONLY" in error.message
    server.ask(b"REPLICAOF", b"NO", b"ONE")
    assert isinstance(store.perform(Put("a", b"x")), Written)


def test_a_server_that_ended_meanwhile_is_connected_to_again(server: ValkeyServer) -> None:
    server.settings += DURABLE
    server.end()
    server.start()
    store = open_store(server.address())
    version = store.put(Put("a", b"one")).version
    server.end()
    assert type(error_of(store.perform(PutIfMatch("a", b"two", version)))) is Unavailable
    server.start()
    assert isinstance(store.perform(PutIfMatch("a", b"two", version)), Written)


def test_a_cluster_is_refused_by_name(valkey: ValkeyServer, tmp_path: Path) -> None:
    with valkey_server(tmp_path / "own", "--cluster-enabled", "yes") as node:
        error = error_of(open_store(node.address()).perform(Put("a", b"x")))
        assert isinstance(error, NotSupported)
        assert "cluster" in error.message
        assert ("server", True) in [(each.check, each.grave) for each in open_store(node.address()).remarks()]


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that reads one command, says this and nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection:
                connection.recv(65_536)
                connection.sendall(answer)
                connection.recv(65_536)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"valkey://127.0.0.1:{listener.getsockname()[1]}"


def test_connections_that_were_idle_for_too_long_are_not_used_again(valkey: ValkeyServer) -> None:
    machine, server = VirtualMachine(), urlsplit(valkey.address())
    with relaying_to(f"http://{server.hostname}:{server.port}") as relay:
        store = ValkeyStore(place_in("valkey", urlsplit(relay.endpoint).netloc + "/0/idle", {}), machine)
        for seconds in (0, 1, HTTP_IDLE_MS_MAX / 1000):
            machine.advance(seconds)
            assert isinstance(store.perform(Put("a", b"")), Written)
        store.close()
        assert relay.connections == 2


def test_no_answer_in_time_leaves_it_open_whether_a_write_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_TIMEOUT_S", 0.1)
    with answering(b"") as address:
        assert type(error_of(open_store(address).perform(Put("a", b"x")))) is Timeout


@pytest.mark.parametrize(
    ("answer", "word", "permanent"),
    [
        (b"-LOADING Valkey is loading the dataset in memory\r\n", "LOADING", False),
        (b"-MISCONF Errors writing to the AOF file: No space left\r\n", "MISCONF", False),
        (b"-NOPERM this user has no permissions to run the 'evalsha' command\r\n", "NOPERM", True),
        (
            b"-ERR unknown command 'EVALSHA', with args beginning with: 'hunter2'\r\n",
            "unknown command",
            False,
        ),
    ],
)
def test_a_servers_word_is_told_with_a_remedy_and_never_the_command(
    answer: bytes, word: str, permanent: bool
) -> None:
    with answering(answer) as address:
        error = error_of(open_store(address).perform(Put("a", b"x")))
    assert word in error.message
    assert "Remedy" in error.message
    assert "hunter2" not in error.message
    assert error.permanent is permanent


# ── What the doctor says ─────────────────────────────────────────────────────


def told(server: ValkeyServer, options: str = "") -> dict[str, tuple[bool, bool]]:
    """By check: is it grave, is there something to do?"""
    remarks = open_store(server.address() + options).remarks()
    return {each.check: (each.grave, bool(each.remedy)) for each in remarks}


GOOD, TO_DO, GRAVE = (False, False), (False, True), (True, True)


def test_the_doctor_tells_what_the_servers_settings_may_lose(server: ValkeyServer) -> None:
    def after(*words: bytes) -> dict[str, tuple[bool, bool]]:
        assert server.ask(b"CONFIG", b"SET", *words) == b"+OK"
        return told(server)

    assert told(server) == {"server": GOOD, "durability": GRAVE, "eviction": GOOD, "replicas": GOOD}
    assert after(b"appendonly", b"yes")["durability"] == TO_DO
    assert after(b"appendfsync", b"always")["durability"] == GOOD
    assert after(b"appendfsync", b"no")["durability"] == TO_DO
    assert after(b"maxmemory-policy", b"volatile-lru")["eviction"] == TO_DO
    assert after(b"maxmemory-policy", b"allkeys-lru")["eviction"] == TO_DO
    assert after(b"maxmemory", b"100mb")["eviction"] == GRAVE
    assert told(server, "?replicas=1")["replicas"] == GRAVE
    server.ask(b"REPLICAOF", b"127.0.0.1", b"1")
    assert told(server)["server"] == GRAVE


def test_osqueue_doctor_shows_it(valkey: ValkeyServer) -> None:
    address = valkey.address()
    with Queue.connect(address, "mail") as q:
        q.enqueue(1)
    result = CliRunner().invoke(app, ["doctor", address])
    assert result.exit_code == 1
    assert "appendonly is off" in result.stdout
    assert "CONFIG SET appendonly yes" in result.stdout
    assert "compare-and-swap" in result.stdout


# ── Hearing of news ──────────────────────────────────────────────────────────


def test_one_who_listens_hears_of_each_new_version_of_a_hot_object(valkey: ValkeyServer) -> None:
    store, other = (open_store(valkey.address("hot")) for _ in range(2))
    heard: SimpleQueue[str] = SimpleQueue()
    hinted = store.listen("head", lambda version: heard.put(version) is None)
    store.listen("another", lambda version: heard.put("of another") is None)
    version = other.put(Put("head", b"0")).version
    while heard.empty():  # until the thread has subscribed
        version = replaced(other, "head", version)
    assert hinted()
    expected = []
    for _ in range(3):
        version = replaced(other, "head", version)
        expected.append(version)
    told: list[str] = []
    while told[-3:] != expected:
        told.append(heard.get(timeout=PATIENCE))
    store.close()
    assert not hinted()


def replaced(store: Store, key: str, version: str) -> str:
    reply = store.perform(PutIfMatch(key, b"x", version, hot=True))
    assert isinstance(reply, Written)
    return reply.version


def test_one_who_wants_no_more_is_not_told_again_and_a_lost_connection_is_made_anew(
    server: ValkeyServer,
) -> None:
    store = open_store(server.address("hot"))
    once: list[str] = []
    heard: SimpleQueue[str] = SimpleQueue()
    store.listen("head", lambda version: bool(once.append(version)))
    store.listen("head", lambda version: heard.put(version) is None)
    for _ in range(2):
        version = store.put(Put("head", b"0")).version
        while heard.empty():
            version = replaced(store, "head", version)
        heard.get()
        server.end()
        server.start()
        while not heard.empty():
            heard.get()
    assert len(once) == 1
    store.close()


def test_whoever_waits_for_jobs_or_a_result_listens_to_the_head(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(module.ValkeyStore, "listen", lambda _, key, told: asked.append(key) or never_hinted)
    for wait in (
        lambda q: q.claim(kinds=["none"], wait=0.01),
        lambda q: q.enqueue_and_wait(1, timeout=0.01),
    ):
        with Queue.connect(valkey.address(), "mail") as q:
            q.enqueue(1)
            assert asked == []
            for _ in range(2):
                with suppress(WaitTimeout):
                    wait(q)
            (key,) = asked
            assert key.endswith("/mail/0/head")
            asked.clear()
