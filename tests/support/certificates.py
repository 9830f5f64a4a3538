"""An authority of a test's own, and the certificates that it signs. Keys live as long as the test's folder."""

from __future__ import annotations

import ssl
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"
BEGUN = datetime(2020, 1, 1)  # noqa: DTZ001 - certificates are in UTC and say so nowhere
OVER = BEGUN + timedelta(days=30)
LASTS = datetime(2100, 1, 1)  # noqa: DTZ001


class Authority:
    """Signs certificates of servers; ``bundle`` is the file that names it."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(f"the {name} of a test")
        own = _certificate(self._name, self._name, self._key.public_key(), LASTS)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.bundle = folder / f"{name}.pem"
        self.bundle.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def signed(self, host: str = HOST, until: datetime = LASTS) -> tuple[Path, Path]:
        """The files of a certificate and of its key, for a host or an address."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
        certificate = _certificate(_named("a server of a test"), self._name, key.public_key(), until)
        certificate = certificate.add_extension(x509.SubjectAlternativeName([name]), critical=False)
        files = self._folder / f"{host}-{until.year}.pem", self._folder / f"{host}-{until.year}.key"
        files[0].write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files


def served(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """What a server shows a certificate with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGUN)
        .not_valid_after(until)
    )
