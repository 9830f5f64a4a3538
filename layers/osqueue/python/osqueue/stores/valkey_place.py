"""Where a Valkey or Redis server is and what of it is ours, as its address says.

``valkey://user:password@host:6379/0/prefix?replicas=1``; ``redis://`` is the same, ``valkeys://`` and ``rediss://`` go
over TLS, where ``ca=/path/to/bundle.pem`` names authorities besides those of the system. As in every address of
such servers, a number that comes first in the path is the database. User and password are %-decoded, since they may
hold any character.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from msgspec import Struct

from ..errors import Rejected
from .certificates import authorities_in

PORT = 6379
DATABASE_MAX = 65_535
REPLICAS_MAX = 16
PREFIX = "osqueue"  # where the address names none: other applications may keep keys in the same database
PASSWORD_VARIABLES = ("VALKEYCLI_AUTH", "REDISCLI_AUTH")  # as valkey-cli and redis-cli read them
TLS = frozenset({"valkeys", "rediss"})

_AUTHORITY = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_EXAMPLE = "valkey://host:6379/0/prefix"


class ValkeyPlace(Struct, frozen=True):
    """A server, and the part of one of its databases that a store has for itself."""

    host: str
    port: int = PORT
    database: int = 0
    prefix: str = PREFIX
    user: str | None = None
    password: str | None = None  # None: the environment may have it
    tls: bool = False
    replicas: int = 0  # that have a write before it is answered
    ca: str | None = None  # a file of certificates: authorities that are trusted besides the system's

    def get_credentials(self) -> tuple[str, ...]:
        """Return what a new connection sends: the password, or user and password. The client calls it by this name.

        The environment is read for each connection, since it may have a newer password.
        """
        password = self.password or next(filter(None, map(os.environ.get, PASSWORD_VARIABLES)), "")
        if self.user is not None:
            return (self.user, password)
        return (password,) if password else ()

    def __repr__(self) -> str:
        return f"ValkeyPlace({self.host}:{self.port}/{self.database}/{self.prefix})"


def place_in(scheme: str, rest: str, options: dict[str, str]) -> ValkeyPlace:
    """What stands behind ``://``, without the options. Raises Rejected, which repeats nothing of it."""
    authority, _, path = rest.partition("/")
    credentials, _, server = authority.rpartition("@")
    found = _AUTHORITY.fullmatch(server)
    if found is None:
        raise Rejected(
            f"a {scheme}:// address names one server, like {_EXAMPLE}; signs such as @ : / ? in a user or a password "
            "are %-encoded",
            field="address",
        )
    port = int(found["port"] or PORT)
    if not 1 <= port <= 65_535:
        raise Rejected("the port of the address must be from 1 to 65535", field="address")
    user, _, password = credentials.partition(":")
    database, prefix = _database_and_prefix(path.strip("/"))
    return ValkeyPlace(
        found["host"].strip("[]"),
        port,
        database,
        prefix,
        unquote(user) or None,
        unquote(password) or None,
        scheme in TLS,
        _replicas(options),
        authorities_in(options, tls=scheme in TLS),
    )


def _database_and_prefix(path: str) -> tuple[int, str]:
    first, _, others = path.partition("/")
    database = 0
    if re.fullmatch(r"[0-9]+", first):
        database, path = int(first), others.strip("/")
        if database > DATABASE_MAX:
            raise Rejected(
                "a number that comes first in the path is the database, and there is none of that number. Write "
                f"{_EXAMPLE}",
                field="address",
            )
    if ":" in path:
        raise Rejected("the prefix of the address may hold no colon: write a slash", field="address")
    return database, path or PREFIX


def _replicas(options: dict[str, str]) -> int:
    text = options.get("replicas", "0")
    if not re.fullmatch(r"[0-9]{1,2}", text) or int(text) > REPLICAS_MAX:
        raise Rejected(f"replicas must be a whole number from 0 to {REPLICAS_MAX}", field="replicas")
    return int(text)
