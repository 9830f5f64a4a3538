"""Addresses that hold a secret, at each place where an address can hold one."""

from __future__ import annotations

from urllib.parse import quote

PLAIN = "SeKr1T"
TAIL = "qZ7xWv"
SECRET = f"{PLAIN}/%+{TAIL}"  # its escaped forms differ
PART_CHARS = 3  # of a secret; each such part has letters of both cases, as no random id of a job has
_ESCAPED = quote(SECRET, safe="")
_HOST = "127.0.0.1:1"  # nothing listens there
_INNER = (
    f"valkey://:{_ESCAPED}@{_HOST}/0/a",
    f"s3://b/p?secret_access_key={PLAIN}",
    f"https://u:{PLAIN}@{_HOST}",
    f"az://c?sig={PLAIN}",
)
ADDRESSES = (
    f"valkey://{PLAIN}:x@{_HOST}/0/p",
    f"valkey://u:{_ESCAPED}@{_HOST}/0/p",
    f"valkey://u:{SECRET}@{_HOST}/0/p",
    f"valkey://u:{PLAIN}?x=1@{_HOST}/0/p",
    f"valkey://u:pw?{PLAIN}@{_HOST}/0/p",
    f"valkey://u:pw?{PLAIN}=1@{_HOST}/0/p",
    f"valkey://u%3A{_ESCAPED}%40{_HOST}/0/p",
    f"valkey://u:{PLAIN}@ho st/0",
    f"valkey://u:{PLAIN}@{_HOST}/0/p?password={PLAIN}",
    f"VALKEY://:{PLAIN}@127.0.0.1:99999/0",
    f"redis://:{PLAIN}@{_HOST}/0/p?replicas=99",
    f"rediss://:{PLAIN}@{_HOST}/0/p#{PLAIN}",
    f"valkeyx://:{PLAIN}@{_HOST}",
    f"u:{PLAIN}@{_HOST}",
    f"valkey://{PLAIN}#x@h/0",
    f"valkey://user:123#{PLAIN}@h",
    f"s3://AKIA:123/{PLAIN}@bucket/p",
    f"s3://k:{PLAIN}@bucket/p",
    f"s3://b/p?secret_access_key={PLAIN}",
    f"s3://b/p?{PLAIN}",
    f"s3://b/p?endpoint=http://u:{PLAIN}@{_HOST}",
    f"s3://b/p?endpoint={quote(f'http://u:{PLAIN}@{_HOST}', safe='')}",
    f"s3://b/p?X-Amz-Signature={PLAIN}&X-Amz-Security-Token={PLAIN}",
    f"gs://b/p?token={PLAIN}",
    f"gs://u:{PLAIN}@b/p",
    f"az://c/p?sig={PLAIN}&sv=1",
    f"az://c/p?connection_string={PLAIN}",
    f"https://u:{PLAIN}@{_HOST}/prod",
    f"http://{_HOST}?auth=bearer&token={PLAIN}",
    f"http://{_HOST}?auth={PLAIN}",
    f"http://{_HOST}/prod#{PLAIN}",
    f"lambda://u:{PLAIN}@osqueue?endpoint=http://u:{PLAIN}@{_HOST}",
    f"file://u:{PLAIN}@x/p",
    f"file://x?password={PLAIN}",
    f"memory://?token={PLAIN}",
    *(f"file://x?archive={each}" for each in _INNER),
    *(f"file://x?archive={quote(each, safe='')}" for each in _INNER),
    f"file://x?archive={quote(quote(_INNER[0], safe=''), safe='')}",
    f"valkey://:{PLAIN}@{_HOST}/0?archive={quote(_INNER[0], safe='')}",
)

# A text does not show where these end. A command line and a caller that holds the address do.
QUOTED = (
    *(f"valkey://:{PLAIN}{mark}{TAIL}@{_HOST}/0/x" for mark in "'\" </#@%+`"),
    f"valkey://:{PLAIN}'\"{TAIL}@{_HOST}/0/x",
    f"valkey://user:123'{TAIL}@{_HOST}/0/x",
)


def leaks(text: str) -> bool:
    """Return whether a text holds the secret, escaped or not, or a part of it."""
    parts = (each[at : at + PART_CHARS] for each in (PLAIN, TAIL) for at in range(len(each) - PART_CHARS + 1))
    return any(each.lower() in text.lower() for each in (PLAIN, TAIL)) or any(each in text for each in parts)
