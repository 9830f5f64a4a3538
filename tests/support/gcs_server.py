"""A stand-in for Google Cloud Storage on loopback: the part of its XML API that obstore speaks, with its preconditions.

It checks no signature. ``writes_a_second`` makes it answer 429 to an object that is written more often, as Google may.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE_KEYS = 1000
# Nobody's, and enough: with none obstore would ask the machine's metadata for one.
METADATA = dict.fromkeys(("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"), "127.0.0.1:9")
ENVIRONMENT = {"GOOGLE_BEARER_TOKEN": "testing", **METADATA}
FOREIGN_ENVIRONMENT = (
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_BASE_URL",
)


class GcsObject(NamedTuple):
    """One that is kept."""

    body: bytes
    generation: int
    written: float  # seconds since the epoch

    @property
    def headers(self) -> dict[str, str]:
        return {
            "ETag": f'"{md5(self.body, usedforsecurity=False).hexdigest()}"',
            "x-goog-generation": str(self.generation),
            "Last-Modified": formatdate(self.written, usegmt=True),
        }


class GcsAnswer(NamedTuple):
    """What is sent back."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""


def refusal(status: int, code: str) -> GcsAnswer:
    return GcsAnswer(status, {}, f"<Error><Code>{code}</Code><Message>Told to.</Message></Error>".encode())


class GcsServer:
    """``buckets`` holds the objects; ``asked`` is a line for each request."""

    starts_behind = False  # does a listing start behind the key that it is to start after?

    def __init__(self) -> None:
        self.endpoint = ""
        self.buckets: dict[str, dict[str, GcsObject]] = {}
        self.asked: list[str] = []
        self.writes_a_second: float | None = None
        self.now: Callable[[], float] = time.time
        self._generations = itertools.count(1_700_000_000_000_001)
        self._lock = threading.Lock()

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> GcsAnswer:
        """Carry out one request as one step."""
        url = urlsplit(target)
        bucket, _, name = url.path[1:].partition("/")
        with self._lock:
            self.asked.append(f"{method} {target}")
            objects = self.buckets.get(unquote(bucket))
            if objects is None:
                return refusal(404, "NoSuchBucket")
            if not name:
                return self._listed(objects, parse_qs(url.query))
            key = unquote(name)
            there = objects.get(key)
            if not self._holds(headers, there):
                return refusal(412, "PreconditionFailed")
            if method == "PUT":
                return self._written(objects, key, body)
            if there is None:
                return refusal(404, "NoSuchKey")
            if method == "DELETE":
                del objects[key]
                return GcsAnswer(204)
            return self._read(there, headers)

    def _holds(self, headers: Mapping[str, str], there: GcsObject | None) -> bool:
        """Return whether the condition of a request holds for the object that is there."""
        match = headers.get("x-goog-if-generation-match")
        return match is None or int(match) == (there.generation if there else 0)

    def _written(self, objects: dict[str, GcsObject], key: str, body: bytes) -> GcsAnswer:
        now = self.now()
        if self.writes_a_second and key in objects and now < objects[key].written + 1 / self.writes_a_second:
            return refusal(429, "SlowDown")
        objects[key] = GcsObject(body, next(self._generations), now)
        return GcsAnswer(200, objects[key].headers)

    def _read(self, there: GcsObject, headers: Mapping[str, str]) -> GcsAnswer:
        if headers.get("If-None-Match") == there.headers["ETag"]:
            return GcsAnswer(304, there.headers)
        if (asked := headers.get("Range")) is None:
            return GcsAnswer(200, there.headers, there.body)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        size, start = len(there.body), int(first)
        end = min(int(last) + 1 if last else size, size)
        if start >= size:
            return refusal(416, "InvalidRange")
        told = {**there.headers, "Content-Range": f"bytes {start}-{end - 1}/{size}"}
        return GcsAnswer(206, told, there.body[start:end])

    def _listed(self, objects: dict[str, GcsObject], query: dict[str, list[str]]) -> GcsAnswer:
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        names = sorted((name for name in objects if name.startswith(prefix)), key=str.encode)
        # Google, unlike S3, begins with the name itself in one of its APIs: the store has to bear both.
        names = [name for name in names if name.encode() >= after.encode()]
        if self.starts_behind and names and names[0] in query.get("start-after", []):
            del names[0]
        page, more = names[:PAGE_KEYS], names[PAGE_KEYS : PAGE_KEYS + 1]
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(objects[name].body)}</Size>"
            f"<ETag>{escape(objects[name].headers['ETag'])}</ETag>"
            "<LastModified>2030-01-01T00:00:00.000Z</LastModified></Contents>"
            for name in page
        )
        token = f"<NextContinuationToken>{escape(more[0])}</NextContinuationToken>" if more else ""
        truncated = str(bool(more)).lower()
        text = f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{token}{contents}</ListBucketResult>"
        return GcsAnswer(200, {"Content-Type": "application/xml"}, text.encode())


@contextlib.contextmanager
def gcs_server(kind: type[GcsServer] = GcsServer) -> Iterator[GcsServer]:
    """One that runs while the block lasts."""
    told = kind()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = told.answer(self.command, self.path, cast("Mapping[str, str]", self.headers), body)
            self.send_response(answer.status)
            for name, text in answer.headers.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
