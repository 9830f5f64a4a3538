"""Whose requests to AWS these are, and where to: from the environment, as in a Lambda function."""

from __future__ import annotations

import functools
import os
from typing import Any

from ..errors import Rejected, Unavailable, pass_on_interruption
from .sigv4 import AwsCredentials

REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
ENDPOINT_VARIABLE = "AWS_ENDPOINT_URL"  # of all services; with _LAMBDA behind it of one

_NONE = (
    "there are no credentials of AWS: set AWS_ACCESS_KEY_ID and its kin, or run where there is a role and boto3,"
    " which finds it"
)


def region_of_environment() -> str:
    """The region that the environment names. Raises Rejected."""
    for name in REGION_VARIABLES:
        if os.environ.get(name):
            return os.environ[name]
    raise Rejected("AWS_REGION: nothing tells the region. Set this variable.", field="AWS_REGION")


def endpoint_of_environment(service: str) -> str | None:
    """Where a service is, if not at AWS."""
    for name in (f"{ENDPOINT_VARIABLE}_{service.upper()}", ENDPOINT_VARIABLE):
        if os.environ.get(name):
            return os.environ[name].rstrip("/")
    return None


def own_credentials() -> AwsCredentials | None:
    """Those of the environment, read for each request, as they change."""
    key_id, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not key_id or not secret:
        return None
    return AwsCredentials(key_id, secret, os.environ.get("AWS_SESSION_TOKEN", ""))


def found_credentials() -> AwsCredentials:
    """Those of the environment, else those of a profile or a role, as boto3 finds them. Raises Unavailable."""
    found = own_credentials()
    if found is not None:
        return found
    try:
        given = _session().get_credentials()
        frozen = None if given is None else given.get_frozen_credentials()
    except Exception as error:  # noqa: BLE001 - a provider may run any command, or call any service
        pass_on_interruption(error)
        raise Unavailable(f"the credentials of AWS cannot be had ({type(error).__name__})") from None
    if frozen is None:
        raise Unavailable(_NONE, permanent=True)
    return AwsCredentials(frozen.access_key, frozen.secret_key, frozen.token or "")


@functools.cache
def _session() -> Any:
    try:
        from botocore.session import get_session
    except ImportError:
        raise Unavailable(_NONE, permanent=True) from None
    return get_session()
