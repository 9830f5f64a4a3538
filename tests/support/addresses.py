"""Addresses of empty places in every kind of store, each one test's own. A server is started where one is needed."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

SHARED = ("file", "s3", "s3-express", "gs", "az", "valkey")  # that other processes can open


def address_in(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a place in a store of this kind."""
    given = request.getfixturevalue
    if kind == "valkey":
        own: str = given("valkey").address()
        return own
    if kind == "gs":
        bucket = given("gcs_bucket")
        return f"gs://{bucket}/some/prefix?endpoint={given('gcs').endpoint}"
    if kind == "az":
        return f"az://{given('azure_place')}?endpoint={given('azure_endpoint')}"
    if kind == "s3-express":
        return f"s3://{given('directory_bucket')}/some/prefix"
    if kind == "s3":
        bucket = given("light_bucket")
        return f"s3://{bucket}/some/prefix?endpoint={given('light_s3').endpoint}"
    if kind == "s3-express-archive":
        first, second = (address_in(each, request, tmp_path) for each in ("s3-express", "s3"))
        return f"{first}?archive={quote(second, safe='')}"
    if kind == "split":
        return f"memory://{tmp_path}/jobs?archive=memory://{tmp_path}/archive"
    return f"file://{tmp_path}/jobs" if kind == "file" else f"memory://{tmp_path}"
