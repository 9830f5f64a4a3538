"""How calls over HTTP say who makes them: signed, with a bearer token, or not at all.

Credentials are read for every call, so refreshed ones are used, and looked up again once they were refused. No address
and no message contains any.
"""

from __future__ import annotations

import os
import re
from typing import Any, Protocol

from ... import forks
from ...errors import NotInstalled, Rejected, Unavailable, pass_on_interruption

TOKEN_VARIABLE = "OSQUEUE_TOKEN"  # noqa: S105 - the name of the variable that holds it
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
NO_CREDENTIALS = (
    "this address needs credentials of AWS and there are none: set AWS_ACCESS_KEY_ID and its kin or AWS_PROFILE, run"
    " where there is a role"
)

_HOST_REGION = re.compile(r"\.execute-api\.([a-z0-9-]+)\.amazonaws\.com")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


class Credentials(Protocol):
    """How a transport over HTTP says who calls."""

    def headers(self, method: str, url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """The headers to send. Raises Unavailable when there are no credentials, Rejected when nobody said which."""
        ...

    def refused(self) -> None:
        """The API did not accept them: somebody may put them right meanwhile."""
        return


class AnonymousCredentials(Credentials):
    """Calls that anybody may make."""

    def headers(self, method: str, url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """As they are."""
        return headers


class BearerCredentials(Credentials):
    """A token for an API with a JWT authorizer."""

    def headers(self, method: str, url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """With the token of the environment."""
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        if not _TOKEN.fullmatch(token):
            raise Rejected(
                f"auth=bearer: put the token into the environment as {TOKEN_VARIABLE}", field=TOKEN_VARIABLE
            )
        return {**headers, "authorization": f"Bearer {token}"}


class SigV4Credentials(Credentials):
    """AWS Signature Version 4, with the credentials that boto3 would use."""

    def __init__(self, service: str, host: str, region: str | None) -> None:
        self._service = service
        self._region = region or region_in(host)
        self._lock = forks.lock()
        self._session: Any = None

    def headers(self, method: str, url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """With the signature."""
        try:
            from botocore.auth import SigV4Auth
            from botocore.awsrequest import AWSRequest
        except ImportError:
            raise not_installed("signed calls (auth=iam)", "botocore") from None
        session = self._opened()
        frozen = frozen_of(session)
        if frozen is None:
            raise Unavailable(f"{NO_CREDENTIALS}, or write ?auth=none or ?auth=bearer", permanent=True)
        request = AWSRequest(method=method, url=url, headers=headers, data=body)
        SigV4Auth(frozen, self._service, self._region or _region_of(session)).add_auth(request)
        return dict(request.headers.items())

    def refused(self) -> None:
        """A session keeps what it once found in a profile, so the next call opens another."""
        with self._lock:
            self._session = None

    def _opened(self) -> Any:
        with self._lock:
            if self._session is None:
                import botocore.session

                self._session = botocore.session.get_session()
            return self._session


def frozen_of(session: Any) -> Any:
    """The credentials of a session as they are now; None where there are none. Raises Unavailable."""
    try:
        credentials = session.get_credentials()
        return None if credentials is None else credentials.get_frozen_credentials()
    except Exception as error:  # noqa: BLE001 - a provider may run any command, or call any service
        raise credentials_unavailable(error) from None


def credentials_unavailable(error: Exception) -> Unavailable:
    """The error for credentials that a provider failed to bring."""
    pass_on_interruption(error)
    from botocore import exceptions as of

    return Unavailable(
        f"the credentials of AWS cannot be had ({type(error).__name__}): check AWS_PROFILE and its like, or the role",
        permanent=not isinstance(error, of.HTTPClientError | of.ConnectionError),
    )


def region_in(host: str) -> str | None:
    """The region in a host's name."""
    found = _HOST_REGION.search(host)
    return None if found is None else found[1]


def _region_of(session: Any) -> str:
    """The region of the environment."""
    for name in REGION_VARIABLES:
        if os.environ.get(name):
            return os.environ[name]
    found = session.get_config_variable("region")
    if not found:
        raise Rejected(
            "the address does not tell the region: write ?region=eu-west-1, or set AWS_REGION", field="region"
        )
    return str(found)


def not_installed(what: str, package: str) -> NotInstalled:
    """The error for a package that is missing."""
    return NotInstalled(f"{what} need the package {package}: pip install 'osqueue[http]'", field="address")
