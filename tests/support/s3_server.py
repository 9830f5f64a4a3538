"""An S3 server on this machine that keeps S3's promise about conditional writes.

moto checks a condition and then writes in two steps, so two writers can both win. Here its application
runs in one process, behind one lock around the whole request, its body included: every request is one step.

From code: ``with s3_server() as endpoint: …``. From a shell: ``python tests/support/s3_server.py --port 9000``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.support.patience import PATIENCE

HOST = "127.0.0.1"
THREADS = 64
STOP_S_MAX = 40.0  # by then gunicorn has killed what did not end by itself
BACKLOG = 2048  # as gunicorn's own
# Dummies: moto accepts any. Real ones must never reach a test server.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
FOREIGN_ENVIRONMENT = (
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_LAMBDA",
    # Where a container or a pod finds its role: a machine of the cloud has them set.
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
)

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def serialised(application: Application) -> Application:
    """One request at a time, from the first byte of its body to the last byte of its answer."""
    lock = threading.Lock()

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # Read outside the lock, so that a client that stalls in the middle of its body stalls nobody else.
        length = int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with lock:
            answer = application(environ, start_response)
            try:
                return list(answer)
            finally:
                if hasattr(answer, "close"):
                    answer.close()

    return call


def moto_application() -> Application:
    """moto's S3, serialised. gunicorn calls this."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    threading.Thread(target=_end_with_starter, args=(os.getppid(),), daemon=True).start()
    return serialised(DomainDispatcherApplication(create_backend_app))


def _end_with_starter(main: int) -> None:
    """The starter holds the other end of our standard input: even killed, it leaves no server behind."""
    os.read(sys.stdin.fileno(), 1)
    if os.getppid() == main:  # else it has ended, and our parent is one who adopts orphans
        os.kill(main, signal.SIGTERM)  # gunicorn's main process, which ends us in turn


def start(port: int | None = None) -> tuple[subprocess.Popen[bytes], str]:
    """Start the server in a process of its own; the process and its endpoint, once it answers.

    It gets a socket that listens already: a port that is only looked for may be another's before it is bound.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    with socket.create_server((HOST, port or 0), backlog=BACKLOG) as listener:
        endpoint = f"http://{HOST}:{listener.getsockname()[1]}"
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "gunicorn", "s3_server:moto_application()"),
                *("--chdir", folder, "--bind", f"fd://{listener.fileno()}", "--worker-class", "gthread"),
                *("--workers", "1", "--threads", str(THREADS), "--keep-alive", "60", "--timeout", "0"),
                *("--log-level", "error", "--no-control-socket"),
            ],
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.PIPE,
            pass_fds=(listener.fileno(),),
        )
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the S3 test server ended at once with code {process.returncode}")
        try:
            with urllib.request.urlopen(endpoint, timeout=5):
                return process, endpoint
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    stop(process)
    raise RuntimeError(f"the S3 test server did not answer within {PATIENCE} s")


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGQUIT)  # gunicorn's word for ending without waiting for idle connections
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def s3_server(port: int | None = None) -> Iterator[str]:
    """The endpoint of a fresh server that lives as long as the block."""
    process, endpoint = start(port)
    try:
        yield endpoint
    finally:
        stop(process)


def create_bucket(endpoint: str, name: str) -> None:
    """Make an empty bucket. Plain HTTP is enough: the server checks no signature."""
    request = urllib.request.Request(f"{endpoint}/{name}", data=b"", method="PUT")  # noqa: S310
    with urllib.request.urlopen(request, timeout=PATIENCE):  # noqa: S310
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve S3 on loopback until interrupted.")
    parser.add_argument("--port", type=int, default=None)
    parser.add_argument("--bucket", action="append", default=[])
    arguments = parser.parse_args()
    with s3_server(arguments.port) as endpoint:
        for bucket in arguments.bucket:
            create_bucket(endpoint, bucket)
        print(endpoint, flush=True)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
