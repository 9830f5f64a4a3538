"""A light stand-in for S3 in the process of the test: for many short tests, where a server of its own costs too much.

It keeps S3's promise about conditional writes, since each request is one step. It checks no signature.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from urllib.parse import unquote, urlsplit

from tests.support.gcs_server import GcsAnswer, GcsObject, GcsServer

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


class LightS3(GcsServer):
    """S3's conditions and its deletion of many objects, over the objects of the stand-in for Google's store."""

    starts_behind = True

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> GcsAnswer:
        """Carry out one request as one step."""
        if method != "POST":
            found = super().answer(method, target, headers, body)
            return found._replace(body=found.body.replace(b"<ListBucketResult>", _LIST))
        bucket = unquote(urlsplit(target).path[1:].partition("/")[0])
        keys = re.findall("<Key>(.*?)</Key>", body.decode(), re.DOTALL)
        with self._lock:
            self.asked.append(f"{method} {target}")
            for key in keys:
                self.buckets[bucket].pop(unescape(key), None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        return GcsAnswer(200, {}, f'<DeleteResult xmlns="{_NAMESPACE}">{deleted}</DeleteResult>'.encode())

    def _holds(self, headers: Mapping[str, str], there: GcsObject | None) -> bool:
        match = headers.get("If-Match")
        if match is not None:
            return there is not None and there.headers["ETag"] == match
        return headers.get("If-None-Match") != "*" or there is None


_LIST = f'<ListBucketResult xmlns="{_NAMESPACE}">'.encode()
