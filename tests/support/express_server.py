"""S3 Express One Zone on this machine: what a directory bucket does otherwise, in front of the S3 test server.

Clients reach a directory bucket at a host of its own, over TLS, and so they do here: ``HTTPS_PROXY`` leads them to this
server, which is the host at the other end as well, with a certificate that ``SSL_CERT_FILE`` makes them trust. Stores
are opened as at AWS.

A listing is in no order, here in that of the keys' hashes; its prefix ends in a slash, and it begins nowhere but at the
beginning. Every request but CreateSession needs the token of a session.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.support.s3_relay import Relay, relaying

ZONE = "use1-az4"
REGION = "us-east-1"
SUFFIX = f"--{ZONE}--x-s3"
HOSTS = f"s3express-{ZONE}.{REGION}.amazonaws.com"
PAGE_KEYS = 7  # a page may be shorter than what was asked for: walks have several, without many objects
TOKEN = "token-of-a-session"
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_SESSION = (
    f'<CreateSessionResult xmlns="{_NAMESPACE}"><Credentials><SessionToken>{TOKEN}</SessionToken>'
    "<SecretAccessKey>secret</SecretAccessKey><AccessKeyId>session</AccessKeyId>"
    "<Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></CreateSessionResult>"
)


class DirectoryBucket(Relay):
    """The proxy, and behind it the host of every directory bucket of the zone."""

    tls: ssl.SSLContext
    bucket = ""

    def do_CONNECT(self) -> None:  # noqa: N802
        host = self.path.partition(":")[0]
        if not host.endswith("." + HOSTS):  # a client on its way out of this machine
            return self.send_error(403)
        self.bucket = host.removesuffix("." + HOSTS)
        self.send_response(200)
        self.end_headers()
        self.close_connection = False
        with contextlib.suppress(OSError):  # whoever does not trust us leaves
            self.connection = self.request = self.tls.wrap_socket(self.connection, server_side=True)
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb", buffering=0)
            return None
        self.close_connection = True

    def handle_any(self) -> None:
        body = self.body()
        path, _, text = self.path.partition("?")
        query = {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}
        if "session" in query:
            return self.tell(200, _SESSION.encode())
        if self.headers.get("x-amz-s3session-token") != TOKEN:
            return self.refuse(403, "AccessDenied")
        if self.command == "GET" and path == "/":
            return self.list(query)
        return self.relay(self.command, f"/{self.bucket}{self.path}", dict(self.headers.items()), body)

    def list(self, query: dict[str, str]) -> None:
        prefix = query.get("prefix", "")
        if query.get("list-type") != "2" or "start-after" in query or query.get("delimiter", "/") != "/":
            return self.refuse(501, "NotImplemented")
        if prefix and not prefix.endswith("/"):
            return self.refuse(400, "InvalidRequest")
        after, most = (
            query.get("continuation-token", ""),
            min(int(query.get("max-keys", PAGE_KEYS)), PAGE_KEYS),
        )
        found = sorted((hashed(key), key) for key in self.keys(prefix))
        found = [each for each in found if each[0] > after]
        page = found[:most]
        more = f"<NextContinuationToken>{page[-1][0]}</NextContinuationToken>" if found[most:] else ""
        rows = "".join(
            f"<Contents><Key>{spelled(key, query)}</Key><LastModified>2026-01-01T00:00:00Z</LastModified>"
            '<ETag>"0"</ETag><Size>1</Size></Contents>'
            for _, key in page
        )
        encoding = "<EncodingType>url</EncodingType>" if "encoding-type" in query else ""
        self.tell(
            200,
            f'<ListBucketResult xmlns="{_NAMESPACE}"><IsTruncated>{str(bool(more)).lower()}</IsTruncated>{more}'
            f"{encoding}{rows}</ListBucketResult>".encode(),
        )

    def keys(self, prefix: str) -> Iterator[str]:
        after = ""
        while True:
            asked = f"/{self.bucket}?list-type=2&prefix={quote(prefix)}&start-after={quote(after)}"
            content = self.ask("GET", asked, {})[2]
            page = [each.text or "" for each in ElementTree.fromstring(content).iter(f"{{{_NAMESPACE}}}Key")]  # noqa: S314
            if not page:
                return
            yield from page
            after = page[-1]

    def refuse(self, status: int, code: str) -> None:
        self.tell(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())


def hashed(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def spelled(key: str, query: dict[str, str]) -> str:
    return quote(key) if query.get("encoding-type") == "url" else escape(key)


@contextlib.contextmanager
def express_server(endpoint: str, folder: Path) -> Iterator[dict[str, str]]:
    """Directory buckets in front of an S3 server: the environment in which clients find them."""
    certificate, key = write_certificate(folder)
    own = {"behind": endpoint, "tls": context_of(certificate, key)}
    kind = type("ThisDirectoryBucket", (DirectoryBucket,), own)
    with relaying(kind) as proxy:
        yield {
            **dict.fromkeys(("HTTPS_PROXY", "https_proxy"), proxy),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), urlsplit(endpoint).hostname or ""),
            **dict.fromkeys(("SSL_CERT_FILE", "AWS_CA_BUNDLE"), str(certificate)),
        }


def context_of(certificate: Path, key: Path) -> ssl.SSLContext:
    """A server's side of TLS with a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate that nobody else trusts, for all directory buckets of the zone, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "directory buckets of a test")])
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(begin - datetime.timedelta(3650))
        .not_valid_after(begin + datetime.timedelta(36500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("*." + HOSTS)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return certificate, secret
