"""Requests of signed URLs by the standard library, for what obstore cannot do. The text of such a URL is a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping

_CODE_BYTES_MAX = 4096  # of an error's body, which are read for its code


class ErrorStatus(Exception):
    """An HTTP response with an error status."""

    def __init__(self, status: int, code: str) -> None:
        self.status = status
        self.code = code


class NoResponse(Exception):
    """A request without a complete HTTP response."""

    def __init__(self, error: Exception) -> None:
        # What http.client finds wrong with a URL it quotes, signature and all.
        super().__init__(type(error).__name__ + (f": {error}" if isinstance(error, OSError) else ""))
        reason = getattr(error, "reason", error)
        self.timed_out = isinstance(reason, TimeoutError)


def send(
    method: str, url: str, headers: Mapping[str, str], timeout_s: float, authorities: str | None = None
) -> bytes:
    """Send one request and return the body of its response. Raises ErrorStatus and NoResponse.

    ``authorities`` is the file of the certificate authorities to trust. None: those that the system trusts.
    """
    import ssl
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    try:
        request = Request(url, method=method, headers=dict(headers))  # noqa: S310 - obstore or this package made it
        trust = None if authorities is None else ssl.create_default_context(cafile=authorities)
        with urlopen(request, timeout=timeout_s, context=trust) as response:  # noqa: S310
            return response.read()  # type: ignore[no-any-return]
    except HTTPError as error:
        with error:
            code = error.headers.get("x-ms-error-code") or _code_of(error)
        raise ErrorStatus(error.code, code) from None
    except (OSError, HTTPException) as error:
        raise NoResponse(error) from None


def _code_of(error: object) -> str:
    try:
        body = error.read(_CODE_BYTES_MAX)  # type: ignore[attr-defined]
    except OSError:
        return ""
    found = re.search(rb"<Code>([\w.]+)</Code>", body)
    return found[1].decode() if found else ""
