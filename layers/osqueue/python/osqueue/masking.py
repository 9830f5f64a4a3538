"""Addresses without their secrets: every text that leaves the process names an address by ``printable``.

An address may hold a password (``valkey://user:password@host``), a signature or a token (``?sig=…``), and other
addresses (``archive=``, ``endpoint=``). What is not known to be harmless is masked.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

MASK = "***"
DEPTH_MAX = 2  # of addresses within an address
_FOLDERS = ("file", "memory")
_BUCKETS = ("s3", "gs", "az")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}")
_PLACE = re.compile(r"[A-Za-z0-9._-]+(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?")
_NUMBER = r"[0-9][0-9.e-]{0,20}"
# What each harmless option may hold. A value of another form is masked: it may stand in the wrong place.
_HARMLESS = {
    "addressing": "path|virtual",
    "auth": "iam|bearer|none",
    "connect_timeout": _NUMBER,
    "error_rate": _NUMBER,
    "etag": "bare|quoted",
    "fsync": "on|off",
    "latency_ms": _NUMBER,
    "lost_reply_rate": _NUMBER,
    "network": "allow|refuse",
    "region": "[A-Za-z0-9._-]{1,64}",
    "replicas": "[0-9]{1,2}",
    "request_timeout": _NUMBER,
    "seed": "[0-9]{1,20}",
}
_ADDRESSES = ("archive", "endpoint")  # options whose value is an address itself
_PLAIN = ":/@*[]"  # what stays as it is in an address within an address
# An e-mail address behind a word that announces one. Behind other words it may be a user, a password and a host.
_MAIL = re.compile(
    r"(?:to|from|cc|bcc|mailto|e-?mail|reply-to|sender):[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.IGNORECASE
)
_IN_TEXT = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]{0,30}(?:://|%3A%2F%2F)[^\s\"'<>`]+"
    r"|[^\s\"'<>`@:/(\[]{0,64}:[^\s\"'<>`@]{1,256}@[^\s\"'<>`]+",  # user:password@host alone
    re.IGNORECASE,
)
_MARKS_BEHIND = ".,;:!)"


def printable(address: str, *, options: bool = True) -> str:
    """Return an address as logs, pages and errors may show it. ``options``: whether its options are shown.

    User and password, the values of options that may be secret, and fragments are masked. Only the scheme of an
    address that cannot be parsed is returned.

    >>> printable("valkey://user:secret@host:6379/0/jobs?replicas=1&token=secret")
    'valkey://***@host:6379/0/jobs?replicas=1&token=***'
    """
    return _printable(address, options, DEPTH_MAX)


def without_secrets(text: str) -> str:
    """Return a text with every address in it made printable.

    >>> without_secrets("cannot reach redis://:secret@host/0, try again")
    'cannot reach redis://***@host/0, try again'
    """
    return _IN_TEXT.sub(_replaced, text) if any(each in text for each in ("://", "%3", "@")) else text


def _replaced(match: re.Match[str]) -> str:
    found = match[0]
    address = found.rstrip(_MARKS_BEHIND)
    if _MAIL.fullmatch(address):
        return found
    return printable(address if "://" in address else unquote(address)) + found[len(address) :]


def _printable(address: str, options: bool, depth: int) -> str:
    scheme, separator, rest = address.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        return MASK
    rest, mark, fragment = rest.partition("#")
    if "@" in fragment:  # a password that holds an unescaped #
        return f"{scheme}://{MASK}"
    place, query_mark, query = rest.partition("?")
    shown = _place(scheme.lower(), place, query)
    if shown is None:
        return f"{scheme}://{MASK}"
    if query_mark and options:
        shown += "?" + "&".join(_option(each, depth) for each in query.split("&"))
    return f"{scheme}://{shown}{'#' + MASK if mark and options else ''}"


def _place(scheme: str, place: str, query: str) -> str | None:
    """Return what stands between scheme and options without user and password; None if that cannot be parsed."""
    authority, slash, path = place.partition("/")
    _, at, server = authority.rpartition("@")
    if scheme not in _FOLDERS and not _PLACE.fullmatch(server):
        return None
    if scheme not in (*_FOLDERS, *_BUCKETS) and ("@" in path or _has_stray_at(query)):
        return None  # a password that holds an unescaped / or ?
    if scheme in _BUCKETS and ":" in authority and "@" in path:
        return None  # a secret that holds an unescaped /
    if not (server + path).isprintable():
        return None
    return f"{MASK if at else ''}{at}{server}{slash}{path}"


def _has_stray_at(query: str) -> bool:
    return any("@" in each and each.partition("=")[0] not in _ADDRESSES for each in query.split("&"))


def _option(text: str, depth: int) -> str:
    name, mark, value = text.partition("=")
    if not mark or not re.fullmatch(r"[a-z][a-z_]{0,30}", name):
        return MASK
    if name in _ADDRESSES and depth:
        return f"{name}={quote(_printable(unquote(value), True, depth - 1), safe=_PLAIN)}"
    if name in _HARMLESS and re.fullmatch(_HARMLESS[name], value):
        return text
    return f"{name}={MASK}"
