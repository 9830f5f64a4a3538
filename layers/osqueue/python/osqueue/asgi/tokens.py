"""Who may call the server: a file of tokens, each with its roles and queues.

.. code-block:: toml

    [[token]]
    name = "checkout"                 # who it is, for the log
    sha256 = "2c26b46b68ffc68f…"      # of the token: the file holds no secret
    roles = ["enqueue"]               # read, enqueue, work, operate
    queues = ["emails", "orders-*"]   # without it: all

``osqueue token`` makes one. The file is read again when it changes, so a token comes and goes without a restart.
"""

from __future__ import annotations

import logging
import os
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from .. import forks
from ..clock import MACHINE, Machine
from ..contract.error_codes import Forbidden, Unauthorized
from ..contract.roles import OPEN, Role, covers, may
from ..contract.route import Route, subject_text
from ..errors import Rejected

LOOK_SECONDS = 1.0  # between two looks at whether the file has changed
SCHEME = "bearer "
DIGEST_CHARS = 64

log = logging.getLogger("osqueue.serve")


class Token(Struct, frozen=True, forbid_unknown_fields=True):
    """One caller. The token itself is not kept."""

    name: str
    sha256: str
    roles: tuple[Role, ...]
    queues: tuple[str, ...] = ("*",)


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    token: tuple[Token, ...]


class Identity(Struct, frozen=True):
    """Who sent a request. ``token`` is None where nobody has to say."""

    token: Token | None = None
    read_only: bool = False  # nobody changes anything here

    @property
    def name(self) -> str | None:
        """For the log."""
        return None if self.token is None else self.token.name

    @property
    def manages_all(self) -> bool:
        """Whether the caller may do everything with every queue. Others need not know where the store is."""
        return self.token is None or (Role.OPERATE in self.token.roles and covers(self.token.queues, ""))

    def may(self, route: Route) -> bool:
        """Whether an operation is allowed at all, of the queues that the token covers."""
        if self.read_only and not may(Role.READ, route):
            return False
        return self.token is None or any(may(role, route) for role in self.token.roles)

    def permit(self, route: Route, subject: str) -> None:
        """Raises Forbidden for what the token's roles or queues do not cover, or what changes anything."""
        if self.read_only and not may(Role.READ, route):
            raise Forbidden(
                f"{route.name}: nothing can be changed here: this server was started with --read-only.",
                permanent=True,
            )
        token = self.token
        if token is None or route.name in OPEN:
            return
        if not any(may(role, route) for role in token.roles):
            has = ", ".join(role.value for role in token.roles)
            raise Forbidden(
                f"token {token.name} may not {route.name}: its roles are {has}. Give it another one in the file of"
                " tokens.",
                permanent=True,
            )
        if not covers(token.queues, subject):
            raise Forbidden(
                f"token {token.name} is not for {subject_text(route, subject)}: it is for"
                f" {', '.join(token.queues)}.",
                permanent=True,
            )


def digest_of(token: str) -> str:
    """What the file holds of a token."""
    return sha256(token.encode()).hexdigest()


class TokenFile:
    """The tokens of a file, as it is now. Raises Rejected where it cannot be read at first."""

    def __init__(self, path: str | Path, machine: Machine = MACHINE) -> None:
        self.path = Path(path)
        self._machine = machine
        self._lock = forks.lock()
        self._seen: tuple[int, int] | None = None
        self._look_at = 0.0
        self._tokens: dict[str, Token] = {}
        self._read()

    def caller(self, authorization: str) -> Identity:
        """Who sent this header. Raises Unauthorized."""
        if self._machine.monotonic() >= self._look_at:
            self._refresh()
        if not authorization.lower().startswith(SCHEME):
            raise Unauthorized("send a token: Authorization: Bearer TOKEN.", permanent=True)
        token = self._tokens.get(digest_of(authorization[len(SCHEME) :].strip()))
        if token is None:
            raise Unauthorized("this token is not known here.", permanent=True)
        return Identity(token)

    def _refresh(self) -> None:
        try:
            self._read()
        except Rejected as error:  # those that were known stay
            log.error("%s", error.message)

    def _read(self) -> None:
        with self._lock:
            self._look_at = self._machine.monotonic() + LOOK_SECONDS
            try:
                status = os.stat(self.path)
                seen = (status.st_mtime_ns, status.st_size)
                if seen == self._seen:
                    return
                self._seen = seen
                self._tokens = {each.sha256.lower(): each for each in tokens_in(self.path.read_bytes())}
            except OSError as error:
                raise Rejected(
                    f"tokens: cannot read {self.path}: {error.strerror}.", field="tokens"
                ) from None


def tokens_in(data: bytes) -> tuple[Token, ...]:
    """The tokens that a file holds. Raises Rejected."""
    try:
        found = msgspec.toml.decode(data, type=_File).token
    except msgspec.DecodeError as error:
        raise Rejected(
            f"tokens: the file is not of the form it should have: {error}. Each [[token]] has name, sha256 and roles,"
            " and queues if it is not for all.",
            field="tokens",
        ) from None
    for token in found:
        if len(token.sha256) != DIGEST_CHARS or not token.roles or not token.queues:
            raise Rejected(
                f"tokens: {token.name}: sha256 is the digest of the token, {DIGEST_CHARS} hexadecimal digits; roles and"
                " queues, where they are given, are not empty. 'osqueue token' writes it.",
                field="tokens",
            )
    return found
