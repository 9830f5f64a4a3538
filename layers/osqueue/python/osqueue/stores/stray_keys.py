"""Keys that obstore cannot name: with an empty part, a part "." or "..", or a control character.

The queue has no such key. Another program may have put one below the prefix. obstore then ends its listing there, and
refuses every request that names the key. A plain request lists such keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from shlex import quote
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, unquote_plus

from ..errors import NotSupported, OsqueueError, Unavailable
from .base import Delete, List, PassTurn, StoreRequest, TakeTurn

_REPORT = "Encountered object with invalid path"  # how obstore ends a listing
_NAMED = re.compile(
    r'Path "(.*?)"(?: contained empty path segment|: Encountered illegal character sequence)', re.DOTALL
)
_UNNAMEABLE = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)|[\x00-\x1f\x7f]")

C = TypeVar("C")  # call of a client


class ListedPage(NamedTuple):
    """One page of a listing: its keys, and the token of the next page, "" if there is none."""

    keys: list[str]
    token: str


def is_nameable(path: str) -> bool:
    """Return whether obstore takes a path as it is."""
    return _UNNAMEABLE.search(path.removesuffix("/")) is None


def keys_of(request: StoreRequest) -> tuple[str, ...]:
    """Return the keys that a request names. Listings and turns name none."""
    match request:
        case List() | TakeTurn() | PassTurn():
            return ()
        case Delete():
            return request.keys
        case _:
            return (request.key,)


def ended_a_listing(error: Exception) -> bool:
    """Return whether obstore's error reports a key that it cannot name."""
    return _REPORT in str(error)


def named_in(error: Exception) -> str:
    """Return the key that obstore's error names, "" if it names none."""
    found = _NAMED.search(str(error))
    return found[1] if found else ""


def not_listed(prefix: str, key: str, reason: OsqueueError, removal: str, bucket: str) -> Unavailable:
    """Return the error of a listing that ends at such a key, and that no other request continues."""
    return Unavailable(
        f"a listing below {prefix!r} ends at the key {key!r}, which is not the queue's."
        f" It cannot go on: {reason.message} Or remove that object:"
        f" {_command(removal, bucket, key)}",
        permanent=reason.permanent or isinstance(reason, NotSupported),
    )


def not_nameable(key: str, removal: str, bucket: str) -> Unavailable:
    """Return the error of a request for such a key."""
    return Unavailable(
        f"{key!r} is not a key of the queue's: it has an empty part, a part '.' or '..', or a control character."
        f" Remedy: remove that object: {_command(removal, bucket, key)}",
        permanent=True,
    )


def _command(removal: str, bucket: str, key: str) -> str:
    """Return the command line that deletes an object. ``removal`` has places for the words of a shell."""
    return removal.format(bucket=quote(bucket), key=quote(key), place=quote(f"{bucket}/{key}"))


def keys_after(
    after: str, most: int, page_at: Callable[[str], Generator[C, Any, ListedPage]]
) -> Generator[C, Any, list[str]]:
    """Return the keys behind ``after``, page by page: more than ``most`` if there are more."""
    keys: list[str] = []
    token = ""
    while True:
        page = yield from page_at(token)
        keys += [key for key in page.keys if key > after]
        token = page.token
        if not token or len(keys) > most:
            return keys


def listing_query(prefix: str, after: str, token: str) -> dict[str, str]:
    """Return the query of a listing in the API of S3, which GCS has as well."""
    query = {"list-type": "2", "prefix": prefix}
    if token:
        query["continuation-token"] = token
    elif after:
        query["start-after"] = after
    return query


def page_in(body: bytes) -> ListedPage:
    """Return what a listing of S3, GCS or Azure contains. Raises ValueError if the body is not a listing."""
    from xml.etree import ElementTree  # here, because most listings need no second request

    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - the store's own response
    except ElementTree.ParseError as error:
        raise ValueError(f"the listing is not XML: {error}") from None
    keys: list[str] = []
    token = ""
    encoded = False
    for element in root.iter():
        kind = element.tag.rpartition("}")[2]
        if kind in ("Contents", "Blob"):
            keys += [_key(child) for child in element if child.tag.rpartition("}")[2] in ("Key", "Name")]
        elif kind in ("NextContinuationToken", "NextMarker"):
            token = element.text or ""
        elif kind == "EncodingType":  # of S3, for names that XML cannot hold
            encoded = element.text == "url"
    return ListedPage([unquote_plus(key) for key in keys] if encoded else keys, token)


def _key(element: object) -> str:
    text: str = element.text or ""  # type: ignore[attr-defined]
    # Azure encodes names that XML cannot hold.
    return unquote(text) if element.get("Encoded") == "true" else text  # type: ignore[attr-defined]
