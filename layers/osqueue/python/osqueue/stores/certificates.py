"""Certificates of servers: the file of authorities that an address names, and what a refused certificate means.

Every client has words of its own for a certificate that it does not accept, and none says what to do.
"""

from __future__ import annotations

import re

from ..errors import Rejected

CA_OPTION = "?ca=/path/to/bundle.pem"
CA_VARIABLE = "SSL_CERT_FILE=/path/to/bundle.pem"  # for clients that trust what the system trusts

# What rustls says (obstore), what OpenSSL and urllib3 say (boto3, valkey).
_REFUSED = re.compile(
    r"InvalidCertificate\(|invalid peer certificate|CERTIFICATE_VERIFY_FAILED"
    r"|[Hh]ostname '.*' doesn't match|IP address '.*' doesn't match"
)
_REASONS = (  # the first that is found
    (
        re.compile(r"Expired|has expired|NotValidYet|not yet valid"),
        "has expired or is not valid yet",
        "renew it at the server, and look at the clocks; if the authority's has expired, name the new one with {trust}",
    ),
    (
        re.compile(r"NotValidForName|not valid for|mismatch|doesn't match"),
        "is for another host",
        "name the server as its certificate does ({trust} names authorities, and no hosts)",
    ),
    (
        re.compile(r"UnknownIssuer|issuer certificate|self.signed|CaUsedAsEndEntity"),
        "is from an authority that is not trusted here",
        "name the authority's certificate with {trust}",
    ),
    (
        re.compile(""),
        "is not accepted",
        "look at it with `openssl s_client`, and name its authority's with {trust}",
    ),
)


def certificate_refused(text: str, trust: str) -> str:
    """What happened and what to do, if a client's text says that a certificate is refused; else nothing.

    ``trust``: how an authority is named to that client.
    """
    said = _REFUSED.search(text)
    if said is None:
        return ""
    about = text[said.start() :]  # before it stands what was asked, with a key that may say anything
    what, remedy = next((what, remedy) for sign, what, remedy in _REASONS if sign.search(about))
    return f"the server's certificate {what}. Remedy: {remedy.format(trust=trust)}."


def authorities_in(options: dict[str, str], *, tls: bool) -> str | None:
    """The file of authorities that an address names with ``ca``. Raises Rejected, unless it is one."""
    path = options.get("ca")
    if path is None:
        return None
    if not tls:
        raise Rejected("ca is for servers with TLS, and this address has none", field="ca")
    import ssl  # here, because only such addresses need it

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except (OSError, ValueError):
        raise Rejected(
            "ca must be a file that this process can read, with certificates in PEM (BEGIN CERTIFICATE)",
            field="ca",
        ) from None
    return path
