"""Addresses of an API: what ``https://``, ``http://`` and ``lambda://`` mean.

====================================================  =====================================================
``https://id.execute-api.eu-west-1.amazonaws.com``      an HTTP API; calls are signed (AWS Signature Version 4)
``http://127.0.0.1:8787``                              the local stack; calls are not signed
``lambda://osqueue-dev``                               the functions themselves, invoked directly
====================================================  =====================================================

===========  =============================================================================================
``auth``     of http and https: ``iam`` signs with the usual credentials of AWS (the default of https), ``bearer``
             sends the token in OSQUEUE_TOKEN, ``none`` sends nothing (the default of http)
``region``   of https and lambda; else it is in the host's name, in AWS_REGION, or in the profile
``endpoint``  of lambda: a server of your own instead of AWS
``ca``       of https: a file in PEM of the authorities to trust, where the API's is none of those that all know
``cert``, ``key``  of https: files in PEM of the certificate that this caller shows, and of its key
===========  =============================================================================================

A path after the host is the stage, or wherever the API begins. All of them take ``latency_ms``, ``error_rate``,
``lost_reply_rate`` and ``seed``, as addresses of stores do.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from ...clock import MACHINE, Machine
from ...errors import Rejected
from ...stores.address import fault_options, read_options
from ...stores.faulty import FaultInjector
from .base import Transport, is_loopback
from .faulty import FaultyTransport, SlowTransport

AUTHS = ("iam", "bearer", "none")

_OPTIONS = {
    "http": ("auth", "region"),
    "https": ("auth", "region", "ca", "cert", "key"),
    "lambda": ("region", "endpoint"),
}
_HOST = re.compile(r"[A-Za-z0-9.-]+(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?")
_PATH = re.compile(r"[A-Za-z0-9$._~/-]*")
_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,50}")
_REGION = re.compile(r"[a-z0-9-]{1,40}")


def open_transport(address: str, machine: Machine = MACHINE) -> Transport:
    """The transport to the API at ``address``; nothing is sent yet. Raises Rejected with the field and the remedy."""
    # Nothing below repeats the address in a message: people paste credentials into them.
    scheme, _, rest = address.partition("://")
    scheme = scheme.lower()
    place, _, query = rest.partition("?")
    options = read_options(scheme, query, _OPTIONS[scheme])
    region = options.get("region")
    if region is not None and not _REGION.fullmatch(region):
        raise Rejected("region: write one like eu-west-1", field="region")
    if scheme == "lambda":
        transport = _invoking(place, region, options.get("endpoint"), machine)
    else:
        transport = _http(scheme, place, options, machine)
    error_rate, lost_reply_rate, latency_ms, seed = fault_options(options)
    if error_rate or lost_reply_rate:
        transport = FaultyTransport(
            transport, FaultInjector(error_rate, lost_reply_rate, seed, machine), machine
        )
    if latency_ms:  # around the faults: an error takes its time as well
        transport = SlowTransport(transport, latency_ms, machine)
    if machine is MACHINE:
        transport.opening = open_transport, (address,)
    return transport


def _http(scheme: str, place: str, options: dict[str, str], machine: Machine) -> Transport:
    from .credentials import AnonymousCredentials, BearerCredentials, SigV4Credentials
    from .http import HttpTransport, TlsFiles

    if "@" in place or "#" in place:
        raise Rejected(
            f"an {scheme} address holds no credentials: give them through the environment (AWS_ACCESS_KEY_ID, …, a"
            " role, or OSQUEUE_TOKEN with ?auth=bearer)",
            field="address",
        )
    host, _, path = place.partition("/")
    if not _HOST.fullmatch(host) or not _PATH.fullmatch(path) or not _has_port(host) or not _is_host(host):
        raise Rejected(
            f"an {scheme} address names a host, and the stage if there is one: {scheme}://host/stage",
            field="address",
        )
    wished = options.get("auth") or ("iam" if scheme == "https" else "none")
    if wished not in AUTHS:
        raise Rejected(f"auth must be one of {', '.join(AUTHS)}", field="auth")
    tls = TlsFiles(options.get("ca"), options.get("cert"), options.get("key"))
    tls.check()
    url = f"{scheme}://{host}/{path.strip('/')}".rstrip("/")
    if wished == "bearer":
        if scheme == "http" and not is_loopback(urlsplit(url).hostname or ""):
            raise Rejected(
                "auth=bearer would send its token in clear: use https:// with this host", field="auth"
            )
        return HttpTransport(url, BearerCredentials(), machine, tls)
    return HttpTransport(
        url,
        SigV4Credentials("execute-api", host, options.get("region"))
        if wished == "iam"
        else AnonymousCredentials(),
        machine,
        tls,
    )


def _is_host(host: str) -> bool:
    """What stands in brackets is an address of IPv6."""
    try:
        return bool(urlsplit(f"//{host}").hostname)
    except ValueError:
        return False


def _has_port(host: str) -> bool:
    """Is the port, if there is one, a port?"""
    _, colon, port = host.rpartition("]")[2].rpartition(":")
    return not colon or 0 < int(port) < 65_536


def _invoking(prefix: str, region: str | None, endpoint: str | None, machine: Machine) -> Transport:
    from .aws_lambda import LambdaTransport

    if not _PREFIX.fullmatch(prefix):
        raise Rejected(
            "a lambda address names what the functions' names begin with, and no more: lambda://osqueue-dev."
            " Credentials come from the environment (AWS_ACCESS_KEY_ID, …, or a role)",
            field="address",
        )
    if endpoint is not None and not (endpoint.startswith(("http://", "https://")) and "@" not in endpoint):
        raise Rejected("endpoint must start with http:// or https://, without credentials", field="endpoint")
    return LambdaTransport(prefix, region, endpoint, machine)
