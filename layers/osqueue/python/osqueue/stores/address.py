"""Addresses: one string names a store and how it is to behave.

====================================================  =====================================================
``memory://``                                          a new store in this process's memory
``memory://name``                                      the one of that name, the same for the whole process
``file:///var/lib/jobs``, ``file://relative/path``     a folder; ``fsync=off`` skips flushes, ``network=allow``
                                                       takes one on a network file system
``s3://bucket/prefix``                                 S3; ``endpoint=…``, ``region=…``, else the environment;
                                                       other options for servers that want them
``gs://bucket/prefix``                                 Google Cloud Storage; ``endpoint=…``
``az://container/prefix``                              Azure Blob Storage, in the account that the environment
                                                       names; ``endpoint=…``
``valkey://user:password@host:6379/0/prefix``          a Valkey or Redis server; also ``redis://``, with TLS
                                                       ``valkeys://`` and ``rediss://``; ``replicas=…`` waits for some
====================================================  =====================================================

Every address also takes ``archive``, the address of another store, for finished jobs and the copies of heads (see
``split``): ``s3://jobs--use1-az4--x-s3/prod?archive=s3://jobs-archive/prod``. One with options of its own is written
percent-encoded: ``archive=s3%3A%2F%2Fjobs-archive%2Fprod%3Fregion%3Dus-east-1``.

And ``latency_ms``, ``error_rate``, ``lost_reply_rate`` and ``seed``, for tests and benchmarks, of this store alone:
``memory://?latency_ms=30&error_rate=0.01``. Paths are taken as they are, without %-decoding, but in ``archive``.

``https://``, ``http://`` and ``lambda://`` name an API, not a store: see ``osqueue.client.transports.address``.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from ..clock import MACHINE, Machine
from ..errors import NotSupported, Rejected
from .base import Store
from .counting import CountingStore
from .faulty import FaultyStore, SlowStore

if TYPE_CHECKING:
    from .s3_place import S3Options
    from .split import SplitStore

LATENCY_MS_MAX = 60_000.0
CONNECT_TIMEOUTS_S = (0.1, 60.0)  # the shortest and the longest
REQUEST_TIMEOUTS_S = (1.0, 300.0)
VALKEY = ("valkey", "redis", "valkeys", "rediss")  # the latter two over TLS

ARCHIVE = "archive"
FAULT_OPTIONS = ("latency_ms", "error_rate", "lost_reply_rate", "seed")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "memory": (),
    "file": ("fsync", "network"),
    "s3": ("endpoint", "region", "addressing", "ca", "connect_timeout", "request_timeout", "kms", "etag"),
    "gs": ("endpoint",),
    "az": ("endpoint",),
    **dict.fromkeys(VALKEY, ("replicas", "ca")),
}
_OTHER_NAMES = {"gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az", "wasb": "az", "wasbs": "az"}


class _Cloud(NamedTuple):
    """What messages call a store that is a bucket in a cloud."""

    name: str
    holder: str
    example: str
    variable: str  # of the environment, for credentials


_CLOUDS = {
    "s3": _Cloud("S3", "bucket", "s3://bucket/prefix", "AWS_ACCESS_KEY_ID"),
    "gs": _Cloud("Google Cloud Storage", "bucket", "gs://bucket/prefix", "GOOGLE_APPLICATION_CREDENTIALS"),
    "az": _Cloud("Azure", "container", "az://container/prefix", "AZURE_STORAGE_ACCOUNT_NAME"),
}
_PLAIN = ":/"  # what stays as it is in archive=
REMOTE = ("http", "https", "lambda")  # an API in front of a store
_OPTION_NAME = re.compile(r"[a-z][a-z_]{0,30}")
_REGION = re.compile(r"[A-Za-z0-9._-]{0,64}")  # empty: as if it were absent
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_HOST_AND_PORT = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}(?![^/?])")
_EXAMPLES = (
    "file:///var/lib/jobs, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, "
    "memory:// (one process, for tests)"
)


def is_remote(address: object) -> bool:
    """Does an address name an API, and not a store?"""
    return isinstance(address, str) and "://" in address and address.partition("://")[0].lower() in REMOTE


def open_store(address: str, machine: Machine = MACHINE) -> CountingStore:
    """The store at ``address``; its ``requests`` counts what is asked of it.

    Raises ``Rejected`` (with the field and the remedy) for an address that means nothing, and
    ``NotSupported`` for a kind of store that this release does not have.

    >>> store = open_store("memory://?latency_ms=1")
    >>> store.requests
    {'get': 0, 'put': 0, 'list': 0, 'delete': 0}
    """
    if not isinstance(address, str):
        raise Rejected(f"an address is text, like {_EXAMPLES}", field="address")
    # Nothing below repeats the address in a message: people paste credentials into them.
    scheme, separator, rest = address.partition("://")
    scheme = scheme.lower()
    if not separator and _HOST_AND_PORT.match(address):
        raise Rejected(
            "the address names no kind of store, but a host and a port: write http://HOST:PORT for the API there",
            field="address",
        )
    if not separator and address.startswith(("/", "./", "../", "~")):
        raise Rejected(
            "the address is a path: put file:// in front of an absolute one, as in file:///var/lib/jobs",
            field="address",
        )
    if not separator:
        raise Rejected(f"the address names no kind of store; write one like {_EXAMPLES}", field="address")
    if scheme in REMOTE:
        raise NotSupported(
            f"{scheme}:// is an API, which keeps the store's objects to itself: queues work over it, and this needs"
            f" the store. Give the store's own address, such as {_EXAMPLES}",
            field="address",
        )
    if scheme in _OTHER_NAMES:
        own = _OTHER_NAMES[scheme]
        raise Rejected(f"write {_CLOUDS[own].example} in the place of {scheme}://", field="address")
    if scheme not in _OPTIONS:
        raise Rejected(f"the address has an unknown scheme; use one of {_EXAMPLES}", field="address")
    if (control := _CONTROL.search(address)) is not None:
        end = " at its end" if control.end() == len(address) else ""
        raise Rejected(
            f"the address has a line break or another control character{end}: remove it", field="address"
        )
    place, _, query = rest.partition("?")
    options = read_options(scheme, query, (*_OPTIONS[scheme], ARCHIVE))
    store = _with_faults(_open(scheme, place, options, machine), options, machine)
    if ARCHIVE in options:
        store = _split(store, archive_of(address) or "", machine)
    counting = CountingStore(store)
    if scheme != "memory" and machine is MACHINE:
        counting.opening = open_store, (anywhere(address),)
    return counting


# ── A store for the archive ──────────────────────────────────────────────────
def archive_of(address: str) -> str | None:
    """The address of the store that an address gives its archive; None: it has none of its own. Raises Rejected."""
    found = [value for name, value in _given(address) if name == ARCHIVE]
    if not found:
        return None
    if "?" in found[0]:
        raise Rejected(
            "archive: the address in it has options of its own: write it percent-encoded, with %3F for its ? and"
            " %26 for each &, as in archive=s3%3A%2F%2Fbucket%2Fprefix%3Fregion%3Dus-east-1",
            field=ARCHIVE,
        )
    return unquote(found[0])  # a + is one: this is a path


def anywhere(address: str) -> str:
    """The address as it can be used from any folder: relative paths become absolute, that of an archive as well."""
    base, _, query = address.partition("?")
    scheme, separator, place = base.partition("://")
    if separator and scheme.lower() == "file" and place:
        base = f"file://{os.path.abspath(place)}"
    archive = archive_of(address)
    if archive is None:
        return f"{base}?{query}" if query else base
    parts = (each for each in query.split("&") if unquote(each.partition("=")[0]) != ARCHIVE)
    return f"{base}?{'&'.join([*parts, f'{ARCHIVE}={quote(anywhere(archive), safe=_PLAIN)}'])}"


def _given(address: str) -> list[tuple[str, str]]:
    """The options of an address, with their values as they are written."""
    parts = (each.partition("=") for each in address.partition("?")[2].split("&"))
    return [(unquote(name), value) for name, _, value in parts]


def _split(store: Store, address: str, machine: Machine) -> SplitStore:
    from .split import SplitStore

    if is_remote(address):
        raise Rejected(
            "archive: it is the address of an API, and this needs a store: give its own address, such as"
            f" {_EXAMPLES}",
            field=ARCHIVE,
        )
    if archive_of(address) is not None:
        raise Rejected(
            "archive: the address in it has an archive= itself, and there are two places at most: leave that out",
            field=ARCHIVE,
        )
    try:
        second = open_store(address, machine)
    except Rejected as error:
        raise type(error)(f"archive: {error.message}", field=ARCHIVE) from None
    if second.place == store.place:
        raise Rejected(
            "archive: it names the place that the address itself names: give another bucket, prefix or folder, or"
            " leave archive= out",
            field=ARCHIVE,
        )
    return SplitStore(store, second)


def _open(scheme: str, place: str, options: dict[str, str], machine: Machine) -> Store:
    if scheme == "memory":
        from .memory import MemoryStore, named

        return named(place, machine) if place else MemoryStore(machine)
    if scheme == "file":
        from .file import FileStore

        if not place:
            raise Rejected(
                "a file address names a folder: file:///var/lib/jobs or file://jobs", field="address"
            )
        if re.match(r"[^/]*:[^/]*@", place):
            raise Rejected(
                "a file address holds no user and no password: file:///var/lib/jobs", field="address"
            )
        fsync = _choice(options, "fsync", "on", "off") == "on"
        network = _choice(options, "network", "refuse", "allow") == "allow"
        return FileStore(place, fsync, machine, network=network)
    if scheme in VALKEY:
        from .valkey import ValkeyStore
        from .valkey_place import place_in

        return ValkeyStore(place_in(scheme, place, options), machine)
    cloud = _CLOUDS[scheme]
    bucket, _, prefix = place.partition("/")
    _check_bucket(bucket, cloud)
    prefix = prefix.strip("/")
    _check_prefix(prefix)
    endpoint = options.get("endpoint")
    if endpoint is not None:
        _check_endpoint(endpoint, cloud)
    if scheme == "gs":
        from .gcs import GcsStore

        return GcsStore(bucket, prefix, endpoint)
    if scheme == "az":
        from .azure import AzureStore

        return AzureStore(bucket, prefix, endpoint)
    from .s3 import S3Store

    return S3Store(bucket, prefix, endpoint, options.get("region"), _s3_options(options))


def _s3_options(options: dict[str, str]) -> S3Options:
    from .certificates import authorities_in
    from .faults import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Timeouts
    from .s3_place import S3Options

    addressing = _choice(options, "addressing", "path", "virtual") if "addressing" in options else None
    timeouts = Timeouts(
        _seconds(options, "connect_timeout", CONNECT_TIMEOUTS_S, CONNECT_TIMEOUT_S),
        _seconds(options, "request_timeout", REQUEST_TIMEOUTS_S, REQUEST_TIMEOUT_S),
    )
    kms = options.get("kms")
    if kms is not None and not re.fullmatch(r"[A-Za-z0-9:/_.+=@-]{1,2048}", kms):
        raise Rejected("kms must name a key of KMS: its ARN, its id or an alias", field="kms")
    if not _REGION.fullmatch(options.get("region", "us-east-1")):
        raise Rejected("region: write one like eu-west-1", field="region")
    tls = not options.get("endpoint", "").startswith("http://")
    bare = _choice(options, "etag", "quoted", "bare") == "bare"
    return S3Options(addressing, authorities_in(options, tls=tls), timeouts, kms, bare)


def _with_faults(store: Store, options: dict[str, str], machine: Machine) -> Store:
    error_rate, lost_reply_rate, latency_ms, seed = fault_options(options)
    if error_rate or lost_reply_rate:
        store = FaultyStore(store, error_rate, lost_reply_rate, seed, machine)
    if latency_ms:  # around the faults: an error takes its time as well
        store = SlowStore(store, latency_ms, machine)
    return store


def fault_options(options: dict[str, str]) -> tuple[float, float, float, int | None]:
    """What an address asks for: error_rate, lost_reply_rate, latency_ms and seed. Raises Rejected."""
    return (
        _number(options, "error_rate", 1.0),
        _number(options, "lost_reply_rate", 1.0),
        _number(options, "latency_ms", LATENCY_MS_MAX),
        _seed(options),
    )


def read_options(scheme: str, query: str, own: Sequence[str]) -> dict[str, str]:
    """The options in an address; ``own`` are those of its scheme alone. Raises Rejected."""
    known = (*own, *FAULT_OPTIONS)
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            # What is no name at all may be the rest of a password with an unescaped ? in it.
            named = _OPTION_NAME.fullmatch(name) and "@" not in value
            what = f"no option {name!r}" if named else "no such option"
            raise Rejected(
                f"{scheme}:// has {what}; it takes {', '.join(known)}", field=name if named else "address"
            )
        if name in options:
            raise Rejected(f"the address gives {name} twice; give it once", field=name)
        options[name] = value
    return options


def _number(options: dict[str, str], name: str, largest: float) -> float:
    return _between(options.get(name, "0"), name, (0.0, largest), "")


def _seconds(options: dict[str, str], name: str, bounds: tuple[float, float], default: float) -> float:
    return _between(options[name], name, bounds, " seconds") if name in options else default


def _between(text: str, name: str, bounds: tuple[float, float], unit: str) -> float:
    smallest, largest = bounds
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not smallest <= number <= largest:
        raise Rejected(f"{name} must be a number from {smallest:g} to {largest:g}{unit}", field=name)
    return number


def _seed(options: dict[str, str]) -> int | None:
    text = options.get("seed")
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise Rejected("seed must be a whole number, such as 7", field="seed") from None


def _choice(options: dict[str, str], name: str, default: str, other: str) -> str:
    text = options.get(name, default)
    if text not in (default, other):
        raise Rejected(f"{name} must be {default} or {other}", field=name)
    return text


def _check_bucket(bucket: str, cloud: _Cloud) -> None:
    if "@" in bucket or ":" in bucket:
        raise Rejected(
            f"an address in {cloud.name} holds no credentials, account or port: write {cloud.example}, give "
            f"credentials through the environment ({cloud.variable}, …, or a role) and a server of your own as "
            "?endpoint=http://host:port",
            field="address",
        )
    if not bucket:
        raise Rejected(f"an address in {cloud.name} names a {cloud.holder}: {cloud.example}", field="address")


def _check_prefix(prefix: str) -> None:
    """Raise Rejected for a prefix below which no client can name a key."""
    if not prefix:
        return
    if not {"", ".", ".."}.isdisjoint(prefix.split("/")):
        raise Rejected(
            "the prefix of the address has an empty part, '.' or '..': write its parts with one slash between them,"
            " as in s3://bucket/some/prefix",
            field="address",
        )
    try:
        prefix.encode()
    except UnicodeEncodeError:
        raise Rejected(
            "the prefix of the address is not valid Unicode: use characters that UTF-8 has", field="address"
        ) from None


def _check_endpoint(endpoint: str, cloud: _Cloud) -> None:
    if not endpoint.startswith(("http://", "https://")):
        raise Rejected("endpoint must start with http:// or https://", field="endpoint")
    if "@" in endpoint or "?" in endpoint:
        raise Rejected(
            f"endpoint must hold no credentials; give them through the environment ({cloud.variable}, …)",
            field="endpoint",
        )
