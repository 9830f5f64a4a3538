"""``osqueue serve`` as it runs: processes, signals, certificates, and what is left when some of them are killed."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from osqueue import Queue
from osqueue.asgi.tokens import digest_of
from osqueue.clock import MACHINE
from osqueue.errors import OsqueueError, Rejected, Unavailable
from tests.support.patience import PATIENCE
from tests.support.serve_process import Server, serving


def until(what: Callable[[], Any]) -> Any:
    """Wait for something that is true."""
    end = MACHINE.monotonic() + PATIENCE
    while not (found := what()):
        assert MACHINE.monotonic() < end
        MACHINE.sleep(0.05)
    return found


# ── The end ──────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_signal_ends_it_when_what_runs_is_answered(tmp_path: Path, workers: str) -> None:
    with serving(f"file://{tmp_path}/jobs", "--workers", workers, "--log-level", "debug") as server:
        answers: list[Any] = []

        def wait_for_a_job() -> None:
            body = json.dumps({"worker": "w", "wait": 20}).encode()
            url = f"{server.url}/v1/queues/mail/claims"
            answers.append(urllib3.request("POST", url, body=body, timeout=60, retries=False))

        for name in range(40):  # some of which have their home elsewhere
            with urllib3.PoolManager() as connections:
                connections.request("GET", f"{server.url}/v1/queues/{name % 8}")
            MACHINE.sleep(0.05)  # so that the other process has begun, too
        waiting = threading.Thread(target=wait_for_a_job)
        waiting.start()
        MACHINE.sleep(1.0)
        assert server.end() == 0
        waiting.join(PATIENCE)
    (answer,) = answers
    assert (answer.status, answer.json()["jobs"]) == (200, [])
    assert not [each for each in server.log if "Traceback" in str(each)]
    (line,) = [each for each in server.log if each.get("operation") == "claim"]
    assert line["ms"] < 19_000  # of the 20 s it would have waited


def test_it_works_on_with_the_processes_that_are_left_and_replaces_others(tmp_path: Path) -> None:
    """Processes are killed while callers enqueue: what was acknowledged is there, once."""
    with serving(f"file://{tmp_path}/jobs?fsync=off", "--workers", "3") as server:
        queue: Queue[Any] = Queue.connect(server.url, "mail", timeout=PATIENCE)
        queue.enqueue("first")
        stop = threading.Event()
        acknowledged: list[str] = []

        def producer(at: int) -> None:
            mine: Queue[Any] = Queue.connect(server.url, "mail", timeout=PATIENCE)
            number = 0
            while not stop.is_set():
                number += 1
                acknowledged.append(str(mine.enqueue(f"{at}-{number}").job_id))

        producers = [threading.Thread(target=producer, args=(at,)) for at in range(4)]
        for each in producers:
            each.start()
        first = set(until(lambda: len(found := server.children()) == 3 and found))
        for victim in list(first)[:2]:
            many = len(acknowledged)
            os.kill(victim, signal.SIGKILL)
            until(lambda many=many: len(acknowledged) > many + 20)
        until(lambda: len(set(server.children()) - first) == 2)  # others have come
        stop.set()
        for each in producers:
            each.join(PATIENCE)
        assert server.end() == 0
    behind: Queue[Any] = Queue.connect(f"file://{tmp_path}/jobs", "mail")
    there = [job.job_id for job in _all_jobs(behind)]
    assert len(there) == len(set(there)) == len(acknowledged) + 1
    assert set(there) >= set(acknowledged)


def _all_jobs(queue: Queue[Any]) -> Iterator[Any]:
    cursor = None
    while True:
        jobs, cursor = queue.jobs(limit=1000, cursor=cursor)
        yield from jobs
        if cursor is None:
            return


def test_its_processes_end_when_it_is_killed(tmp_path: Path) -> None:
    with serving(f"file://{tmp_path}/jobs", "--workers", "2") as server:
        children = until(lambda: len(found := server.children()) == 2 and found)
        server.end(signal.SIGKILL)
        until(lambda: not any(_is_alive(each) for each in children))


def _is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_of_several_servers_one_does_the_upkeep(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/jobs"
    with serving(address) as first, serving(address) as second:
        for server in (first, second):
            Queue.connect(server.url, "mail").enqueue(server.url)
        leaders = [server for server in (first, second) if _leads(server)]
        assert len(until(lambda: [each for each in (first, second) if _leads(each)])) == 1, leaders
        leader = first if _leads(first) else second
        other = second if leader is first else first
        assert leader.end() == 0  # and steps down
        until(lambda: _leads(other))


def _leads(server: Server) -> bool:
    return any("leads reaper" in str(each.get("message")) for each in server.log)


# ── Who may ──────────────────────────────────────────────────────────────────
def refused(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "osqueue", "serve", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_beyond_this_machine_it_listens_only_when_it_knows_who_may_call(tmp_path: Path) -> None:
    said = refused(f"file://{tmp_path}/jobs", "--host", "0.0.0.0")  # noqa: S104 - it is refused
    assert "host:" in said
    assert "--tokens" in said


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["http://127.0.0.1:1"], "address"),
        (["memory://", "--workers", "2"], "workers"),
        (["memory://", "--key", "k.pem"], "key"),
        (["memory://", "--client-ca", "k.pem"], "client-ca"),
        (["memory://", "--certificate", "none.pem"], "certificate"),
        (["memory://", "--tokens", "none.toml"], "tokens"),
        (["memory://", "--drain", "0"], "--drain"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(arguments: list[str], field: str) -> None:
    assert field in refused(*arguments)


def test_a_token_of_the_command_is_one_that_the_server_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "osqueue", "token", "checkout", "--role", "enqueue", "--queue", "mail"],
        capture_output=True,
        text=True,
        check=True,
    )
    (tmp_path / "tokens.toml").write_text(made.stdout)
    token = made.stderr.split()[-1]
    assert digest_of(token) in made.stdout
    assert token not in made.stdout
    with serving(f"file://{tmp_path}/jobs", "--tokens", f"{tmp_path}/tokens.toml") as server:
        monkeypatch.setenv("OSQUEUE_TOKEN", token)
        queue: Queue[Any] = Queue.connect(f"{server.url}?auth=bearer", "mail")
        assert queue.enqueue(1).status == "queued"
        with pytest.raises(Unavailable, match="may not claim"):
            queue.claim()
        with pytest.raises(Unavailable, match="send a token"):
            Queue.connect(server.url, "mail").enqueue(1)


# ── TLS ──────────────────────────────────────────────────────────────────────
def certificates(folder: Path) -> None:
    """An authority, a server's certificate and a client's, in PEM."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])

    def write(name: str, key: Any, certificate: x509.Certificate) -> None:
        form = serialization.NoEncryption()
        pem = serialization.Encoding.PEM
        (folder / f"{name}.key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, form))
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(pem))

    def signed(name: str, key: Any, ca: bool) -> x509.Certificate:
        subject = authority if ca else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if not ca:
            where = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
            builder = builder.add_extension(where, critical=False)
        return builder.sign(authority_key, hashes.SHA256())

    write("ca", authority_key, signed("ca", authority_key, ca=True))
    for name in ("server", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        write(name, key, signed(name, key, ca=False))


def test_over_tls_clients_show_certificates_where_they_have_to(tmp_path: Path) -> None:
    certificates(tmp_path)
    tls = ["--certificate", f"{tmp_path}/server.pem", "--key", f"{tmp_path}/server.key"]
    trust = f"auth=none&ca={tmp_path}/ca.pem"
    with serving(f"file://{tmp_path}/jobs", *tls, "--client-ca", f"{tmp_path}/ca.pem") as server:
        assert server.url.startswith("https://")
        mine = f"{trust}&cert={tmp_path}/client.pem&key={tmp_path}/client.key"
        assert Queue.connect(f"{server.url}?{mine}", "mail").enqueue(1).status == "queued"
        with pytest.raises(OsqueueError):
            Queue.connect(f"{server.url}?{trust}", "mail", timeout=5).enqueue(1)
        with pytest.raises(Unavailable, match="certificate"):
            Queue.connect(f"{server.url}?auth=none", "mail").enqueue(1)
        assert server.end() == 0


@pytest.mark.parametrize(
    ("query", "field"),
    [("ca=/none.pem", "ca"), ("cert=/none.pem", "cert"), ("key=/none.pem", "key")],
)
def test_files_of_an_address_that_are_not_there_are_named(query: str, field: str) -> None:
    with pytest.raises(Rejected) as caught:
        Queue.connect(f"https://example.com?auth=none&{query}", "mail")
    assert caught.value.field == field


# ── Metrics ──────────────────────────────────────────────────────────────────
def test_processes_that_serve_together_count_as_one(tmp_path: Path) -> None:
    """Two processes count into one folder; the dead one's requests stay, and what it had in progress does not."""
    script = """
import sys, asyncio
from osqueue.asgi.metrics import ServerMetrics
from osqueue.server.app import ApiResponse
from osqueue.server.async_app import AsyncApi
metrics = ServerMetrics(AsyncApi("memory://"))
metrics.request(ApiResponse(200, notes={"operation": "claim"}), 0.1)
with metrics.open_request():
    if sys.argv[1] == "dies":
        import os
        os._exit(1)
    print(asyncio.run(metrics.text()).decode())
"""
    for how in ("dies", "tells"):
        done = subprocess.run(
            [sys.executable, "-c", script, how],
            env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PATH": "/usr/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert 'osqueue_requests_total{operation="claim",status="200"} 2.0' in done.stdout
    assert "osqueue_requests_in_progress 1.0" in done.stdout
