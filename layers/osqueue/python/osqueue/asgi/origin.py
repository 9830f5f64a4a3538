"""Requests that a page of another site had a browser send are refused.

A server on loopback without tokens trusts whoever reaches it, and a browser reaches it for any page: by a form of that
page's (its ``Origin`` gives it away), or by a name of its own that it lets point here (its ``Host`` does).
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from starlette.types import Scope

from ..contract.error_codes import Forbidden

LOCAL_NAMES = ("localhost",)
_HOST = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")


def is_local(host: str) -> bool:
    """Does this host stand for the machine alone?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in LOCAL_NAMES


def header(scope: Scope, name: bytes) -> str:
    """A header of a request; "" where it has none."""
    for each, value in scope["headers"]:
        if each == name:
            text: str = value.decode("latin-1")
            return text
    return ""


def check_origin(scope: Scope, local_only: bool) -> None:
    """Raises Forbidden. ``local_only``: only names of this machine are names of this server."""
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    host = hosts[0] if hosts else ""
    found = _HOST.fullmatch(host)
    if len(hosts) > 1 or (host and found is None):
        raise Forbidden(
            "host: send one Host header, with a name or an address and at most a port.", permanent=True
        )
    if local_only and not (found and is_local(found["name"].strip("[]").lower())):
        raise Forbidden(
            "host: this server answers to 127.0.0.1 and localhost alone. Behind other names it needs --tokens.",
            permanent=True,
        )
    origin = header(scope, b"origin")
    if origin and urlsplit(origin).netloc != host:
        raise Forbidden("origin: pages of other sites may not call this server.", permanent=True)
