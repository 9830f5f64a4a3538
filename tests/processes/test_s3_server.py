"""The S3 test server's one promise beyond moto: a request is one step."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.s3_server import serialised


def test_requests_never_overlap_and_keep_their_bodies(s3_endpoint: str) -> None:
    inside: list[bytes] = []
    overlaps: list[list[bytes]] = []

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        inside.append(environ["wsgi.input"].read())
        time.sleep(0.005)  # room for another request to come in, if it can
        if len(inside) != 1:
            overlaps.append(list(inside))
        yield inside.pop()  # the answer's making is inside as well

    call = serialised(application)
    bodies = [b"%d" % number * number for number in range(1, 17)]

    def ask(body: bytes) -> bytes:
        return b"".join(call({"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}, None))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, bodies)) == bodies
    assert overlaps == []
